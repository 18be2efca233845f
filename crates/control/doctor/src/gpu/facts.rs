//! Observations of GPUs and their drivers as plain values, which `host` and `guest` judge.

/// A host of VMs.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Host {
    /// The kernel's command line.
    pub kernel_arguments: Vec<String>,
    pub iommu_groups: usize,
    /// The driver vfio-pci, which passes devices to VMs, is loaded.
    pub vfio: bool,
    pub gpus: Vec<Device>,
    /// A udev rule lets the processes of VMs open the devices.
    pub device_rule: bool,
    /// The configuration of OpenNebula's PCI probe, if the file exists.
    pub probe_filters: Option<String>,
}

/// A GPU on the bus, with the other functions of its card.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Device {
    /// `0000:65:00.0`
    pub address: String,
    pub driver: Option<String>,
    /// Audio, USB and so on: address and driver.
    pub companions: Vec<(String, Option<String>)>,
}

/// A VM, or a machine that uses its GPUs itself.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Guest {
    pub on_bus: usize,
    /// The version of the loaded kernel driver.
    pub driver: Option<String>,
    /// The output of `nvidia-smi` per GPU, or its error; `None` if the program does not exist.
    pub tool: Option<Result<Vec<String>, String>>,
    /// Device files that apps need and that do not exist.
    pub missing_devices: Vec<&'static str>,
    pub containers: Containers,
    pub metrics: Metrics,
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Containers {
    /// `docker` or `podman`.
    pub engine: Option<&'static str>,
    /// NVIDIA's container toolkit is installed.
    pub toolkit: bool,
    /// The engine uses it: by a runtime in its configuration, or a CDI specification.
    pub configured: bool,
    /// The result of a test container, if one was requested.
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
