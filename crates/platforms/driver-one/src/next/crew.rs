//! Which VM is which part: those that have their VM, those that still want one, VMs that are nobody's, VMs that must go.

use std::collections::{BTreeMap, BTreeSet};

use trellis_one::VmAction;
use trellis_one::keys::{Assignment, TRELLIS_ASSIGNMENT, TRELLIS_DRAIN, TRELLIS_PART, TRELLIS_RESTART};
use trellis_plan::{NodeSpec, Spec, Tunnel};
use trellis_spec::{Name, Runtime};

use super::{Ground, Next, Step};
use crate::record::{Record, Wish};
use crate::render::context::{self, Surroundings};
use crate::render::{GATEWAY, RoleOf, SUPERLINK, SUPERNODE, labels, shape};
use crate::view::{Life, VmSeen};

pub struct Crew<'a> {
    ground: &'a Ground<'a>,
    pub roles: BTreeMap<RoleOf, Role<'a>>,
    /// Wanted parts and their VMs.
    posted: Vec<(&'a Record, &'a VmSeen)>,
    doomed: BTreeSet<u32>,
}

/// The VMs of a role.
pub struct Role<'a> {
    pub name: String,
    /// What new VMs are made for; `None`: the gateway.
    pub spec: Option<&'a Spec>,
    /// How many VMs are wanted.
    pub count: u32,
    /// Parts that want a VM.
    waiting: Vec<&'a Record>,
    /// VMs that are nobody's, and fit.
    free: Vec<&'a VmSeen>,
    gateway: bool,
}

impl Role<'_> {
    /// VMs that must still be made.
    pub fn missing(&self) -> u32 {
        let waiting = if self.gateway { usize::from(self.count > 0) } else { self.waiting.len() };
        u32::try_from(waiting.saturating_sub(self.free.len())).unwrap_or(u32::MAX)
    }
}

impl<'a> Crew<'a> {
    pub fn muster(ground: &'a Ground<'a>) -> Crew<'a> {
        let mut crew = Crew { ground, roles: roles(ground), posted: Vec::new(), doomed: BTreeSet::new() };
        crew.post();
        crew.enlist();
        crew
    }

    /// Finds the VM of each part; others with its mark must go.
    fn post(&mut self) {
        for record in self.ground.records.values() {
            let of = RoleOf::of(record.id.node_key());
            let marked: Vec<&VmSeen> = self.ground.view.marked(&record.id).collect();
            let own = own_vm(record, &marked);
            let elastic = matches!(&of, RoleOf::Pool(pool) if self.ground.elastic.contains_key(pool));
            for vm in marked.into_iter().filter(|vm| Some(vm.id) != own.map(|own| own.id)) {
                self.doomed.insert(vm.id);
            }
            self.doomed.extend(record.abandoned.iter().filter(|id| self.ground.view.vm(**id).is_some()));
            match (record.wish, own) {
                (Wish::Running, Some(vm)) => self.posted.push((record, vm)),
                // A VM that vanished is told; whoever decides asks for another.
                (Wish::Running, None) if record.vm.is_some() => {}
                (Wish::Running, None) => {
                    if let Some(role) = self.roles.get_mut(&of) {
                        role.waiting.push(record);
                    }
                }
                // OneFlow may have taken the VM of another node of this pool: that one has this VM then.
                (Wish::Gone, Some(vm)) if elastic => match self.roles.get_mut(&of) {
                    Some(role) if is_of(vm, role) => role.free.push(vm),
                    _ => self.doom(vm),
                },
                (Wish::Gone, Some(vm)) => self.doom(vm),
                (Wish::Gone, None) => {}
            }
        }
    }

    fn doom(&mut self, vm: &VmSeen) {
        self.doomed.insert(vm.id);
    }

    /// VMs without a mark are for those who wait; what is left over goes, unless OneFlow decides how many there are.
    fn enlist(&mut self) {
        let gateway = context::gateway_part(self.ground.federation, self.ground.site);
        for vm in &self.ground.view.vms {
            let of_gateway = vm.role() == Some(GATEWAY);
            if vm.mark().is_some() && !of_gateway {
                continue;
            }
            let role = self.roles.values_mut().find(|role| Some(role.name.as_str()) == vm.role());
            match role {
                Some(role) if of_gateway && vm.mark().is_none_or(|mark| mark == gateway) => role.free.push(vm),
                Some(role) if is_of(vm, role) && matches!(vm.life, Life::Starts | Life::Runs) => role.free.push(vm),
                _ => self.doom(vm),
            }
        }
        for (of, role) in &mut self.roles {
            role.free.sort_by_key(|vm| vm.id);
            let elastic = matches!(of, RoleOf::Pool(pool) if self.ground.elastic.contains_key(pool));
            let keep = if role.gateway { 1 } else { role.waiting.len() };
            if !elastic {
                let left = role.free.split_off(keep.min(role.free.len()));
                self.doomed.extend(left.iter().map(|vm| vm.id));
            }
        }
        // Of an elastic pool: those that nobody will take over.
        for (record, vm) in self.ground.records.values().filter_map(|record| Some((record, record.vm?))) {
            let of = RoleOf::of(record.id.node_key());
            let taken = self
                .roles
                .get(&of)
                .is_some_and(|role| role.free.iter().take(role.waiting.len()).any(|free| free.id == vm));
            // The VM may be assigned to another part already, without the agent having read it.
            let own = self.ground.view.marked(&record.id).any(|marked| marked.id == vm);
            if record.wish == Wish::Gone && own && !taken {
                self.doomed.insert(vm);
            }
        }
    }

    /// What VMs must hear: who they are, what has changed, whether to drain or to start again.
    pub fn tell(&self, next: &mut Next) {
        for (record, vm) in &self.posted {
            match vm.life {
                Life::Starts | Life::Runs => self.tell_one(record, vm, next),
                Life::Off if record.restart.as_ref().is_some_and(|restart| restart.machine) => {
                    next.steps.push(Step::Act { vm: vm.id, action: VmAction::Resume });
                }
                // Only an administrator can retry a failed VM; its owner replaces it instead.
                Life::Off | Life::Failed | Life::Unknown | Life::Stops => {}
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
                next.steps.push(Step::Tell { vm: vm.id, attributes });
            }
        }
        self.tell_gateway(next);
    }

    fn tell_one(&self, record: &Record, vm: &VmSeen, next: &mut Next) {
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
            next.steps.push(Step::Tell { vm: vm.id, attributes });
        }
    }

    fn tell_gateway(&self, next: &mut Next) {
        let Some(role) = self.roles.get(&RoleOf::Gateway) else { return };
        let (Some(vm), Some(tunnel)) = (role.free.first(), tunnel(self.ground)) else { return };
        let Ground { federation, site, secrets, .. } = *self.ground;
        let assignment = context::gateway_assignment(federation, site, tunnel, secrets);
        if vm.assignment().as_ref() != Some(&assignment) {
            let attributes = BTreeMap::from([
                (TRELLIS_PART.to_owned(), assignment.part.clone()),
                (TRELLIS_ASSIGNMENT.to_owned(), assignment.to_attribute()),
            ]);
            next.steps.push(Step::Tell { vm: vm.id, attributes });
        }
    }

    /// `None`: nobody knows what it is to be, or what it needs is not known yet.
    fn assignment(&self, record: &Record) -> Option<Assignment> {
        let desired = record.desired.as_ref()?;
        let gateway = self.roles.get(&RoleOf::Gateway).and_then(|role| role.free.first());
        let gateway = gateway.and_then(|vm| vm.addresses.first().cloned());
        if context::tunnel(&desired.spec).is_some() && gateway.is_none() {
            return None;
        }
        let surroundings = Surroundings { trust: self.ground.trust.map(str::to_owned), gateway };
        let (part, generation) = (record.id.to_string(), desired.generation.to_string());
        Some(context::assignment(part, generation, &desired.spec, &surroundings, record.join_token.as_deref()))
    }

    /// A VM that OneFlow counts and that will stay.
    pub fn lives(&self, vm: u32) -> bool {
        !self.doomed.contains(&vm) && self.ground.view.vm(vm).is_some_and(|vm| !vm.is_leaving())
    }

    /// Ends VMs that are nobody's any more.
    pub fn dismiss(&self, next: &mut Next) {
        if !self.ground.is_calm() {
            return;
        }
        for vm in self.doomed.iter().filter_map(|id| self.ground.view.vm(*id)) {
            next.steps.extend(end(vm));
        }
    }
}

/// How a VM is ended: with a word to its system, where that can hear it.
pub fn end(vm: &VmSeen) -> Option<Step> {
    let action = match vm.life {
        Life::Stops => return None,
        Life::Starts | Life::Runs => VmAction::Terminate,
        Life::Off | Life::Failed | Life::Unknown => VmAction::TerminateHard,
    };
    Some(Step::Act { vm: vm.id, action })
}

fn own_vm<'a>(record: &Record, marked: &[&'a VmSeen]) -> Option<&'a VmSeen> {
    let remembered = marked.iter().find(|vm| Some(vm.id) == record.vm);
    let first = || marked.iter().filter(|vm| !record.abandoned.contains(&vm.id)).min_by_key(|vm| vm.id);
    remembered.or_else(|| if record.vm.is_none() { first() } else { None }).copied()
}

fn is_of(vm: &VmSeen, role: &Role<'_>) -> bool {
    let shape = role.spec.map(shape);
    vm.role() == Some(role.name.as_str()) && vm.attribute(labels::SHAPE) == shape.as_deref()
}

/// Only known nodes take part, and what it joins with is not there yet.
pub fn lacks_token(record: &Record) -> bool {
    let spec = record.desired.as_ref().map(|desired| &desired.spec);
    let joins = |spec: &NodeSpec| spec.node_auth && spec.runtime == Runtime::Trellis;
    matches!(spec, Some(Spec::Node(spec)) if joins(spec)) && record.join_token.is_none()
}

fn tunnel<'a>(ground: &'a Ground<'_>) -> Option<&'a Tunnel> {
    wanted(ground).find_map(|(_, spec)| context::tunnel(spec))
}

/// Records with a desired state, and their specification: from the order, or from the document.
fn wanted<'a>(ground: &'a Ground<'_>) -> impl Iterator<Item = (&'a Record, &'a Spec)> {
    let wanted = ground.records.values().filter(|record| record.is_wanted());
    wanted.filter_map(|record| {
        let heard = || ground.heard.and_then(|heard| heard.get(&record.id));
        Some((record, &record.desired.as_ref().or_else(heard)?.spec))
    })
}

/// The roles that are wanted. What new VMs are made for is what was asked for last, of those who have none first.
fn roles<'a>(ground: &'a Ground<'a>) -> BTreeMap<RoleOf, Role<'a>> {
    let mut groups: BTreeMap<RoleOf, Vec<(&Record, &Spec)>> = BTreeMap::new();
    for (record, spec) in wanted(ground) {
        groups.entry(RoleOf::of(record.id.node_key())).or_default().push((record, spec));
    }
    let mut roles = BTreeMap::new();
    let mut taken: BTreeSet<String> = BTreeSet::new();
    for (of, parts) in groups {
        let last = parts.iter().max_by_key(|(record, _)| (record.vm.is_none(), record.order));
        let name = name(ground, &of, &taken);
        taken.insert(name.clone());
        let count = u32::try_from(parts.len()).unwrap_or(u32::MAX);
        let spec = last.map(|(_, spec)| *spec);
        roles.insert(of, Role { name, spec, count, waiting: Vec::new(), free: Vec::new(), gateway: false });
    }
    if tunnel(ground).is_some() {
        let name = GATEWAY.to_owned();
        let gateway = Role { name, spec: None, count: 1, waiting: Vec::new(), free: Vec::new(), gateway: true };
        roles.insert(RoleOf::Gateway, gateway);
    }
    roles
}

/// A pool's role is called what it was called when it was made: the first one `supernode`, others after their pools.
fn name(ground: &Ground<'_>, of: &RoleOf, taken: &BTreeSet<String>) -> String {
    let pool = match of {
        RoleOf::SuperLink => return SUPERLINK.to_owned(),
        RoleOf::Gateway => return GATEWAY.to_owned(),
        RoleOf::Pool(pool) => pool,
    };
    let pool_of = |attributes: &BTreeMap<String, String>| {
        Some((attributes.get(labels::POOL).and_then(|name| Name::new(name))?, attributes.get(labels::ROLE)?.clone()))
    };
    let made: Vec<(Name, String)> =
        ground.view.templates.iter().filter_map(|template| pool_of(&template.attributes)).collect();
    if let Some((_, role)) = made.iter().find(|(name, _)| name == pool) {
        return role.clone();
    }
    let first = !taken.contains(SUPERNODE) && !made.iter().any(|(_, role)| role == SUPERNODE);
    if first { SUPERNODE.to_owned() } else { RoleOf::long_name(pool) }
}
