//! Assignment of the GPUs of this machine to parts. Counts the files of the NVIDIA driver and runs no program.

use std::collections::BTreeSet;
use std::path::Path;

/// Number of GPUs of this machine.
pub fn count() -> u32 {
    count_in(Path::new("/"))
}

fn count_in(root: &Path) -> u32 {
    let names = |directory: &str| {
        let entries = std::fs::read_dir(root.join(directory)).into_iter().flatten().flatten();
        entries.filter_map(|entry| entry.file_name().into_string().ok()).collect::<Vec<_>>()
    };
    let known = names("proc/driver/nvidia/gpus").len();
    let is_device = |name: &&String| name.strip_prefix("nvidia").is_some_and(|rest| rest.parse::<u32>().is_ok());
    let devices = names("dev").iter().filter(is_device).count();
    u32::try_from(if known > 0 { known } else { devices }).unwrap_or(u32::MAX)
}

/// Assigns `wanted` GPUs that no other part has, first those that the part has already. `None` if there are not enough.
pub fn assign(wanted: u32, had: &[u32], taken: &BTreeSet<u32>, count: u32) -> Option<Vec<u32>> {
    let kept = had.iter().copied().filter(|index| *index < count && !taken.contains(index));
    let free = (0..count).filter(|index| !taken.contains(index) && !had.contains(index));
    let assigned: Vec<u32> = kept.chain(free).take(usize::try_from(wanted).unwrap_or(usize::MAX)).collect();
    (u32::try_from(assigned.len()) == Ok(wanted)).then_some(assigned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_files_of_the_driver_are_counted() {
        let root = tempfile::tempdir().unwrap();
        assert_eq!(count_in(root.path()), 0);
        std::fs::create_dir(root.path().join("dev")).unwrap();
        for name in ["nvidia0", "nvidia1", "nvidiactl", "nvidia-uvm"] {
            std::fs::write(root.path().join("dev").join(name), "").unwrap();
        }
        assert_eq!(count_in(root.path()), 2);
        std::fs::create_dir_all(root.path().join("proc/driver/nvidia/gpus/0000:00:06.0")).unwrap();
        assert_eq!(count_in(root.path()), 1);
    }

    #[test]
    fn a_gpu_is_assigned_once() {
        let taken = BTreeSet::from([1]);
        assert_eq!(assign(2, &[], &taken, 4), Some(vec![0, 2]));
        assert_eq!(assign(1, &[3], &taken, 4), Some(vec![3]));
        assert_eq!(assign(1, &[1], &taken, 4), Some(vec![0]));
        assert_eq!(assign(4, &[], &taken, 4), None);
        assert_eq!(assign(0, &[], &taken, 0), Some(vec![]));
    }
}
