//! The resources that apps may use: which GPUs are visible, and limits of memory and CPUs.
//!
//! Decisions are pure ([`decide`]); [`detect`] and `cgroup` inspect the machine. This module starts no apps: the caller gives an
//! app the environment of its slot, puts it into its own process group, and calls [`Confinement::enter`]. docs/resources.md
//! describes what is enforced on which machines.

mod cgroup;
mod event;
mod gpu;
mod plan;
mod watchdog;

use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::config::Resources;
use cgroup::{AppCgroup, Parent};
use watchdog::Watchdog;

pub use event::Event;
pub use gpu::{Gpu, detect};
pub use plan::{GpuError, GpuPlan, GpuStatus, decide};

/// The limits of each concurrent app, and the means to enforce them.
#[derive(Debug)]
pub struct Confinement {
    resources: Resources,
    gpus: GpuPlan,
    slots: usize,
    cgroup: Option<Parent>,
    next: AtomicUsize,
}

impl Confinement {
    /// Detects how limits can be enforced on this machine. Also returns a sentence for the log about each limit that cannot be
    /// enforced, or only weakly.
    pub fn new(resources: &Resources, gpus: GpuPlan, slots: usize) -> (Confinement, Vec<String>) {
        let limited = resources.app_memory_bytes.is_some() || resources.app_cpus.is_some();
        let found = if limited { Parent::find() } else { Err("no limit is configured".into()) };
        Confinement::within(found, resources, gpus, slots)
    }

    /// No limits, and the GPUs that the node itself sees.
    pub fn none() -> Confinement {
        let resources = Resources::default();
        let plan = decide(&resources.gpus, resources.gpu_missing, &[], None).expect("nothing is requested");
        Confinement::new(&resources, plan, 1).0
    }

    fn within(
        found: Result<Parent, String>,
        resources: &Resources,
        gpus: GpuPlan,
        slots: usize,
    ) -> (Confinement, Vec<String>) {
        let mut notices = gpus.oversubscription(resources.gpu_memory_fraction, slots);
        let lacks = |has: fn(&Parent) -> bool, controller: &str| match &found {
            Ok(parent) if has(parent) => None,
            Ok(_) => Some(format!("the cgroup of the node has no {controller:?} controller")),
            Err(reason) => Some(reason.clone()),
        };
        if let (Some(bytes), Some(reason)) = (resources.app_memory_bytes, lacks(|parent| parent.memory, "memory")) {
            notices.push(format!(
                "the kernel does not limit the memory of apps ({reason}): the node polls every second, and kills an app that uses \
                 more than {}",
                size(bytes)
            ));
        }
        if let (Some(_), Some(reason)) = (resources.app_cpus, lacks(|parent| parent.cpu, "cpu")) {
            notices
                .push(format!("the CPU time of apps is not limited ({reason}): only their number of threads is set"));
        }
        let (resources, cgroup) = (resources.clone(), found.ok());
        (Confinement { resources, gpus, slots: slots.max(1), cgroup, next: AtomicUsize::new(0) }, notices)
    }

    /// Applies the limits to a newly started app. The process must lead its own process group.
    pub fn enter(&self, pid: u32) -> io::Result<Confined> {
        let (memory, cpus) = (self.resources.app_memory_bytes, self.resources.app_cpus);
        let cgroup = match &self.cgroup {
            Some(parent) => Some(parent.admit(pid, memory, cpus)?),
            None => None,
        };
        let held = self.cgroup.as_ref().is_some_and(|parent| parent.memory);
        let watch = match memory {
            Some(bytes) if !held => Some(Watchdog::start(pid, bytes)?),
            _ => None,
        };
        Ok(Confined { memory, cgroup, watch })
    }

    /// The slot of the next app, round robin.
    pub fn next_slot(&self) -> usize {
        self.next.fetch_add(1, Ordering::Relaxed) % self.slots
    }

    /// The additional environment variables of the app in a slot.
    pub fn environment(&self, slot: usize) -> Vec<(String, String)> {
        let mut variables = Vec::new();
        let mut tell = |name: &str, value: String| variables.push((name.to_owned(), value));
        if let Some(visible) = self.gpus.assign(slot, self.slots) {
            tell("CUDA_VISIBLE_DEVICES", visible);
            // The indices are those of nvidia-smi; by default CUDA numbers the fastest GPU first.
            tell("CUDA_DEVICE_ORDER", "PCI_BUS_ID".into());
        }
        if let (Some(fraction), true) = (self.resources.gpu_memory_fraction, self.gpus.may_use_gpus()) {
            // The Python worker passes it to PyTorch, and JAX reads its own variable. TensorFlow has no variable for a fraction: it only
            // does not allocate the whole memory at once.
            tell("TRELLIS_GPU_MEMORY_FRACTION", fraction.to_string());
            tell("XLA_PYTHON_CLIENT_MEM_FRACTION", fraction.to_string());
            tell("TF_FORCE_GPU_ALLOW_GROWTH", "true".into());
        }
        if let Some(cpus) = self.resources.app_cpus {
            // By default libraries start one thread per core of the machine.
            tell("OMP_NUM_THREADS", (cpus.ceil().max(1.0) as u64).to_string());
        }
        variables
    }

    /// Events about the GPUs, for the start of the node.
    pub fn events(&self) -> Vec<Event> {
        event::of(&self.gpus.status)
    }

    pub fn gpu_status(&self) -> &GpuStatus {
        &self.gpus.status
    }
}

/// A limited app. Drop it after the app has ended; a cgroup then kills remaining child processes.
#[derive(Debug)]
pub struct Confined {
    memory: Option<u64>,
    cgroup: Option<AppCgroup>,
    watch: Option<Watchdog>,
}

impl Confined {
    /// Why the app was killed, if it exceeded a limit.
    pub fn kill_reason(&self) -> Option<String> {
        let ended = self.cgroup.as_ref().is_some_and(AppCgroup::ran_out_of_memory)
            || self.watch.as_ref().is_some_and(Watchdog::has_killed);
        let bytes = self.memory.filter(|_| ended)?;
        Some(format!("it used more than its memory limit of {}", size(bytes)))
    }
}

/// `512 MiB`, or bytes for odd sizes.
fn size(bytes: u64) -> String {
    let units = [(1 << 40, "TiB"), (1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")];
    match units.into_iter().find(|(unit, _)| bytes >= *unit && bytes.is_multiple_of(*unit)) {
        Some((unit, name)) => format!("{} {name}", bytes / unit),
        None => format!("{bytes} bytes"),
    }
}

#[cfg(test)]
mod tests;
