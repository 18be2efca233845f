use std::io::Read;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, Stdio};

use super::*;
use crate::config::{Gpus, WhenMissing};

const RESOURCES: Resources = Resources {
    gpus: Gpus::Unset,
    gpu_missing: WhenMissing::Warn,
    gpu_memory_fraction: None,
    app_cpus: None,
    app_memory_bytes: None,
};

fn unset() -> GpuPlan {
    decide(&Gpus::Unset, WhenMissing::Warn, &[], None).unwrap()
}

fn one_gpu() -> GpuPlan {
    let gpu = Gpu { index: 0, uuid: None, name: "T4".into(), memory_bytes: None, driver_version: None };
    decide(&Gpus::All, WhenMissing::Warn, &[gpu], None).unwrap()
}

/// A child that takes so many bytes when it is told to, and keeps them. `tail` keeps a line that does not end.
fn eater(mebibytes: u64) -> Child {
    let script = format!("read go; head -c {mebibytes}M /dev/zero | tail");
    let mut command = Command::new("sh");
    command.args(["-c", &script]).stdin(Stdio::piped()).stdout(Stdio::piped()).process_group(0);
    command.spawn().unwrap()
}

/// Lets it eat until it is ended, or has written what it ate; returns the signal that ended it.
fn fed(mut child: Child) -> Option<i32> {
    drop(child.stdin.take());
    let mut written = vec![];
    child.stdout.take().unwrap().read_to_end(&mut written).unwrap();
    child.wait().unwrap().signal()
}

#[test]
fn environments() {
    let environment = |resources: &Resources, plan, slot, slots| {
        let (confinement, _) = Confinement::new(resources, plan, slots);
        let told = confinement.environment(slot);
        told.iter().map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>().join(" ")
    };
    let share = Resources { gpu_memory_fraction: Some(0.5), ..RESOURCES };
    let threads = Resources { app_cpus: Some(1.5), ..RESOURCES };
    let fraction = "TRELLIS_GPU_MEMORY_FRACTION=0.5 XLA_PYTHON_CLIENT_MEM_FRACTION=0.5 TF_FORCE_GPU_ALLOW_GROWTH=true";
    assert_eq!(environment(&RESOURCES, unset(), 0, 1), "");
    assert_eq!(environment(&share, unset(), 0, 1), fraction);
    assert_eq!(environment(&RESOURCES, one_gpu(), 1, 2), "CUDA_VISIBLE_DEVICES=0 CUDA_DEVICE_ORDER=PCI_BUS_ID");
    assert_eq!(environment(&threads, unset(), 0, 1), "OMP_NUM_THREADS=2");
    let cpu = decide(&Gpus::None, WhenMissing::Warn, &[], None).unwrap();
    assert_eq!(environment(&share, cpu, 0, 1), "CUDA_VISIBLE_DEVICES=-1 CUDA_DEVICE_ORDER=PCI_BUS_ID");
}

#[test]
fn what_cannot_be_held_is_said() {
    let limits = Resources { app_cpus: Some(1.0), app_memory_bytes: Some(512 << 20), ..RESOURCES };
    let (_, notices) = Confinement::within(Err("why".into()), &limits, unset(), 1);
    assert_eq!(
        notices,
        [
            "the kernel does not limit the memory of apps (why): the node looks every second, and ends an app that has more \
             than 512 MiB",
            "the CPU time of apps is not limited (why): they are only told how many threads to use",
        ]
    );
    let (_, notices) = Confinement::within(Err("why".into()), &RESOURCES, unset(), 1);
    assert!(notices.is_empty(), "nothing was asked for");
}

#[test]
fn an_app_that_takes_too_much_is_ended_by_the_watch() {
    let limits = Resources { app_memory_bytes: Some(64 << 20), ..RESOURCES };
    let (confinement, _) = Confinement::within(Err("a test".into()), &limits, unset(), 1);
    let child = eater(150);
    let confined = confinement.enter(child.id()).unwrap();
    assert_eq!(confined.verdict(), None);
    // It holds what it ate until somebody reads it: the pipe is left full until the watch has looked.
    let mut child = child;
    drop(child.stdin.take());
    assert_eq!(child.wait().unwrap().signal(), Some(9));
    assert_eq!(confined.verdict().unwrap(), "it took more than the 64 MiB of memory it may have");
}

#[test]
fn a_modest_app_is_left_alone() {
    let limits = Resources { app_memory_bytes: Some(200 << 20), ..RESOURCES };
    let (confinement, _) = Confinement::within(Err("a test".into()), &limits, unset(), 1);
    let child = eater(20);
    let confined = confinement.enter(child.id()).unwrap();
    assert_eq!(fed(child), None);
    assert_eq!(confined.verdict(), None);
}

/// The kernel's own limits, where this process may have them.
#[test]
fn an_app_that_takes_too_much_is_ended_by_the_kernel() {
    let limits = Resources { app_memory_bytes: Some(64 << 20), app_cpus: Some(0.5), ..RESOURCES };
    let (confinement, notices) = Confinement::new(&limits, unset(), 1);
    if confinement.cgroup.as_ref().is_none_or(|parent| !parent.memory || !parent.cpu) {
        println!("skipped: limits by cgroup v2 ({})", notices.join("; "));
        return;
    }
    assert!(notices.is_empty(), "{notices:?}");
    let child = eater(150);
    let pid = child.id();
    let confined = confinement.enter(pid).unwrap();
    assert!(confined.watch.is_none());
    let own = std::fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap();
    assert!(own.contains(&format!("/trellis-app-{pid}")), "{own}");
    assert_eq!(fed(child), Some(9));
    assert_eq!(confined.verdict().unwrap(), "it took more than the 64 MiB of memory it may have");
    drop(confined);

    let child = eater(20);
    let confined = confinement.enter(child.id()).unwrap();
    assert_eq!(fed(child), None);
    assert_eq!(confined.verdict(), None);
}

/// What an app leaves running ends with its cgroup.
#[test]
fn nothing_of_an_app_outlives_its_cgroup() {
    let limits = Resources { app_memory_bytes: Some(64 << 20), ..RESOURCES };
    let (confinement, notices) = Confinement::new(&limits, unset(), 1);
    if confinement.cgroup.as_ref().is_none_or(|parent| !parent.memory) {
        println!("skipped: what cgroup v2 ends ({})", notices.join("; "));
        return;
    }
    let mut child = Command::new("sh");
    // A daemon: in a session of its own, holding our pipe.
    child
        .args(["-c", "read go; setsid sleep 1000 & exit"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .process_group(0);
    let mut child = child.spawn().unwrap();
    let confined = confinement.enter(child.id()).unwrap();
    drop(child.stdin.take());
    assert!(child.wait().unwrap().success());
    drop(confined);
    // Ends when the last holder of the pipe has.
    child.stdout.take().unwrap().read_to_end(&mut vec![]).unwrap();
}

#[test]
fn sizes() {
    let cases =
        [(512 << 20, "512 MiB"), (1 << 30, "1 GiB"), (1536 << 20, "1536 MiB"), (1000, "1000 bytes"), (0, "0 bytes")];
    for (bytes, want) in cases {
        assert_eq!(size(bytes), want);
    }
}
