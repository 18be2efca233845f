//! Life cycle of VMs.

use std::collections::BTreeMap;

use super::{Cloud, Holder, Id, ImageState, LcmState, Order, Owned, VmState, state_name};
use crate::template::Template;

#[derive(Debug, Clone)]
pub struct Vm {
    pub owned: Owned,
    pub state: VmState,
    pub lcm: LcmState,
    pub started: u64,
    pub ended: u64,
    pub last_poll: u64,
    pub deploy_id: String,
    pub template: Template,
    pub user_template: Template,
    pub history: Vec<History>,
    /// Monitoring values for policies.
    pub monitoring: Template,
    /// Changes with each start.
    pub boots: u64,
    pub(super) next: Option<(u64, Next)>,
    pub(super) aim: Option<Aim>,
}

#[derive(Debug, Clone)]
pub struct History {
    pub host: Id,
    pub started: u64,
    pub ended: u64,
    pub action: i64,
}

/// Changes over time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Next {
    Deploy,
    Boot(LcmState),
    Up,
    Settle,
}

/// Final state after a stop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Aim {
    Done,
    Poweroff,
    Undeployed,
    Stopped,
    Suspended,
    Again,
}

const HOSTS: i64 = 2;
/// Date that oned prepends to messages of a VM. A constant: the real date adds no information.
const RECORDED_DATE: &str = "Sun Nov 15 07:25:28 2026";

impl Vm {
    pub fn is_done(&self) -> bool {
        self.state == VmState::Done
    }

    pub fn is_running(&self) -> bool {
        self.state == VmState::Active && self.lcm == LcmState::Running
    }

    pub fn is_failed(&self) -> bool {
        self.state == VmState::Active && self.lcm.is_failure()
    }

    /// The host of the VM does not respond.
    pub fn is_lost(&self) -> bool {
        self.state == VmState::Active && self.lcm == LcmState::Unknown
    }

    /// A user stopped the VM; its state does not change.
    pub fn is_at_rest(&self) -> bool {
        matches!(self.state, VmState::Poweroff | VmState::Undeployed | VmState::Stopped | VmState::Suspended)
    }

    pub fn address(&self) -> Option<&str> {
        self.template.vector("NIC")?.get("IP").map(String::as_str)
    }

    pub fn context(&self) -> BTreeMap<String, String> {
        self.template.vector("CONTEXT").cloned().unwrap_or_default()
    }

    pub fn service(&self) -> Option<Id> {
        self.user_template.get("SERVICE_ID")?.parse().ok()
    }

    pub fn role(&self) -> Option<&str> {
        self.user_template.get("ROLE_NAME")
    }
}

impl Cloud {
    pub fn turn(&mut self, id: Id, state: VmState, lcm: LcmState) {
        let now = self.now_s();
        let Some(vm) = self.vms.get_mut(&id) else { return };
        let old = state_name(vm.state, vm.lcm).to_owned();
        (vm.state, vm.lcm) = (state, lcm);
        let rests = state != VmState::Active;
        if rests && let Some(last) = vm.history.last_mut().filter(|last| last.ended == 0) {
            last.ended = now;
        }
        if state == VmState::Done {
            vm.ended = now;
            if let Some(mut graphics) = vm.template.vector("GRAPHICS").cloned() {
                graphics.remove("PORT");
                vm.template.set_vector("GRAPHICS", graphics);
            }
        }
        self.record(id, "VM_STATE", Some(old), Some(state_name(state, lcm).to_owned()), "cloud");
        if state == VmState::Done {
            self.release_leases(&Holder::Vm(id));
            self.images_left(id);
        }
    }

    pub(super) fn advance_vms(&mut self) {
        let ids: Vec<Id> = self.vms.values().filter(|vm| !vm.is_done()).map(|vm| vm.owned.id).collect();
        for id in ids {
            let next = self.vms[&id].next;
            if self.vms[&id].state == VmState::Cloning && self.images_ready(id) {
                self.turn(id, VmState::Pending, LcmState::Init);
                self.after(id, self.pace.schedule_ms, Next::Deploy);
            } else if self.vms[&id].state == VmState::Cloning && self.image_failed(id) {
                self.turn(id, VmState::CloningFailure, LcmState::Init);
            } else if let Some((_, next)) = next.filter(|(at_ms, _)| *at_ms <= self.now_ms) {
                self.vms.get_mut(&id).expect("it is there").next = None;
                self.step(id, next);
            }
        }
    }

    fn image_failed(&self, id: Id) -> bool {
        self.images.values().any(|image| image.vms.contains(&id) && image.state == ImageState::Error)
    }

    fn images_ready(&mut self, id: Id) -> bool {
        let mut used = self.images.values_mut().filter(|image| image.vms.contains(&id));
        used.all(|image| {
            if image.state == ImageState::Ready {
                image.state = ImageState::Used;
            }
            image.state != ImageState::Locked && image.state != ImageState::Error
        })
    }

    pub(super) fn after(&mut self, id: Id, wait_ms: u64, next: Next) {
        let at_ms = self.now_ms + wait_ms;
        if let Some(vm) = self.vms.get_mut(&id) {
            vm.next = Some((at_ms, next));
        }
    }

    fn step(&mut self, id: Id, next: Next) {
        match next {
            Next::Deploy => {
                if self.waits_for_room(id) {
                    return self.after(id, self.pace.schedule_ms, Next::Deploy);
                }
                let (lcm, boot) = match self.vms[&id].boots {
                    0 => (LcmState::Prolog, LcmState::Boot),
                    _ => (LcmState::PrologUndeploy, LcmState::BootUndeploy),
                };
                self.turn(id, VmState::Active, lcm);
                let now = self.now_s();
                let vm = self.vms.get_mut(&id).expect("it is there");
                let host = id % HOSTS;
                vm.history.push(History { host, started: now, ended: 0, action: 0 });
                let machine = if host == 0 { "dummy-a" } else { "dummy-b" };
                vm.deploy_id = format!("{machine}:{}:dummy", vm.owned.name);
                vm.template.set("TM_MAD_SYSTEM", "dummy");
                if let Some(mut graphics) = vm.template.vector("GRAPHICS").cloned() {
                    graphics.insert("PORT".to_owned(), (5900 + id).to_string());
                    vm.template.set_vector("GRAPHICS", graphics);
                }
                self.after(id, self.pace.prolog_ms, Next::Boot(boot));
            }
            Next::Boot(lcm) => self.boot(id, lcm),
            Next::Up => {
                let now = self.now_s();
                let vm = self.vms.get_mut(&id).expect("it is there");
                vm.last_poll = now;
                self.turn(id, VmState::Active, LcmState::Running);
            }
            Next::Settle => self.settle(id),
        }
    }

    /// Sets the scheduler's message on a VM that it cannot place, and removes it once it can.
    fn waits_for_room(&mut self, id: Id) -> bool {
        let name = self.vms[&id].owned.name.clone();
        let why = self.faults.unplaced(&name);
        let vm = self.vms.get_mut(&id).expect("it is there");
        match &why {
            Some(why) => vm.user_template.set("SCHED_MESSAGE", format!("{RECORDED_DATE}: {why}")),
            None => drop(vm.user_template.erase("SCHED_MESSAGE")),
        }
        why.is_some()
    }

    pub(super) fn boot(&mut self, id: Id, lcm: LcmState) {
        let name = self.vms[&id].owned.name.clone();
        self.turn(id, VmState::Active, lcm);
        if self.faults.takes_boot(&name) {
            let vm = self.vms.get_mut(&id).expect("it is there");
            vm.user_template.set("ERROR", format!("{RECORDED_DATE}: DEPLOY: ERROR: deploy: cannot start the domain"));
            self.turn(id, VmState::Active, LcmState::BootFailure);
            return;
        }
        let vm = self.vms.get_mut(&id).expect("it is there");
        vm.boots += 1;
        self.orders.push(Order::Start(id));
        self.after(id, self.pace.boot_ms, Next::Up);
    }

    /// The hypervisor reports that the machine is gone.
    pub fn machine_gone(&mut self, id: Id) {
        let Some(vm) = self.vms.get(&id) else { return };
        match vm.aim {
            Some(aim) if vm.state == VmState::Active => {
                match aim {
                    Aim::Done => self.turn(id, VmState::Active, LcmState::Epilog),
                    Aim::Undeployed => self.turn(id, VmState::Active, LcmState::EpilogUndeploy),
                    Aim::Stopped => self.turn(id, VmState::Active, LcmState::EpilogStop),
                    Aim::Poweroff | Aim::Suspended | Aim::Again => {}
                }
                self.after(id, self.pace.shutdown_ms, Next::Settle);
            }
            None if vm.state == VmState::Active && !vm.lcm.is_failure() => {
                // The guest shut down.
                self.vms.get_mut(&id).expect("it is there").next = None;
                self.turn(id, VmState::Poweroff, LcmState::Init);
            }
            _ => {}
        }
    }

    fn settle(&mut self, id: Id) {
        let vm = self.vms.get_mut(&id).expect("it is there");
        let state = match vm.aim.take() {
            Some(Aim::Done) => VmState::Done,
            Some(Aim::Undeployed) => VmState::Undeployed,
            Some(Aim::Stopped) => VmState::Stopped,
            Some(Aim::Suspended) => VmState::Suspended,
            Some(Aim::Again) => VmState::Pending,
            Some(Aim::Poweroff) | None => VmState::Poweroff,
        };
        self.turn(id, state, LcmState::Init);
        if state == VmState::Pending {
            self.after(id, self.pace.schedule_ms, Next::Deploy);
        }
    }
}
