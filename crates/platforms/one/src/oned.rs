//! Client of oned's XML-RPC API. Each call is one request.

use bytes::Bytes;
use hyper::Method;

use crate::error::{Code, Error, Refusal};
use crate::http::Caller;
use crate::object::{self, XmlObject};
use crate::template::Template;
use crate::xmlrpc::{self, Value};
use crate::{
    Datastore, Document, Endpoint, Host, HttpLimits, Image, Session, Trust, User, VirtualNetwork, Vm, VmTemplate, Zone,
};

/// Page size of VM listings. The XML of one VM has about 6 KB.
const VMS_PER_PAGE: i32 = 500;
/// Maximum number of pages. No front-end has that many VMs.
const MAX_PAGES: i32 = 2000;

/// Filter for listings: all objects that the user may see.
const ALL_VISIBLE: i32 = -2;
const FROM_FIRST: i32 = -1;
const TO_LAST: i32 = -1;

/// Whether an update replaces all attributes or merges into them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Update {
    Replace,
    Merge,
}

impl Update {
    fn number(self) -> i32 {
        match self {
            Update::Replace => 0,
            Update::Merge => 1,
        }
    }
}

/// Actions on VMs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum VmAction {
    Terminate,
    TerminateHard,
    Poweroff,
    PoweroffHard,
    Undeploy,
    UndeployHard,
    Reboot,
    RebootHard,
    Hold,
    Release,
    Stop,
    Suspend,
    Resume,
    Resched,
}

impl VmAction {
    pub fn name(self) -> &'static str {
        match self {
            VmAction::Terminate => "terminate",
            VmAction::TerminateHard => "terminate-hard",
            VmAction::Poweroff => "poweroff",
            VmAction::PoweroffHard => "poweroff-hard",
            VmAction::Undeploy => "undeploy",
            VmAction::UndeployHard => "undeploy-hard",
            VmAction::Reboot => "reboot",
            VmAction::RebootHard => "reboot-hard",
            VmAction::Hold => "hold",
            VmAction::Release => "release",
            VmAction::Stop => "stop",
            VmAction::Suspend => "suspend",
            VmAction::Resume => "resume",
            VmAction::Resched => "resched",
        }
    }
}

/// Filter for VM listings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum VmFilter {
    Any,
    NotDone,
    In(crate::VmState),
}

impl VmFilter {
    fn number(self) -> i32 {
        match self {
            VmFilter::Any => -2,
            VmFilter::NotDone => -1,
            VmFilter::In(state) => i32::try_from(state.number()).unwrap_or(-1),
        }
    }
}

/// Client for one user.
#[derive(Debug)]
pub struct Oned {
    caller: Caller,
    session: Session,
}

impl Oned {
    pub fn new(endpoint: Endpoint, session: Session) -> Oned {
        let trust = Trust::system_for(&endpoint);
        Oned::with(endpoint, session, trust, HttpLimits::for_front_end())
    }

    pub fn with(endpoint: Endpoint, session: Session, trust: Trust, limits: HttpLimits) -> Oned {
        Oned { caller: Caller::new(endpoint, trust, limits), session }
    }

    pub fn endpoint(&self) -> &Endpoint {
        self.caller.endpoint()
    }

    /// `7.4.0`
    pub async fn version(&self) -> Result<String, Error> {
        self.text("one.system.version", vec![]).await
    }

    /// Reads the user of the session.
    pub async fn whoami(&self) -> Result<User, Error> {
        self.object("one.user.info", vec![(-1).into(), false.into()]).await
    }

    /// Creates a login token for a user, valid for this many seconds (-1: no limit).
    pub async fn login(&self, user: &str, valid_s: i32) -> Result<String, Error> {
        self.text("one.user.login", vec![user.into(), "".into(), valid_s.into(), (-1).into()]).await
    }

    pub async fn template_allocate(&self, template: &Template) -> Result<i32, Error> {
        self.number("one.template.allocate", vec![wire(template)?]).await
    }

    pub async fn template_info(&self, id: i32) -> Result<VmTemplate, Error> {
        self.object("one.template.info", vec![id.into(), false.into(), false.into()]).await
    }

    pub async fn template_update(&self, id: i32, template: &Template, update: Update) -> Result<(), Error> {
        self.done("one.template.update", vec![id.into(), wire(template)?, update.number().into()]).await
    }

    /// Its images stay.
    pub async fn template_delete(&self, id: i32) -> Result<(), Error> {
        self.done("one.template.delete", vec![id.into(), false.into()]).await
    }

    /// Creates a VM; `extra` is merged into the template.
    pub async fn template_instantiate(&self, id: i32, name: &str, hold: bool, extra: &Template) -> Result<i32, Error> {
        let parameters = vec![id.into(), name.into(), hold.into(), wire(extra)?, false.into()];
        self.number("one.template.instantiate", parameters).await
    }

    pub async fn templates(&self) -> Result<Vec<VmTemplate>, Error> {
        self.pool("one.templatepool.info", everything()).await
    }

    pub async fn vm_info(&self, id: i32) -> Result<Vm, Error> {
        self.object("one.vm.info", vec![id.into(), false.into()]).await
    }

    pub async fn vm_action(&self, id: i32, action: VmAction) -> Result<(), Error> {
        self.done("one.vm.action", vec![action.name().into(), id.into()]).await
    }

    /// Changes the USER_TEMPLATE.
    pub async fn vm_update(&self, id: i32, attributes: &Template, update: Update) -> Result<(), Error> {
        self.done("one.vm.update", vec![id.into(), wire(attributes)?, update.number().into()]).await
    }

    /// Changes the configuration of the VM, like its CONTEXT.
    pub async fn vm_update_conf(&self, id: i32, template: &Template, update: Update) -> Result<(), Error> {
        self.done("one.vm.updateconf", vec![id.into(), wire(template)?, update.number().into()]).await
    }

    pub async fn vm_rename(&self, id: i32, name: &str) -> Result<(), Error> {
        self.done("one.vm.rename", vec![id.into(), name.into()]).await
    }

    /// Lists all VMs with fewer fields.
    pub async fn vms(&self, filter: VmFilter) -> Result<Vec<Vm>, Error> {
        self.paged("one.vmpool.info", filter).await
    }

    /// Lists all VMs with all fields.
    pub async fn vms_extended(&self, filter: VmFilter) -> Result<Vec<Vm>, Error> {
        self.paged("one.vmpool.infoextended", filter).await
    }

    /// Lists these VMs with all fields. Missing VMs are omitted.
    pub async fn vm_set(&self, ids: &[i32]) -> Result<Vec<Vm>, Error> {
        if ids.is_empty() {
            return Ok(Vec::new());
        }
        let ids: Vec<String> = ids.iter().map(ToString::to_string).collect();
        self.pool("one.vmpool.infoset", vec![ids.join(",").into(), true.into()]).await
    }

    pub async fn image_allocate(&self, template: &Template, datastore: i32) -> Result<i32, Error> {
        self.number("one.image.allocate", vec![wire(template)?, datastore.into(), false.into()]).await
    }

    pub async fn image_info(&self, id: i32) -> Result<Image, Error> {
        self.object("one.image.info", vec![id.into(), false.into()]).await
    }

    pub async fn image_update(&self, id: i32, template: &Template, update: Update) -> Result<(), Error> {
        self.done("one.image.update", vec![id.into(), wire(template)?, update.number().into()]).await
    }

    pub async fn image_persistent(&self, id: i32, persistent: bool) -> Result<(), Error> {
        self.done("one.image.persistent", vec![id.into(), persistent.into()]).await
    }

    pub async fn image_delete(&self, id: i32) -> Result<(), Error> {
        self.done("one.image.delete", vec![id.into(), false.into()]).await
    }

    pub async fn images(&self) -> Result<Vec<Image>, Error> {
        self.pool("one.imagepool.info", everything()).await
    }

    pub async fn datastores(&self) -> Result<Vec<Datastore>, Error> {
        self.pool("one.datastorepool.info", vec![]).await
    }

    pub async fn network_info(&self, id: i32) -> Result<VirtualNetwork, Error> {
        self.object("one.vn.info", vec![id.into(), false.into()]).await
    }

    pub async fn networks(&self) -> Result<Vec<VirtualNetwork>, Error> {
        self.pool("one.vnpool.info", everything()).await
    }

    pub async fn document_info(&self, id: i32) -> Result<Document, Error> {
        self.object("one.document.info", vec![id.into(), false.into()]).await
    }

    pub async fn documents(&self, kind: i32) -> Result<Vec<Document>, Error> {
        let mut parameters = everything();
        parameters.push(kind.into());
        self.pool("one.documentpool.info", parameters).await
    }

    pub async fn zones(&self) -> Result<Vec<Zone>, Error> {
        self.pool("one.zonepool.info", vec![]).await
    }

    pub async fn hosts(&self) -> Result<Vec<Host>, Error> {
        self.pool("one.hostpool.info", vec![]).await
    }

    /// Reads page by page: a response with thousands of VMs would hold oned's lock for long, and need much memory.
    async fn paged(&self, method: &str, filter: VmFilter) -> Result<Vec<Vm>, Error> {
        let mut vms: Vec<Vm> = Vec::new();
        for page in 0..MAX_PAGES {
            let (start, size) = (page * VMS_PER_PAGE, -VMS_PER_PAGE);
            let parameters = vec![ALL_VISIBLE.into(), start.into(), size.into(), filter.number().into()];
            let listed: Vec<Vm> = self.pool(method, parameters).await?;
            let last = listed.len() < VMS_PER_PAGE as usize;
            vms.extend(listed);
            if last {
                // A VM that is created between two pages shifts the others, which then occur twice.
                vms.sort_by_key(|vm| vm.id);
                vms.dedup_by_key(|vm| vm.id);
                return Ok(vms);
            }
        }
        Err(Error::InvalidResponse(format!("there are more than {} VMs", MAX_PAGES * VMS_PER_PAGE)))
    }

    async fn object<T: XmlObject>(&self, method: &str, parameters: Vec<Value>) -> Result<T, Error> {
        object::parse(&self.text(method, parameters).await?).map_err(Error::InvalidResponse)
    }

    async fn pool<T: XmlObject>(&self, method: &str, parameters: Vec<Value>) -> Result<Vec<T>, Error> {
        object::parse_pool(&self.text(method, parameters).await?).map_err(Error::InvalidResponse)
    }

    async fn text(&self, method: &str, parameters: Vec<Value>) -> Result<String, Error> {
        match self.call(method, parameters).await? {
            Value::Text(text) => Ok(text),
            other => Err(Error::InvalidResponse(format!("{method} returned {other:?} instead of text"))),
        }
    }

    async fn number(&self, method: &str, parameters: Vec<Value>) -> Result<i32, Error> {
        let value = self.call(method, parameters).await?;
        let number = value.as_number().and_then(|number| i32::try_from(number).ok());
        number.ok_or_else(|| Error::InvalidResponse(format!("{method} returned {value:?} instead of a number")))
    }

    async fn done(&self, method: &str, parameters: Vec<Value>) -> Result<(), Error> {
        self.call(method, parameters).await.map(drop)
    }

    /// Calls any method; the session is the first parameter.
    pub async fn call(&self, method: &str, parameters: Vec<Value>) -> Result<Value, Error> {
        let mut all = vec![Value::Text(self.session.reveal())];
        all.extend(parameters);
        let body = Bytes::from(xmlrpc::encode_call(method, &all));
        let answer = self.caller.call(Method::POST, "", "text/xml", body).await.map_err(Error::Unreachable)?;
        if answer.status != 200 {
            let (endpoint, status, text) = (self.endpoint().to_string(), answer.status, answer.text());
            return Err(Error::Http { endpoint, status, text });
        }
        let text = std::str::from_utf8(&answer.body);
        interpret(text.map_err(|error| Error::InvalidResponse(format!("it is not UTF-8: {error}")))?)
    }
}

/// Interprets a response: `[true, value, ...]` or `[false, message, code, object, ...]`.
pub fn interpret(answer: &str) -> Result<Value, Error> {
    let value = xmlrpc::decode_response(answer).map_err(Error::InvalidResponse)?.map_err(Error::Fault)?;
    let Value::Array(mut parts) = value else {
        return Err(Error::InvalidResponse("it is not an array".to_owned()));
    };
    match parts.as_slice() {
        [Value::Bool(true), _, ..] => Ok(parts.swap_remove(1)),
        [Value::Bool(false), Value::Text(message), rest @ ..] => {
            let number = |at: usize| rest.get(at).and_then(Value::as_number);
            Err(Error::Refused(Refusal {
                code: Code::from_number(number(0).unwrap_or_default()),
                message: message.clone(),
                object: number(1).filter(|&object| object >= 0),
            }))
        }
        _ => Err(Error::InvalidResponse("the array contains neither success nor failure".to_owned())),
    }
}

fn everything() -> Vec<Value> {
    vec![ALL_VISIBLE.into(), FROM_FIRST.into(), TO_LAST.into()]
}

fn wire(template: &Template) -> Result<Value, Error> {
    template.to_wire().map(Value::Text).map_err(Error::InvalidRequest)
}
