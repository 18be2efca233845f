//! Checks whether a VM can use its GPUs. Pure.

use super::facts::{Containers, Guest, Metrics};
use crate::check::Check;

pub fn check_guest(guest: &Guest) -> Vec<Check> {
    if guest.on_bus == 0 {
        let fix = "attach one to the VM: PCI = [ SHORT_ADDRESS = \"65:00.0\" ], with OS = [ MACHINE = \"q35\", FIRMWARE = \
                   \"UEFI\" ] and CPU_MODEL = [ MODEL = \"host-passthrough\" ] in its template";
        return vec![Check::warning("gpu", "there is no NVIDIA GPU on the bus: apps use the CPU", fix)];
    }
    let mut checks = vec![
        Check::ok("gpu", format!("{} on the bus", guest.on_bus)),
        driver(guest.driver.as_deref()),
        tool(guest.tool.as_ref()),
        devices(&guest.missing_devices),
        containers(&guest.containers),
    ];
    checks.extend(guest.containers.tried.as_ref().map(tried));
    checks.push(metrics(guest.metrics));
    checks
}

fn driver(version: Option<&str>) -> Check {
    match version {
        Some(version) => Check::ok("driver", version),
        None => {
            let fix = "install NVIDIA's driver (Debian: apt install nvidia-driver; Ubuntu: ubuntu-drivers install --gpgpu), \
                       with headers of the running kernel; then modprobe nvidia";
            Check::problem("driver", "the module nvidia is not loaded", fix)
        }
    }
}

fn tool(answer: Option<&Result<Vec<String>, String>>) -> Check {
    match answer {
        None => {
            let fix = "install the utilities of the driver (nvidia-utils, or nvidia-smi on Debian)";
            Check::problem("nvidia-smi", "not installed", fix)
        }
        Some(Err(why)) => {
            let fix = "install driver and utilities of the same version, and restart; see dmesg | grep NVRM";
            Check::problem("nvidia-smi", why.clone(), fix)
        }
        Some(Ok(gpus)) if gpus.is_empty() => Check::problem(
            "nvidia-smi",
            "it finds no GPU",
            "see dmesg | grep NVRM; the VM needs UEFI, q35, host-passthrough",
        ),
        Some(Ok(gpus)) => Check::ok("nvidia-smi", gpus.join("; ")),
    }
}

fn devices(missing: &[&'static str]) -> Check {
    if missing.is_empty() {
        return Check::ok("device files", "complete");
    }
    let found = format!("missing: {}", missing.join(", "));
    Check::warning("device files", found, "run nvidia-modprobe -c0 -u, and enable nvidia-persistenced")
}

fn containers(containers: &Containers) -> Check {
    let Some(engine) = containers.engine else {
        return Check::ok("containers", "no container engine; apps do not need one");
    };
    let configure = match engine {
        "docker" => "nvidia-ctk runtime configure --runtime=docker && systemctl restart docker",
        _ => "nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml",
    };
    match (containers.toolkit, containers.configured) {
        (_, true) => Check::ok("containers", format!("{engine} can attach GPUs to containers")),
        (true, false) => Check::warning("containers", format!("{engine} does not know NVIDIA's runtime"), configure),
        (false, false) => {
            let found = format!("{engine} is installed, but NVIDIA's container toolkit is not");
            Check::warning("containers", found, format!("install nvidia-container-toolkit, then {configure}"))
        }
    }
}

fn tried(outcome: &Result<String, String>) -> Check {
    match outcome {
        Ok(line) => Check::ok("container", line.clone()),
        Err(why) => {
            Check::problem("container", why.clone(), "see `containers`; the image itself needs no NVIDIA software")
        }
    }
}

fn metrics(metrics: Metrics) -> Check {
    match metrics {
        Metrics::Listening => Check::ok("metrics", "dcgm-exporter listens on port 9400"),
        Metrics::Installed => {
            let fix = "systemctl enable --now dcgm-exporter";
            Check::warning("metrics", "dcgm-exporter is installed, but port 9400 is closed", fix)
        }
        Metrics::Absent => {
            let fix = "install datacenter-gpu-manager and dcgm-exporter to monitor GPUs with Prometheus";
            Check::warning("metrics", "there is no dcgm-exporter: load and memory of the GPUs are not monitored", fix)
        }
    }
}
