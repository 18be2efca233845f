//! Port for running VMs: none, simulated agents, or a program for each.

mod machine;
mod pretend;
mod programs;

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use crate::cloud::Id;

pub use machine::Machine;
pub use pretend::{Pretend, PretendSettings};
pub use programs::Programs;

/// Called when a machine is gone, whatever the reason.
pub type Gone = Arc<dyn Fn(Id) + Send + Sync>;

/// These functions do not block; [`Gone`] reports the end.
pub trait Hypervisor: Send + Sync + 'static {
    fn start(&self, machine: Machine);
    fn stop(&self, vm: Id, hard: bool);
    /// Restarts the machine without reporting it as gone.
    fn reboot(&self, machine: Machine);
    /// Stops all machines.
    fn end(&self) -> Pin<Box<dyn Future<Output = ()> + Send + '_>>;
}

/// Machines without a function, for callers that run their VMs themselves.
pub struct Nothing {
    pub gone: Gone,
}

impl Hypervisor for Nothing {
    fn start(&self, _: Machine) {}

    fn stop(&self, vm: Id, _: bool) {
        (self.gone)(vm);
    }

    fn reboot(&self, _: Machine) {}

    fn end(&self) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        Box::pin(std::future::ready(()))
    }
}
