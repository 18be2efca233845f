//! Progress of services over time: deployment by parents, scaling, cooldown, watchdog, deletion.

use serde_json::{Value, json};

use super::role::{Condition, Node, RoleState, ScaleWay};
use super::{Cloud, Id, Service, ServiceState, VmState};
use crate::template::{Template, text_of};

/// State of a set of VMs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fleet {
    Up,
    Coming,
    Failed,
}

impl Cloud {
    pub(super) fn advance_services(&mut self) {
        let ids: Vec<Id> = self.services.keys().copied().collect();
        for id in ids {
            if !self.services[&id].stuck {
                self.advance_service(id);
            }
        }
    }

    fn advance_service(&mut self, id: Id) {
        match self.services[&id].state {
            ServiceState::Pending => {
                let now = self.now_s();
                let service = self.services.get_mut(&id).expect("it is there");
                let held = service.body.get("on_hold") == Some(&Value::Bool(true));
                service.roles.iter_mut().for_each(|role| role.fill_defaults(held));
                service.turn(now, ServiceState::DeployingNets);
            }
            ServiceState::DeployingNets => self.deploy_networks(id),
            // A recovered service keeps its state until its VMs run.
            ServiceState::Deploying | ServiceState::FailedDeploying => self.deploying(id),
            ServiceState::Running | ServiceState::Warning => self.watch(id),
            ServiceState::Scaling | ServiceState::FailedScaling => self.scaling(id),
            ServiceState::Cooldown => self.cooling(id),
            ServiceState::Undeploying => self.undeploying(id),
            _ => {}
        }
    }

    fn deploy_networks(&mut self, id: Id) {
        let ready = roots(&self.services[&id]);
        let empty = self.services[&id].roles.is_empty();
        if ready.is_empty() && !empty {
            // Unknown or cyclic parents: OneFlow never continues.
            return;
        }
        let now = self.now_s();
        if let Err(why) = self.make_networks(id) {
            let service = self.services.get_mut(&id).expect("it is there");
            service.say(now, "E", &why);
            service.turn(now, ServiceState::FailedDeployingNets);
            return;
        }
        let service = self.services.get_mut(&id).expect("it is there");
        if empty {
            return service.run_watched(now);
        }
        let held = service.roles.iter().all(|role| role.on_hold());
        if self.deploy_roles(id, &ready).is_ok() {
            let service = self.services.get_mut(&id).expect("it is there");
            service.turn(now, if held { ServiceState::Hold } else { ServiceState::Deploying });
        }
    }

    /// `Err` if a VM could not be created; the service has then failed.
    pub(super) fn deploy_roles(&mut self, id: Id, roles: &[usize]) -> Result<(), String> {
        let now = self.now_s();
        for at in roles {
            let held = self.services[&id].roles[*at].on_hold();
            let made = self.deploy_nodes(id, *at);
            let service = self.services.get_mut(&id).expect("it is there");
            let role = &mut service.roles[*at];
            role.state = match (&made, held) {
                (Ok(()), true) => RoleState::Hold,
                (Ok(()), false) => RoleState::Deploying,
                (Err(_), _) => RoleState::FailedDeploying,
            };
            if let Err(why) = made {
                let text = format!("Error deploying role {}: {why}", role.name);
                service.turn(now, ServiceState::FailedDeploying);
                return Err(text);
            }
        }
        Ok(())
    }

    /// Creates the missing VMs, for which the service then waits. `Err` if oned refused one; the log has the reason.
    pub(super) fn deploy_nodes(&mut self, id: Id, at: usize) -> Result<(), String> {
        let now = self.now_s();
        let (uid, role) = (self.services[&id].owned.uid, self.services[&id].roles[at].clone());
        let missing = role.cardinality - role.vms().len() as i64;
        let mut awaited = role.awaited.clone().unwrap_or_default();
        for _ in 0..missing.max(0) {
            let number = self.services[&id].roles[at].last_vmname.unwrap_or(0);
            self.services.get_mut(&id).expect("it is there").roles[at].last_vmname = Some(number + 1);
            let name = format!("{}_{number}_(service_{id})", role.name);
            let template = role.template_id();
            let mut extra = self.template(template).map(|known| known.template.clone()).unwrap_or_default();
            extra.merge_deep(role.contents());
            extra.set("SERVICE_ID", id);
            extra.set("ROLE_NAME", &role.name);
            match self.instantiate(uid, template, &name, role.on_hold(), extra) {
                Ok(vm) => {
                    let (gid, owner) = (self.vms[&vm].owned.gid, self.user_name(uid));
                    let info = json!({
                        "ID": vm.to_string(), "UID": uid.to_string(), "GID": gid.to_string(),
                        "UNAME": owner, "GNAME": Cloud::group_name(gid), "NAME": name,
                    });
                    let role = &mut self.services.get_mut(&id).expect("it is there").roles[at];
                    role.nodes.get_or_insert_default().push(Node { vm, info });
                    awaited.push(vm);
                }
                Err(refused) => {
                    let said = format!("[one.template.instantiate] {}", refused.message);
                    let why = format!("Role {} : Instantiate failed for template {template}; {said}", role.name);
                    let service = self.services.get_mut(&id).expect("it is there");
                    service.say(now, "E", &why);
                    service.roles[at].awaited = None;
                    return Err(format!("Error instantiating VM Template {template} in Role {}: {said}", role.name));
                }
            }
        }
        self.services.get_mut(&id).expect("it is there").roles[at].awaited = Some(awaited);
        Ok(())
    }

    /// Creates the requested networks, and adds their ids and the inputs to the roles.
    fn make_networks(&mut self, id: Id) -> Result<(), String> {
        let service = self.services[&id].clone();
        let mut values = super::schema::network_values(&service.body);
        let mut known: Vec<(String, Value)> = Vec::new();
        for value in &mut values {
            let Some((name, how)) = value.as_object_mut().and_then(|object| object.iter_mut().next()) else { continue };
            let Some(how) = how.as_object_mut() else { continue };
            let number = |key: &str| how.get(key).map(text_of).and_then(|text| text.parse::<Id>().ok());
            if let Some(id) = number("id") {
                known.push((name.clone(), json!(id)));
            } else if let Some(from) = number("reserve_from") {
                let extra = how.get("extra").map(text_of).unwrap_or_default();
                let template = Template::parse(&extra)?;
                let size = template.get("SIZE").and_then(|size| size.parse().ok()).unwrap_or(0);
                let own = format!("{name}-{id}");
                let called = template.get("NAME").unwrap_or(&own).to_owned();
                let made = self.reserve(service.owned.uid, from, &called, size).map_err(|refused| refused.message)?;
                how.insert("extra".to_owned(), json!(format!("{extra}\nNAME=\"{own}\"\n")));
                how.insert("id".to_owned(), json!(made));
                self.services.get_mut(&id).expect("it is there").made.push(made);
                known.push((name.clone(), json!(made)));
            } else {
                return Err(format!("network {name}: only id and reserve_from are known here"));
            }
        }
        let service = self.services.get_mut(&id).expect("it is there");
        if !values.is_empty() {
            service.body.insert("networks_values".to_owned(), Value::Array(values));
        }
        let inputs = service.body.get("user_inputs_values").or(service.body.get("custom_attrs_values")).cloned();
        for role in &mut service.roles {
            let own = role.body.get("user_inputs_values").cloned();
            fill_role(&mut role.body, &known, inputs.iter().chain(&own));
        }
        Ok(())
    }

    /// State of the VMs that OneFlow waits for. VMs that ended or were stopped by a user are ignored.
    fn fleet(&self, vms: &[Id], gated: bool) -> Fleet {
        let mut fleet = Fleet::Up;
        for vm in vms.iter().filter_map(|vm| self.vms.get(vm)).filter(|vm| !vm.is_done() && !vm.is_at_rest()) {
            if vm.is_failed() {
                return Fleet::Failed;
            }
            let ready = !gated || vm.user_template.get("READY") == Some("YES");
            if !vm.is_running() || !ready {
                fleet = Fleet::Coming;
            }
        }
        fleet
    }

    fn deploying(&mut self, id: Id) {
        let now = self.now_s();
        let service = self.services[&id].clone();
        for (at, role) in service.roles.iter().enumerate() {
            let Some(awaited) = role.awaited.as_ref().filter(|_| role.is_deploying()) else { continue };
            let state = match self.fleet(awaited, service.gated()) {
                Fleet::Up => RoleState::Running,
                Fleet::Coming => continue,
                Fleet::Failed => RoleState::FailedDeploying,
            };
            let service = self.services.get_mut(&id).expect("it is there");
            service.roles[at].state = state;
            service.roles[at].awaited = None;
            if state == RoleState::FailedDeploying {
                return service.turn(now, ServiceState::FailedDeploying);
            }
        }
        let next = roots(&self.services[&id]);
        if self.deploy_roles(id, &next).is_err() {
            return;
        }
        let service = self.services.get_mut(&id).expect("it is there");
        if service.roles.iter().all(|role| role.state == RoleState::Running) {
            service.run_watched(now);
        }
    }

    fn condition(&self, vm: Id) -> Condition {
        match self.vms.get(&vm) {
            None => Condition::Done,
            Some(vm) if vm.is_done() => Condition::Done,
            Some(vm) if vm.is_running() => Condition::Running,
            Some(vm) if vm.is_failed() || vm.is_lost() || vm.state == VmState::Poweroff => Condition::Faulty,
            Some(_) => Condition::Other,
        }
    }

    /// The watchdog. An ended VM lowers the cardinality and does not end a warning. A faulty VM causes a warning
    /// until a VM of the same role comes up.
    fn watch(&mut self, id: Id) {
        if !self.services[&id].watched {
            return;
        }
        let now = self.now_s();
        let mut events = Vec::new();
        for (at, role) in self.services[&id].roles.iter().enumerate() {
            let heard = role.vms().into_iter().map(|vm| (at, vm, self.condition(vm)));
            events.extend(heard.filter(|(_, vm, condition)| role.noticed.get(vm) != Some(condition)));
        }
        let service = self.services.get_mut(&id).expect("it is there");
        let mut gone = false;
        for (at, vm, condition) in events {
            let role = &mut service.roles[at];
            role.noticed.insert(vm, condition);
            match condition {
                Condition::Done => {
                    role.forget(&[vm]);
                    role.noticed.remove(&vm);
                    role.cardinality = (role.cardinality - 1).max(0);
                    gone = true;
                }
                Condition::Faulty => {
                    role.state = RoleState::Warning;
                    service.turn(now, ServiceState::Warning);
                }
                Condition::Running => {
                    role.state = RoleState::Running;
                    if service.roles.iter().all(|role| role.state == RoleState::Running) {
                        service.turn(now, ServiceState::Running);
                    }
                }
                Condition::Other => {}
            }
        }
        let empty = service.roles.iter().all(|role| role.vms().is_empty());
        let automatic = service.body.get("automatic_deletion") == Some(&Value::Bool(true));
        if gone && empty && automatic {
            self.begin_undeploy(id);
        }
    }

    fn scaling(&mut self, id: Id) {
        let now = self.now_s();
        let service = self.services[&id].clone();
        let Some(at) = service.roles.iter().position(|role| role.awaited.is_some() && role.is_scaling()) else {
            if service.state == ServiceState::Scaling {
                self.services.get_mut(&id).expect("it is there").run_watched(now);
            }
            return;
        };
        let role = &service.roles[at];
        let finished = match role.scale_way {
            Some(ScaleWay::Down) => {
                if role.leaving.iter().any(|vm| self.vms.get(vm).is_some_and(|vm| !vm.is_done())) {
                    return;
                }
                true
            }
            _ => match self.fleet(role.awaited.as_deref().unwrap_or_default(), service.gated()) {
                Fleet::Up => true,
                Fleet::Coming => return,
                Fleet::Failed => false,
            },
        };
        let now_ms = self.now_ms;
        let second_ms = self.pace.second_ms;
        let service = self.services.get_mut(&id).expect("it is there");
        let role = &mut service.roles[at];
        role.awaited = None;
        if !finished {
            role.state = RoleState::FailedScaling;
            return service.turn(now, ServiceState::FailedScaling);
        }
        let leaving = std::mem::take(&mut role.leaving);
        role.forget(&leaving);
        role.scale_way = None;
        role.state = RoleState::Cooldown;
        let cooldown_s = role.cooldown_asked_s.take().unwrap_or_else(|| role.cooldown_s());
        role.cooldown_until_ms = now_ms + cooldown_s * second_ms;
        service.turn(now, ServiceState::Cooldown);
    }

    fn cooling(&mut self, id: Id) {
        let (now, now_ms) = (self.now_s(), self.now_ms);
        let service = self.services.get_mut(&id).expect("it is there");
        for role in service.roles.iter_mut().filter(|role| role.state == RoleState::Cooldown) {
            if role.cooldown_until_ms > now_ms {
                return;
            }
            role.state = RoleState::Running;
        }
        service.run_watched(now);
    }

    pub(super) fn begin_undeploy(&mut self, id: Id) {
        let now = self.now_s();
        let service = self.services.get_mut(&id).expect("the caller looked");
        service.turn(now, ServiceState::Undeploying);
        self.undeploying(id);
    }

    fn undeploying(&mut self, id: Id) {
        let now = self.now_s();
        let service = self.services[&id].clone();
        for (at, role) in service.roles.iter().enumerate() {
            let needed = service.straight()
                && service.removing.is_none()
                && service.roles.iter().any(|other| {
                    other.state != RoleState::Done && other.name != role.name && other.parents().contains(&role.name)
                });
            let concerned = service.removing.as_ref().is_none_or(|name| *name == role.name);
            if needed || !concerned || role.state == RoleState::Done {
                continue;
            }
            if role.state != RoleState::Undeploying {
                self.services.get_mut(&id).expect("it is there").roles[at].state = RoleState::Undeploying;
                role.vms().into_iter().for_each(|vm| self.shut_down(id, at, vm));
            }
            if role.vms().iter().all(|vm| self.vms.get(vm).is_none_or(|vm| vm.is_done())) {
                self.services.get_mut(&id).expect("it is there").roles[at].state = RoleState::Done;
            }
        }
        let service = self.services.get_mut(&id).expect("it is there");
        if let Some(name) = service.removing.clone() {
            if service.roles.iter().any(|role| role.name == name && role.state == RoleState::Done) {
                service.roles.retain(|role| role.name != name);
                service.removing = None;
                service.run_watched(now);
            }
        } else if service.roles.iter().all(|role| role.state == RoleState::Done) {
            let made = service.made.clone();
            self.services.remove(&id);
            for network in made {
                // If another user holds a lease, the network stays, as in OneFlow.
                let _ = self.delete_network(network);
            }
        }
    }

    /// Shutdown action of the role, then of the service, then `terminate`; if it is rejected, a harder one.
    pub(super) fn shut_down(&mut self, id: Id, at: usize, vm: Id) {
        let service = &self.services[&id];
        let asked = service.roles[at].shutdown_action();
        let asked = asked.or_else(|| service.body.get("shutdown_action").map(text_of));
        let action = match asked.as_deref() {
            Some("terminate-hard" | "shutdown-hard") => "terminate-hard",
            _ => "terminate",
        };
        if self.act(vm, action).is_err() && self.act(vm, "terminate-hard").is_err() {
            // The VM is gone.
            let _ = self.recover_vm(vm, 3);
        }
    }
}

/// Waiting roles whose parents all run (or, held, exist).
fn roots(service: &Service) -> Vec<usize> {
    let fit = |name: &String| {
        service
            .roles
            .iter()
            .any(|role| role.name == *name && matches!(role.state, RoleState::Running | RoleState::Hold))
    };
    let waits = |role: &super::Role| role.state == RoleState::Pending;
    let free = |role: &super::Role| !service.straight() || role.parents().iter().all(fit);
    (0..service.roles.len()).filter(|at| waits(&service.roles[*at]) && free(&service.roles[*at])).collect()
}

fn fill_role<'a>(
    body: &mut serde_json::Map<String, Value>,
    networks: &[(String, Value)],
    inputs: impl Iterator<Item = &'a Value>,
) {
    if let Some(Value::String(text)) = body.get_mut("vm_template_contents") {
        for (name, id) in networks {
            *text = text.replace(&format!("${name}"), &text_of(id));
        }
        for (name, value) in inputs.filter_map(Value::as_object).flatten() {
            *text = text.replace(&format!("${name}"), &text_of(value));
        }
        return;
    }
    let contents = body.entry("template_contents").or_insert_with(|| json!({}));
    let Some(contents) = contents.as_object_mut() else { return };
    for nic in contents.get_mut("NIC").and_then(Value::as_array_mut).into_iter().flatten() {
        let asked = nic.get("NETWORK_ID").map(text_of).unwrap_or_default();
        if let Some((_, id)) = networks.iter().find(|(name, _)| asked == format!("${name}")) {
            nic["NETWORK_ID"] = id.clone();
        }
    }
    for (name, value) in inputs.filter_map(Value::as_object).flatten() {
        contents.insert(name.clone(), value.clone());
        let context = contents.entry("CONTEXT").or_insert_with(|| json!({}));
        if let Some(context) = context.as_object_mut() {
            context.insert(name.clone(), json!(format!("${name}")));
        }
    }
}
