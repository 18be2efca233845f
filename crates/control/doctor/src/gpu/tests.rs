//! Tables: changes to the files of a good machine, and the checks that they affect.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::Path;

use super::{Machine, check_guest, check_host};
use crate::check::{Check, Verdict};

/// Files by path. A text that begins with `->` is a link, `!` a program.
type Files = BTreeMap<&'static str, &'static str>;

const GPU: &str = "sys/bus/pci/devices/0000:65:00.0";

fn build(root: &Path, files: &Files) {
    for (path, text) in files {
        let path = root.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        if let Some(target) = text.strip_prefix("->") {
            symlink(target, &path).unwrap();
        } else if let Some(script) = text.strip_prefix('!') {
            fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        } else {
            fs::write(&path, text).unwrap();
        }
    }
}

fn good_host() -> Files {
    [
        ("proc/cmdline", "BOOT_IMAGE=/vmlinuz root=/dev/sda1 intel_iommu=on iommu=pt quiet\n"),
        ("sys/kernel/iommu_groups/0/type", "DMA\n"),
        ("sys/module/vfio_pci/refcnt", "1\n"),
        ("sys/bus/pci/devices/0000:65:00.0/vendor", "0x10de\n"),
        ("sys/bus/pci/devices/0000:65:00.0/class", "0x030200\n"),
        ("sys/bus/pci/devices/0000:65:00.0/driver", "->../../drivers/vfio-pci"),
        ("sys/bus/pci/devices/0000:65:00.1/vendor", "0x10de\n"),
        ("sys/bus/pci/devices/0000:65:00.1/class", "0x040300\n"),
        ("sys/bus/pci/devices/0000:65:00.1/driver", "->../../drivers/vfio-pci"),
        ("etc/udev/rules.d/99-vfio.rules", "SUBSYSTEM==\"vfio\", GROUP=\"kvm\", MODE=\"0666\"\n"),
        ("var/tmp/one/etc/im/kvm-probes.d/pci.conf", ":filter: '10de:*'\n"),
    ]
    .into()
}

fn good_guest() -> Files {
    [
        ("proc/cpuinfo", "flags\t\t: fpu hypervisor\n"),
        ("sys/bus/pci/devices/0000:01:00.0/vendor", "0x10de\n"),
        ("sys/bus/pci/devices/0000:01:00.0/class", "0x030200\n"),
        ("proc/driver/nvidia/version", "NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.90.07  Fri\n"),
        ("usr/bin/nvidia-smi", "!echo 'NVIDIA L4, 550.90.07, 23034 MiB'"),
        ("dev/nvidiactl", ""),
        ("dev/nvidia0", ""),
        ("dev/nvidia-uvm", ""),
        ("usr/bin/docker", "!echo 'GPU 0: NVIDIA L4'"),
        ("usr/bin/nvidia-ctk", "!"),
        ("etc/docker/daemon.json", "{\"runtimes\": {\"nvidia\": {}}}"),
        ("usr/bin/dcgm-exporter", "!"),
        ("proc/net/tcp6", "  sl  local\n   0: 00000000:24B8 00000000:0000 0A 00000000:00000000\n"),
    ]
    .into()
}

/// The checks that are not ok: verdict, name, part of the finding, part of the fix.
type Expected = [(Verdict, &'static str, &'static str, &'static str)];
/// Files to remove, files to add, expected checks.
type Case<'a> = (&'a [&'static str], &'a [(&'static str, &'static str)], &'a Expected);

fn compare(checks: &[Check], expected: &Expected, what: &str) {
    let bad: Vec<&Check> = checks.iter().filter(|check| check.verdict != Verdict::Ok).collect();
    assert_eq!(bad.len(), expected.len(), "{what}: {bad:#?}");
    for (check, (verdict, name, found, fix)) in bad.iter().zip(expected) {
        assert_eq!((check.verdict, check.name), (*verdict, *name), "{what}: {check:?}");
        assert!(check.found.contains(found), "{what}: {check:?}");
        assert!(check.fix.as_ref().is_some_and(|text| text.contains(fix)), "{what}: {check:?}");
    }
    assert!(checks.iter().all(|check| (check.verdict == Verdict::Ok) == check.fix.is_none()), "{what}");
}

/// A machine without some files and with others.
fn changed(mut files: Files, without: &[&'static str], with: &[(&'static str, &'static str)]) -> tempfile::TempDir {
    files.retain(|path, _| !without.iter().any(|gone| path.starts_with(gone)));
    files.extend(with.iter().copied());
    let root = tempfile::tempdir().unwrap();
    build(root.path(), &files);
    root
}

#[test]
fn hosts() {
    use Verdict::{Problem, Warning};
    let sound = "sys/bus/pci/devices/0000:65:00.1/driver";
    let gpu = "sys/bus/pci/devices/0000:65:00.0/driver";
    let rule = "etc/udev/rules.d/99-vfio.rules";
    let probe = "var/tmp/one/etc/im/kvm-probes.d/pci.conf";
    let cases: &[Case<'_>] = &[
        (&[], &[], &[]),
        (&[], &[("proc/cmdline", "amd_iommu=on iommu=pt")], &[]),
        (&[], &[("proc/cmdline", "quiet")], &[]),
        (&[], &[("proc/cmdline", "intel_iommu=on")], &[(Warning, "kernel", "without iommu=pt", "update-grub")]),
        (
            &["sys/kernel"],
            &[("proc/cmdline", "quiet intel_iommu=off")],
            &[
                (Problem, "kernel", "neither intel_iommu=on", "intel_iommu=on iommu=pt"),
                (Problem, "iommu", "no IOMMU groups", "firmware"),
            ],
        ),
        (&["sys/module"], &[], &[(Warning, "vfio", "not loaded", "modprobe vfio-pci")]),
        (&["sys/bus"], &[], &[(Warning, "gpus", "no NVIDIA GPU", "another host")]),
        (
            &[gpu],
            &[(gpu, "->../../drivers/nouveau")],
            &[(Problem, "gpus", "0000:65:00.0 by nouveau", "driverctl set-override 0000:65:00.0 vfio-pci")],
        ),
        (
            &[sound],
            &[(sound, "->../../drivers/snd_hda_intel")],
            &[(Problem, "gpus", "0000:65:00.1 by snd_hda_intel", "set-override 0000:65:00.1")],
        ),
        (&[gpu], &[], &[(Warning, "gpus", "without a driver: 0000:65:00.0", "set-override 0000:65:00.0")]),
        (&[rule], &[], &[(Warning, "device files", "no udev rule", "99-vfio.rules")]),
        (
            &[],
            &[(rule, "# SUBSYSTEM==\"vfio\", MODE=\"0666\"\n")],
            &[(Warning, "device files", "no udev rule", "udevadm")],
        ),
        (&[probe], &[], &[(Warning, "opennebula", "pci.conf", "onehost sync -f")]),
        (
            &[],
            &[(probe, "# :filter: '10de:*'\n:filter: '0:0'\n")],
            &[(Warning, "opennebula", "does not report", "10de")],
        ),
    ];
    for (index, (without, with, expected)) in cases.iter().enumerate() {
        let root = changed(good_host(), without, with);
        compare(&check_host(&Machine::new(root.path()).host()), expected, &format!("host {index}"));
    }
}

#[tokio::test]
async fn guests() {
    use Verdict::{Problem, Warning};
    let smi = "usr/bin/nvidia-smi";
    let cases: &[Case<'_>] = &[
        (&[], &[], &[]),
        (&["sys/bus"], &[], &[(Warning, "gpu", "apps use the CPU", "SHORT_ADDRESS")]),
        (&["proc/driver"], &[], &[(Problem, "driver", "not loaded", "modprobe nvidia")]),
        (&[smi], &[], &[(Problem, "nvidia-smi", "not installed", "install")]),
        (
            &[],
            &[(smi, "!echo 'Driver/library version mismatch' >&2; exit 18")],
            &[(Problem, "nvidia-smi", "version mismatch", "dmesg")],
        ),
        (&[], &[(smi, "!true")], &[(Problem, "nvidia-smi", "finds no GPU", "host-passthrough")]),
        (&["dev/nvidia-uvm"], &[], &[(Warning, "device files", "dev/nvidia-uvm", "nvidia-modprobe")]),
        (
            &["etc/docker"],
            &[],
            &[(Warning, "containers", "docker does not know", "nvidia-ctk runtime configure --runtime=docker")],
        ),
        (
            &["etc/docker", "usr/bin/nvidia-ctk", "usr/bin/docker"],
            &[("usr/bin/podman", "!")],
            &[(Warning, "containers", "podman is installed", "nvidia-ctk cdi generate")],
        ),
        (&["etc/docker"], &[("etc/cdi/nvidia.yaml", "cdiVersion: 0.5.0")], &[]),
        (&["etc/docker", "usr/bin/docker", "usr/bin/nvidia-ctk"], &[], &[]),
        (&["proc/net"], &[], &[(Warning, "metrics", "port 9400 is closed", "systemctl enable")]),
        (&["proc/net", "usr/bin/dcgm-exporter"], &[], &[(Warning, "metrics", "no dcgm-exporter", "dcgm-exporter")]),
    ];
    for (index, (without, with, expected)) in cases.iter().enumerate() {
        let root = changed(good_guest(), without, with);
        let facts = Machine::new(root.path()).guest(None, None).await;
        compare(&check_guest(&facts), expected, &format!("guest {index}"));
    }
}

#[tokio::test]
async fn an_image_is_tested_in_a_container() {
    use Verdict::Problem;
    for (without, with, expected) in [
        (vec![], vec![], &[][..]),
        (
            vec![],
            vec![("usr/bin/docker", "!echo 'could not select device driver' >&2; exit 125")],
            &[(Problem, "container", "could not select device driver", "containers")][..],
        ),
        (vec!["usr/bin/docker"], vec![], &[(Problem, "container", "neither docker nor podman", "containers")][..]),
    ] {
        let root = changed(good_guest(), &without, &with);
        let checks = check_guest(&Machine::new(root.path()).guest(None, Some("debian")).await);
        assert!(checks.iter().any(|check| check.name == "container"));
        compare(&checks, expected, "container");
    }
}

#[test]
fn a_machine_with_the_flag_hypervisor_is_a_guest() {
    let guest = changed(good_guest(), &[], &[]);
    let host = changed(good_host(), &[], &[("proc/cpuinfo", "model name : hypervisor\nflags : fpu\n")]);
    assert!(Machine::new(guest.path()).is_virtual());
    assert!(!Machine::new(host.path()).is_virtual());
    assert!(host.path().join(GPU).exists());
}
