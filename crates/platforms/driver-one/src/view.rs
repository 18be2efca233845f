//! Observation of the cloud, limited to one federation at one site. Independent of the API clients.

use std::collections::BTreeMap;

use trellis_one::keys::{FL_ERROR, JOIN_REFUSED, TRELLIS_ASSIGNMENT, TRELLIS_PART};
use trellis_plan::ResourceId;

use crate::render::labels;

#[derive(Debug, Clone, Default, PartialEq)]
pub struct View {
    /// VMs with the labels of this federation and site, except those that are done.
    pub vms: Vec<VmView>,
    /// Templates with the labels of this federation and site.
    pub templates: Vec<TemplateView>,
    /// All objects that the user can access.
    pub images: Vec<ImageView>,
    pub networks: Vec<Named>,
    pub datastores: Vec<Named>,
    /// Service templates and services with the names of this federation and site.
    pub service_templates: Vec<ServiceTemplateView>,
    /// Sorted by id. More than one exists if a service accepted no more requests and a second one was created.
    pub services: Vec<ServiceView>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct VmView {
    pub id: u32,
    pub life: Life,
    /// For messages: `ACTIVE/BOOT_FAILURE`.
    pub state: String,
    /// Error of the VM, or why the scheduler cannot place it, as reported by oned.
    pub error: Option<String>,
    /// Attributes of the user template.
    pub attributes: BTreeMap<String, String>,
    pub addresses: Vec<String>,
    pub secrets: ContextSecrets,
}

/// Secrets of this driver in a VM's context: the only copy if the driver's directory was lost.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct ContextSecrets {
    pub admin_token: Option<String>,
    pub tunnel_key: Option<String>,
}

impl std::fmt::Debug for ContextSecrets {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ContextSecrets(hidden)")
    }
}

/// Meaning of a VM's state for its part.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Life {
    Starting,
    Running,
    /// The host does not respond.
    Unknown,
    /// Off; the VM does not resume by itself.
    Off,
    Failed,
    Stopping,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Named {
    pub id: u32,
    pub name: String,
}

#[derive(Debug, Clone, PartialEq)]
pub struct TemplateView {
    pub id: u32,
    pub attributes: BTreeMap<String, String>,
    pub secrets: ContextSecrets,
}

#[derive(Debug, Clone, PartialEq)]
pub struct ImageView {
    pub id: u32,
    pub name: String,
    pub state: ImageState,
    pub attributes: BTreeMap<String, String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ImageState {
    Usable,
    Waiting,
    Failed,
}

#[derive(Debug, Clone, PartialEq)]
pub struct ServiceTemplateView {
    pub id: u32,
    pub description: String,
}

#[derive(Debug, Clone, PartialEq)]
pub struct ServiceView {
    pub id: u32,
    pub state: ServiceState,
    /// Name of the state in OneFlow.
    pub state_name: String,
    pub roles: Vec<RoleView>,
    /// Last error in the service's log.
    pub error: Option<String>,
}

/// Requests that a service accepts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ServiceState {
    /// In transition; accepts no requests.
    Changing,
    Running,
    /// The service has scaled and accepts no requests except `recover`, which ends the cooldown.
    Cooldown,
    /// A VM was faulty. The service accepts neither requests nor `recover`, and may stay in WARNING after the VM is
    /// gone.
    Warning,
    /// The service failed, and accepts `recover`.
    Failed,
    /// The service is being deleted.
    Deleting,
    /// The deletion failed; the service must be removed.
    DeleteFailed,
}

#[derive(Debug, Clone, PartialEq)]
pub struct RoleView {
    pub name: String,
    pub cardinality: u32,
    /// VMs that OneFlow counts.
    pub vms: Vec<u32>,
}

impl View {
    pub fn vm(&self, id: u32) -> Option<&VmView> {
        self.vms.iter().find(|vm| vm.id == id)
    }

    /// VMs with the mark of a part.
    pub fn marked<'a>(&'a self, id: &ResourceId) -> impl Iterator<Item = &'a VmView> {
        let mark = id.to_string();
        self.vms.iter().filter(move |vm| vm.mark() == Some(mark.as_str()))
    }

    /// The service that gets new VMs: the first running one, else the newest that is not being deleted.
    pub fn active(&self) -> Option<&ServiceView> {
        let leaves =
            |service: &&ServiceView| matches!(service.state, ServiceState::Deleting | ServiceState::DeleteFailed);
        let runs = self.services.iter().find(|service| service.state == ServiceState::Running);
        runs.or_else(|| self.services.iter().rfind(|service| !leaves(service))).or_else(|| self.services.last())
    }

    /// Error of the active service, if it has failed.
    pub fn failure(&self) -> Option<String> {
        let service = self.active().filter(|service| service.state == ServiceState::Failed)?;
        let (id, state_name, error) = (service.id, &service.state_name, service.error.as_ref()?);
        Some(format!("service {id} is {state_name}: {error}"))
    }

    /// The VM template of a role, if it exists.
    pub fn template(&self, role: &str) -> Option<&TemplateView> {
        self.templates.iter().find(|template| template.attributes.get(labels::ROLE).is_some_and(|name| name == role))
    }

    pub fn is_empty(&self) -> bool {
        self.vms.is_empty()
            && self.templates.is_empty()
            && self.service_templates.is_empty()
            && self.services.is_empty()
    }
}

impl VmView {
    pub fn attribute(&self, name: &str) -> Option<&str> {
        self.attributes.get(name).map(String::as_str).filter(|value| !value.is_empty())
    }

    pub fn says(&self, name: &str, value: &str) -> bool {
        self.attribute(name) == Some(value)
    }

    /// The part of the VM.
    pub fn mark(&self) -> Option<&str> {
        self.attribute(TRELLIS_PART)
    }

    pub fn role(&self) -> Option<&str> {
        self.attribute(labels::ROLE)
    }

    pub fn assignment(&self) -> Option<trellis_one::keys::Assignment> {
        trellis_one::keys::Assignment::from_attribute(self.attribute(TRELLIS_ASSIGNMENT)?).ok()
    }

    /// The mark of the join token that the SuperLink refused, as the agent reports it.
    pub fn rejected_token(&self) -> Option<String> {
        let (code, rest) = self.attribute(FL_ERROR)?.split_once(": ")?;
        (code == JOIN_REFUSED).then(|| rest.split_once(' ').map_or(rest, |(mark, _)| mark).to_owned())
    }

    pub fn is_leaving(&self) -> bool {
        self.life == Life::Stopping
    }
}

impl ServiceView {
    pub fn role(&self, name: &str) -> Option<&RoleView> {
        self.roles.iter().find(|role| role.name == name)
    }
}

/// Meaning of a VM's state numbers.
pub fn life(state: u32, lcm: u32) -> Life {
    match (state, lcm) {
        (0..=2 | 10, _) => Life::Starting,
        (4 | 5 | 8 | 9, _) => Life::Off,
        (6, _) => Life::Stopping,
        (11, _) => Life::Failed,
        (3, 0..=2 | 9 | 15 | 19..=22 | 31 | 32 | 35) => Life::Starting,
        (3, 16 | 60) => Life::Unknown,
        (3, 36 | 37 | 38 | 39 | 40 | 41 | 42 | 44 | 46 | 47 | 48 | 49 | 50 | 61) => Life::Failed,
        (3, 5 | 6 | 10 | 18 | 29 | 30) => Life::Off,
        (3, 11 | 12 | 23) => Life::Stopping,
        // Migration, resize or snapshot: the programs continue.
        (3, _) => Life::Running,
        _ => Life::Unknown,
    }
}

/// Meaning of a service's state number.
pub fn service_state(state: u32) -> ServiceState {
    match state {
        2 => ServiceState::Running,
        10 => ServiceState::Cooldown,
        4 => ServiceState::Warning,
        7 | 9 | 13 => ServiceState::Failed,
        3 | 5 | 12 => ServiceState::Deleting,
        6 | 14 => ServiceState::DeleteFailed,
        _ => ServiceState::Changing,
    }
}

/// Meaning of an image's state number.
pub fn image_state(state: u32) -> ImageState {
    match state {
        1 | 2 | 8 => ImageState::Usable,
        3 | 5 | 7 => ImageState::Failed,
        _ => ImageState::Waiting,
    }
}

/// Id of the object with this name or number.
pub fn named(all: &[Named], wanted: &str) -> Option<u32> {
    let number = wanted.parse::<u32>().ok();
    all.iter().find(|one| one.name == wanted || Some(one.id) == number).map(|one| one.id)
}

/// Error message for a name that does not exist.
pub fn unknown(what: &str, wanted: &str, all: &[Named]) -> String {
    let names: Vec<&str> = all.iter().map(|one| one.name.as_str()).collect();
    let have = if names.is_empty() { "there is none".to_owned() } else { format!("there are {}", names.join(", ")) };
    format!("there is no {what} {wanted} that this user may use: {have}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_states_of_a_vm_mean_something_to_its_part() {
        let cases = [
            ((1, 0), Life::Starting),
            ((2, 0), Life::Starting),
            ((3, 1), Life::Starting),
            ((3, 2), Life::Starting),
            ((3, 3), Life::Running),
            ((3, 4), Life::Running),
            ((3, 69), Life::Running),
            ((3, 16), Life::Unknown),
            ((3, 36), Life::Failed),
            ((3, 39), Life::Failed),
            ((3, 12), Life::Stopping),
            ((3, 11), Life::Stopping),
            ((3, 18), Life::Off),
            ((4, 0), Life::Off),
            ((8, 0), Life::Off),
            ((9, 0), Life::Off),
            ((6, 0), Life::Stopping),
            ((11, 0), Life::Failed),
            ((7, 0), Life::Unknown),
            ((99, 99), Life::Unknown),
        ];
        for ((state, lcm), expected) in cases {
            assert_eq!(life(state, lcm), expected, "{state}/{lcm}");
        }
    }

    #[test]
    fn a_service_that_may_not_be_scaled_is_not_running() {
        let runs: Vec<u32> = (0..=15).filter(|state| service_state(*state) == ServiceState::Running).collect();
        assert_eq!(runs, [2]);
        for failed in [7, 9, 13] {
            assert_eq!(service_state(failed), ServiceState::Failed);
        }
        assert_eq!(service_state(10), ServiceState::Cooldown);
        for turning in [0, 1, 8, 11, 15] {
            assert_eq!(service_state(turning), ServiceState::Changing);
        }
    }
}
