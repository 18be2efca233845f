//! Versions of other programs, each with a timeout.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use tokio::process::Command;

use crate::facts::{Engine, Gpus, OnPath, Program};

/// The first call may start the service of a container engine.
const TIMEOUT: Duration = Duration::from_secs(10);
/// Longer lines of output are cut.
const MAX_CHARS: usize = 120;
/// Enough for machines with sixteen GPUs.
const MAX_LINES: usize = 64;
const NVIDIA: &str = "0x10de";
/// Display and 3D controllers; NVIDIA makes other PCI devices, too.
const GPU_CLASS: &str = "0x03";

/// The first executable file of this name on PATH.
pub fn on_path(name: &str) -> Option<PathBuf> {
    trellis_link::on_path(name.as_ref(), std::env::var_os("PATH").as_deref())
}

pub async fn program() -> Program {
    let path = std::env::current_exe().ok();
    let found = on_path("trellis");
    let real = |path: &Path| fs::canonicalize(path).ok();
    let on_path = match found {
        None => None,
        Some(found) => {
            let same = real(&found).is_some() && real(&found) == path.as_deref().and_then(real);
            let version = if same { None } else { answer(&found, &["--version"]).await.ok() };
            Some(OnPath { path: found, same, version })
        }
    };
    Program { path, version: env!("CARGO_PKG_VERSION").to_owned(), on_path }
}

pub async fn engines() -> Vec<Engine> {
    let commands = [
        ("podman", ["version", "--format", "{{.Client.Version}}"]),
        ("docker", ["version", "--format", "{{.Server.Version}}"]),
    ];
    let mut engines = Vec::new();
    for (name, arguments) in commands {
        if let Some(path) = on_path(name) {
            let answer = answer(&path, &arguments).await;
            engines.push(Engine { name, path, answer });
        }
    }
    engines
}

/// The first line of a program's output, or why there is none.
pub async fn answer(program: &Path, arguments: &[&str]) -> Result<String, String> {
    let lines = lines(program, arguments).await?;
    lines.into_iter().next().ok_or_else(|| "it printed nothing".to_owned())
}

/// All lines of a program's output, or why it failed.
pub async fn lines(program: &Path, arguments: &[&str]) -> Result<Vec<String>, String> {
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::null()).kill_on_drop(true);
    let output = match tokio::time::timeout(TIMEOUT, command.output()).await {
        Err(_) => return Err(format!("no answer within {} s", TIMEOUT.as_secs())),
        Ok(Err(error)) => return Err(error.to_string()),
        Ok(Ok(output)) => output,
    };
    let lines_of = |bytes: &[u8]| -> Vec<String> {
        let text = String::from_utf8_lossy(bytes);
        let lines = text.lines().filter(|line| !line.trim().is_empty()).take(MAX_LINES);
        lines.map(|line| line.trim().chars().take(MAX_CHARS).collect()).collect()
    };
    if output.status.success() {
        return Ok(lines_of(&output.stdout));
    }
    Err(lines_of(&output.stderr).into_iter().next().unwrap_or_else(|| output.status.to_string()))
}

pub async fn gpus() -> Gpus {
    Gpus {
        usable: trellis_node::resources::detect().await,
        on_bus: on_bus(Path::new("/sys/bus/pci/devices")),
        driver: driver_version(&fs::read_to_string("/proc/driver/nvidia/version").unwrap_or_default()),
        tool: on_path("nvidia-smi").is_some(),
    }
}

fn on_bus(devices: &Path) -> usize {
    let is = |device: &Path, file: &str, start: &str| {
        fs::read_to_string(device.join(file)).is_ok_and(|text| text.starts_with(start))
    };
    let entries = fs::read_dir(devices).into_iter().flatten().flatten();
    entries.filter(|entry| is(&entry.path(), "vendor", NVIDIA) && is(&entry.path(), "class", GPU_CLASS)).count()
}

/// The version in the driver's text, or the whole line if it has none.
pub fn driver_version(text: &str) -> Option<String> {
    let line = text.lines().next()?;
    let is_version = |word: &&str| word.contains('.') && word.chars().all(|char| char.is_ascii_digit() || char == '.');
    Some(line.split_whitespace().find(is_version).unwrap_or(line).to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn programs_answer_or_fail_with_a_reason() {
        assert_eq!(answer(Path::new("/bin/sh"), &["-c", "echo; echo ' 5.1 '"]).await, Ok("5.1".to_owned()));
        let refused = answer(Path::new("/bin/sh"), &["-c", "echo no service >&2; exit 1"]).await;
        assert_eq!(refused, Err("no service".to_owned()));
        assert!(answer(Path::new("/no/program"), &[]).await.is_err());
    }

    #[test]
    fn gpus_on_the_bus() {
        let bus = tempfile::tempdir().unwrap();
        for (name, vendor, class) in
            [("a", "0x10de\n", "0x030200\n"), ("b", "0x10de\n", "0x040300\n"), ("c", "0x8086\n", "0x030000\n")]
        {
            let device = bus.path().join(name);
            fs::create_dir(&device).unwrap();
            fs::write(device.join("vendor"), vendor).unwrap();
            fs::write(device.join("class"), class).unwrap();
        }
        assert_eq!(on_bus(bus.path()), 1);
        assert_eq!(on_bus(&bus.path().join("none")), 0);
        let text = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.159.04  Release Build\n";
        assert_eq!(driver_version(text), Some("580.159.04".to_owned()));
        assert_eq!(driver_version(""), None);
    }
}
