//! What is to be done next so that the cloud becomes what the records say. Pure: each step may be repeated, and each is found
//! done by the next look, so that an answer that was lost costs nothing.
//!
//! Which VM goes is never left to OneFlow, which would take the oldest: VMs are terminated one by one, and OneFlow notices.

mod crew;
mod ground;
mod service;
mod structure;
mod teardown;

use std::collections::BTreeMap;

use trellis_one::flow::{RoleTemplate, ServiceTemplate};
use trellis_one::{Template, VmAction};
use trellis_plan::{Millis, PoolRules, ResourceId};
use trellis_spec::{Name, OneSite};

use crate::memory::{Limits, Memory};
use crate::record::Record;
use crate::secrets::Secrets;
use crate::view::{ServiceSeen, ServiceState, View};

pub use crew::lacks_token;
pub use ground::{Heard, settle};

/// Everything that the next steps follow from.
#[derive(Clone, Copy)]
pub struct Ground<'a> {
    pub federation: &'a Name,
    pub site: &'a Name,
    pub one: &'a OneSite,
    pub records: &'a BTreeMap<ResourceId, Record>,
    pub view: &'a View,
    pub memory: &'a Memory,
    pub limits: &'a Limits,
    pub secrets: &'a Secrets,
    /// Base64 of the PEM of the authorities that nodes trust, as far as is known.
    pub trust: Option<&'a str>,
    /// Pools whose size OneFlow decides.
    pub elastic: &'a BTreeMap<Name, PoolRules>,
    /// Desired state of the document at this site; `None` until a controller sends it.
    pub heard: Option<&'a Heard>,
    pub now_ms: Millis,
}

#[derive(Debug, Clone, PartialEq)]
#[allow(clippy::large_enum_variant)]
pub enum Step {
    MakeImage {
        template: Template,
        datastore: Option<u32>,
    },
    DeleteImage {
        image: u32,
    },
    MakeTemplate {
        template: Template,
    },
    UpdateTemplate {
        id: u32,
        template: Template,
    },
    DeleteTemplate {
        id: u32,
    },
    MakeServiceTemplate {
        plan: ServiceTemplate,
    },
    UpdateServiceTemplate {
        id: u32,
        plan: ServiceTemplate,
    },
    DeleteServiceTemplate {
        id: u32,
    },
    /// With so many VMs in each role.
    Instantiate {
        template: u32,
        plan: ServiceTemplate,
    },
    AddRole {
        service: u32,
        role: RoleTemplate,
    },
    Scale {
        service: u32,
        role: String,
        cardinality: u32,
    },
    RecoverService {
        service: u32,
    },
    DeleteService {
        service: u32,
    },
    /// Takes it away in whatever state it is, with its VMs.
    RemoveService {
        service: u32,
    },
    /// Template of a VM's user template.
    Tell {
        vm: u32,
        attributes: BTreeMap<String, String>,
    },
    Act {
        vm: u32,
        action: VmAction,
    },
}

impl Step {
    /// For the log: without what it carries, which may be secret.
    pub fn word(&self) -> String {
        match self {
            Step::MakeImage { template, .. } => format!("makes image {}", template.text("NAME").unwrap_or_default()),
            Step::DeleteImage { image } => format!("deletes image {image}"),
            Step::MakeTemplate { template } => {
                format!("makes VM template {}", template.text("NAME").unwrap_or_default())
            }
            Step::UpdateTemplate { id, .. } => format!("updates VM template {id}"),
            Step::DeleteTemplate { id } => format!("deletes VM template {id}"),
            Step::MakeServiceTemplate { plan } => format!("makes service template {}", plan.name),
            Step::UpdateServiceTemplate { id, .. } => format!("updates service template {id}"),
            Step::DeleteServiceTemplate { id } => format!("deletes service template {id}"),
            Step::Instantiate { plan, .. } => format!("makes service {}", plan.name),
            Step::AddRole { service, role } => format!("adds role {} to service {service}", role.name),
            Step::Scale { service, role, cardinality } => {
                format!("scales role {role} of service {service} to {cardinality}")
            }
            Step::RecoverService { service } => format!("recovers service {service}"),
            Step::DeleteService { service } => format!("deletes service {service}"),
            Step::RemoveService { service } => format!("removes service {service}"),
            Step::Tell { vm, attributes } => {
                let names: Vec<&str> = attributes.keys().map(String::as_str).collect();
                format!("tells VM {vm} its {}", names.join(", "))
            }
            Step::Act { vm, action } => format!("{} of VM {vm}", action.name()),
        }
    }
}

impl Step {
    /// Whether the step creates something that parts without a VM wait for.
    pub fn makes(&self) -> bool {
        matches!(
            self,
            Step::MakeImage { .. }
                | Step::MakeTemplate { .. }
                | Step::UpdateTemplate { .. }
                | Step::MakeServiceTemplate { .. }
                | Step::UpdateServiceTemplate { .. }
                | Step::Instantiate { .. }
                | Step::AddRole { .. }
                | Step::Scale { .. }
        )
    }
}

#[derive(Debug, Clone, Default, PartialEq)]
pub struct Next {
    pub steps: Vec<Step>,
    /// Errors that a retry does not resolve: the document or the site must change.
    pub troubles: Vec<String>,
    /// Error after the last allowed retry. A restart or replace order resets the count.
    pub gave_up: Option<String>,
}

/// What to do now. Nothing: all is as it should be, or is waited for.
pub fn next(ground: &Ground<'_>) -> Next {
    let mut next = Next::default();
    if !ground.records.values().any(Record::is_wanted) {
        if !ground.records.is_empty() {
            teardown::all(ground, &mut next);
        }
        return next;
    }
    let crew = crew::Crew::muster(ground);
    crew.tell(&mut next);
    if !ground.knows_all() {
        return next;
    }
    crew.dismiss(&mut next);
    structure::build(ground, &crew, &mut next);
    teardown::state_disk(ground, &mut next);
    next
}

impl Ground<'_> {
    /// OneFlow would take the end of a VM for a failure while it is about something.
    fn is_calm(&self) -> bool {
        !self.view.services.iter().any(|service| self.is_busy(service))
    }

    /// The service creates or removes VMs, and is not stuck.
    fn is_busy(&self, service: &ServiceSeen) -> bool {
        service.state == ServiceState::Turns && self.memory.lasts_ms(service.id, self.now_ms) < self.limits.stuck_ms
    }

    /// VMs without a record must not change before the desired state of the document is known.
    fn knows_all(&self) -> bool {
        self.heard.is_some() || self.records.values().all(|record| !record.is_wanted() || record.desired.is_some())
    }
}

#[cfg(test)]
mod tests;
