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

/// A child that allocates this much memory on request: `tail` stores an endless line.
fn eater(mebibytes: u64) -> Child {
    let script = format!("read go; head -c {mebibytes}M /dev/zero | tail");
    let mut command = Command::new("sh");
    command.args(["-c", &script]).stdin(Stdio::piped()).stdout(Stdio::piped()).process_group(0);
    command.spawn().unwrap()
}

/// Lets it allocate until it is killed or has written the data; returns the signal.
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
        let variables = confinement.environment(slot);
        variables.iter().map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>().join(" ")
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
fn limits_that_cannot_be_enforced_are_reported() {
    let limits = Resources { app_cpus: Some(1.0), app_memory_bytes: Some(512 << 20), ..RESOURCES };
    let (_, notices) = Confinement::within(Err("reason".into()), &limits, unset(), 1);
    assert_eq!(
        notices,
        [
            "the kernel does not limit the memory of apps (reason): the node polls every second, and kills an app that uses more \
             than 512 MiB",
            "the CPU time of apps is not limited (reason): only their number of threads is set",
        ]
    );
    let (_, notices) = Confinement::within(Err("reason".into()), &RESOURCES, unset(), 1);
    assert!(notices.is_empty(), "no limit is configured");
}

#[test]
fn the_watchdog_kills_an_app_above_its_limit() {
    let limits = Resources { app_memory_bytes: Some(64 << 20), ..RESOURCES };
    let (confinement, _) = Confinement::within(Err("a test".into()), &limits, unset(), 1);
    let child = eater(150);
    let confined = confinement.enter(child.id()).unwrap();
    assert_eq!(confined.kill_reason(), None);
    // The full pipe keeps the memory allocated until the watchdog has polled.
    let mut child = child;
    drop(child.stdin.take());
    assert_eq!(child.wait().unwrap().signal(), Some(9));
    assert_eq!(confined.kill_reason().unwrap(), "it used more than its memory limit of 64 MiB");
}

#[test]
fn an_app_below_its_limit_is_not_killed() {
    let limits = Resources { app_memory_bytes: Some(200 << 20), ..RESOURCES };
    let (confinement, _) = Confinement::within(Err("a test".into()), &limits, unset(), 1);
    let child = eater(20);
    let confined = confinement.enter(child.id()).unwrap();
    assert_eq!(fed(child), None);
    assert_eq!(confined.kill_reason(), None);
}

/// Limits of the kernel, if this process may set them.
#[test]
fn the_kernel_kills_an_app_above_its_limit() {
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
    assert_eq!(confined.kill_reason().unwrap(), "it used more than its memory limit of 64 MiB");
    drop(confined);

    let child = eater(20);
    let confined = confinement.enter(child.id()).unwrap();
    assert_eq!(fed(child), None);
    assert_eq!(confined.kill_reason(), None);
}

/// Dropping the cgroup kills remaining processes of an app.
#[test]
fn no_process_of_an_app_outlives_its_cgroup() {
    let limits = Resources { app_memory_bytes: Some(64 << 20), ..RESOURCES };
    let (confinement, notices) = Confinement::new(&limits, unset(), 1);
    if confinement.cgroup.as_ref().is_none_or(|parent| !parent.memory) {
        println!("skipped: what cgroup v2 ends ({})", notices.join("; "));
        return;
    }
    let mut child = Command::new("sh");
    // A daemon in its own session, which holds our pipe.
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
    // Returns when the last holder of the pipe has exited.
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
