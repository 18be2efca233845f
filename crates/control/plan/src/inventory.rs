//! What is available to the planner: the version of the program, and the capabilities of the drivers.

use std::collections::BTreeMap;

use trellis_spec::Name;

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Inventory {
    /// The version of our own program, which new processes and default images run.
    pub program: String,
    /// By site.
    pub capabilities: BTreeMap<Name, Capabilities>,
}

/// What a driver supports beyond create, replace and delete.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Capabilities {
    /// Draining nodes.
    pub drain: bool,
    /// Limits of CPU and memory.
    pub limits: bool,
    /// GPUs.
    pub gpu: bool,
    /// Images; without, the driver starts the program of its own machine.
    pub images: bool,
}

impl Capabilities {
    pub const ALL: Capabilities = Capabilities { drain: true, limits: true, gpu: true, images: true };
}

impl Inventory {
    /// A site without a driver counts as capable of everything: the missing driver is reported elsewhere.
    pub fn of(&self, site: &Name) -> Capabilities {
        self.capabilities.get(site).copied().unwrap_or(Capabilities::ALL)
    }
}
