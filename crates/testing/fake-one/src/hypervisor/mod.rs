//! The port to whatever runs the VMs: nothing, pretended agents, or a program for each.

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

/// Told when a machine is gone, whatever the reason.
pub type Gone = Arc<dyn Fn(Id) + Send + Sync>;

/// None of these waits: what takes time is told by [`Gone`].
pub trait Hypervisor: Send + Sync + 'static {
    fn start(&self, machine: Machine);
    fn stop(&self, vm: Id, hard: bool);
    /// The same machine again. It is not told as gone.
    fn reboot(&self, machine: Machine);
    /// Ends all machines.
    fn end(&self) -> Pin<Box<dyn Future<Output = ()> + Send + '_>>;
}

/// Machines that do nothing: for callers that look after their VMs themselves.
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
