//! The cloud itself: looks at it, and carries out steps. What is done already is done again without harm.

use std::collections::BTreeMap;
use std::sync::Arc;

use tokio::sync::Mutex;
use trellis_one::flow::{FlowVersion, Instantiation, KeptTemplate, OneFlow, Service};
use trellis_one::{
    Endpoint, Error, FlowRefusal, Image, Oned, Session, Template, Update, Vm, VmFilter, Zone, explain, explain_message,
    session_file,
};
use trellis_spec::{Name, OneSite};

use crate::next::Step;
use crate::render::{context, labels, service_name};
use crate::view::{
    ContextSecrets, ImageSeen, Named, RoleSeen, ServiceSeen, ServiceTemplateSeen, TemplateSeen, View, VmSeen,
    image_state, life, service_state,
};

const FLOW_PORT: u16 = 2474;
/// The datastore of images that every OpenNebula begins with.
const DEFAULT_DATASTORE: i32 = 1;

/// Why a look or a step came to nothing.
#[derive(Debug, Clone)]
pub struct Trouble {
    pub why: String,
    /// It may go by itself.
    pub passes: bool,
}

impl From<Error> for Trouble {
    fn from(error: Error) -> Trouble {
        Trouble { why: explain(&error), passes: error.may_pass() }
    }
}

/// A site's cloud. Who calls is read from the file of the site whenever the connection is made anew.
pub struct Cloud {
    pub one: OneSite,
    callers: Mutex<Option<Arc<Callers>>>,
}

pub struct Callers {
    pub oned: Oned,
    pub flow: OneFlow,
}

impl Cloud {
    pub fn new(one: OneSite) -> Cloud {
        Cloud { one, callers: Mutex::default() }
    }

    /// The next call reads again who calls, and asks again which version answers.
    pub async fn forget(&self) {
        *self.callers.lock().await = None;
    }

    async fn callers(&self) -> Result<Arc<Callers>, Trouble> {
        let mut known = self.callers.lock().await;
        if let Some(callers) = known.as_ref() {
            return Ok(Arc::clone(callers));
        }
        let callers = Arc::new(connect(&self.one).await?);
        *known = Some(Arc::clone(&callers));
        Ok(callers)
    }

    /// VMs and the service: what is told of parts follows from these.
    pub async fn glance(&self, federation: &Name, site: &Name) -> Result<View, Trouble> {
        let callers = self.callers().await?;
        let (vms, services) = tokio::try_join!(callers.oned.vms_extended(VmFilter::NotDone), callers.flow.services())?;
        let vms = vms.iter().filter(|vm| is_own(&vm.user_template, federation, site)).map(vm_seen).collect();
        let name = service_name(federation, site);
        let mut services: Vec<ServiceSeen> =
            services.iter().filter(|service| service.name == name).filter_map(service_seen).collect();
        services.sort_by_key(|service| service.id);
        Ok(View { vms, services, ..View::default() })
    }

    /// Everything that steps follow from.
    pub async fn look(&self, federation: &Name, site: &Name) -> Result<View, Trouble> {
        let callers = self.callers().await?;
        let oned = &callers.oned;
        let view = self.glance(federation, site).await?;
        let (templates, images, networks, datastores, kept) = tokio::try_join!(
            oned.templates(),
            oned.images(),
            oned.networks(),
            oned.datastores(),
            callers.flow.templates()
        )?;
        let own = templates.iter().filter(|template| is_own(&template.template, federation, site));
        let name = service_name(federation, site);
        let kept = kept.iter().filter(|template| template.name == name);
        Ok(View {
            templates: own
                .map(|template| TemplateSeen {
                    id: seen(template.id),
                    attributes: texts(&template.template),
                    secrets: context_secrets(&template.template),
                })
                .collect(),
            images: images.iter().map(image_seen).collect(),
            networks: networks.into_iter().map(|one| Named { id: seen(one.id), name: one.name }).collect(),
            datastores: datastores.into_iter().map(|one| Named { id: seen(one.id), name: one.name }).collect(),
            service_templates: kept.map(service_template_seen).collect(),
            ..view
        })
    }

    pub async fn carry_out(&self, step: &Step) -> Result<(), Trouble> {
        let callers = self.callers().await?;
        let done = carry_out(&callers, step).await;
        match done {
            // It went already, or was never there: what is to go is gone.
            Err(error) if error.is_absent() && is_ending(step) => Ok(()),
            Err(Error::Flow { kind: FlowRefusal::Already, .. }) => Ok(()),
            other => Ok(other?),
        }
    }
}

async fn carry_out(Callers { oned, flow }: &Callers, step: &Step) -> Result<(), Error> {
    match step {
        Step::MakeImage { template, datastore } => {
            oned.image_allocate(template, datastore.map_or(DEFAULT_DATASTORE, sent)).await.map(drop)
        }
        Step::DeleteImage { image } => oned.image_delete(sent(*image)).await,
        Step::MakeTemplate { template } => oned.template_allocate(template).await.map(drop),
        Step::UpdateTemplate { id, template } => oned.template_update(sent(*id), template, Update::Replace).await,
        Step::DeleteTemplate { id } => oned.template_delete(sent(*id)).await,
        Step::MakeServiceTemplate { plan } => flow.template_create(plan).await.map(drop),
        Step::UpdateServiceTemplate { id, plan } => flow.template_update(sent(*id), plan).await.map(drop),
        Step::DeleteServiceTemplate { id } => flow.template_delete(sent(*id)).await,
        Step::Instantiate { template, plan } => {
            let cardinalities = plan.roles.iter().map(|role| (role.name.clone(), role.cardinality)).collect();
            let instantiation = Instantiation { name: plan.name.clone(), cardinalities, ..Instantiation::default() };
            flow.instantiate(sent(*template), &instantiation).await.map(drop)
        }
        Step::AddRole { service, role } => flow.add_role(sent(*service), role).await,
        // Never without `force`: OneFlow answers with an error of its own then.
        Step::Scale { service, role, cardinality } => flow.scale(sent(*service), role, *cardinality, true).await,
        Step::RecoverService { service } => flow.recover(sent(*service)).await,
        Step::DeleteService { service } => flow.delete(sent(*service)).await,
        Step::RemoveService { service } => flow.recover_delete(sent(*service)).await,
        Step::Tell { vm, attributes } => {
            let mut template = Template::new();
            attributes.iter().for_each(|(name, value)| template.push(name.as_str(), value.as_str()));
            oned.vm_update(sent(*vm), &template, Update::Merge).await
        }
        Step::Act { vm, action } => oned.vm_action(sent(*vm), *action).await,
    }
}

fn is_ending(step: &Step) -> bool {
    matches!(
        step,
        Step::DeleteImage { .. }
            | Step::DeleteTemplate { .. }
            | Step::DeleteServiceTemplate { .. }
            | Step::DeleteService { .. }
            | Step::RemoveService { .. }
            | Step::Act { .. }
    )
}

pub async fn connect(one: &OneSite) -> Result<Callers, Trouble> {
    let lasting = |why: String| Trouble { why, passes: false };
    let variable = |name: &str| std::env::var(name).ok();
    let (one_auth, home) = (variable("ONE_AUTH"), variable("HOME"));
    let file = session_file(one.auth_file.as_deref(), one_auth.as_deref(), home.as_deref())
        .map_err(|error| lasting(error.to_string()))?;
    let session = tokio::task::spawn_blocking(move || Session::read(&file)).await;
    let session = session.map_err(|error| lasting(error.to_string()))?.map_err(|error| lasting(error.to_string()))?;
    let endpoint = Endpoint::parse(&one.endpoint).map_err(|error| lasting(format!("{}: {error}", one.endpoint)))?;
    let flow = match &one.flow {
        Some(flow) => Endpoint::parse(flow).map_err(|error| lasting(format!("{flow}: {error}")))?,
        None => Endpoint { port: FLOW_PORT, path: String::new(), ..endpoint.clone() },
    };
    let oned = Oned::new(endpoint, session.clone());
    let version = FlowVersion::of(&oned.version().await?).map_err(lasting)?;
    if let Some(zone) = &one.zone
        && let Some(problem) = zone_problem(&oned.zones().await?, zone, oned.endpoint())
    {
        return Err(lasting(problem));
    }
    let flow = OneFlow::new(flow, &session, version);
    Ok(Callers { oned, flow })
}

/// Reports an endpoint that belongs to another zone than the document names. Zones register the endpoint that their
/// own servers use, so an endpoint that matches no zone is accepted.
pub fn zone_problem(zones: &[Zone], wanted: &str, endpoint: &Endpoint) -> Option<String> {
    let number = wanted.parse::<i32>().ok();
    let Some(zone) = zones.iter().find(|zone| zone.name == wanted || Some(zone.id) == number) else {
        let names: Vec<&str> = zones.iter().map(|zone| zone.name.as_str()).collect();
        return Some(format!("there is no zone {wanted} at {endpoint}: there are {}", names.join(", ")));
    };
    let is_here = |zone: &Zone| {
        Endpoint::parse(&zone.endpoint).is_ok_and(|own| (&own.host, own.port) == (&endpoint.host, endpoint.port))
    };
    let other = zones.iter().find(|other| other.id != zone.id && is_here(other)).filter(|_| !is_here(zone))?;
    let (here, there) = (&other.name, &zone.endpoint);
    Some(format!("{endpoint} is the endpoint of zone {here}, not of zone {wanted}: give that one's, {there}"))
}

fn is_own(template: &Template, federation: &Name, site: &Name) -> bool {
    template.text(labels::FEDERATION) == Some(federation.as_str()) && template.text(labels::SITE) == Some(site.as_str())
}

fn vm_seen(vm: &Vm) -> VmSeen {
    let addresses = vm.nics.iter().filter_map(|nic| nic.ip.clone().or_else(|| nic.ip6_global.clone()));
    VmSeen {
        id: seen(vm.id),
        life: life(vm.state.number(), vm.lcm_state.number()),
        state: vm.condition(),
        error: vm.attribute("ERROR").or_else(|| vm.attribute("SCHED_MESSAGE")).map(undated),
        attributes: texts(&vm.user_template),
        addresses: addresses.collect(),
        secrets: context_secrets(&vm.template),
    }
}

/// Removes the date that oned prepends to messages of a VM: `Sun Nov 15 07:25:28 2026: `.
fn undated(message: &str) -> String {
    const DATE_CHARS: usize = 24;
    let dated = message.get(DATE_CHARS..).and_then(|rest| rest.strip_prefix(": "));
    let is_date = message.bytes().take(DATE_CHARS).filter(|byte| *byte == b':').count() == 2;
    dated.filter(|_| is_date).unwrap_or(message).to_owned()
}

fn context_secrets(template: &Template) -> ContextSecrets {
    let said = |name: &str| {
        let value = template.pair("CONTEXT", &format!("{}{name}", context::PREFIX));
        value.filter(|value| !value.is_empty()).map(str::to_owned)
    };
    ContextSecrets { admin_token: said(context::ADMIN_TOKEN), tunnel_key: said(context::TUNNEL_KEY) }
}

fn image_seen(image: &Image) -> ImageSeen {
    ImageSeen {
        id: seen(image.id),
        name: image.name.clone(),
        state: image_state(image.state.number()),
        attributes: texts(&image.template),
    }
}

fn service_template_seen(template: &KeptTemplate) -> ServiceTemplateSeen {
    let description = template.body.get("description").and_then(|text| text.as_str()).unwrap_or_default();
    ServiceTemplateSeen { id: seen(template.id), description: description.to_owned() }
}

/// `None`: it is over.
fn service_seen(service: &Service) -> Option<ServiceSeen> {
    if service.state == trellis_one::flow::ServiceState::Done {
        return None;
    }
    let roles = service.roles.iter().map(|role| RoleSeen {
        name: role.name.clone(),
        cardinality: role.cardinality,
        vms: role.nodes.iter().map(|node| seen(node.vm_id)).collect(),
    });
    Some(ServiceSeen {
        id: seen(service.id),
        state: service_state(service.state.number()),
        word: service.state.to_string(),
        roles: roles.collect(),
        error: service.last_error().map(explain_message),
    })
}

fn texts(template: &Template) -> BTreeMap<String, String> {
    let keys = template.0.iter().map(|(key, _)| key);
    keys.filter_map(|key| Some((key.clone(), template.text(key)?.to_owned()))).collect()
}

/// Numbers of objects are not negative; one that were would belong to nothing.
fn seen(id: i32) -> u32 {
    u32::try_from(id).unwrap_or(u32::MAX)
}

fn sent(id: u32) -> i32 {
    i32::try_from(id).unwrap_or(i32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_date_in_front_of_a_message_is_left_out() {
        for (message, expected) in [
            ("Sun Nov 15 07:25:28 2026: [HOST] Not enough MEMORY on hosts: 3", "[HOST] Not enough MEMORY on hosts: 3"),
            ("Sun Nov  5 07:25:28 2026: no", "no"),
            ("Error performing action a: b: c", "Error performing action a: b: c"),
            ("short", "short"),
        ] {
            assert_eq!(undated(message), expected);
        }
    }

    #[test]
    fn a_zone_is_checked_against_the_endpoint_as_far_as_that_can_be_known() {
        let zone = |id, name: &str, endpoint: &str| Zone { id, name: name.to_owned(), endpoint: endpoint.to_owned() };
        let zones = [zone(0, "main", "http://a.example:2633/RPC2"), zone(1, "edge", "http://b.example:2633/RPC2")];
        let at = |url: &str| Endpoint::parse(url).expect("an endpoint");
        let problem = |wanted, url| zone_problem(&zones, wanted, &at(url));
        assert_eq!(problem("edge", "http://b.example:2633/RPC2"), None);
        assert_eq!(problem("1", "http://b.example:2633/RPC2"), None);
        assert_eq!(problem("edge", "https://proxy.example/RPC2"), None, "nobody can tell");
        let wrong = problem("edge", "http://a.example:2633/RPC2").expect("it is the other's");
        assert!(wrong.contains("zone main") && wrong.contains("http://b.example:2633/RPC2"), "{wrong}");
        let missing = problem("nowhere", "http://a.example:2633/RPC2").expect("there is none");
        assert!(missing.contains("main, edge"), "{missing}");
    }
}
