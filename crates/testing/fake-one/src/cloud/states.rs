//! State numbers and names of VMs.

use serde::Serialize;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub enum VmState {
    Pending = 1,
    Hold = 2,
    Active = 3,
    Stopped = 4,
    Suspended = 5,
    Done = 6,
    Poweroff = 8,
    Undeployed = 9,
    Cloning = 10,
    CloningFailure = 11,
}

/// States that this cloud supports.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub enum LcmState {
    Init = 0,
    Prolog = 1,
    Boot = 2,
    Running = 3,
    SaveStop = 5,
    SaveSuspend = 6,
    PrologResume = 9,
    EpilogStop = 10,
    Epilog = 11,
    Shutdown = 12,
    CleanupResubmit = 15,
    Unknown = 16,
    ShutdownPoweroff = 18,
    BootUnknown = 19,
    BootPoweroff = 20,
    BootSuspended = 21,
    BootStopped = 22,
    CleanupDelete = 23,
    ShutdownUndeploy = 29,
    EpilogUndeploy = 30,
    PrologUndeploy = 31,
    BootUndeploy = 32,
    BootFailure = 36,
    PrologFailure = 39,
    EpilogFailure = 40,
}

impl LcmState {
    pub fn is_failure(self) -> bool {
        matches!(self, LcmState::BootFailure | LcmState::PrologFailure | LcmState::EpilogFailure)
    }

    pub fn from_number(number: i64) -> Option<LcmState> {
        LCM.iter().find(|(state, _)| *state as i64 == number).map(|(state, _)| *state)
    }
}

impl VmState {
    pub fn from_number(number: i64) -> Option<VmState> {
        VM.iter().find(|(state, _)| *state as i64 == number).map(|(state, _)| *state)
    }
}

const VM: [(VmState, &str); 10] = [
    (VmState::Pending, "PENDING"),
    (VmState::Hold, "HOLD"),
    (VmState::Active, "ACTIVE"),
    (VmState::Stopped, "STOPPED"),
    (VmState::Suspended, "SUSPENDED"),
    (VmState::Done, "DONE"),
    (VmState::Poweroff, "POWEROFF"),
    (VmState::Undeployed, "UNDEPLOYED"),
    (VmState::Cloning, "CLONING"),
    (VmState::CloningFailure, "CLONING_FAILURE"),
];

const LCM: [(LcmState, &str); 25] = [
    (LcmState::Init, "LCM_INIT"),
    (LcmState::Prolog, "PROLOG"),
    (LcmState::Boot, "BOOT"),
    (LcmState::Running, "RUNNING"),
    (LcmState::SaveStop, "SAVE_STOP"),
    (LcmState::SaveSuspend, "SAVE_SUSPEND"),
    (LcmState::PrologResume, "PROLOG_RESUME"),
    (LcmState::EpilogStop, "EPILOG_STOP"),
    (LcmState::Epilog, "EPILOG"),
    (LcmState::Shutdown, "SHUTDOWN"),
    (LcmState::CleanupResubmit, "CLEANUP_RESUBMIT"),
    (LcmState::Unknown, "UNKNOWN"),
    (LcmState::ShutdownPoweroff, "SHUTDOWN_POWEROFF"),
    (LcmState::BootUnknown, "BOOT_UNKNOWN"),
    (LcmState::BootPoweroff, "BOOT_POWEROFF"),
    (LcmState::BootSuspended, "BOOT_SUSPENDED"),
    (LcmState::BootStopped, "BOOT_STOPPED"),
    (LcmState::CleanupDelete, "CLEANUP_DELETE"),
    (LcmState::ShutdownUndeploy, "SHUTDOWN_UNDEPLOY"),
    (LcmState::EpilogUndeploy, "EPILOG_UNDEPLOY"),
    (LcmState::PrologUndeploy, "PROLOG_UNDEPLOY"),
    (LcmState::BootUndeploy, "BOOT_UNDEPLOY"),
    (LcmState::BootFailure, "BOOT_FAILURE"),
    (LcmState::PrologFailure, "PROLOG_FAILURE"),
    (LcmState::EpilogFailure, "EPILOG_FAILURE"),
];

/// Name in oned's error messages: for an active VM, its LCM state.
pub fn state_name(state: VmState, lcm: LcmState) -> &'static str {
    let names = match state {
        VmState::Active => LCM.iter().find(|(known, _)| *known == lcm).map(|(_, name)| *name),
        state => VM.iter().find(|(known, _)| *known == state).map(|(_, name)| *name),
    };
    names.expect("both tables name every state")
}
