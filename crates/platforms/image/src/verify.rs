//! Boots an image in an emulator and checks it. A script in the context queries the machine, and responds through a serial
//! port, so images need no test code.
//!
//! The image is not modified: the machine writes to an overlay.
//! The image is not written to: the machine works on a layer above it.

mod judge;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

pub use judge::{Check, judge};

use crate::command::{CommandError, Run, last_lines, wait};
use crate::recipe::Role;
use crate::tools::{self, FIRMWARE, FIRMWARE_VARIABLES, QEMU};

/// Name of the serial port for responses.
const PORT: &str = "org.trellis.verify";
const MEMORY_MIB: u32 = 1024;
const LAYER_LIMIT: Duration = Duration::from_secs(60);
/// Number of console lines in a failure.
const CONSOLE_LINES: usize = 25;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Firmware {
    Bios,
    Uefi,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Accelerator {
    /// Software emulation: available everywhere, but slow.
    Tcg,
    Kvm,
}

#[derive(Debug)]
pub struct Trial<'a> {
    pub image: &'a Path,
    pub role: Role,
    pub firmware: Firmware,
    pub accelerator: Accelerator,
    pub limit: Duration,
    /// Context disc, which must contain [`script`].
    pub disc: &'a [u8],
}

#[derive(Debug)]
pub struct Verdict {
    pub checks: Vec<Check>,
    pub took: Duration,
    /// The last lines of the console.
    pub console: String,
}

#[derive(Debug, thiserror::Error)]
pub enum VerifyError {
    #[error("the image cannot be verified: {0}")]
    Refused(String),
    #[error(transparent)]
    Command(#[from] CommandError),
    #[error("the machine could not be started, or its files could not be written")]
    Io(#[from] io::Error),
}

/// Script that the machine runs after its appliance: prints facts, then powers off.
pub fn script() -> String {
    let units = judge::ENABLED.join(" ");
    format!(
        "#!/bin/sh\n\
         exec > /dev/virtio-ports/{PORT} 2> /dev/null\n\
         echo begin\n\
         echo role $(cat /etc/trellis/role)\n\
         echo hostname $(cat /proc/sys/kernel/hostname)\n\
         systemctl list-units --failed --plain --no-legend | while read unit rest; do\n\
         \x20 echo failed $unit\n\
         \x20 journalctl --no-pager -o cat -n 10 -u $unit | while read line; do echo log $unit: $line; done\n\
         done\n\
         for unit in {units}; do echo unit $unit $(systemctl is-enabled $unit); done\n\
         ss -Hltn | while read state receive send address rest; do echo port $address; done\n\
         echo root $(df --output=size --block-size=1 / | tail -n 1)\n\
         echo status $(trellis appliance status -o json | tr -d '\\n')\n\
         echo end\n\
         systemctl --no-block poweroff\n"
    )
}

pub fn verify(trial: &Trial) -> Result<Verdict, VerifyError> {
    let mut needed = vec![tools::VERIFY];
    if trial.firmware == Firmware::Uefi {
        needed.push(tools::VERIFY_UEFI);
    }
    if let Some(missing) = tools::missing(&needed, &tools::search_path()) {
        return Err(VerifyError::Refused(missing.to_string()));
    }
    let image = trial.image.canonicalize()?;
    let place = tempfile::tempdir()?;
    let (layer, disc) = (place.path().join("layer.qcow2"), place.path().join("context.iso"));
    let (said, console) = (place.path().join("said"), place.path().join("console"));
    fs::write(&disc, trial.disc)?;
    if trial.firmware == Firmware::Uefi {
        fs::copy(FIRMWARE_VARIABLES, place.path().join("variables.fd"))?;
    }
    let words = ["create", "-q", "-f", "qcow2", "-F", "qcow2", "-b"].map(Into::into);
    let words = words.into_iter().chain([image.into_os_string(), layer.into_os_string()]);
    Run::new("qemu-img", place.path(), LAYER_LIMIT).args(words).finish()?;

    let began = Instant::now();
    let log = fs::File::create(place.path().join("qemu.log"))?;
    let mut machine = Command::new(QEMU);
    machine.args(arguments(trial, place.path())).stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
    let ended = wait(&mut machine.spawn()?, trial.limit)?;
    let text =
        |path: &PathBuf| fs::read(path).map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).unwrap_or_default();
    let checks = judge(trial.role, &text(&said), ended.map(|status| status.success()), trial.limit);
    let complaint = text(&place.path().join("qemu.log"));
    let logs: String =
        text(&said).lines().filter_map(|line| line.strip_prefix("log ")).map(|line| format!("\n{line}")).collect();
    let console = last_lines(&(text(&console) + &complaint + &logs), CONSOLE_LINES);
    Ok(Verdict { checks, took: began.elapsed(), console })
}

/// The machine that OpenNebula would create: disk, network card and CD on virtio.
fn arguments(trial: &Trial, place: &Path) -> Vec<String> {
    let at = |name: &str| place.join(name).display().to_string();
    let accelerator = match trial.accelerator {
        Accelerator::Tcg => "tcg",
        Accelerator::Kvm => "kvm",
    };
    let mut words = vec!["-machine".to_owned(), format!("pc,accel={accelerator}")];
    let mut add = |flag: &str, value: String| words.extend([flag.to_owned(), value]);
    if trial.firmware == Firmware::Uefi {
        add("-drive", format!("if=pflash,format=raw,readonly=on,file={FIRMWARE}"));
        add("-drive", format!("if=pflash,format=raw,file={}", at("variables.fd")));
    }
    add("-cpu", if trial.accelerator == Accelerator::Kvm { "host" } else { "max" }.to_owned());
    add("-m", MEMORY_MIB.to_string());
    add("-drive", format!("if=virtio,format=qcow2,file={}", at("layer.qcow2")));
    add("-drive", format!("if=ide,media=cdrom,format=raw,readonly=on,file={}", at("context.iso")));
    add("-netdev", "user,id=net,restrict=on".to_owned());
    add("-device", "virtio-net-pci,netdev=net,mac=02:00:0a:00:02:0f,romfile=".to_owned());
    add("-device", "virtio-rng-pci".to_owned());
    add("-device", "virtio-serial-pci".to_owned());
    add("-chardev", format!("file,id=said,path={}", at("said")));
    add("-device", format!("virtserialport,chardev=said,name={PORT}"));
    add("-serial", format!("file:{}", at("console")));
    add("-display", "none".to_owned());
    add("-monitor", "none".to_owned());
    words.push("-no-reboot".to_owned());
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn software_emulation_is_the_default() {
        let trial = Trial {
            image: Path::new("/i.qcow2"),
            role: Role::Superlink,
            firmware: Firmware::Bios,
            accelerator: Accelerator::Tcg,
            limit: Duration::from_secs(1),
            disc: &[],
        };
        let words = arguments(&trial, Path::new("/p")).join(" ");
        assert!(words.starts_with("-machine pc,accel=tcg -cpu max"), "{words}");
        assert!(!words.contains("/i.qcow2") && !words.contains("pflash"), "{words}");
        let uefi = Trial { firmware: Firmware::Uefi, accelerator: Accelerator::Kvm, ..trial };
        let words = arguments(&uefi, Path::new("/p")).join(" ");
        assert!(words.contains("accel=kvm") && words.matches("pflash").count() == 2, "{words}");
    }
}
