//! Checks whether a host can pass its GPUs through to VMs. Pure.

use super::facts::{Device, Host};
use crate::check::Check;

const VFIO: &str = "vfio-pci";
const NVIDIA: &str = "10de";

pub fn check_host(host: &Host) -> Vec<Check> {
    vec![
        kernel(host),
        groups(host),
        vfio(host.vfio),
        gpus(&host.gpus),
        device_rule(host.device_rule),
        probe(host.probe_filters.as_deref()),
    ]
}

fn kernel(host: &Host) -> Check {
    let given = |word: &str| host.kernel_arguments.iter().any(|argument| argument == word);
    let fix = "turn on VT-d or AMD-Vi in the firmware, add `intel_iommu=on iommu=pt` (AMD: `amd_iommu=on iommu=pt`) to \
               GRUB_CMDLINE_LINUX, run update-grub, restart";
    match ["intel_iommu=on", "amd_iommu=on"].into_iter().find(|word| given(word)) {
        Some(word) if given("iommu=pt") => Check::ok("kernel", format!("started with {word} iommu=pt")),
        Some(word) => {
            let fix = "add `iommu=pt` to GRUB_CMDLINE_LINUX, run update-grub, restart";
            Check::warning("kernel", format!("started with {word} but without iommu=pt: other devices are slower"), fix)
        }
        // Some kernels turn it on by default.
        None if host.iommu_groups > 0 => Check::ok("kernel", "the IOMMU is on by default"),
        None => Check::problem("kernel", "started with neither intel_iommu=on nor amd_iommu=on", fix),
    }
}

fn groups(host: &Host) -> Check {
    match host.iommu_groups {
        0 => {
            let fix = "turn on VT-d or AMD-Vi in the firmware; see also `kernel`";
            Check::problem("iommu", "there are no IOMMU groups: no device can be passed through", fix)
        }
        count => Check::ok("iommu", format!("{count} groups")),
    }
}

fn vfio(loaded: bool) -> Check {
    if loaded {
        return Check::ok("vfio", "vfio-pci is loaded");
    }
    let fix = "modprobe vfio-pci, and put `vfio-pci` into /etc/modules-load.d/vfio.conf";
    Check::warning("vfio", "vfio-pci is not loaded", fix)
}

fn gpus(gpus: &[Device]) -> Check {
    if gpus.is_empty() {
        return Check::warning("gpus", "there is no NVIDIA GPU on the bus", "install one, or use another host");
    }
    let of_card = |gpu: &Device| {
        let itself = (gpu.address.clone(), gpu.driver.clone());
        [vec![itself], gpu.companions.clone()].concat()
    };
    let all: Vec<(String, Option<String>)> = gpus.iter().flat_map(of_card).collect();
    let taken: Vec<String> = all
        .iter()
        .filter_map(|(address, driver)| {
            Some(format!("{address} by {}", driver.as_deref().filter(|name| *name != VFIO)?))
        })
        .collect();
    let free: Vec<&str> =
        all.iter().filter(|(_, driver)| driver.is_none()).map(|(address, _)| address.as_str()).collect();
    // A card is passed through as a whole, including its audio function.
    let fix = |addresses: &[&str]| {
        let each: Vec<String> =
            addresses.iter().map(|address| format!("driverctl set-override {address} {VFIO}")).collect();
        each.join(" && ")
    };
    if !taken.is_empty() {
        let addresses: Vec<&str> = taken.iter().filter_map(|text| text.split(' ').next()).collect();
        let found = format!("in use by drivers of the host: {}", taken.join(", "));
        return Check::problem("gpus", found, fix(&addresses));
    }
    if !free.is_empty() {
        return Check::warning("gpus", format!("without a driver: {}", free.join(", ")), fix(&free));
    }
    let addresses: Vec<&str> = gpus.iter().map(|gpu| gpu.address.as_str()).collect();
    Check::ok("gpus", format!("{} for VMs: {}", gpus.len(), addresses.join(", ")))
}

fn device_rule(there: bool) -> Check {
    if there {
        return Check::ok("device files", "a udev rule lets VMs open those of vfio");
    }
    let rule = "SUBSYSTEM==\"vfio\", GROUP=\"kvm\", MODE=\"0666\"";
    let fix = format!("put `{rule}` into /etc/udev/rules.d/99-vfio.rules, and run udevadm control --reload");
    Check::warning("device files", "no udev rule matches vfio: VMs may not be able to open their devices", fix)
}

fn probe(filters: Option<&str>) -> Check {
    let fix = "set `:filter: '10de:*'` in /var/lib/one/remotes/etc/im/kvm-probes.d/pci.conf of the front-end, then run \
               onehost sync -f";
    match filters {
        Some(text) if text.contains(NVIDIA) || text.contains("*:*") => {
            Check::ok("opennebula", "its probe reports NVIDIA devices")
        }
        Some(_) => Check::warning(
            "opennebula",
            "its probe does not report NVIDIA devices (10de): OpenNebula shows no GPU for this host",
            fix,
        ),
        None => Check::warning("opennebula", "the pci.conf of its probe does not exist", fix),
    }
}
