//! The second stage of starting an app: a process restricts itself and then executes the app. It must run before the
//! process has a second thread, because most restrictions apply to one thread.

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};

use landlock::{
    ABI, Access, AccessFs, AccessNet, CompatLevel, Compatible, NetPort, PathBeneath, PathFd, Ruleset, RulesetAttr,
    RulesetCreated, RulesetCreatedAttr, RulesetError, RulesetStatus, Scope,
};
use rustix::io::Errno;
use rustix::process::{Gid, Uid};
use rustix::thread::{self, CapabilitySet, CapabilitySets};

use crate::filter;
use crate::policy::{Policy, Sockets, User};

/// The variable with the policy. It is removed from the app's environment.
pub const POLICY: &str = "TRELLIS_SANDBOX_POLICY";
/// Exit status of shells for a program that cannot be executed.
const NOT_EXECUTED: u8 = 126;
/// The newest known Landlock ABI; a kernel enforces the rights that it supports.
const NEWEST: ABI = ABI::V9;
/// More than the number of capabilities of any kernel.
const CAPABILITIES: u32 = 64;

#[derive(Debug, thiserror::Error)]
enum EnterError {
    #[error("variable {POLICY} is missing or malformed: this command is started by trellis only")]
    Policy(#[source] Option<serde_json::Error>),
    #[error("no program is named")]
    NoProgram,
    #[error("the user of the app cannot be set")]
    User(#[source] Errno),
    #[error("capabilities cannot be dropped")]
    Capabilities(#[source] Errno),
    #[error("the rules about files cannot be set")]
    Files(#[from] RulesetError),
    #[error("the kernel does not enforce rules about files (Landlock), and --sandbox required asks for them")]
    NoFiles,
    #[error("the system call filter cannot be set")]
    Filter(#[from] seccompiler::Error),
    #[error("{} cannot be executed", program.to_string_lossy())]
    Execute { program: OsString, source: std::io::Error },
}

/// Restricts this process according to the policy in its environment and executes the program in `words`. Returns only
/// on failure.
pub fn enter(words: &[OsString]) -> ExitCode {
    let Err(error) = restrict(words);
    let causes = std::iter::successors(std::error::Error::source(&error), |error| error.source());
    let told = causes.fold(error.to_string(), |told, cause| format!("{told}: {cause}"));
    eprintln!("the sandbox of the app cannot be set up: {told}");
    ExitCode::from(NOT_EXECUTED)
}

fn restrict(words: &[OsString]) -> Result<std::convert::Infallible, EnterError> {
    let text = std::env::var(POLICY).map_err(|_| EnterError::Policy(None))?;
    let policy: Policy = serde_json::from_str(&text).map_err(|error| EnterError::Policy(Some(error)))?;
    let (program, arguments) = words.split_first().ok_or(EnterError::NoProgram)?;
    // Before the restrictions, while every path is still accessible.
    let files = ruleset(&policy)?;
    drop_rights(policy.user.as_ref())?;
    let enforced = files.restrict_self()?;
    if policy.required && enforced.ruleset == RulesetStatus::NotEnforced {
        return Err(EnterError::NoFiles);
    }
    for program in filter::programs(&policy)? {
        match seccompiler::apply_filter(&program) {
            Err(error) if policy.required => return Err(error.into()),
            _ => {}
        }
    }
    let source = Command::new(program).args(arguments).env_remove(POLICY).exec();
    Err(EnterError::Execute { program: program.clone(), source })
}

fn ruleset(policy: &Policy) -> Result<RulesetCreated, RulesetError> {
    let read = AccessFs::from_read(NEWEST);
    let device = AccessFs::from_file(NEWEST) & !AccessFs::Execute;
    // Shared memory is a directory among the devices. Programs in it must not be executable.
    let everything = AccessFs::from_all(NEWEST);
    let mut rules = Ruleset::default()
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(everything)?
        .scope(Scope::from_all(NEWEST))?;
    if matches!(policy.sockets, Sockets::Port(_)) {
        rules = rules.handle_access(AccessNet::from_all(NEWEST))?;
    }
    let mut rules = rules.create()?;
    let devices = |path: &std::path::PathBuf| if path.is_dir() { everything & !AccessFs::Execute } else { device };
    let granted = policy.read.iter().map(|path| (path, read));
    let granted = granted.chain(policy.write.iter().map(|path| (path, everything)));
    for (path, access) in granted.chain(policy.devices.iter().map(|path| (path, devices(path)))) {
        // A path may have been removed since it was listed; it is then skipped.
        if let Ok(opened) = PathFd::new(path) {
            rules = rules.add_rule(PathBeneath::new(opened, access))?;
        }
    }
    match policy.sockets {
        Sockets::Port(port) => rules.add_rule(NetPort::new(port, AccessNet::ConnectTcp)),
        _ => Ok(rules),
    }
}

/// Switches to the app's user and drops all capabilities, also those of root.
fn drop_rights(user: Option<&User>) -> Result<(), EnterError> {
    for number in 0..CAPABILITIES {
        // Fails without the right to drop it, which means there is none to drop, and beyond the kernel's last
        // capability.
        let capability = CapabilitySet::from_bits_retain(1 << number);
        let _nothing_to_drop = thread::remove_capability_from_bounding_set(capability);
    }
    if let Some(user) = user {
        let groups: Vec<Gid> = user.groups.iter().map(|group| Gid::from_raw(*group)).collect();
        let (uid, gid) = (Uid::from_raw(user.uid), Gid::from_raw(user.gid));
        thread::set_thread_groups(&groups).map_err(EnterError::User)?;
        thread::set_thread_res_gid(gid, gid, gid).map_err(EnterError::User)?;
        thread::set_thread_res_uid(uid, uid, uid).map_err(EnterError::User)?;
    }
    let _none_there = thread::clear_ambient_capability_set();
    let none = CapabilitySet::empty();
    thread::set_capabilities(None, CapabilitySets { effective: none, permitted: none, inheritable: none })
        .map_err(EnterError::Capabilities)?;
    thread::set_no_new_privs(true).map_err(EnterError::Capabilities)
}
