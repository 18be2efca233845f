//! Selects the next steps from the records and an observation. Pure. Each step is idempotent, and the next observation shows
//! its result, so a lost response does no harm.
//!
//! The driver terminates VMs one by one, because OneFlow would remove the oldest VM of a role. OneFlow adjusts its
//! cardinality.

mod placement;
mod records;
mod service;
mod structure;
mod teardown;

use std::collections::BTreeMap;

use trellis_one::flow::{RoleTemplate, ServiceTemplate};
use trellis_one::{Template, VmAction};
use trellis_plan::{Millis, PoolRules, ResourceId, RetryBudget};
use trellis_spec::{Name, OneSite};

use crate::history::{History, Limits};
use crate::record::Record;
use crate::secrets::Secrets;
use crate::view::{ServiceState, ServiceView, View};

pub use placement::lacks_token;
pub use records::{Document, update_records};

/// Inputs of the decision.
#[derive(Clone, Copy)]
pub struct Situation<'a> {
    pub federation: &'a Name,
    pub site: &'a Name,
    pub one: &'a OneSite,
    pub records: &'a BTreeMap<ResourceId, Record>,
    pub view: &'a View,
    pub history: &'a History,
    pub limits: &'a Limits,
    pub recovery: &'a RetryBudget,
    pub secrets: &'a Secrets,
    /// Base64 of the PEM of the authorities that nodes trust, if it is known.
    pub trust: Option<&'a str>,
    /// Pools that OneFlow scales.
    pub elastic: &'a BTreeMap<Name, PoolRules>,
    /// Desired state of the document at this site; `None` until a controller sends it.
    pub document: Option<&'a Document>,
    pub now_ms: Millis,
}

#[derive(Debug, Clone, PartialEq)]
#[allow(clippy::large_enum_variant)]
pub enum Step {
    CreateImage {
        template: Template,
        datastore: Option<u32>,
    },
    DeleteImage {
        image: u32,
    },
    CreateTemplate {
        template: Template,
    },
    UpdateTemplate {
        id: u32,
        template: Template,
    },
    DeleteTemplate {
        id: u32,
    },
    CreateServiceTemplate {
        plan: ServiceTemplate,
    },
    UpdateServiceTemplate {
        id: u32,
        plan: ServiceTemplate,
    },
    DeleteServiceTemplate {
        id: u32,
    },
    /// With the number of VMs of each role.
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
    /// Removes the service in any state, with its VMs.
    RemoveService {
        service: u32,
    },
    /// Attributes of a VM's user template.
    UpdateVm {
        vm: u32,
        attributes: BTreeMap<String, String>,
    },
    ActOnVm {
        vm: u32,
        action: VmAction,
    },
}

impl Step {
    /// Description for the log, without contents that may be secret.
    pub fn describe(&self) -> String {
        match self {
            Step::CreateImage { template, .. } => format!("create image {}", template.text("NAME").unwrap_or_default()),
            Step::DeleteImage { image } => format!("delete image {image}"),
            Step::CreateTemplate { template } => {
                format!("create VM template {}", template.text("NAME").unwrap_or_default())
            }
            Step::UpdateTemplate { id, .. } => format!("update VM template {id}"),
            Step::DeleteTemplate { id } => format!("delete VM template {id}"),
            Step::CreateServiceTemplate { plan } => format!("create service template {}", plan.name),
            Step::UpdateServiceTemplate { id, .. } => format!("update service template {id}"),
            Step::DeleteServiceTemplate { id } => format!("delete service template {id}"),
            Step::Instantiate { plan, .. } => format!("create service {}", plan.name),
            Step::AddRole { service, role } => format!("add role {} to service {service}", role.name),
            Step::Scale { service, role, cardinality } => {
                format!("scale role {role} of service {service} to {cardinality}")
            }
            Step::RecoverService { service } => format!("recover service {service}"),
            Step::DeleteService { service } => format!("delete service {service}"),
            Step::RemoveService { service } => format!("remove service {service}"),
            Step::UpdateVm { vm, attributes } => {
                let names: Vec<&str> = attributes.keys().map(String::as_str).collect();
                format!("update VM {vm}: {}", names.join(", "))
            }
            Step::ActOnVm { vm, action } => format!("{} VM {vm}", action.name()),
        }
    }
}

impl Step {
    /// Whether the step creates something that parts without a VM wait for.
    pub fn creates(&self) -> bool {
        matches!(
            self,
            Step::CreateImage { .. }
                | Step::CreateTemplate { .. }
                | Step::UpdateTemplate { .. }
                | Step::CreateServiceTemplate { .. }
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
    pub blockers: Vec<String>,
    /// Error after the last allowed retry. A restart or replace order resets the count.
    pub exhausted: Option<String>,
}

/// Selects the next steps. Without steps, the desired state is reached or the driver waits.
pub fn next(situation: &Situation<'_>) -> Next {
    let mut next = Next::default();
    if !situation.records.values().any(Record::is_wanted) {
        if !situation.records.is_empty() {
            teardown::all(situation, &mut next);
        }
        return next;
    }
    let placement = placement::Placement::new(situation);
    placement.update_vms(&mut next);
    if !situation.knows_all() {
        return next;
    }
    placement.terminate_surplus(&mut next);
    structure::build(situation, &placement, &mut next);
    teardown::state_disk(situation, &mut next);
    next
}

impl Situation<'_> {
    /// While a service is in transition, OneFlow treats the end of a VM as a failure.
    fn is_calm(&self) -> bool {
        !self.view.services.iter().any(|service| self.is_busy(service))
    }

    /// The service creates or removes VMs, and is not stuck.
    fn is_busy(&self, service: &ServiceView) -> bool {
        service.state == ServiceState::Changing
            && self.history.state_age_ms(service.id, self.now_ms) < self.limits.stuck_ms
    }

    /// VMs without a record must not change before the desired state of the document is known.
    fn knows_all(&self) -> bool {
        self.document.is_some() || self.records.values().all(|record| !record.is_wanted() || record.desired.is_some())
    }
}

#[cfg(test)]
mod tests;
