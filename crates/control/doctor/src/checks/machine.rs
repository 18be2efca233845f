//! The program and its machine.

use trellis_sandbox::Level;
use trellis_terminal::size::rounded;

use super::listed;
use crate::check::Check;
use crate::facts::{Cgroup, Clock, Engine, Gpus, Home, Memory, OnPath, OpenFiles, Program};

/// A single run may need this: a few models with their checkpoints.
const LOW_DISK_BYTES: u64 = 5 << 30;
/// A SuperLink stops below this.
const MIN_DISK_BYTES: u64 = 200 << 20;
const MIN_FREE_FILES: u64 = 10_000;
/// A SuperLink needs a few per connected node, and some for the object store.
const MIN_OPEN_FILES: u64 = 1024;
const GOOD_OPEN_FILES: u64 = 8192;
/// Enough for a SuperLink and one Python app.
const MIN_MEMORY_BYTES: u64 = 512 << 20;
/// Clocks of machines that share files may differ by this.
const MAX_CLOCK_SKEW_S: i64 = 300;
const MAX_LISTED: usize = 3;

pub fn program(program: &Program) -> Check {
    let Program { path, version, on_path } = program;
    let place = path.as_ref().map_or_else(String::new, |path| format!(" at {}", path.display()));
    let here = format!("trellis {version}{place}");
    match on_path {
        Some(OnPath { same: true, .. }) => Check::ok("program", here),
        None => {
            let fix = "put its directory on PATH, or a link to it in a directory that is";
            Check::warning("program", format!("{here}, which is not on PATH"), fix)
        }
        Some(OnPath { path: other, version, .. }) => {
            let which = version.as_ref().map_or_else(String::new, |version| format!(" ({version})"));
            let found = format!("{here}; a shell starts {}{which}", other.display());
            Check::warning("program", found, "remove one of them, or change the order of PATH")
        }
    }
}

pub fn home(home: &Home) -> Check {
    let Some(path) = &home.path else {
        let found = "the control plane has no directory: neither HOME nor TRELLIS_HOME is set";
        return Check::problem("home", found, "set TRELLIS_HOME to a directory that you own");
    };
    let place = path.display();
    if let Some(why) = &home.unwritable {
        let fix = "make it writable for this user, or set TRELLIS_HOME to another directory";
        return Check::problem("home", format!("{place} cannot be written to: {why}"), fix);
    }
    let free = home.free_bytes.map_or_else(String::new, |bytes| format!(", {} free", rounded(bytes)));
    let found = format!("{place}{}{free}", if home.exists { "" } else { " (created when needed)" });
    let fix = "free some space there, or set TRELLIS_HOME to a directory on a larger disk";
    match (home.free_bytes, home.free_files) {
        (Some(bytes), _) if bytes < MIN_DISK_BYTES => Check::problem("home", found, fix),
        (_, Some(files)) if files < MIN_FREE_FILES => {
            Check::warning("home", format!("{found}, room for {files} files only"), fix)
        }
        (Some(bytes), _) if bytes < LOW_DISK_BYTES => Check::warning("home", found, fix),
        _ => Check::ok("home", found),
    }
}

pub fn clock(clock: &Clock) -> Check {
    let now = trellis_pki::date(clock.now_s);
    match (clock.program_s, clock.synchronized) {
        (Some(written), _) if clock.now_s + MAX_CLOCK_SKEW_S < written => {
            let found = format!(
                "the clock of this machine says {now}, but this program was built on {}",
                trellis_pki::date(written)
            );
            Check::problem("clock", found, "set the clock: certificates are only valid at certain times")
        }
        (_, Some(false)) => {
            let fix = "turn on time synchronization (timedatectl set-ntp true): certificates and logs depend on it";
            Check::warning("clock", format!("{now}; the time service has not set it yet"), fix)
        }
        (_, Some(true)) => Check::ok("clock", format!("{now}, set by a time service")),
        (_, None) => Check::ok("clock", now),
    }
}

pub fn open_files(limits: Option<OpenFiles>) -> Check {
    let Some(OpenFiles { soft, hard }) = limits else {
        return Check::ok("open files", "the limit is unknown");
    };
    let shown = |limit: Option<u64>| limit.map_or_else(|| "any number".to_owned(), |limit| limit.to_string());
    let found = format!("{} of {}", shown(soft), shown(hard));
    let fix = format!("raise it: ulimit -n {GOOD_OPEN_FILES}, or LimitNOFILE= of the service");
    match soft {
        Some(soft) if soft < MIN_OPEN_FILES => Check::problem("open files", found, fix),
        Some(soft) if soft < GOOD_OPEN_FILES && hard.is_none_or(|hard| hard > soft) => {
            Check::ok("open files", format!("{found}; a SuperLink raises the soft limit itself"))
        }
        Some(soft) if soft < GOOD_OPEN_FILES => {
            Check::warning("open files", format!("{found}: enough for some hundred nodes"), fix)
        }
        _ => Check::ok("open files", found),
    }
}

pub fn memory(memory: Option<Memory>) -> Check {
    let Some(Memory { total_bytes, available_bytes }) = memory else {
        return Check::ok("memory", "the amount is unknown");
    };
    let found = format!("{} of {} available", rounded(available_bytes), rounded(total_bytes));
    match available_bytes < MIN_MEMORY_BYTES {
        true => Check::warning("memory", found, "stop other programs, or start fewer nodes: the kernel may kill apps"),
        false => Check::ok("memory", found),
    }
}

pub fn cgroup(cgroup: &Cgroup) -> Check {
    const NOT_ENFORCED: &str = "the kernel does not enforce the limits of apps; nodes check them every second instead";
    const FIX: &str = "run nodes as a service with Delegate=yes, or in a container; see docs/resources.md";
    match cgroup {
        Cgroup::Absent(why) => Check::warning("limits", format!("{why}: {NOT_ENFORCED}"), FIX),
        Cgroup::Present { path, delegated: false, .. } => {
            Check::warning("limits", format!("cgroup {path} is not delegated to this user: {NOT_ENFORCED}"), FIX)
        }
        Cgroup::Present { path, controllers, .. } => {
            let missing: Vec<String> = ["memory", "cpu"]
                .iter()
                .filter(|name| !controllers.iter().any(|has| has == *name))
                .map(|name| (*name).to_owned())
                .collect();
            match missing.is_empty() {
                true => Check::ok("limits", format!("cgroup v2 at {path}: memory and CPUs of apps can be limited")),
                false => Check::warning(
                    "limits",
                    format!("cgroup {path} cannot limit {}: {NOT_ENFORCED}", missing.join(" and ")),
                    FIX,
                ),
            }
        }
    }
}

pub fn sandbox(level: &Level) -> Check {
    const FIX: &str = "use a kernel that supports it; see docs/supernode.md, Sandbox of apps";
    match level.missing.is_empty() {
        true => Check::ok("sandbox", format!("apps have no access to keys and other processes{}", gaps(level))),
        false => {
            let found =
                format!("apps are not fully restricted: the kernel does not have {}", level.missing.join(" and "));
            Check::warning("sandbox", found, FIX)
        }
    }
}

fn gaps(level: &Level) -> String {
    level.limits.iter().map(|limit| format!("; {limit}")).collect()
}

pub fn gpu(gpus: &Gpus) -> Check {
    if !gpus.usable.is_empty() {
        let shown: Vec<String> = gpus
            .usable
            .iter()
            .map(|gpu| match gpu.memory_bytes {
                Some(bytes) => format!("{} ({})", gpu.name, rounded(bytes)),
                None => gpu.name.clone(),
            })
            .collect();
        let driver =
            gpus.usable[0].driver_version.as_ref().map_or_else(String::new, |driver| format!(", driver {driver}"));
        return Check::ok("gpu", format!("{}{driver}", listed(&shown, MAX_LISTED)));
    }
    match (gpus.on_bus, &gpus.driver, gpus.tool) {
        (0, None, _) => Check::ok("gpu", "none; apps use the CPU"),
        (0, Some(driver), _) => {
            let fix = "attach the GPU to this machine or container, or remove the driver";
            Check::warning("gpu", format!("driver {driver} is loaded, but there is no GPU"), fix)
        }
        (count, None, _) => {
            let fix = "install NVIDIA's driver and load it; nvidia-smi must list the GPU";
            Check::warning("gpu", format!("{count} on the bus without a driver"), fix)
        }
        (count, Some(driver), true) => {
            let fix = "run nvidia-smi: apps would fail with the same error";
            Check::problem("gpu", format!("{count} on the bus with driver {driver}, but nvidia-smi cannot use it"), fix)
        }
        (count, Some(driver), false) => {
            let fix = "start the container with its devices (--gpus all), or install the tools of the driver";
            Check::warning(
                "gpu",
                format!("{count} on the bus with driver {driver}, but without device files here"),
                fix,
            )
        }
    }
}

pub fn engines(engines: &[Engine]) -> Check {
    if engines.is_empty() {
        return Check::ok("containers", "neither podman nor docker; local federations run as processes");
    }
    let (working, failing): (Vec<&Engine>, Vec<&Engine>) = engines.iter().partition(|engine| engine.answer.is_ok());
    let shown = |engines: &[&Engine]| {
        let each = engines.iter().map(|engine| match &engine.answer {
            Ok(version) => format!("{} {version}", engine.name),
            Err(why) => format!("{} does not answer ({why})", engine.name),
        });
        each.collect::<Vec<_>>().join("; ")
    };
    match (working.is_empty(), failing.is_empty()) {
        (_, true) => Check::ok("containers", shown(&working)),
        (false, _) => Check::ok("containers", format!("{}; {}", shown(&working), shown(&failing))),
        (true, _) => {
            let fix =
                "start its service, or grant this user access to it; until then local federations run as processes";
            Check::warning("containers", shown(&failing), fix)
        }
    }
}
