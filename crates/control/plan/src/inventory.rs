//! What there is to work with: the program, and what the drivers can do.

use std::collections::BTreeMap;

use trellis_spec::Name;

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Inventory {
    /// The version of our own program: what new processes and default images will run.
    pub program: String,
    /// Of the driver of each site.
    pub capabilities: BTreeMap<Name, Capabilities>,
}

/// What a driver can do beyond making, replacing and deleting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Capabilities {
    /// It can tell a node to take no new work.
    pub drain: bool,
    /// It can hold processes to limits of CPU and memory.
    pub limits: bool,
    /// It can give GPUs.
    pub gpu: bool,
    /// It runs images; without, it starts the program of its own machine.
    pub images: bool,
}

impl Capabilities {
    pub const ALL: Capabilities = Capabilities { drain: true, limits: true, gpu: true, images: true };
}

impl Inventory {
    /// A site without a driver can do nothing, which is told elsewhere; here it is not in the way.
    pub fn of(&self, site: &Name) -> Capabilities {
        self.capabilities.get(site).copied().unwrap_or(Capabilities::ALL)
    }
}
