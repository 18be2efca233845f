//! Detects NVIDIA GPUs, with `nvidia-smi` or from the files of the driver.

use std::fs;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use tokio::process::Command;

const QUERY: [&str; 2] = ["--query-gpu=index,uuid,name,memory.total,driver_version", "--format=csv,noheader,nounits"];
/// A broken driver can block it forever; without persistence mode a working one needs seconds for many GPUs.
const TIMEOUT: Duration = Duration::from_secs(20);

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Gpu {
    /// The index of `nvidia-smi`, in the order of the PCI bus.
    pub index: u32,
    pub uuid: Option<String>,
    pub name: String,
    pub memory_bytes: Option<u64>,
    pub driver_version: Option<String>,
}

/// The GPUs that the node can access. Ignores `CUDA_VISIBLE_DEVICES`.
pub async fn detect() -> Vec<Gpu> {
    match ask("nvidia-smi").await {
        Some(listed) => listed,
        None => from_files(Path::new("/")),
    }
}

/// `None`: the program is missing or does not answer, which says nothing about GPUs.
async fn ask(program: &str) -> Option<Vec<Gpu>> {
    let mut command = Command::new(program);
    command.args(QUERY).stdin(Stdio::null()).kill_on_drop(true);
    let output = match tokio::time::timeout(TIMEOUT, command.output()).await {
        Ok(answer) => answer.ok()?,
        Err(_) => {
            tracing::warn!(program, "no answer about GPUs within {} s", TIMEOUT.as_secs());
            return None;
        }
    };
    let text = String::from_utf8_lossy(&output.stdout);
    if !output.status.success() {
        // A driver that fails with nvidia-smi fails with all apps.
        tracing::warn!(program, status = %output.status, "GPUs cannot be used: {}", text.trim());
        return Some(Vec::new());
    }
    Some(parse_table(&text))
}

/// Parses lines `index, uuid, name, MiB, driver`; ignores other lines.
fn parse_table(text: &str) -> Vec<Gpu> {
    text.lines().filter_map(parse_line).collect()
}

fn parse_line(line: &str) -> Option<Gpu> {
    let fields: Vec<&str> = line.split(',').map(str::trim).collect();
    let [index, uuid, name, memory, driver] = fields[..] else { return None };
    // nvidia-smi puts unknown values in brackets: [N/A], [Unknown Error].
    let known = |text: &str| Some(text.to_owned()).filter(|text| !text.is_empty() && !text.starts_with('['));
    Some(Gpu {
        index: index.parse().ok()?,
        uuid: known(uuid),
        name: known(name).unwrap_or_else(|| "unknown".into()),
        memory_bytes: memory.parse().ok().map(|mebibytes: u64| mebibytes << 20),
        driver_version: known(driver),
    })
}

/// From the driver's files in `/proc`, otherwise from its device files, which only show that there is a GPU.
fn from_files(root: &Path) -> Vec<Gpu> {
    let driver_version =
        fs::read_to_string(root.join("proc/driver/nvidia/version")).ok().and_then(|text| version(&text));
    let mut places = names(&root.join("proc/driver/nvidia/gpus"));
    places.sort();
    let informed = places.iter().filter_map(|place| {
        fs::read_to_string(root.join("proc/driver/nvidia/gpus").join(place).join("information")).ok()
    });
    let gpus: Vec<Gpu> =
        (0..).zip(informed).map(|(index, text)| parse_information(index, &text, &driver_version)).collect();
    if !gpus.is_empty() {
        return gpus;
    }
    let mut minors: Vec<u32> =
        names(&root.join("dev")).iter().filter_map(|name| name.strip_prefix("nvidia")?.parse().ok()).collect();
    minors.sort_unstable();
    let name = "unknown".to_owned();
    let gpu = |(index, _)| Gpu {
        index,
        uuid: None,
        name: name.clone(),
        memory_bytes: None,
        driver_version: driver_version.clone(),
    };
    (0..).zip(minors).map(gpu).collect()
}

fn names(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().into_string().ok()).collect()
}

/// Parses lines `Key: value`.
fn parse_information(index: u32, text: &str, driver_version: &Option<String>) -> Gpu {
    let value = |wanted: &str| {
        let mut lines = text.lines().filter_map(|line| line.split_once(':'));
        lines.find(|(key, _)| key.trim() == wanted).map(|(_, value)| value.trim().to_owned())
    };
    Gpu {
        index,
        uuid: value("GPU UUID").filter(|uuid| !uuid.contains('?')),
        name: value("Model").unwrap_or_else(|| "unknown".into()),
        memory_bytes: None,
        driver_version: driver_version.clone(),
    }
}

/// The first word of the first line that is a dotted number.
fn version(text: &str) -> Option<String> {
    let is_version =
        |word: &&str| word.contains('.') && word.chars().all(|letter| letter.is_ascii_digit() || letter == '.');
    text.lines().next()?.split_whitespace().find(is_version).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gpu(index: u32, uuid: Option<&str>, name: &str, mebibytes: Option<u64>, driver: Option<&str>) -> Gpu {
        let (uuid, driver_version) = (uuid.map(str::to_owned), driver.map(str::to_owned));
        Gpu { index, uuid, name: name.into(), memory_bytes: mebibytes.map(|count| count << 20), driver_version }
    }

    // Recorded on a machine with an H200, like the files below.
    const H200_UUID: &str = "GPU-f425bb54-c4e9-c26e-8ead-eeb33db6c9aa";
    const INFORMATION: &str = "Model: \t\t NVIDIA H200\nIRQ:   \t\t 41\n\
        GPU UUID: \t GPU-f425bb54-c4e9-c26e-8ead-eeb33db6c9aa\nVideo BIOS: \t 96.00.a5.00.1a\nBus Type: \t PCIe\n\
        DMA Size: \t 52 bits\nDMA Mask: \t 0xfffffffffffff\nBus Location: \t 0000:00:06.0\nDevice Minor: \t 0\n\
        GPU Firmware: \t 580.159.04\nGPU Excluded:\t No\n";
    const VERSION: &str = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.159.04  Release Build  (nixbld@)  \n\
        GCC version:  gcc version 15.3.0 (GCC) \n";

    #[test]
    fn tables_of_nvidia_smi() {
        let cases = [
            (
                "0, GPU-f425bb54-c4e9-c26e-8ead-eeb33db6c9aa, NVIDIA H200, 143771, 580.159.04\n",
                vec![gpu(0, Some(H200_UUID), "NVIDIA H200", Some(143_771), Some("580.159.04"))],
            ),
            (
                "0, GPU-a, Tesla T4, 15360, 550.54\n1, GPU-b, Tesla T4, 15360, 550.54\n",
                vec![
                    gpu(0, Some("GPU-a"), "Tesla T4", Some(15_360), Some("550.54")),
                    gpu(1, Some("GPU-b"), "Tesla T4", Some(15_360), Some("550.54")),
                ],
            ),
            ("0, [N/A], Orin (nvgpu), [N/A], [Unknown Error]\r\n", vec![gpu(0, None, "Orin (nvgpu)", None, None)]),
            ("No devices were found\n", vec![]),
            ("", vec![]),
        ];
        for (text, want) in cases {
            assert_eq!(parse_table(text), want, "{text:?}");
        }
    }

    #[test]
    fn files_of_the_driver() {
        let root = tempfile::tempdir().unwrap();
        assert_eq!(from_files(root.path()), []);
        let write = |path: &str, text: &str| {
            fs::create_dir_all(root.path().join(path).parent().unwrap()).unwrap();
            fs::write(root.path().join(path), text).unwrap();
        };
        for name in ["nvidia1", "nvidia0", "nvidiactl", "nvidia-uvm", "null"] {
            write(&format!("dev/{name}"), "");
        }
        assert_eq!(from_files(root.path()), [gpu(0, None, "unknown", None, None), gpu(1, None, "unknown", None, None)]);
        write("proc/driver/nvidia/version", VERSION);
        write("proc/driver/nvidia/gpus/0000:00:06.0/information", INFORMATION);
        assert_eq!(from_files(root.path()), [gpu(0, Some(H200_UUID), "NVIDIA H200", None, Some("580.159.04"))]);
    }

    /// The result on this machine is sorted and has no duplicate index.
    #[tokio::test]
    async fn this_machine() {
        let gpus = detect().await;
        println!("GPUs of this machine: {gpus:?}");
        assert!(gpus.is_sorted_by(|one, next| one.index < next.index), "{gpus:?}");
    }

    #[tokio::test]
    async fn missing_and_failing_programs() {
        assert_eq!(ask("trellis-has-no-such-program").await, None);
        assert_eq!(ask("false").await, Some(vec![]));
        assert_eq!(ask("true").await, Some(vec![]));
    }
}
