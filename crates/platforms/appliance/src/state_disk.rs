//! State disk of the SuperLink: mounts it before anything accesses the state, and formats it only if it is completely empty.

use std::io::Read as _;
use std::path::Path;
use std::process::Command;

use crate::context::Values;
use crate::failure::{Code, Failure};
use crate::place::Place;

const VARIABLE: &str = "FL_STATE_DISK";
/// Every file system has data in its first blocks.
const PROBED_BYTES: usize = 1 << 20;

/// Mounts the device of the context. Does nothing if it is mounted, if there is none, or if the root is not that of a
/// machine.
pub fn mount(values: &Values, place: &Place) -> Result<(), Failure> {
    let Some(device) = values.get(VARIABLE).filter(|_| place.root() == Path::new("/")) else { return Ok(()) };
    let target = place.state();
    let mounts = std::fs::read_to_string("/proc/self/mounts").map_err(|error| failed(device, &error.to_string()))?;
    if is_mounted(&mounts, &target) {
        return Ok(());
    }
    if is_empty(device).map_err(|error| failed(device, &error.to_string()))? {
        tracing::info!("{device} is empty; creating a file system");
        run("mkfs.ext4", &["-q", "-L", "trellis-state", device], device)?;
    }
    std::fs::create_dir_all(&target).map_err(|error| failed(device, &error.to_string()))?;
    run("mount", &["-o", "nosuid,nodev,noexec", device, &target.display().to_string()], device)
}

fn is_mounted(mounts: &str, target: &Path) -> bool {
    mounts.lines().any(|line| line.split(' ').nth(1).is_some_and(|at| Path::new(at) == target))
}

fn is_empty(device: &str) -> std::io::Result<bool> {
    let mut start = vec![0; PROBED_BYTES];
    std::fs::File::open(device)?.read_exact(&mut start)?;
    Ok(start.iter().all(|byte| *byte == 0))
}

fn run(program: &str, args: &[&str], device: &str) -> Result<(), Failure> {
    let done = Command::new(program).args(args).output().map_err(|error| failed(device, &error.to_string()))?;
    match done.status.success() {
        true => Ok(()),
        false => Err(failed(device, String::from_utf8_lossy(&done.stderr).trim())),
    }
}

fn failed(device: &str, why: &str) -> Failure {
    Failure::new(Code::PreflightFailed, format!("the state disk ({VARIABLE}={device}) is not usable: {why}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_disk_is_mounted_once() {
        let mounts = "/dev/vda3 / ext4 rw 0 0\n/dev/vdb /var/lib/trellis ext4 rw 0 0\n";
        assert!(is_mounted(mounts, Path::new("/var/lib/trellis")));
        assert!(!is_mounted(mounts, Path::new("/var/lib")));
    }

    #[test]
    fn only_what_is_wholly_empty_is_formatted() {
        let directory = tempfile::tempdir().expect("a directory");
        let disk = directory.path().join("disk");
        let mut content = vec![0; PROBED_BYTES];
        std::fs::write(&disk, &content).expect("a disk");
        assert!(is_empty(&disk.display().to_string()).expect("the disk is read"));
        content[0x438] = 0x53;
        std::fs::write(&disk, &content).expect("a disk");
        assert!(!is_empty(&disk.display().to_string()).expect("the disk is read"));
        std::fs::write(&disk, b"short").expect("a disk");
        assert!(is_empty(&disk.display().to_string()).is_err(), "too small for a disk");
    }

    #[test]
    fn below_another_root_there_are_no_disks() {
        let mut values = Values::default();
        values.add_context_sh(b"FL_STATE_DISK='/dev/nowhere'\n");
        assert!(mount(&values, &Place::new("/tmp/elsewhere", "/bin/trellis")).is_ok());
        assert!(mount(&values, &Place::new("/", "/bin/trellis")).is_err());
    }
}
