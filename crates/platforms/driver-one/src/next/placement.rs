//! Assigns VMs to parts: VMs of parts, parts that need a VM, free VMs, and surplus VMs.

use std::collections::{BTreeMap, BTreeSet};

use trellis_one::VmAction;
use trellis_one::keys::{Assignment, TRELLIS_ASSIGNMENT, TRELLIS_DRAIN, TRELLIS_PART, TRELLIS_RESTART};
use trellis_plan::{NodeSpec, Spec, Tunnel};
use trellis_spec::{Name, Runtime};

use super::{Next, Situation, Step};
use crate::record::{Record, Target};
use crate::render::context::{self, Surroundings};
use crate::render::{GATEWAY, RoleOf, SUPERLINK, SUPERNODE, labels, shape};
use crate::view::{Life, VmView};

pub struct Placement<'a> {
    situation: &'a Situation<'a>,
    pub roles: BTreeMap<RoleOf, Role<'a>>,
    /// Desired parts and their VMs.
    placed: Vec<(&'a Record, &'a VmView)>,
    surplus: BTreeSet<u32>,
}

/// VMs of a role.
pub struct Role<'a> {
    pub name: String,
    /// Specification for new VMs; `None` for the gateway.
    pub spec: Option<&'a Spec>,
    /// Desired number of VMs.
    pub count: u32,
    /// Parts that need a VM.
    waiting: Vec<&'a Record>,
    /// Free VMs that fit the role.
    free: Vec<&'a VmView>,
    gateway: bool,
}

impl Role<'_> {
    /// Number of VMs to create.
    pub fn missing(&self) -> u32 {
        let waiting = if self.gateway { usize::from(self.count > 0) } else { self.waiting.len() };
        u32::try_from(waiting.saturating_sub(self.free.len())).unwrap_or(u32::MAX)
    }
}

impl<'a> Placement<'a> {
    pub fn new(situation: &'a Situation<'a>) -> Placement<'a> {
        let mut placement =
            Placement { situation, roles: roles(situation), placed: Vec::new(), surplus: BTreeSet::new() };
        placement.place_parts();
        placement.place_free_vms();
        placement
    }

    /// Finds the VM of each part. Other VMs with its mark are surplus.
    fn place_parts(&mut self) {
        for record in self.situation.records.values() {
            let of = RoleOf::of(record.id.node_key());
            let marked: Vec<&VmView> = self.situation.view.marked(&record.id).collect();
            let own = own_vm(record, &marked);
            let elastic = matches!(&of, RoleOf::Pool(pool) if self.situation.elastic.contains_key(pool));
            for vm in marked.into_iter().filter(|vm| Some(vm.id) != own.map(|own| own.id)) {
                self.surplus.insert(vm.id);
            }
            self.surplus.extend(record.abandoned.iter().filter(|id| self.situation.view.vm(**id).is_some()));
            match (record.target, own) {
                (Target::Running, Some(vm)) => self.placed.push((record, vm)),
                // The planner decides about a part whose VM vanished.
                (Target::Running, None) if record.vm.is_some() => {}
                (Target::Running, None) => {
                    if let Some(role) = self.roles.get_mut(&of) {
                        role.waiting.push(record);
                    }
                }
                // OneFlow may have removed the VM of another node of this pool. That node gets this VM.
                (Target::Gone, Some(vm)) if elastic => match self.roles.get_mut(&of) {
                    Some(role) if is_of(vm, role) => role.free.push(vm),
                    _ => self.mark_surplus(vm),
                },
                (Target::Gone, Some(vm)) => self.mark_surplus(vm),
                (Target::Gone, None) => {}
            }
        }
    }

    fn mark_surplus(&mut self, vm: &VmView) {
        self.surplus.insert(vm.id);
    }

    /// Assigns VMs without a mark to waiting parts. The rest is surplus, unless OneFlow scales the pool.
    fn place_free_vms(&mut self) {
        let gateway = context::gateway_part(self.situation.federation, self.situation.site);
        for vm in &self.situation.view.vms {
            let of_gateway = vm.role() == Some(GATEWAY);
            if vm.mark().is_some() && !of_gateway {
                continue;
            }
            let role = self.roles.values_mut().find(|role| Some(role.name.as_str()) == vm.role());
            match role {
                Some(role) if of_gateway && vm.mark().is_none_or(|mark| mark == gateway) => role.free.push(vm),
                Some(role) if is_of(vm, role) && matches!(vm.life, Life::Starting | Life::Running) => {
                    role.free.push(vm)
                }
                _ => self.mark_surplus(vm),
            }
        }
        for (of, role) in &mut self.roles {
            role.free.sort_by_key(|vm| vm.id);
            let elastic = matches!(of, RoleOf::Pool(pool) if self.situation.elastic.contains_key(pool));
            let keep = if role.gateway { 1 } else { role.waiting.len() };
            if !elastic {
                let left = role.free.split_off(keep.min(role.free.len()));
                self.surplus.extend(left.iter().map(|vm| vm.id));
            }
        }
        // In a scaled pool, VMs of deleted nodes are surplus if no other node gets them.
        for (record, vm) in self.situation.records.values().filter_map(|record| Some((record, record.vm?))) {
            let of = RoleOf::of(record.id.node_key());
            let taken = self
                .roles
                .get(&of)
                .is_some_and(|role| role.free.iter().take(role.waiting.len()).any(|free| free.id == vm));
            // The VM may be assigned to another part already, without the agent having read it.
            let own = self.situation.view.marked(&record.id).any(|marked| marked.id == vm);
            if record.target == Target::Gone && own && !taken {
                self.surplus.insert(vm);
            }
        }
    }

    /// Updates the attributes of VMs: assignment, drain and restart requests.
    pub fn update_vms(&self, next: &mut Next) {
        for (record, vm) in &self.placed {
            match vm.life {
                Life::Starting | Life::Running => self.update_vm(record, vm, next),
                Life::Off if record.restart.as_ref().is_some_and(|restart| restart.machine) => {
                    next.steps.push(Step::ActOnVm { vm: vm.id, action: VmAction::Resume });
                }
                // Only an administrator can retry a failed VM; its owner replaces it instead.
                Life::Off | Life::Failed | Life::Unknown | Life::Stopping => {}
            }
        }
        for role in self.roles.values().filter(|role| !role.gateway) {
            let ready = role.waiting.iter().filter(|record| !lacks_token(record));
            for (record, vm) in ready.zip(&role.free) {
                let Some(assignment) = self.assignment(record) else { continue };
                let attributes = BTreeMap::from([
                    (TRELLIS_PART.to_owned(), record.id.to_string()),
                    (TRELLIS_ASSIGNMENT.to_owned(), assignment.to_attribute()),
                ]);
                next.steps.push(Step::UpdateVm { vm: vm.id, attributes });
            }
        }
        self.update_gateway(next);
    }

    fn update_vm(&self, record: &Record, vm: &VmView, next: &mut Next) {
        let mut attributes = BTreeMap::new();
        if let Some(assignment) = self.assignment(record)
            && vm.assignment().as_ref() != Some(&assignment)
        {
            attributes.insert(TRELLIS_ASSIGNMENT.to_owned(), assignment.to_attribute());
        }
        match (record.draining, vm.says(TRELLIS_DRAIN, "YES")) {
            (true, false) => drop(attributes.insert(TRELLIS_DRAIN.to_owned(), "YES".to_owned())),
            (false, true) => drop(attributes.insert(TRELLIS_DRAIN.to_owned(), "NO".to_owned())),
            _ => {}
        }
        let restart = record.restart.as_ref().and_then(|restart| restart.instance.as_deref());
        if let Some(instance) = restart.filter(|instance| !vm.says(TRELLIS_RESTART, instance)) {
            attributes.insert(TRELLIS_RESTART.to_owned(), instance.to_owned());
        }
        if !attributes.is_empty() {
            next.steps.push(Step::UpdateVm { vm: vm.id, attributes });
        }
    }

    fn update_gateway(&self, next: &mut Next) {
        let Some(role) = self.roles.get(&RoleOf::Gateway) else { return };
        let (Some(vm), Some(tunnel)) = (role.free.first(), tunnel(self.situation)) else { return };
        let Situation { federation, site, secrets, .. } = *self.situation;
        let assignment = context::gateway_assignment(federation, site, tunnel, secrets);
        if vm.assignment().as_ref() != Some(&assignment) {
            let attributes = BTreeMap::from([
                (TRELLIS_PART.to_owned(), assignment.part.clone()),
                (TRELLIS_ASSIGNMENT.to_owned(), assignment.to_attribute()),
            ]);
            next.steps.push(Step::UpdateVm { vm: vm.id, attributes });
        }
    }

    /// `None` if the desired state, or an input of the assignment, is unknown.
    fn assignment(&self, record: &Record) -> Option<Assignment> {
        let desired = record.desired.as_ref()?;
        let gateway = self.roles.get(&RoleOf::Gateway).and_then(|role| role.free.first());
        let gateway = gateway.and_then(|vm| vm.addresses.first().cloned());
        if context::tunnel(&desired.spec).is_some() && gateway.is_none() {
            return None;
        }
        let surroundings = Surroundings { trust: self.situation.trust.map(str::to_owned), gateway };
        let (part, generation) = (record.id.to_string(), desired.generation.to_string());
        Some(context::assignment(part, generation, &desired.spec, &surroundings, record.join_token.as_deref()))
    }

    /// Whether OneFlow counts the VM and the driver keeps it.
    pub fn keeps(&self, vm: u32) -> bool {
        !self.surplus.contains(&vm) && self.situation.view.vm(vm).is_some_and(|vm| !vm.is_leaving())
    }

    /// Terminates surplus VMs.
    pub fn terminate_surplus(&self, next: &mut Next) {
        if !self.situation.is_calm() {
            return;
        }
        for vm in self.surplus.iter().filter_map(|id| self.situation.view.vm(*id)) {
            next.steps.extend(end(vm));
        }
    }
}

/// Terminates a VM, gracefully if it runs.
pub fn end(vm: &VmView) -> Option<Step> {
    let action = match vm.life {
        Life::Stopping => return None,
        Life::Starting | Life::Running => VmAction::Terminate,
        Life::Off | Life::Failed | Life::Unknown => VmAction::TerminateHard,
    };
    Some(Step::ActOnVm { vm: vm.id, action })
}

fn own_vm<'a>(record: &Record, marked: &[&'a VmView]) -> Option<&'a VmView> {
    let remembered = marked.iter().find(|vm| Some(vm.id) == record.vm);
    let first = || marked.iter().filter(|vm| !record.abandoned.contains(&vm.id)).min_by_key(|vm| vm.id);
    remembered.or_else(|| if record.vm.is_none() { first() } else { None }).copied()
}

fn is_of(vm: &VmView, role: &Role<'_>) -> bool {
    let shape = role.spec.map(shape);
    vm.role() == Some(role.name.as_str()) && vm.attribute(labels::SHAPE) == shape.as_deref()
}

/// The node requires a join token that does not exist yet.
pub fn lacks_token(record: &Record) -> bool {
    let spec = record.desired.as_ref().map(|desired| &desired.spec);
    let joins = |spec: &NodeSpec| spec.node_auth && spec.runtime == Runtime::Trellis;
    matches!(spec, Some(Spec::Node(spec)) if joins(spec)) && record.join_token.is_none()
}

fn tunnel<'a>(situation: &'a Situation<'_>) -> Option<&'a Tunnel> {
    wanted(situation).find_map(|(_, spec)| context::tunnel(spec))
}

/// Records with a desired state, and their specification: from the order, or from the document.
fn wanted<'a>(situation: &'a Situation<'_>) -> impl Iterator<Item = (&'a Record, &'a Spec)> {
    let wanted = situation.records.values().filter(|record| record.is_wanted());
    wanted.filter_map(|record| {
        let document = || situation.document.and_then(|document| document.get(&record.id));
        Some((record, &record.desired.as_ref().or_else(document)?.spec))
    })
}

/// The desired roles. New VMs use the latest specification, preferably of parts without a VM.
fn roles<'a>(situation: &'a Situation<'a>) -> BTreeMap<RoleOf, Role<'a>> {
    let mut groups: BTreeMap<RoleOf, Vec<(&Record, &Spec)>> = BTreeMap::new();
    for (record, spec) in wanted(situation) {
        groups.entry(RoleOf::of(record.id.node_key())).or_default().push((record, spec));
    }
    let mut roles = BTreeMap::new();
    let mut taken: BTreeSet<String> = BTreeSet::new();
    for (of, parts) in groups {
        let last = parts.iter().max_by_key(|(record, _)| (record.vm.is_none(), record.order));
        let name = name(situation, &of, &taken);
        taken.insert(name.clone());
        let count = u32::try_from(parts.len()).unwrap_or(u32::MAX);
        let spec = last.map(|(_, spec)| *spec);
        roles.insert(of, Role { name, spec, count, waiting: Vec::new(), free: Vec::new(), gateway: false });
    }
    if tunnel(situation).is_some() {
        let name = GATEWAY.to_owned();
        let gateway = Role { name, spec: None, count: 1, waiting: Vec::new(), free: Vec::new(), gateway: true };
        roles.insert(RoleOf::Gateway, gateway);
    }
    roles
}

/// A role keeps its name. The first pool's role is `supernode`, others are named after their pools.
fn name(situation: &Situation<'_>, of: &RoleOf, taken: &BTreeSet<String>) -> String {
    let pool = match of {
        RoleOf::SuperLink => return SUPERLINK.to_owned(),
        RoleOf::Gateway => return GATEWAY.to_owned(),
        RoleOf::Pool(pool) => pool,
    };
    let pool_of = |attributes: &BTreeMap<String, String>| {
        Some((attributes.get(labels::POOL).and_then(|name| Name::new(name))?, attributes.get(labels::ROLE)?.clone()))
    };
    let made: Vec<(Name, String)> =
        situation.view.templates.iter().filter_map(|template| pool_of(&template.attributes)).collect();
    if let Some((_, role)) = made.iter().find(|(name, _)| name == pool) {
        return role.clone();
    }
    let first = !taken.contains(SUPERNODE) && !made.iter().any(|(_, role)| role == SUPERNODE);
    if first { SUPERNODE.to_owned() } else { RoleOf::long_name(pool) }
}
