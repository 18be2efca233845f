//! Direct access of tests to the cloud.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use serde::Deserialize;
use serde_json::{Value, json};

use crate::cloud::{Cloud, FlowError, Id, LcmState, Refused, ServiceState, Update, VmState};
use crate::faults::Faults;
use crate::hypervisor::Machine;
use crate::shared::Shared;
use crate::template::Template;
use crate::token;

#[derive(Clone)]
pub struct Handle {
    shared: Arc<Shared>,
}

/// A role for tests without an OneFlow client.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PlainRole {
    pub name: String,
    pub cardinality: i64,
    #[serde(default)]
    pub parents: Vec<String>,
    /// In addition to TOKEN, NETWORK and REPORT_READY, which are YES.
    #[serde(default)]
    pub context: Vec<(String, String)>,
}

impl Handle {
    pub(crate) fn new(shared: Arc<Shared>) -> Handle {
        Handle { shared }
    }

    /// Reads or changes the cloud.
    pub fn with<R>(&self, act: impl FnOnce(&mut Cloud) -> R) -> R {
        self.shared.with(act)
    }

    pub fn faults<R>(&self, change: impl FnOnce(&mut Faults) -> R) -> R {
        self.shared.faults(change)
    }

    /// Waits until `look` returns a value; `None` after the timeout.
    pub async fn wait<R>(&self, limit: Duration, look: impl FnMut(&Cloud) -> Option<R>) -> Option<R> {
        self.shared.wait(limit, look).await
    }

    /// All changes from this number on.
    pub fn updates(&self, since: u64) -> Vec<Update> {
        self.with(|cloud| cloud.updates.iter().filter(|update| update.number >= since).cloned().collect())
    }

    pub fn token(&self, vm: Id) -> Option<String> {
        self.with(|cloud| token::of(cloud, vm))
    }

    pub fn attribute(&self, vm: Id, name: &str) -> Option<String> {
        self.with(|cloud| cloud.vms.get(&vm)?.user_template.get(name).map(str::to_owned))
    }

    /// Context files of a VM, for a test that starts the guest itself.
    pub fn write_context(&self, vm: Id, directory: &Path) -> std::io::Result<()> {
        let machine = self.with(|cloud| Machine::of(cloud, vm));
        machine.ok_or_else(|| std::io::Error::other(format!("there is no VM {vm}")))?.write(directory)
    }

    /// Owned by oneadmin, in the first network.
    pub fn create_vm(&self, name: &str, context: &[(&str, &str)], attributes: &[(&str, &str)]) -> Result<Id, Refused> {
        self.with(|cloud| {
            let mut template = machine_template(cloud, context);
            for (name, value) in attributes {
                template.set(name, value);
            }
            cloud.create_vm(0, name, false, template, None)
        })
    }

    /// Owned by oneadmin, with the straight strategy.
    pub fn create_service(&self, name: &str, gated: bool, roles: &[PlainRole]) -> Result<Id, FlowError> {
        self.with(|cloud| {
            let mut bodies: Vec<Value> = Vec::new();
            for role in roles {
                let context: Vec<(&str, &str)> = role.context.iter().map(|(k, v)| (k.as_str(), v.as_str())).collect();
                let mut template = machine_template(cloud, &context);
                template.set("NAME", format!("{name}-{}-{}", role.name, cloud.templates.len()));
                let id = cloud
                    .add_template(0, template)
                    .map_err(|refused| FlowError::of(&refused, "one.template.allocate"))?;
                bodies.push(json!({
                    "name": role.name, "type": "vm", "template_id": id, "vm_template": id,
                    "cardinality": role.cardinality, "parents": role.parents,
                }));
            }
            let body = json!({"name": name, "deployment": "straight", "ready_status_gate": gated, "roles": bodies});
            let template = cloud.add_service_template(0, body)?;
            cloud.instantiate_service(0, template, None)
        })
    }

    /// VMs of a role, the oldest first.
    pub fn role_vms(&self, service: Id, role: &str) -> Vec<Id> {
        self.with(|cloud| {
            let service = cloud.services.get(&service)?;
            Some(service.roles[service.role_at(role)?].vms())
        })
        .unwrap_or_default()
    }

    /// Sets the state that the hypervisor reports: `Active`, or `Unknown` if the host does not respond.
    pub fn set_vm_state(&self, vm: Id, state: VmState, lcm: LcmState) {
        self.with(|cloud| cloud.turn(vm, state, lcm));
    }

    /// Sets a failure state that lasts until a recovery.
    pub fn stick(&self, service: Id, state: ServiceState) {
        self.with(|cloud| {
            let now = cloud.now_s();
            if let Some(service) = cloud.services.get_mut(&service) {
                service.stuck = true;
                service.turn(now, state);
            }
        });
    }
}

fn machine_template(cloud: &Cloud, context: &[(&str, &str)]) -> Template {
    let mut template = Template::default();
    template.set("CPU", "1");
    template.set("MEMORY", "1024");
    if let Some(network) = cloud.networks.keys().next() {
        template.set_vector("NIC", [("NETWORK_ID".to_owned(), network.to_string())].into());
    }
    let mut all: std::collections::BTreeMap<String, String> =
        ["TOKEN", "NETWORK", "REPORT_READY"].map(|name| (name.to_owned(), "YES".to_owned())).into();
    all.extend(context.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())));
    template.set_vector("CONTEXT", all);
    template
}
