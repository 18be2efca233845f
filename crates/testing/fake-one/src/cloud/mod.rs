//! State of the cloud: users, images, templates, networks, VMs, documents and services, and their changes over time. Pure:
//! the caller passes the time, and executes the `orders` for the hypervisor.

mod context;
mod document;
pub mod expression;
mod image;
mod making;
mod network;
mod owner;
mod policy;
mod refused;
mod render;
mod role;
pub mod schedule;
mod schema;
mod service;
mod service_actions;
mod service_steps;
mod service_update;
mod states;
mod vm;
mod vm_actions;

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use crate::faults::{Faults, Server};
use crate::template::Template;

pub use document::Document;
pub use image::{DATASTORES, Image, ImageState};
pub use network::{AddressRange, Holder, Network};
pub use owner::{Owned, Right, User};
pub use refused::{ACTION, ALLOCATE, AUTHENTICATION, AUTHORIZATION, INTERNAL, NO_EXISTS, RPC_API, Refused};
pub use render::{document_element, state_fits, vm_short_element};
pub use role::{Node, Role, RoleState};
pub use schema::SchemaError;
pub use service::{FlowError, Service, ServiceState, merge_bodies};
pub use states::{LcmState, VmState, state_name};
pub use vm::Vm;

pub type Id = i64;

/// The oldest changes are removed first.
const UPDATES_KEPT: usize = 200_000;

/// Durations in milliseconds.
#[derive(Debug, Clone)]
pub struct Pace {
    pub schedule_ms: u64,
    pub prolog_ms: u64,
    pub boot_ms: u64,
    pub shutdown_ms: u64,
    pub image_ms: u64,
    /// A second of OneFlow's cooldowns and policy periods.
    pub second_ms: u64,
    /// Interval of policy evaluations.
    pub autoscaler_ms: u64,
}

impl Default for Pace {
    fn default() -> Pace {
        Pace {
            schedule_ms: 20,
            prolog_ms: 20,
            boot_ms: 30,
            shutdown_ms: 20,
            image_ms: 30,
            second_ms: 1000,
            autoscaler_ms: 1000,
        }
    }
}

/// Orders for the hypervisor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Order {
    Start(Id),
    Stop { vm: Id, hard: bool },
    Reboot(Id),
}

/// A recorded change.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Update {
    pub number: u64,
    pub at_ms: u64,
    pub vm: Id,
    /// An attribute of the user template, or `VM_STATE`.
    pub name: String,
    pub old: Option<String>,
    pub new: Option<String>,
    /// `oned`, `onegate`, `pretend` or `cloud`.
    pub by: &'static str,
}

#[derive(Debug, Clone)]
pub struct VmTemplate {
    pub owned: Owned,
    pub registered: u64,
    pub template: Template,
}

#[derive(Debug)]
pub struct Cloud {
    pub now_ms: u64,
    pub pace: Pace,
    pub version: String,
    pub gate_endpoint: String,
    pub faults: Faults,
    pub users: BTreeMap<Id, User>,
    pub images: BTreeMap<Id, Image>,
    pub templates: BTreeMap<Id, VmTemplate>,
    pub networks: BTreeMap<Id, Network>,
    pub vms: BTreeMap<Id, Vm>,
    pub documents: BTreeMap<Id, Document>,
    pub services: BTreeMap<Id, Service>,
    pub updates: Vec<Update>,
    /// Number of requests by server and request: the method of oned, or `GET /service`.
    pub requests: BTreeMap<(Server, String), u64>,
    /// Rights that ordinary users have used: `USE IMAGE`, `CREATE VM`.
    pub rights_used: RefCell<BTreeSet<String>>,
    pub orders: Vec<Order>,
    next_update: u64,
    next: BTreeMap<&'static str, Id>,
    seed: u64,
    autoscaled_ms: u64,
}

impl Cloud {
    pub fn new(now_ms: u64, seed: u64, pace: Pace, gate_endpoint: String) -> Cloud {
        let mut cloud = Cloud {
            now_ms,
            pace,
            version: "7.5.80".to_owned(),
            gate_endpoint,
            faults: Faults::default(),
            users: BTreeMap::new(),
            images: BTreeMap::new(),
            templates: BTreeMap::new(),
            networks: BTreeMap::new(),
            vms: BTreeMap::new(),
            documents: BTreeMap::new(),
            services: BTreeMap::new(),
            updates: Vec::new(),
            requests: BTreeMap::new(),
            rights_used: RefCell::default(),
            orders: Vec::new(),
            next_update: 0,
            next: BTreeMap::new(),
            seed,
            autoscaled_ms: now_ms,
        };
        cloud.add_user("oneadmin", "onepass", 0);
        cloud.add_user("serveradmin", "serverpass", 0);
        cloud
    }

    pub fn now_s(&self) -> u64 {
        self.now_ms / 1000
    }

    /// Advances the time, unless the cloud is frozen.
    pub fn advance(&mut self, now_ms: u64) {
        self.now_ms = self.now_ms.max(now_ms);
        if self.faults.frozen {
            return;
        }
        self.advance_images();
        self.advance_vms();
        self.advance_services();
        if self.now_ms.saturating_sub(self.autoscaled_ms) >= self.pace.autoscaler_ms {
            self.autoscaled_ms = self.now_ms;
            self.evaluate_policies();
        }
    }

    /// Ids of a kind of object are never reused.
    fn fresh(&mut self, kind: &'static str) -> Id {
        let next = self.next.entry(kind).or_insert(0);
        let id = *next;
        *next += 1;
        id
    }

    /// Deterministic for a seed.
    pub(crate) fn random(&mut self) -> u64 {
        self.seed = self.seed.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.seed;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    fn record(&mut self, vm: Id, name: &str, old: Option<String>, new: Option<String>, by: &'static str) {
        if old == new {
            return;
        }
        if self.updates.len() >= UPDATES_KEPT {
            self.updates.drain(..UPDATES_KEPT / 2);
        }
        let number = self.next_update;
        self.next_update += 1;
        self.updates.push(Update { number, at_ms: self.now_ms, vm, name: name.to_owned(), old, new, by });
    }

    pub fn add_template(&mut self, uid: Id, text: Template) -> Result<Id, Refused> {
        self.check_create(uid, "TEMPLATE")?;
        let mut template = text;
        let Some(name) = single(template.erase("NAME")) else {
            return Err(Refused::allocate("virtual machine template", "No NAME in template."));
        };
        let taken = self.templates.values().find(|other| other.owned.name == name && other.owned.uid == uid);
        if let Some(other) = taken {
            let text = format!("NAME is already taken by TEMPLATE {}.", other.owned.id);
            return Err(Refused::allocate("virtual machine template", &text));
        }
        let id = self.fresh("template");
        let owned = self.owned(id, uid, &name);
        let registered = self.now_s();
        self.templates.insert(id, VmTemplate { owned, registered, template });
        Ok(id)
    }

    pub fn vm(&self, id: Id) -> Result<&Vm, Refused> {
        self.vms.get(&id).ok_or_else(|| Refused::missing("virtual machine", id))
    }

    pub fn template(&self, id: Id) -> Result<&VmTemplate, Refused> {
        self.templates.get(&id).ok_or_else(|| Refused::missing("virtual machine template", id))
    }

    /// Sets attributes. An empty `new` with `replace` erases all attributes. A merge cannot fail.
    pub fn update_user_template(
        &mut self,
        id: Id,
        new: Template,
        replace: bool,
        by: &'static str,
    ) -> Result<(), Refused> {
        let vm = self.vms.get_mut(&id).ok_or_else(|| Refused::missing("virtual machine", id))?;
        let before = vm.user_template.clone();
        if replace {
            vm.user_template = new;
        } else {
            vm.user_template.merge(new);
        }
        let after = vm.user_template.clone();
        let mut names: Vec<&String> = before.0.keys().chain(after.0.keys()).collect();
        names.sort();
        names.dedup();
        for name in names {
            let said = |template: &Template| template.get(name).map(str::to_owned);
            self.record(id, name, said(&before), said(&after), by);
        }
        Ok(())
    }
}

pub(crate) fn single(attributes: Option<Vec<crate::template::Attribute>>) -> Option<String> {
    attributes?.into_iter().find_map(|attribute| match attribute {
        crate::template::Attribute::Single(text) => Some(text),
        crate::template::Attribute::Vector(_) => None,
    })
}
