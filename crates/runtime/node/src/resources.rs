//! What apps may use of the machine: which GPUs they see, how much memory and how many CPUs they get.
//!
//! What to do is decided from plain values ([`decide`]); what the machine has is found out apart from that ([`detect`],
//! `cgroup`). Nothing here starts an app: whoever does gives it the environment of its slot, puts it into a process group of its
//! own, and lets it [`Confinement::enter`]. What is enforced where is told in docs/resources.md.

mod cgroup;
mod event;
mod gpu;
mod plan;
mod watch;

use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::config::Resources;
use cgroup::{AppCgroup, Parent};
use watch::Watch;

pub use event::Event;
pub use gpu::{Gpu, detect};
pub use plan::{GpuPlan, GpuStatus, Refusal, decide};

/// Limits for each of the apps that are at work at the same time, and the means to hold them to it.
#[derive(Debug)]
pub struct Confinement {
    resources: Resources,
    gpus: GpuPlan,
    slots: usize,
    cgroup: Option<Parent>,
    next: AtomicUsize,
}

impl Confinement {
    /// Finds out how limits can be held on this machine. With it comes what cannot be held, or not well, and why: one
    /// sentence each, for the log.
    pub fn new(resources: &Resources, gpus: GpuPlan, slots: usize) -> (Confinement, Vec<String>) {
        let wanted = resources.app_memory_bytes.is_some() || resources.app_cpus.is_some();
        let found = if wanted { Parent::find() } else { Err("no limit was asked for".into()) };
        Confinement::within(found, resources, gpus, slots)
    }

    /// No limits, and the GPUs that the node itself sees.
    pub fn none() -> Confinement {
        let resources = Resources::default();
        let plan = decide(&resources.gpus, resources.gpu_missing, &[], None).expect("nothing is asked for");
        Confinement::new(&resources, plan, 1).0
    }

    fn within(
        found: Result<Parent, String>,
        resources: &Resources,
        gpus: GpuPlan,
        slots: usize,
    ) -> (Confinement, Vec<String>) {
        let mut notices = gpus.crowding(resources.gpu_memory_fraction, slots);
        let lacks = |has: fn(&Parent) -> bool, controller: &str| match &found {
            Ok(parent) if has(parent) => None,
            Ok(_) => Some(format!("the cgroup of the node has no {controller:?} controller")),
            Err(why) => Some(why.clone()),
        };
        if let (Some(bytes), Some(why)) = (resources.app_memory_bytes, lacks(|parent| parent.memory, "memory")) {
            notices.push(format!(
                "the kernel does not limit the memory of apps ({why}): the node looks every second, and ends an app that has \
                 more than {}",
                size(bytes)
            ));
        }
        if let (Some(_), Some(why)) = (resources.app_cpus, lacks(|parent| parent.cpu, "cpu")) {
            notices.push(format!(
                "the CPU time of apps is not limited ({why}): they are only told how many threads to use"
            ));
        }
        let (resources, cgroup) = (resources.clone(), found.ok());
        (Confinement { resources, gpus, slots: slots.max(1), cgroup, next: AtomicUsize::new(0) }, notices)
    }

    /// Holds an app, which has just been started, to its limits. The process must lead a process group of its own.
    pub fn enter(&self, pid: u32) -> io::Result<Confined> {
        let (memory, cpus) = (self.resources.app_memory_bytes, self.resources.app_cpus);
        let cgroup = match &self.cgroup {
            Some(parent) => Some(parent.admit(pid, memory, cpus)?),
            None => None,
        };
        let held = self.cgroup.as_ref().is_some_and(|parent| parent.memory);
        let watch = match memory {
            Some(bytes) if !held => Some(Watch::start(pid, bytes)?),
            _ => None,
        };
        Ok(Confined { memory, cgroup, watch })
    }

    /// The slot of the next app that is started: they take turns.
    pub fn next_slot(&self) -> usize {
        self.next.fetch_add(1, Ordering::Relaxed) % self.slots
    }

    /// What the app in a slot is told through its environment, beside what it inherits.
    pub fn environment(&self, slot: usize) -> Vec<(String, String)> {
        let mut variables = Vec::new();
        let mut tell = |name: &str, value: String| variables.push((name.to_owned(), value));
        if let Some(visible) = self.gpus.assign(slot, self.slots) {
            tell("CUDA_VISIBLE_DEVICES", visible);
            // Indices are those that nvidia-smi shows; without this CUDA counts the fastest GPU first.
            tell("CUDA_DEVICE_ORDER", "PCI_BUS_ID".into());
        }
        if let (Some(fraction), true) = (self.resources.gpu_memory_fraction, self.gpus.may_use_gpus()) {
            // The Python worker hands it to PyTorch, and JAX reads its own. TensorFlow has no share that can be set from
            // outside: it is kept from taking the whole memory at once, no more.
            tell("TRELLIS_GPU_MEMORY_FRACTION", fraction.to_string());
            tell("XLA_PYTHON_CLIENT_MEM_FRACTION", fraction.to_string());
            tell("TF_FORCE_GPU_ALLOW_GROWTH", "true".into());
        }
        if let Some(cpus) = self.resources.app_cpus {
            // As many threads as there are cores of the machine would only take turns.
            tell("OMP_NUM_THREADS", (cpus.ceil().max(1.0) as u64).to_string());
        }
        variables
    }

    /// What is to be told of the GPUs at the start.
    pub fn events(&self) -> Vec<Event> {
        event::of(&self.gpus.status)
    }

    pub fn gpu_status(&self) -> &GpuStatus {
        &self.gpus.status
    }
}

/// An app that is held to its limits. When this goes, the app must have ended; what it left running is ended where a cgroup
/// knows of it.
#[derive(Debug)]
pub struct Confined {
    memory: Option<u64>,
    cgroup: Option<AppCgroup>,
    watch: Option<Watch>,
}

impl Confined {
    /// Why the app was ended, if it was for its limits.
    pub fn verdict(&self) -> Option<String> {
        let ended = self.cgroup.as_ref().is_some_and(AppCgroup::ran_out_of_memory)
            || self.watch.as_ref().is_some_and(Watch::ended_it);
        let bytes = self.memory.filter(|_| ended)?;
        Some(format!("it took more than the {} of memory it may have", size(bytes)))
    }
}

/// `512 MiB`, or the bytes where they make no round number.
fn size(bytes: u64) -> String {
    let units = [(1 << 40, "TiB"), (1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")];
    match units.into_iter().find(|(unit, _)| bytes >= *unit && bytes.is_multiple_of(*unit)) {
        Some((unit, name)) => format!("{} {name}", bytes / unit),
        None => format!("{bytes} bytes"),
    }
}

#[cfg(test)]
mod tests;
