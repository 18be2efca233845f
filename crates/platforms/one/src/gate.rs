//! OneGate: what a VM may learn and say about itself and its service, from the inside. What the attributes mean is for the
//! callers.

mod snapshot;
mod update;

use std::collections::BTreeMap;
use std::fmt;

use bytes::Bytes;
use hyper::Method;
use hyper::header::{HeaderName, HeaderValue};

use crate::http::{Answer, Caller};
use crate::{Endpoint, Patience, TransportError, Trust};

pub use snapshot::{Nic, NodeSnapshot, RoleSnapshot, ServiceSnapshot, VmSnapshot, parse_service, parse_vm};
pub use update::{LONGEST_UPDATE_BYTES, render_update};

/// The secret that OpenNebula puts on a VM's context disk. Never shown, not even by `Debug`.
#[derive(Clone, PartialEq, Eq)]
pub struct GateToken(String);

/// Why a text is no token. The text itself is not told.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum GateTokenError {
    #[error("the token of OneGate is empty: the VM needs TOKEN=\"YES\" in its context")]
    Empty,
    #[error("the token of OneGate is more than one word of printable ASCII")]
    NotOneWord,
}

impl GateToken {
    /// Takes a token as it stands in `token.txt`: white space around it is not part of it.
    pub fn parse(text: &str) -> Result<GateToken, GateTokenError> {
        match text.trim() {
            "" => Err(GateTokenError::Empty),
            word if word.bytes().all(|byte| byte.is_ascii_graphic()) => Ok(GateToken(word.to_owned())),
            _ => Err(GateTokenError::NotOneWord),
        }
    }
}

impl fmt::Debug for GateToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("GateToken")
    }
}

/// What went wrong between the VM and OneGate.
#[derive(Debug, thiserror::Error)]
pub enum GateError {
    #[error("OneGate gives no answer")]
    Unreachable(#[source] TransportError),
    #[error("OneGate does not accept the token of this VM: was the VM created anew, or its owner changed?")]
    Unauthorised,
    #[error("OneGate refuses ({status}): {text}")]
    Refused { status: u16, text: String },
    #[error("the answer of OneGate cannot be understood: {0}")]
    NotUnderstood(String),
    #[error("these attributes cannot be sent: {}", .0.join("; "))]
    Unsendable(Vec<String>),
    #[error("OneGate took the update, but the VM does not have it: {}", .0.join(", "))]
    NotKept(Vec<String>),
}

impl GateError {
    /// Asking again later may help.
    pub fn may_pass(&self) -> bool {
        match self {
            GateError::Unreachable(_) | GateError::NotKept(_) => true,
            GateError::Refused { status, .. } => *status >= 500,
            GateError::Unauthorised | GateError::NotUnderstood(_) | GateError::Unsendable(_) => false,
        }
    }
}

/// Calls OneGate for one VM.
#[derive(Debug)]
pub struct OneGate {
    caller: Caller,
    vm_id: u32,
}

/// Not a form, though curl says so: OneGate would look for its own parameters in one, and stumble over percent signs.
const PLAIN: &str = "text/plain";

impl OneGate {
    pub fn new(endpoint: Endpoint, vm_id: u32, token: GateToken) -> OneGate {
        let trust = Trust::system_for(&endpoint);
        OneGate::with(endpoint, vm_id, token, trust, Patience::for_gate())
    }

    pub fn with(endpoint: Endpoint, vm_id: u32, token: GateToken, trust: Trust, patience: Patience) -> OneGate {
        let mut caller = Caller::new(endpoint, trust, patience);
        let token = HeaderValue::from_str(&token.0).expect("a token is printable ASCII");
        caller.prove(HeaderName::from_static("x-onegate-token"), token);
        caller.prove(HeaderName::from_static("x-onegate-vmid"), HeaderValue::from(vm_id));
        OneGate { caller, vm_id }
    }

    pub fn vm_id(&self) -> u32 {
        self.vm_id
    }

    pub fn endpoint(&self) -> &Endpoint {
        self.caller.endpoint()
    }

    /// What OneGate's clock showed when it last answered, as HTTP says dates.
    pub fn date(&self) -> Option<String> {
        self.caller.date()
    }

    /// This VM.
    pub async fn vm(&self) -> Result<VmSnapshot, GateError> {
        parse_vm(&self.get("/vm").await?)
    }

    /// A VM of the same service.
    pub async fn vm_of_service(&self, id: u32) -> Result<VmSnapshot, GateError> {
        parse_vm(&self.get(&format!("/vms/{id}")).await?)
    }

    /// The service this VM belongs to. Its nodes have ids and names, and no attributes.
    pub async fn service(&self) -> Result<ServiceSnapshot, GateError> {
        parse_service(&self.get("/service").await?)
    }

    /// The same, with states, attributes and addresses of all nodes. OneGate asks oned for each of them.
    pub async fn service_extended(&self) -> Result<ServiceSnapshot, GateError> {
        parse_service(&self.get("/service?extended=true").await?)
    }

    /// Sets attributes of this VM, all at once: others see all of them or none.
    pub async fn update(&self, attributes: &BTreeMap<String, String>) -> Result<(), GateError> {
        let body = render_update(attributes).map_err(GateError::Unsendable)?;
        if body.is_empty() {
            return Ok(());
        }
        self.put("/vm", body).await
    }

    /// Sets attributes, and looks whether they are there.
    pub async fn update_and_read_back(&self, attributes: &BTreeMap<String, String>) -> Result<VmSnapshot, GateError> {
        self.update(attributes).await?;
        let vm = self.vm().await?;
        let lost = attributes.iter().filter(|&(key, value)| vm.attribute(key).unwrap_or_default() != value);
        let lost: Vec<String> = lost.map(|(key, _)| key.clone()).collect();
        if lost.is_empty() { Ok(vm) } else { Err(GateError::NotKept(lost)) }
    }

    /// Takes an attribute away. One that is not there is no error: OneGate cannot say so (it answers 500), so it is looked
    /// for before.
    pub async fn erase(&self, key: &str) -> Result<(), GateError> {
        if !update::is_key(key) {
            return Err(GateError::Unsendable(vec![format!("{key:?} is not the name of an attribute")]));
        }
        if self.vm().await?.attribute(key).is_none() {
            return Ok(());
        }
        self.put("/vm?type=2", key.to_owned()).await
    }

    async fn get(&self, path: &str) -> Result<Bytes, GateError> {
        let answer = self.caller.call(Method::GET, path, PLAIN, Bytes::new()).await.map_err(GateError::Unreachable)?;
        judge(answer)
    }

    async fn put(&self, path: &str, body: String) -> Result<(), GateError> {
        let call = self.caller.call(Method::PUT, path, PLAIN, Bytes::from(body));
        judge(call.await.map_err(GateError::Unreachable)?)?;
        Ok(())
    }
}

fn judge(answer: Answer) -> Result<Bytes, GateError> {
    match answer.status {
        200..=299 => Ok(answer.body),
        401 => Err(GateError::Unauthorised),
        status => Err(GateError::Refused { status, text: answer.text() }),
    }
}
