//! Facts from the kernel.

use std::fs;
use std::io;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use rustix::fs::{Access, access, statvfs};
use rustix::process::{Resource, Rlimit, getrlimit};

use crate::facts::{Cgroup, Clock, Home, Memory, OpenFiles};

/// systemd-timesyncd creates this directory, and the file once it has set the clock.
const TIME_SERVICE: &str = "/run/systemd/timesync";
const TIME_IS_SET: &str = "/run/systemd/timesync/synchronized";
const CGROUPS: &str = "/sys/fs/cgroup";

pub fn home(home: Option<&Path>) -> Home {
    let Some(path) = home else {
        return Home { path: None, exists: false, unwritable: None, free_bytes: None, free_files: None };
    };
    // If the directory does not exist yet, the nearest existing parent counts.
    let nearest = path.ancestors().find(|place| place.exists()).unwrap_or(Path::new("/"));
    let unwritable = match fs::metadata(nearest) {
        Ok(found) if !found.is_dir() => Some(format!("{} is not a directory", nearest.display())),
        _ => access(nearest, Access::WRITE_OK | Access::EXEC_OK).err().map(|error| io::Error::from(error).to_string()),
    };
    let disk = statvfs(nearest).ok();
    Home {
        path: Some(path.to_owned()),
        exists: path.exists(),
        unwritable,
        free_bytes: disk.as_ref().map(|disk| disk.f_bavail.saturating_mul(disk.f_frsize)),
        // File systems without a limit report 0 of 0.
        free_files: disk.filter(|disk| disk.f_files > 0).map(|disk| disk.f_favail),
    }
}

pub fn clock() -> Clock {
    let written = std::env::current_exe().and_then(fs::metadata).and_then(|found| found.modified());
    Clock {
        now_s: seconds(SystemTime::now()),
        program_s: written.ok().map(seconds),
        synchronized: Path::new(TIME_SERVICE).exists().then(|| Path::new(TIME_IS_SET).exists()),
    }
}

fn seconds(time: SystemTime) -> i64 {
    time.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs() as i64)
}

pub fn open_files() -> OpenFiles {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    OpenFiles { soft: current, hard: maximum }
}

/// The memory of the machine, or of the container if that is less.
pub fn memory() -> Option<Memory> {
    let machine = parse_meminfo(&fs::read_to_string("/proc/meminfo").ok()?)?;
    let number =
        |name: &str| -> Option<u64> { fs::read_to_string(Path::new(CGROUPS).join(name)).ok()?.trim().parse().ok() };
    match (number("memory.max"), number("memory.current")) {
        (Some(limit), Some(used)) if limit < machine.total_bytes => Some(Memory {
            total_bytes: limit,
            available_bytes: machine.available_bytes.min(limit.saturating_sub(used)),
        }),
        _ => Some(machine),
    }
}

fn parse_meminfo(text: &str) -> Option<Memory> {
    let bytes = |name: &str| -> Option<u64> {
        let line = text.lines().find_map(|line| line.strip_prefix(name))?;
        let kibibytes: u64 = line.split_whitespace().next()?.parse().ok()?;
        Some(kibibytes << 10)
    };
    Some(Memory { total_bytes: bytes("MemTotal:")?, available_bytes: bytes("MemAvailable:")? })
}

pub fn cgroup() -> Cgroup {
    let Ok(text) = fs::read_to_string("/proc/self/cgroup") else {
        return Cgroup::Absent("the kernel has no cgroups".to_owned());
    };
    let Some(path) = text.lines().find_map(|line| line.strip_prefix("0::")) else {
        return Cgroup::Absent("this machine has no cgroup v2".to_owned());
    };
    let directory = Path::new(CGROUPS).join(path.trim_start_matches('/'));
    let Ok(controllers) = fs::read_to_string(directory.join("cgroup.controllers")) else {
        return Cgroup::Absent("no cgroup v2 file system is mounted".to_owned());
    };
    let delegated = access(directory.join("cgroup.subtree_control"), Access::WRITE_OK).is_ok()
        && access(&directory, Access::WRITE_OK).is_ok();
    let controllers = controllers.split_whitespace().map(str::to_owned).collect();
    Cgroup::Present { path: path.to_owned(), controllers, delegated }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_counts_memory_in_kibibytes() {
        let text = "MemTotal:       16384 kB\nMemFree:  1 kB\nMemAvailable:    8192 kB\n";
        assert_eq!(parse_meminfo(text), Some(Memory { total_bytes: 16 << 20, available_bytes: 8 << 20 }));
        assert_eq!(parse_meminfo("MemTotal: x kB\n"), None);
    }

    #[test]
    fn a_missing_home_is_checked_by_its_parent() {
        let place = tempfile::tempdir().unwrap();
        let found = home(Some(&place.path().join("a/b")));
        assert!(!found.exists && found.unwritable.is_none() && found.free_bytes.is_some(), "{found:?}");
        let file = place.path().join("file");
        fs::write(&file, "").unwrap();
        assert!(home(Some(&file.join("b"))).unwritable.unwrap().ends_with("is not a directory"));
    }

    #[test]
    fn facts_of_this_machine_are_plausible() {
        let (clock, memory) = (clock(), memory().unwrap());
        assert!(clock.program_s.unwrap() <= clock.now_s);
        assert!(0 < memory.available_bytes && memory.available_bytes <= memory.total_bytes);
        assert!(open_files().soft.is_none_or(|soft| soft > 0));
    }
}
