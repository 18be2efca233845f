//! Actions on VMs by state: `one.vm.action` and `one.vm.recover`.

use super::vm::{Aim, Next};
use super::{ACTION, Cloud, Id, LcmState, Order, Refused, VmState, state_name};

impl Cloud {
    pub fn act(&mut self, id: Id, action: &str) -> Result<(), Refused> {
        let vm = self.vm(id)?;
        let (state, lcm) = (vm.state, vm.lcm);
        let running = state == VmState::Active && lcm == LcmState::Running;
        let lost = state == VmState::Active && lcm == LcmState::Unknown;
        let failed = state == VmState::Active && lcm.is_failure();
        let (verb, hard) = match action.strip_suffix("-hard") {
            Some(verb) if ["terminate", "poweroff", "undeploy", "reboot"].contains(&verb) => (verb, true),
            _ => (action, false),
        };
        let wrong = || {
            let name = state_name(state, lcm);
            let text = format!("Error performing action \"{action}\": This action is not available for state {name}");
            Err(Refused::new(ACTION, text))
        };
        match (verb, state) {
            // oned accepts it without an effect.
            ("terminate", VmState::Done) => {}
            ("terminate", _) if running || lost => self.stop(id, LcmState::Shutdown, Aim::Done, hard),
            ("terminate", VmState::Pending | VmState::Hold | VmState::Cloning | VmState::CloningFailure) => {
                self.vms.get_mut(&id).expect("it was there").next = None;
                self.turn(id, VmState::Done, LcmState::Init);
            }
            ("terminate", VmState::Poweroff | VmState::Undeployed | VmState::Stopped | VmState::Suspended) => {
                self.vms.get_mut(&id).expect("it was there").aim = Some(Aim::Done);
                self.turn(id, VmState::Active, LcmState::Epilog);
                self.after(id, self.pace.shutdown_ms, Next::Settle);
            }
            ("terminate", _) if failed => {
                self.vms.get_mut(&id).expect("it was there").aim = Some(Aim::Done);
                self.turn(id, VmState::Active, LcmState::CleanupDelete);
                self.after(id, self.pace.shutdown_ms, Next::Settle);
            }
            ("terminate", VmState::Active) if hard && lcm == LcmState::Shutdown => {
                self.stop(id, LcmState::Shutdown, Aim::Done, hard);
            }
            ("poweroff", _) if running || lost => self.stop(id, LcmState::ShutdownPoweroff, Aim::Poweroff, hard),
            ("undeploy", _) if running || lost => self.stop(id, LcmState::ShutdownUndeploy, Aim::Undeployed, hard),
            ("undeploy", VmState::Poweroff) => {
                self.vms.get_mut(&id).expect("it was there").aim = Some(Aim::Undeployed);
                self.turn(id, VmState::Active, LcmState::EpilogUndeploy);
                self.after(id, self.pace.shutdown_ms, Next::Settle);
            }
            ("stop", _) if running => self.stop(id, LcmState::SaveStop, Aim::Stopped, hard),
            ("suspend", _) if running => self.stop(id, LcmState::SaveSuspend, Aim::Suspended, hard),
            ("reboot", _) if running => self.orders.push(Order::Reboot(id)),
            ("resume", VmState::Poweroff) => self.boot(id, LcmState::BootPoweroff),
            ("resume", VmState::Suspended) => self.boot(id, LcmState::BootSuspended),
            ("resume", VmState::Undeployed | VmState::Stopped) => {
                self.turn(id, VmState::Pending, LcmState::Init);
                self.after(id, self.pace.schedule_ms, Next::Deploy);
            }
            ("resume", _) if lost => self.boot(id, LcmState::BootUnknown),
            ("hold", VmState::Pending) => {
                self.vms.get_mut(&id).expect("it was there").next = None;
                self.turn(id, VmState::Hold, LcmState::Init);
            }
            ("release", VmState::Hold) => {
                self.turn(id, VmState::Pending, LcmState::Init);
                self.after(id, self.pace.schedule_ms, Next::Deploy);
            }
            ("resched" | "unresched", _) if running => {}
            (
                "terminate" | "poweroff" | "undeploy" | "stop" | "suspend" | "reboot" | "resume" | "hold" | "release"
                | "resched" | "unresched",
                _,
            ) => return wrong(),
            _ => return Err(Refused::new(ACTION, format!("Action \"{action}\" is not supported"))),
        }
        Ok(())
    }

    fn stop(&mut self, id: Id, lcm: LcmState, aim: Aim, hard: bool) {
        let vm = self.vms.get_mut(&id).expect("the caller looked");
        vm.aim = Some(aim);
        vm.next = None;
        self.turn(id, VmState::Active, lcm);
        self.orders.push(Order::Stop { vm: id, hard });
    }

    /// 0 failure, 1 success, 2 retry, 3 delete, 4 delete and recreate, 5 delete from the database.
    pub fn recover_vm(&mut self, id: Id, operation: i64) -> Result<(), Refused> {
        let vm = self.vm(id)?;
        let (state, lcm) = (vm.state, vm.lcm);
        let active = state == VmState::Active;
        match operation {
            1 if active && lcm == LcmState::BootFailure => self.turn(id, VmState::Active, LcmState::Running),
            2 if active && lcm == LcmState::BootFailure => self.boot(id, LcmState::Boot),
            2 if active && lcm.is_failure() => self.after(id, self.pace.prolog_ms, Next::Boot(LcmState::Boot)),
            0 if active && lcm == LcmState::Boot => self.turn(id, VmState::Active, LcmState::BootFailure),
            3 | 5 if state != VmState::Done => {
                self.vms.get_mut(&id).expect("it was there").next = None;
                if active {
                    self.orders.push(Order::Stop { vm: id, hard: true });
                }
                self.turn(id, VmState::Done, LcmState::Init);
            }
            4 if active && !lcm.is_failure() => self.stop(id, LcmState::CleanupResubmit, Aim::Again, true),
            4 if active => {
                self.turn(id, VmState::Pending, LcmState::Init);
                self.after(id, self.pace.schedule_ms, Next::Deploy);
            }
            _ => {
                let name = state_name(state, lcm);
                let text = format!("Error recovering: This action is not available for state {name}");
                return Err(Refused::new(ACTION, text));
            }
        }
        Ok(())
    }
}
