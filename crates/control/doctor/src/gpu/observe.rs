//! Reads files below a root directory and the output of programs. Changes nothing; unreadable files count as missing.

use std::fs;
use std::path::{Path, PathBuf};

use super::facts::{Containers, Device, Guest, Host, Metrics};
use crate::observe::{answer, driver_version, lines, on_path};

const BUS: &str = "sys/bus/pci/devices";
const NVIDIA: &str = "0x10de";
/// Display and 3D controllers; NVIDIA makes other PCI devices, too.
const GPU_CLASS: &str = "0x03";
const RULES: [&str; 2] = ["etc/udev/rules.d", "usr/lib/udev/rules.d"];
/// The probe's configuration on a host, and on the front-end.
const PROBES: [&str; 2] =
    ["var/tmp/one/etc/im/kvm-probes.d/pci.conf", "var/lib/one/remotes/etc/im/kvm-probes.d/pci.conf"];
const DEVICE_FILES: [&str; 3] = ["dev/nvidiactl", "dev/nvidia0", "dev/nvidia-uvm"];
const ENGINES: [(&str, &str); 2] = [("docker", "usr/bin/docker"), ("podman", "usr/bin/podman")];
const TOOLKIT: [&str; 2] = ["usr/bin/nvidia-ctk", "usr/bin/nvidia-container-runtime"];
const CDI: [&str; 4] = ["etc/cdi/nvidia.yaml", "etc/cdi/nvidia.json", "var/run/cdi/nvidia.yaml", "run/cdi/nvidia.yaml"];
const EXPORTERS: [&str; 2] = ["usr/bin/dcgm-exporter", "usr/local/bin/dcgm-exporter"];
/// Port 9400 and the state LISTEN in the kernel's tables of sockets.
const EXPORTER_PORT: &str = ":24B8";
const LISTENS: &str = "0A";

/// A machine, by the root directory of its files.
pub struct Machine {
    root: PathBuf,
}

impl Machine {
    pub fn new(root: &Path) -> Machine {
        Machine { root: root.to_owned() }
    }

    fn path(&self, below: &str) -> PathBuf {
        self.root.join(below)
    }

    fn text(&self, below: &str) -> Option<String> {
        fs::read_to_string(self.path(below)).ok()
    }

    fn any(&self, paths: &[&str]) -> bool {
        paths.iter().any(|path| self.path(path).exists())
    }

    /// Whether the processor has the flag `hypervisor`.
    pub fn is_virtual(&self) -> bool {
        let text = self.text("proc/cpuinfo").unwrap_or_default();
        text.lines()
            .filter(|line| line.starts_with("flags"))
            .any(|line| line.split_whitespace().any(|flag| flag == "hypervisor"))
    }

    pub fn host(&self) -> Host {
        let arguments = self.text("proc/cmdline").unwrap_or_default();
        Host {
            kernel_arguments: arguments.split_whitespace().map(str::to_owned).collect(),
            iommu_groups: fs::read_dir(self.path("sys/kernel/iommu_groups")).map_or(0, Iterator::count),
            vfio: self.any(&["sys/module/vfio_pci", "sys/bus/pci/drivers/vfio-pci"]),
            gpus: self.gpus(),
            device_rule: RULES.iter().any(|directory| self.has_device_rule(directory)),
            probe_filters: PROBES.iter().find_map(|path| self.text(path)).map(|text| without_comments(&text)),
        }
    }

    fn gpus(&self) -> Vec<Device> {
        let entries = fs::read_dir(self.path(BUS)).into_iter().flatten().flatten();
        let mut addresses: Vec<String> = entries.filter_map(|entry| entry.file_name().into_string().ok()).collect();
        addresses.sort();
        let is = |address: &str, file: &str, start: &str| {
            self.text(&format!("{BUS}/{address}/{file}")).is_some_and(|text| text.starts_with(start))
        };
        let is_gpu = |address: &&String| is(address, "vendor", NVIDIA) && is(address, "class", GPU_CLASS);
        // The functions of a card differ after the dot.
        let card = |address: &str| address.rsplit_once('.').map(|(card, _)| card.to_owned());
        let companions = |gpu: &str| {
            let others = addresses.iter().filter(|other| other.as_str() != gpu && card(other) == card(gpu));
            others.map(|other| (other.clone(), self.driver(other))).collect()
        };
        let device = |address: &String| Device {
            address: address.clone(),
            driver: self.driver(address),
            companions: companions(address),
        };
        addresses.iter().filter(is_gpu).map(device).collect()
    }

    fn driver(&self, address: &str) -> Option<String> {
        let link = fs::read_link(self.path(&format!("{BUS}/{address}/driver"))).ok()?;
        Some(link.file_name()?.to_string_lossy().into_owned())
    }

    fn has_device_rule(&self, directory: &str) -> bool {
        let entries = fs::read_dir(self.path(directory)).into_iter().flatten().flatten();
        let mut rules = entries.filter(|entry| entry.path().extension().is_some_and(|extension| extension == "rules"));
        rules.any(|entry| {
            let text = fs::read_to_string(entry.path()).unwrap_or_default();
            let text = without_comments(&text);
            // Rules of distributions match vfio, too, but without a mode.
            text.lines().any(|line| line.contains("\"vfio\"") && line.contains("MODE"))
        })
    }

    pub async fn guest(&self, tool: Option<&Path>, image: Option<&str>) -> Guest {
        let version = self.text("proc/driver/nvidia/version").unwrap_or_default();
        let loaded = self.path("sys/module/nvidia").exists();
        let tool = tool.map(Path::to_owned).or_else(|| self.program("nvidia-smi"));
        Guest {
            on_bus: self.gpus().len(),
            driver: driver_version(&version).or_else(|| loaded.then(|| "loaded".to_owned())),
            tool: match tool.filter(|tool| tool.exists()) {
                Some(tool) => {
                    Some(lines(&tool, &["--query-gpu=name,driver_version,memory.total", "--format=csv,noheader"]).await)
                }
                None => None,
            },
            missing_devices: DEVICE_FILES.into_iter().filter(|device| !self.path(device).exists()).collect(),
            containers: self.containers(image).await,
            metrics: self.metrics(),
        }
    }

    /// Searches PATH on this machine, and /usr/bin below another root.
    fn program(&self, name: &str) -> Option<PathBuf> {
        if self.root == Path::new("/") {
            return on_path(name);
        }
        Some(self.path(&format!("usr/bin/{name}"))).filter(|path| path.exists())
    }

    async fn containers(&self, image: Option<&str>) -> Containers {
        let engine = ENGINES.iter().find(|(_, path)| self.path(path).exists());
        let known = self.text("etc/docker/daemon.json").is_some_and(|text| text.contains("nvidia"));
        let tried = match (engine, image) {
            (Some((name, path)), Some(image)) => {
                let devices: &[&str] =
                    if *name == "docker" { &["--gpus", "all"] } else { &["--device", "nvidia.com/gpu=all"] };
                let arguments = [&["run", "--rm"], devices, &[image, "nvidia-smi", "-L"]].concat();
                Some(answer(&self.path(path), &arguments).await)
            }
            (None, Some(_)) => Some(Err("there is neither docker nor podman".to_owned())),
            (_, None) => None,
        };
        Containers {
            engine: engine.map(|(name, _)| *name),
            toolkit: self.any(&TOOLKIT),
            configured: known || self.any(&CDI),
            tried,
        }
    }

    fn metrics(&self) -> Metrics {
        let listens = |line: &str| {
            let mut words = line.split_whitespace().skip(1);
            words.next().is_some_and(|local| local.ends_with(EXPORTER_PORT)) && words.nth(1) == Some(LISTENS)
        };
        let sockets = ["proc/net/tcp", "proc/net/tcp6"].map(|path| self.text(path).unwrap_or_default());
        if sockets.iter().flat_map(|text| text.lines()).any(listens) {
            return Metrics::Listening;
        }
        if self.any(&EXPORTERS) { Metrics::Installed } else { Metrics::Absent }
    }
}

fn without_comments(text: &str) -> String {
    text.lines().filter(|line| !line.trim_start().starts_with('#')).map(|line| format!("{line}\n")).collect()
}
