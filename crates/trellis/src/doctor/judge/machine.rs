//! The program and the machine under it.

use trellis_sandbox::Level;

use super::listed;
use crate::doctor::check::Check;
use crate::doctor::facts::{Cgroup, Clock, Engine, Gpus, Home, Memory, OnPath, OpenFiles, Program};
use crate::settings::size::rounded as amount;

/// Less is a disk that a run fills: a few models with their checkpoints.
const TIGHT_DISK_BYTES: u64 = 5 << 30;
/// Less stops a SuperLink.
const FULL_DISK_BYTES: u64 = 200 << 20;
const FEW_FILES: u64 = 10_000;
/// A SuperLink needs a few for each node that is connected, and an object store some more.
const FEW_OPEN_FILES: u64 = 1024;
const GOOD_OPEN_FILES: u64 = 8192;
/// What a SuperLink and one Python app want.
const LITTLE_MEMORY_BYTES: u64 = 512 << 20;
/// Clocks of machines that share files differ a little.
const CLOCK_SLACK_S: i64 = 300;
const MOST_LISTED: usize = 3;

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
            Check::warning("program", found, "remove the one that you do not want, or change the order of PATH")
        }
    }
}

pub fn home(home: &Home) -> Check {
    let Some(path) = &home.path else {
        let found = "there is no place for the control plane: neither HOME nor TRELLIS_HOME is set";
        return Check::problem("home", found, "set TRELLIS_HOME to a directory of yours");
    };
    let place = path.display();
    if let Some(why) = &home.unwritable {
        let fix = "make it writable for this user, or set TRELLIS_HOME to another directory";
        return Check::problem("home", format!("{place} cannot be written to: {why}"), fix);
    }
    let free = home.free_bytes.map_or_else(String::new, |bytes| format!(", {} free", amount(bytes)));
    let found = format!("{place}{}{free}", if home.exists { "" } else { " (made when it is needed)" });
    let fix = "make room there, or set TRELLIS_HOME to a directory on a larger disk";
    match (home.free_bytes, home.free_files) {
        (Some(bytes), _) if bytes < FULL_DISK_BYTES => Check::problem("home", found, fix),
        (_, Some(files)) if files < FEW_FILES => {
            Check::warning("home", format!("{found}, room for {files} files only"), fix)
        }
        (Some(bytes), _) if bytes < TIGHT_DISK_BYTES => Check::warning("home", found, fix),
        _ => Check::ok("home", found),
    }
}

pub fn clock(clock: &Clock) -> Check {
    let now = trellis_pki::date(clock.now_s);
    match (clock.program_s, clock.synchronized) {
        (Some(written), _) if clock.now_s + CLOCK_SLACK_S < written => {
            let found =
                format!("it is {now} by this machine, and this program was made on {}", trellis_pki::date(written));
            Check::problem("clock", found, "set the clock: certificates are judged by it")
        }
        (_, Some(false)) => {
            let fix = "let a time service set it (timedatectl set-ntp true): certificates and logs depend on it";
            Check::warning("clock", format!("{now}; the time service has not set it yet"), fix)
        }
        (_, Some(true)) => Check::ok("clock", format!("{now}, kept by a time service")),
        (_, None) => Check::ok("clock", now),
    }
}

pub fn open_files(limits: Option<OpenFiles>) -> Check {
    let Some(OpenFiles { soft, hard }) = limits else {
        return Check::ok("open files", "the system does not say how many are allowed");
    };
    let shown = |limit: Option<u64>| limit.map_or_else(|| "any number".to_owned(), |limit| limit.to_string());
    let found = format!("{} of {}", shown(soft), shown(hard));
    let fix = format!("raise it: ulimit -n {GOOD_OPEN_FILES}, or LimitNOFILE= of the service");
    match soft {
        Some(soft) if soft < FEW_OPEN_FILES => Check::problem("open files", found, fix),
        Some(soft) if soft < GOOD_OPEN_FILES && hard.is_none_or(|hard| hard > soft) => {
            Check::ok("open files", format!("{found}; a SuperLink raises it by itself where it may"))
        }
        Some(soft) if soft < GOOD_OPEN_FILES => {
            Check::warning("open files", format!("{found}: enough for some hundred nodes"), fix)
        }
        _ => Check::ok("open files", found),
    }
}

pub fn memory(memory: Option<Memory>) -> Check {
    let Some(Memory { total_bytes, available_bytes }) = memory else {
        return Check::ok("memory", "the system does not say how much there is");
    };
    let found = format!("{} of {} available", amount(available_bytes), amount(total_bytes));
    match available_bytes < LITTLE_MEMORY_BYTES {
        true => Check::warning(
            "memory",
            found,
            "end what is not needed, or start fewer nodes: apps may be ended by the kernel",
        ),
        false => Check::ok("memory", found),
    }
}

pub fn cgroup(cgroup: &Cgroup) -> Check {
    const NOT_HELD: &str = "the kernel does not hold apps to their limits; nodes look every second instead";
    const FIX: &str = "run nodes as a service with Delegate=yes, or in a container; see docs/resources.md";
    match cgroup {
        Cgroup::Absent(why) => Check::warning("limits", format!("{why}: {NOT_HELD}"), FIX),
        Cgroup::Present { path, ours: false, .. } => {
            Check::warning("limits", format!("cgroup {path} is not ours to divide: {NOT_HELD}"), FIX)
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
                    format!("cgroup {path} cannot limit {}: {NOT_HELD}", missing.join(" and ")),
                    FIX,
                ),
            }
        }
    }
}

pub fn sandbox(level: &Level) -> Check {
    const FIX: &str = "use a kernel that has it; see docs/supernode.md, Sandbox of apps";
    match level.missing.is_empty() {
        true => Check::ok("sandbox", format!("apps are kept from keys and other processes{}", gaps(level))),
        false => {
            let found =
                format!("apps can do more than they should: the kernel does not have {}", level.missing.join(" and "));
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
                Some(bytes) => format!("{} ({})", gpu.name, amount(bytes)),
                None => gpu.name.clone(),
            })
            .collect();
        let driver =
            gpus.usable[0].driver_version.as_ref().map_or_else(String::new, |driver| format!(", driver {driver}"));
        return Check::ok("gpu", format!("{}{driver}", listed(&shown, MOST_LISTED)));
    }
    match (gpus.on_bus, &gpus.driver, gpus.tool) {
        (0, None, _) => Check::ok("gpu", "none; apps use the CPU"),
        (0, Some(driver), _) => {
            let fix = "give the GPU to this machine or container, or leave the driver out";
            Check::warning("gpu", format!("driver {driver} is loaded, and there is no GPU for it"), fix)
        }
        (count, None, _) => {
            let fix = "install NVIDIA's driver and load it; nvidia-smi must list the GPU";
            Check::warning("gpu", format!("{count} on the bus, and no driver for it"), fix)
        }
        (count, Some(driver), true) => {
            let fix = "run nvidia-smi: what it says is wrong is what apps would meet";
            Check::problem("gpu", format!("{count} on the bus with driver {driver}, and nvidia-smi cannot use it"), fix)
        }
        (count, Some(driver), false) => {
            let fix = "start the container with its devices (--gpus all), or install the tools of the driver";
            Check::warning(
                "gpu",
                format!("{count} on the bus with driver {driver}, and no device file of it here"),
                fix,
            )
        }
    }
}

pub fn engines(engines: &[Engine]) -> Check {
    if engines.is_empty() {
        return Check::ok("containers", "neither podman nor docker; federations here are processes");
    }
    let (well, ill): (Vec<&Engine>, Vec<&Engine>) = engines.iter().partition(|engine| engine.answer.is_ok());
    let told = |engines: &[&Engine]| {
        let each = engines.iter().map(|engine| match &engine.answer {
            Ok(version) => format!("{} {version}", engine.name),
            Err(why) => format!("{} does not answer ({why})", engine.name),
        });
        each.collect::<Vec<_>>().join("; ")
    };
    match (well.is_empty(), ill.is_empty()) {
        (_, true) => Check::ok("containers", told(&well)),
        (false, _) => Check::ok("containers", format!("{}; {}", told(&well), told(&ill))),
        (true, _) => {
            let fix = "start its service, or let this user call it; federations here are processes until then";
            Check::warning("containers", told(&ill), fix)
        }
    }
}
