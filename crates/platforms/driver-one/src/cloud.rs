//! Client of a site's cloud: observes it, and executes steps. Steps are idempotent.

use std::collections::BTreeMap;
use std::sync::Arc;

use tokio::sync::Mutex;
use trellis_one::flow::{FlowVersion, Instantiation, OneFlow, Service, StoredTemplate};
use trellis_one::{
    Endpoint, Error, FlowRefusal, Image, Oned, Session, Template, Update, Vm, VmFilter, Zone, explain, explain_message,
    session_file,
};
use trellis_spec::{Name, OneSite};

use crate::next::Step;
use crate::render::{context, labels, service_name};
use crate::view::{
    ContextSecrets, ImageView, Named, RoleView, ServiceTemplateView, ServiceView, TemplateView, View, VmView,
    image_state, life, service_state,
};

const FLOW_PORT: u16 = 2474;
/// The default image datastore of OpenNebula.
const DEFAULT_DATASTORE: i32 = 1;

/// Why an observation or a step failed.
#[derive(Debug, Clone)]
pub struct CloudError {
    pub why: String,
    /// A retry may succeed.
    pub transient: bool,
}

impl From<Error> for CloudError {
    fn from(error: Error) -> CloudError {
        CloudError { why: explain(&error), transient: error.is_transient() }
    }
}

/// A site's cloud. The credentials are read from the site's file for each new connection.
pub struct Cloud {
    pub one: OneSite,
    clients: Mutex<Option<Arc<Clients>>>,
}

pub struct Clients {
    pub oned: Oned,
    pub flow: OneFlow,
}

impl Cloud {
    pub fn new(one: OneSite) -> Cloud {
        Cloud { one, clients: Mutex::default() }
    }

    /// Closes the connection, so that the next call reads the credentials and the version again.
    pub async fn forget(&self) {
        *self.clients.lock().await = None;
    }

    async fn clients(&self) -> Result<Arc<Clients>, CloudError> {
        let mut known = self.clients.lock().await;
        if let Some(clients) = known.as_ref() {
            return Ok(Arc::clone(clients));
        }
        let clients = Arc::new(connect(&self.one).await?);
        *known = Some(Arc::clone(&clients));
        Ok(clients)
    }

    /// Reads VMs and services, from which the status of parts follows.
    pub async fn observe_partial(&self, federation: &Name, site: &Name) -> Result<View, CloudError> {
        let clients = self.clients().await?;
        let (vms, services) = tokio::try_join!(clients.oned.vms_extended(VmFilter::NotDone), clients.flow.services())?;
        let vms = vms.iter().filter(|vm| is_own(&vm.user_template, federation, site)).map(vm_view).collect();
        let name = service_name(federation, site);
        let mut services: Vec<ServiceView> =
            services.iter().filter(|service| service.name == name).filter_map(service_view).collect();
        services.sort_by_key(|service| service.id);
        Ok(View { vms, services, ..View::default() })
    }

    /// Reads everything that steps depend on.
    pub async fn observe(&self, federation: &Name, site: &Name) -> Result<View, CloudError> {
        let clients = self.clients().await?;
        let oned = &clients.oned;
        let view = self.observe_partial(federation, site).await?;
        let (templates, images, networks, datastores, kept) = tokio::try_join!(
            oned.templates(),
            oned.images(),
            oned.networks(),
            oned.datastores(),
            clients.flow.templates()
        )?;
        let own = templates.iter().filter(|template| is_own(&template.template, federation, site));
        let name = service_name(federation, site);
        let kept = kept.iter().filter(|template| template.name == name);
        Ok(View {
            templates: own
                .map(|template| TemplateView {
                    id: id_of(template.id),
                    attributes: texts(&template.template),
                    secrets: context_secrets(&template.template),
                })
                .collect(),
            images: images.iter().map(image_view).collect(),
            networks: networks.into_iter().map(|one| Named { id: id_of(one.id), name: one.name }).collect(),
            datastores: datastores.into_iter().map(|one| Named { id: id_of(one.id), name: one.name }).collect(),
            service_templates: kept.map(service_template_view).collect(),
            ..view
        })
    }

    pub async fn execute(&self, step: &Step) -> Result<(), CloudError> {
        let clients = self.clients().await?;
        let done = execute(&clients, step).await;
        match done {
            // A missing object is already deleted.
            Err(error) if error.is_absent() && deletes(step) => Ok(()),
            Err(Error::Flow { kind: FlowRefusal::Already, .. }) => Ok(()),
            other => Ok(other?),
        }
    }
}

async fn execute(Clients { oned, flow }: &Clients, step: &Step) -> Result<(), Error> {
    match step {
        Step::CreateImage { template, datastore } => {
            oned.image_allocate(template, datastore.map_or(DEFAULT_DATASTORE, to_id)).await.map(drop)
        }
        Step::DeleteImage { image } => oned.image_delete(to_id(*image)).await,
        Step::CreateTemplate { template } => oned.template_allocate(template).await.map(drop),
        Step::UpdateTemplate { id, template } => oned.template_update(to_id(*id), template, Update::Replace).await,
        Step::DeleteTemplate { id } => oned.template_delete(to_id(*id)).await,
        Step::CreateServiceTemplate { plan } => flow.template_create(plan).await.map(drop),
        Step::UpdateServiceTemplate { id, plan } => flow.template_update(to_id(*id), plan).await.map(drop),
        Step::DeleteServiceTemplate { id } => flow.template_delete(to_id(*id)).await,
        Step::Instantiate { template, plan } => {
            let cardinalities = plan.roles.iter().map(|role| (role.name.clone(), role.cardinality)).collect();
            let instantiation = Instantiation { name: plan.name.clone(), cardinalities, ..Instantiation::default() };
            flow.instantiate(to_id(*template), &instantiation).await.map(drop)
        }
        Step::AddRole { service, role } => flow.add_role(to_id(*service), role).await,
        // Always with `force`: without it, OneFlow returns an error.
        Step::Scale { service, role, cardinality } => flow.scale(to_id(*service), role, *cardinality, true).await,
        Step::RecoverService { service } => flow.recover(to_id(*service)).await,
        Step::DeleteService { service } => flow.delete(to_id(*service)).await,
        Step::RemoveService { service } => flow.recover_delete(to_id(*service)).await,
        Step::UpdateVm { vm, attributes } => {
            let mut template = Template::new();
            attributes.iter().for_each(|(name, value)| template.push(name.as_str(), value.as_str()));
            oned.vm_update(to_id(*vm), &template, Update::Merge).await
        }
        Step::ActOnVm { vm, action } => oned.vm_action(to_id(*vm), *action).await,
    }
}

fn deletes(step: &Step) -> bool {
    matches!(
        step,
        Step::DeleteImage { .. }
            | Step::DeleteTemplate { .. }
            | Step::DeleteServiceTemplate { .. }
            | Step::DeleteService { .. }
            | Step::RemoveService { .. }
            | Step::ActOnVm { .. }
    )
}

pub async fn connect(one: &OneSite) -> Result<Clients, CloudError> {
    let permanent = |why: String| CloudError { why, transient: false };
    let variable = |name: &str| std::env::var(name).ok();
    let (one_auth, home) = (variable("ONE_AUTH"), variable("HOME"));
    let file = session_file(one.auth_file.as_deref(), one_auth.as_deref(), home.as_deref())
        .map_err(|error| permanent(error.to_string()))?;
    let session = tokio::task::spawn_blocking(move || Session::read(&file)).await;
    let session =
        session.map_err(|error| permanent(error.to_string()))?.map_err(|error| permanent(error.to_string()))?;
    let endpoint = Endpoint::parse(&one.endpoint).map_err(|error| permanent(format!("{}: {error}", one.endpoint)))?;
    let flow = match &one.flow {
        Some(flow) => Endpoint::parse(flow).map_err(|error| permanent(format!("{flow}: {error}")))?,
        None => Endpoint { port: FLOW_PORT, path: String::new(), ..endpoint.clone() },
    };
    let oned = Oned::new(endpoint, session.clone());
    let version = FlowVersion::of(&oned.version().await?).map_err(permanent)?;
    if let Some(zone) = &one.zone
        && let Some(problem) = zone_problem(&oned.zones().await?, zone, oned.endpoint())
    {
        return Err(permanent(problem));
    }
    let flow = OneFlow::new(flow, &session, version);
    Ok(Clients { oned, flow })
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
    Some(format!("{endpoint} is the endpoint of zone {here}, not of zone {wanted}: use {there} instead"))
}

fn is_own(template: &Template, federation: &Name, site: &Name) -> bool {
    template.text(labels::FEDERATION) == Some(federation.as_str()) && template.text(labels::SITE) == Some(site.as_str())
}

fn vm_view(vm: &Vm) -> VmView {
    let addresses = vm.nics.iter().filter_map(|nic| nic.ip.clone().or_else(|| nic.ip6_global.clone()));
    VmView {
        id: id_of(vm.id),
        life: life(vm.state.number(), vm.lcm_state.number()),
        state: vm.condition(),
        error: vm.attribute("ERROR").or_else(|| vm.attribute("SCHED_MESSAGE")).map(strip_date),
        attributes: texts(&vm.user_template),
        addresses: addresses.collect(),
        secrets: context_secrets(&vm.template),
    }
}

/// Removes the date that oned prepends to messages of a VM: `Sun Nov 15 07:25:28 2026: `.
fn strip_date(message: &str) -> String {
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

fn image_view(image: &Image) -> ImageView {
    ImageView {
        id: id_of(image.id),
        name: image.name.clone(),
        state: image_state(image.state.number()),
        attributes: texts(&image.template),
    }
}

fn service_template_view(template: &StoredTemplate) -> ServiceTemplateView {
    let description = template.body.get("description").and_then(|text| text.as_str()).unwrap_or_default();
    ServiceTemplateView { id: id_of(template.id), description: description.to_owned() }
}

/// `None` if the service is done.
fn service_view(service: &Service) -> Option<ServiceView> {
    if service.state == trellis_one::flow::ServiceState::Done {
        return None;
    }
    let roles = service.roles.iter().map(|role| RoleView {
        name: role.name.clone(),
        cardinality: role.cardinality,
        vms: role.nodes.iter().map(|node| id_of(node.vm_id)).collect(),
    });
    Some(ServiceView {
        id: id_of(service.id),
        state: service_state(service.state.number()),
        state_name: service.state.to_string(),
        roles: roles.collect(),
        error: service.last_error().map(explain_message),
    })
}

fn texts(template: &Template) -> BTreeMap<String, String> {
    let keys = template.0.iter().map(|(key, _)| key);
    keys.filter_map(|key| Some((key.clone(), template.text(key)?.to_owned()))).collect()
}

/// Object ids are never negative; a negative one maps to an id that is not in use.
fn id_of(id: i32) -> u32 {
    u32::try_from(id).unwrap_or(u32::MAX)
}

fn to_id(id: u32) -> i32 {
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
            assert_eq!(strip_date(message), expected);
        }
    }

    #[test]
    fn the_endpoint_must_belong_to_the_zone() {
        let zone = |id, name: &str, endpoint: &str| Zone { id, name: name.to_owned(), endpoint: endpoint.to_owned() };
        let zones = [zone(0, "main", "http://a.example:2633/RPC2"), zone(1, "edge", "http://b.example:2633/RPC2")];
        let at = |url: &str| Endpoint::parse(url).expect("an endpoint");
        let problem = |wanted, url| zone_problem(&zones, wanted, &at(url));
        assert_eq!(problem("edge", "http://b.example:2633/RPC2"), None);
        assert_eq!(problem("1", "http://b.example:2633/RPC2"), None);
        assert_eq!(problem("edge", "https://proxy.example/RPC2"), None, "an unknown endpoint is accepted");
        let wrong = problem("edge", "http://a.example:2633/RPC2").expect("a problem");
        assert!(wrong.contains("zone main") && wrong.contains("http://b.example:2633/RPC2"), "{wrong}");
        let missing = problem("nowhere", "http://a.example:2633/RPC2").expect("a problem");
        assert!(missing.contains("main, edge"), "{missing}");
    }
}
