//! What was seen of GPUs and of what they need, as plain values. Whether that is good is decided in `judge_host` and `judge_guest`.

/// A host of VMs.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Host {
    /// What the kernel was started with.
    pub kernel_arguments: Vec<String>,
    pub iommu_groups: usize,
    /// The driver that gives devices to VMs is there.
    pub vfio: bool,
    pub gpus: Vec<Device>,
    /// A rule that lets the VMs' processes open the devices.
    pub device_rule: bool,
    /// What OpenNebula looks for on the bus, where there is such a file.
    pub probe_filters: Option<String>,
}

/// A GPU on the bus, with what else is on the same card.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Device {
    /// `0000:65:00.0`
    pub address: String,
    pub driver: Option<String>,
    /// Its sound, USB and so on: address and driver.
    pub companions: Vec<(String, Option<String>)>,
}

/// A VM, or a machine that uses its GPUs itself.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Guest {
    pub on_bus: usize,
    /// The version of the kernel's driver, where it is loaded.
    pub driver: Option<String>,
    /// What `nvidia-smi` says of each GPU, or why it says nothing; `None`: there is no such program.
    pub tool: Option<Result<Vec<String>, String>>,
    /// The device files that apps open and that are not there.
    pub missing_devices: Vec<&'static str>,
    pub containers: Containers,
    pub metrics: Metrics,
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Containers {
    /// `docker` or `podman` is there.
    pub engine: Option<&'static str>,
    /// NVIDIA's toolkit for containers is there.
    pub toolkit: bool,
    /// The engine knows of it: a runtime in its configuration, or a CDI specification.
    pub configured: bool,
    /// What came of trying, where that was asked for.
    pub tried: Option<Result<String, String>>,
}

/// The exporter of NVIDIA's data centre GPU manager.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Metrics {
    #[default]
    Absent,
    Installed,
    Listening,
}
