//! The cloud as it was seen: only what matters to one federation at one site. Where it comes from is not known here.

use std::collections::BTreeMap;

use trellis_one::keys::{FL_ERROR, JOIN_REFUSED, TRELLIS_ASSIGNMENT, TRELLIS_PART};
use trellis_plan::ResourceId;

use crate::render::labels;

#[derive(Debug, Clone, Default, PartialEq)]
pub struct View {
    /// Of this federation at this site, by their labels; without those that are done.
    pub vms: Vec<VmSeen>,
    /// Of this federation at this site, by their labels.
    pub templates: Vec<TemplateSeen>,
    /// All that the user sees.
    pub images: Vec<ImageSeen>,
    pub networks: Vec<Named>,
    pub datastores: Vec<Named>,
    /// Of this federation at this site, by their names.
    pub service_templates: Vec<ServiceTemplateSeen>,
    /// Sorted by id. More than one exists if a service accepted no more requests and a second one was created.
    pub services: Vec<ServiceSeen>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct VmSeen {
    pub id: u32,
    pub life: Life,
    /// `ACTIVE/BOOT_FAILURE`: for those who read.
    pub state: String,
    /// Error of the VM, or why the scheduler cannot place it, in the words of oned.
    pub error: Option<String>,
    /// Of its user template.
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

/// What a VM's state means to its part.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Life {
    Starts,
    Runs,
    /// Nobody knows: its host does not answer.
    Unknown,
    /// Off, and will not come back by itself.
    Off,
    Failed,
    Stops,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Named {
    pub id: u32,
    pub name: String,
}

#[derive(Debug, Clone, PartialEq)]
pub struct TemplateSeen {
    pub id: u32,
    pub attributes: BTreeMap<String, String>,
    pub secrets: ContextSecrets,
}

#[derive(Debug, Clone, PartialEq)]
pub struct ImageSeen {
    pub id: u32,
    pub name: String,
    pub state: ImageState,
    pub attributes: BTreeMap<String, String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ImageState {
    Usable,
    Waits,
    Failed,
}

#[derive(Debug, Clone, PartialEq)]
pub struct ServiceTemplateSeen {
    pub id: u32,
    pub description: String,
}

#[derive(Debug, Clone, PartialEq)]
pub struct ServiceSeen {
    pub id: u32,
    pub state: ServiceState,
    /// As OneFlow calls it.
    pub word: String,
    pub roles: Vec<RoleSeen>,
    /// The last error of its log.
    pub error: Option<String>,
}

/// What may be asked of a service.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ServiceState {
    /// It does something, and takes no orders meanwhile.
    Turns,
    Runs,
    /// The service has scaled and accepts no requests except `recover`, which ends the cooldown.
    Cooldown,
    /// A VM was faulty. The service accepts neither requests nor `recover`, and may stay in WARNING after the VM is
    /// gone.
    Warns,
    /// It gave up, and must be told to go on.
    Failed,
    /// It goes.
    Leaves,
    /// It could not go, and must be taken away.
    Stays,
}

#[derive(Debug, Clone, PartialEq)]
pub struct RoleSeen {
    pub name: String,
    pub cardinality: u32,
    /// VMs that OneFlow counts.
    pub vms: Vec<u32>,
}

impl View {
    pub fn vm(&self, id: u32) -> Option<&VmSeen> {
        self.vms.iter().find(|vm| vm.id == id)
    }

    /// VMs that carry a part's mark.
    pub fn marked<'a>(&'a self, id: &ResourceId) -> impl Iterator<Item = &'a VmSeen> {
        let mark = id.to_string();
        self.vms.iter().filter(move |vm| vm.mark() == Some(mark.as_str()))
    }

    /// The service that gets new VMs: the first running one, else the newest that is not being deleted.
    pub fn active(&self) -> Option<&ServiceSeen> {
        let leaves = |service: &&ServiceSeen| matches!(service.state, ServiceState::Leaves | ServiceState::Stays);
        let runs = self.services.iter().find(|service| service.state == ServiceState::Runs);
        runs.or_else(|| self.services.iter().rfind(|service| !leaves(service))).or_else(|| self.services.last())
    }

    /// Error of the active service, if it has failed.
    pub fn failure(&self) -> Option<String> {
        let service = self.active().filter(|service| service.state == ServiceState::Failed)?;
        let (id, word, error) = (service.id, &service.word, service.error.as_ref()?);
        Some(format!("service {id} is {word}: {error}"))
    }

    /// The VM template of a role, if it was made.
    pub fn template(&self, role: &str) -> Option<&TemplateSeen> {
        self.templates.iter().find(|template| template.attributes.get(labels::ROLE).is_some_and(|name| name == role))
    }

    pub fn is_empty(&self) -> bool {
        self.vms.is_empty()
            && self.templates.is_empty()
            && self.service_templates.is_empty()
            && self.services.is_empty()
    }
}

impl VmSeen {
    pub fn attribute(&self, name: &str) -> Option<&str> {
        self.attributes.get(name).map(String::as_str).filter(|value| !value.is_empty())
    }

    pub fn says(&self, name: &str, value: &str) -> bool {
        self.attribute(name) == Some(value)
    }

    /// Which part it is.
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
    pub fn refused_token(&self) -> Option<String> {
        let (code, rest) = self.attribute(FL_ERROR)?.split_once(": ")?;
        (code == JOIN_REFUSED).then(|| rest.split_once(' ').map_or(rest, |(mark, _)| mark).to_owned())
    }

    pub fn is_leaving(&self) -> bool {
        self.life == Life::Stops
    }
}

impl ServiceSeen {
    pub fn role(&self, name: &str) -> Option<&RoleSeen> {
        self.roles.iter().find(|role| role.name == name)
    }
}

/// What the numbers of a VM's states mean.
pub fn life(state: u32, lcm: u32) -> Life {
    match (state, lcm) {
        (0..=2 | 10, _) => Life::Starts,
        (4 | 5 | 8 | 9, _) => Life::Off,
        (6, _) => Life::Stops,
        (11, _) => Life::Failed,
        (3, 0..=2 | 9 | 15 | 19..=22 | 31 | 32 | 35) => Life::Starts,
        (3, 16 | 60) => Life::Unknown,
        (3, 36 | 37 | 38 | 39 | 40 | 41 | 42 | 44 | 46 | 47 | 48 | 49 | 50 | 61) => Life::Failed,
        (3, 5 | 6 | 10 | 18 | 29 | 30) => Life::Off,
        (3, 11 | 12 | 23) => Life::Stops,
        // Moved, copied, resized, saved: its programs go on, or will.
        (3, _) => Life::Runs,
        _ => Life::Unknown,
    }
}

/// What the number of a service's state means.
pub fn service_state(state: u32) -> ServiceState {
    match state {
        2 => ServiceState::Runs,
        10 => ServiceState::Cooldown,
        4 => ServiceState::Warns,
        7 | 9 | 13 => ServiceState::Failed,
        3 | 5 | 12 => ServiceState::Leaves,
        6 | 14 => ServiceState::Stays,
        _ => ServiceState::Turns,
    }
}

/// What the number of an image's state means.
pub fn image_state(state: u32) -> ImageState {
    match state {
        1 | 2 | 8 => ImageState::Usable,
        3 | 5 | 7 => ImageState::Failed,
        _ => ImageState::Waits,
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
    let have =
        if names.is_empty() { "there is none at all".to_owned() } else { format!("there are {}", names.join(", ")) };
    format!("there is no {what} {wanted} that this user may use: {have}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_states_of_a_vm_mean_something_to_its_part() {
        let cases = [
            ((1, 0), Life::Starts),
            ((2, 0), Life::Starts),
            ((3, 1), Life::Starts),
            ((3, 2), Life::Starts),
            ((3, 3), Life::Runs),
            ((3, 4), Life::Runs),
            ((3, 69), Life::Runs),
            ((3, 16), Life::Unknown),
            ((3, 36), Life::Failed),
            ((3, 39), Life::Failed),
            ((3, 12), Life::Stops),
            ((3, 11), Life::Stops),
            ((3, 18), Life::Off),
            ((4, 0), Life::Off),
            ((8, 0), Life::Off),
            ((9, 0), Life::Off),
            ((6, 0), Life::Stops),
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
        let runs: Vec<u32> = (0..=15).filter(|state| service_state(*state) == ServiceState::Runs).collect();
        assert_eq!(runs, [2]);
        for failed in [7, 9, 13] {
            assert_eq!(service_state(failed), ServiceState::Failed);
        }
        assert_eq!(service_state(10), ServiceState::Cooldown);
        for turning in [0, 1, 8, 11, 15] {
            assert_eq!(service_state(turning), ServiceState::Turns);
        }
    }
}
