//! Actions on services by state, with OneFlow's errors.

use serde_json::Value;

use super::role::{Role, RoleState, ScaleWay};
use super::{Cloud, FlowError, Id, Right, ServiceState, schema};
use crate::template::text_of;

impl Cloud {
    /// `cooldown_s` if a policy requested the change.
    pub fn scale(
        &mut self,
        uid: Id,
        id: Id,
        role: &str,
        cardinality: i64,
        force: bool,
        cooldown_s: Option<u64>,
    ) -> Result<(), FlowError> {
        let service = self.service(uid, id, Right::Manage)?;
        let state = service.state;
        let refused = |text: String| Err(FlowError::new(500, text));
        if state != ServiceState::Running {
            return refused(format!("Service cannot be scaled in state: {}", state.name()));
        }
        let Some(at) = service.role_at(role) else { return refused(format!("Role {role} not found")) };
        let known = &service.roles[at];
        let before = known.cardinality;
        if cardinality == before {
            return refused(format!("Cardinality of {role} is already at {before}"));
        }
        if let Some(most) = known.maximum().filter(|most| cardinality > *most && !force) {
            return refused(format!("Can't scale service {id}: Maximum cardinality is {most}"));
        }
        if let Some(least) = known.minimum().filter(|least| cardinality < *least && !force) {
            return refused(format!("Can't scale service {id}: Minimum cardinality is {least}"));
        }
        let now = self.now_s();
        let up = cardinality > before;
        let word = if up { "up" } else { "down" };
        let service = self.services.get_mut(&id).expect("it was there");
        service.say(now, "I", &format!("Role {role} scaling {word} from {before} to {cardinality} nodes"));
        let known = &mut service.roles[at];
        known.cardinality = cardinality;
        known.scale_way = Some(if up { ScaleWay::Up } else { ScaleWay::Down });
        known.cooldown_asked_s = cooldown_s;
        if cardinality < 0 {
            // OneFlow accepts this, and then fails to find enough VMs.
            known.state = RoleState::FailedScaling;
            service.turn(now, ServiceState::FailedScaling);
            return refused(undeploying_failed(role));
        }
        known.state = RoleState::Scaling;
        service.watched = false;
        service.turn(now, ServiceState::Scaling);
        self.scale_vms(id, at).map_err(|text| FlowError::new(500, text))
    }

    /// `Err` if oned refused a VM; the service has then failed.
    fn scale_vms(&mut self, id: Id, at: usize) -> Result<(), String> {
        let now = self.now_s();
        let role = self.services[&id].roles[at].clone();
        if role.scale_way == Some(ScaleWay::Down) {
            // The oldest first.
            let surplus = (role.vms().len() as i64 - role.cardinality).max(0) as usize;
            let leaving: Vec<Id> = role.vms().into_iter().take(surplus).collect();
            leaving.iter().for_each(|vm| self.shut_down(id, at, *vm));
            let role = &mut self.services.get_mut(&id).expect("it is there").roles[at];
            role.leaving = leaving;
            role.awaited = Some(Vec::new());
            return Ok(());
        }
        self.deploy_nodes(id, at).map_err(|why| {
            let service = self.services.get_mut(&id).expect("it is there");
            service.roles[at].state = RoleState::FailedScaling;
            service.turn(now, ServiceState::FailedScaling);
            format!("Error deploying role {}: {why}", role.name)
        })
    }

    pub fn undeploy(&mut self, uid: Id, id: Id) -> Result<(), FlowError> {
        let state = self.service(uid, id, Right::Manage)?.state;
        match state {
            ServiceState::Pending
            | ServiceState::Running
            | ServiceState::Warning
            | ServiceState::Hold
            | ServiceState::Undeploying => {
                self.begin_undeploy(id);
                Ok(())
            }
            state => Err(FlowError::new(500, format!("Service cannot be undeployed in state: {}", state.name()))),
        }
    }

    pub fn recover_service(&mut self, uid: Id, id: Id, delete: bool) -> Result<(), FlowError> {
        let service = self.service(uid, id, Right::Manage)?;
        let state = service.state;
        if delete {
            return self.recover_delete(id);
        }
        let now = self.now_s();
        let was_stuck = std::mem::take(&mut self.services.get_mut(&id).expect("it was there").stuck);
        match state {
            ServiceState::Pending
            | ServiceState::DeployingNets
            | ServiceState::UndeployingNets
            | ServiceState::FailedUndeployingNets => {}
            ServiceState::Deploying | ServiceState::FailedDeploying => {
                let roles = self.services[&id].roles.iter().enumerate();
                let failed: Vec<usize> = roles.filter(|(_, role)| role.is_deploying()).map(|(at, _)| at).collect();
                for at in failed {
                    self.recover_vms(id, at, uid);
                    // The error is logged; the state does not change.
                    let _ = self.deploy_nodes(id, at);
                }
            }
            ServiceState::Scaling | ServiceState::FailedScaling => {
                let failed = |role: &Role| role.is_scaling() && role.cardinality >= 0;
                if let Some(at) = self.services[&id].roles.iter().position(failed) {
                    self.recover_vms(id, at, uid);
                    let _ = self.scale_vms(id, at);
                } else if was_stuck {
                    self.services.get_mut(&id).expect("it was there").state = ServiceState::Scaling;
                }
            }
            ServiceState::Cooldown => {
                let service = self.services.get_mut(&id).expect("it was there");
                for role in service.roles.iter_mut().filter(|role| role.state == RoleState::Cooldown) {
                    role.state = RoleState::Running;
                }
                service.turn(now, ServiceState::Running);
            }
            ServiceState::Undeploying | ServiceState::FailedUndeploying => {
                let service = self.services.get_mut(&id).expect("it was there");
                for role in service.roles.iter_mut().filter(|role| role.state != RoleState::Done) {
                    role.state = RoleState::Running;
                }
                service.state = ServiceState::Undeploying;
            }
            ServiceState::FailedDeployingNets => {
                self.services.get_mut(&id).expect("it was there").state = ServiceState::DeployingNets;
            }
            state => {
                let text = format!("Service cannot be recovered in state: {}", state.name());
                return Err(FlowError::new(500, text));
            }
        }
        Ok(())
    }

    /// Retries failed VMs if the user may do so, and resumes the others. The service waits for these VMs.
    fn recover_vms(&mut self, id: Id, at: usize, uid: Id) {
        let now = self.now_s();
        let role = self.services[&id].roles[at].clone();
        let mut awaited = Vec::new();
        for vm in role.vms() {
            let Some(known) = self.vms.get(&vm).filter(|vm| !vm.is_running()) else { continue };
            let (owned, failed) = (known.owned.clone(), known.is_failed());
            let retried = match failed {
                true => self.check(uid, &owned, Right::Admin, "VM").and_then(|()| self.recover_vm(vm, 2)),
                false => {
                    // A VM that ended or is starting cannot be resumed, and need not be.
                    let _ = self.act(vm, "resume");
                    Ok(())
                }
            };
            match retried {
                Ok(()) => awaited.push(vm),
                Err(refused) => {
                    let said = format!("[one.vm.recover] {}", refused.message);
                    let why = format!("Role {} : Retry failed for VM {vm}; {said}", role.name);
                    self.services.get_mut(&id).expect("it is there").say(now, "E", &why);
                }
            }
        }
        self.services.get_mut(&id).expect("it is there").roles[at].awaited = Some(awaited);
    }

    /// Terminates all VMs. The service is UNDEPLOYING until they are gone, children before parents.
    fn recover_delete(&mut self, id: Id) -> Result<(), FlowError> {
        let service = self.services[&id].clone();
        if let Some(role) = service.roles.iter().find(|role| role.cardinality < 0) {
            return Err(FlowError::new(500, undeploying_failed(&role.name)));
        }
        for vm in service.roles.iter().flat_map(Role::vms) {
            if self.act(vm, "terminate-hard").is_err() {
                // Only rejected if the VM is gone.
                let _ = self.recover_vm(vm, 3);
            }
        }
        let service = self.services.get_mut(&id).expect("it was there");
        (service.removing, service.stuck) = (None, false);
        self.begin_undeploy(id);
        Ok(())
    }

    pub fn release(&mut self, uid: Id, id: Id) -> Result<(), FlowError> {
        let service = self.service(uid, id, Right::Manage)?;
        if service.state != ServiceState::Hold {
            let text = format!("Service cannot be released in state: {}", service.state.name());
            return Err(FlowError::new(500, text));
        }
        let now = self.now_s();
        let vms: Vec<Id> = service.roles.iter().flat_map(Role::vms).collect();
        for vm in vms {
            // Another caller may have released it already.
            let _ = self.act(vm, "release");
        }
        let service = self.services.get_mut(&id).expect("it was there");
        for role in &mut service.roles {
            role.body.insert("on_hold".to_owned(), Value::Bool(false));
            if role.state == RoleState::Hold {
                role.state = RoleState::Deploying;
            }
        }
        service.turn(now, ServiceState::Deploying);
        Ok(())
    }

    pub fn add_role(&mut self, uid: Id, id: Id, role: Value) -> Result<(), FlowError> {
        let service = self.service(uid, id, Right::Manage)?;
        let state = service.state;
        if state != ServiceState::Running {
            return Err(FlowError::new(500, format!("Cannot modify roles in state: {}", state.name())));
        }
        let role = schema::checked_role(role).map_err(|error| FlowError::new(400, error.0))?;
        let name = role.get("name").map(text_of).unwrap_or_default();
        if service.role_at(&name).is_some() {
            return Err(FlowError::new(500, format!("Role {name} already exists")));
        }
        let now = self.now_s();
        let service = self.services.get_mut(&id).expect("it was there");
        let mut role = Role::new(role);
        role.fill_defaults(false);
        role.body.entry("template_contents").or_insert_with(|| serde_json::json!({}));
        service.roles.push(role);
        service.watched = false;
        service.turn(now, ServiceState::Deploying);
        let at = service.roles.len() - 1;
        self.deploy_roles(id, &[at]).map_err(|text| FlowError::new(500, text))
    }

    pub fn remove_role(&mut self, uid: Id, id: Id, role: &str) -> Result<(), FlowError> {
        let service = self.service(uid, id, Right::Manage)?;
        if service.state != ServiceState::Running {
            return Err(FlowError::new(500, format!("Cannot modify roles in state: {}", service.state.name())));
        }
        if service.role_at(role).is_none() {
            return Err(FlowError::new(500, format!("Role {role} does not exist")));
        }
        self.services.get_mut(&id).expect("it was there").removing = Some(role.to_owned());
        self.begin_undeploy(id);
        Ok(())
    }

    /// Performs the action on all VMs of the role at once.
    pub fn role_action(&mut self, uid: Id, id: Id, role: Option<&str>, action: &str) -> Result<(), FlowError> {
        let service = self.service(uid, id, Right::Manage)?;
        if role.is_some_and(|role| service.role_at(role).is_none()) {
            return Err(FlowError::new(404, format!("Role {} not found", role.unwrap_or_default())));
        }
        let roles = service.roles.iter().filter(|known| role.is_none_or(|role| known.name == role));
        for vm in roles.flat_map(Role::vms).collect::<Vec<_>>() {
            // The action is scheduled, so an error is only visible in the VM.
            let _ = self.act(vm, action);
        }
        Ok(())
    }
}

fn undeploying_failed(role: &str) -> String {
    format!("Error undeploying role {role}: Error undeploying nodes for role `{role}`")
}
