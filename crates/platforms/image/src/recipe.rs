//! Contents of an image: packages, our files, enabled units, sizes. Pure.

use std::fmt;

use crate::ext4;

const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;
const GB: u64 = 1_000_000_000;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    Superlink,
    Supernode,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Framework {
    None,
    Pytorch,
    Tensorflow,
    Sklearn,
}

/// Options of a build.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Recipe {
    pub role: Role,
    pub framework: Framework,
    /// Minimal image for a node.
    pub edge: bool,
    pub suite: String,
    pub flower_version: String,
    /// Size of the virtual disk; `None` uses the default of the role.
    pub disk_bytes: Option<u64>,
    /// A context package that replaces our own program for the context.
    pub context_package: bool,
}

/// A file to add to the tree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Planted {
    pub path: &'static str,
    pub mode: u32,
    pub content: String,
}

/// A unit to enable, and the target that wants it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Enabled {
    pub unit: &'static str,
    pub by: &'static str,
}

/// Path of the program in the image.
pub const PROGRAM: &str = "usr/bin/trellis";
pub const ROLE_FILE: &str = "etc/trellis/role";
pub const VENV: &str = "opt/trellis/venv";
/// Path where OpenNebula's appliance framework expects one.
pub const HOOK: &str = "etc/one-appliance/service.d/appliance.sh";

/// Packages of every image. `systemd-repart` and `systemd-growfs`, which come with systemd, grow the root file system with
/// its disk.
const PACKAGES: [&str; 16] = [
    "ca-certificates",
    "dbus",
    "e2fsprogs",
    "iproute2",
    "kmod",
    "libpam-systemd",
    "linux-image-cloud-amd64",
    "nftables",
    "openssh-server",
    "procps",
    "systemd",
    "systemd-resolved",
    "systemd-sysv",
    "systemd-timesyncd",
    "udev",
    "wireguard-tools",
];
/// Tools for troubleshooting; not in edge images.
const COMFORT: [&str; 3] = ["iputils-ping", "less", "nano"];
const PYTHON: [&str; 2] = ["python3", "python3-venv"];
/// Dependencies of OpenNebula's context package.
const CONTEXT_NEEDS: [&str; 6] = ["bind9-host", "cloud-utils", "gawk", "ruby", "parted", "util-linux"];

impl Role {
    pub fn name(self) -> &'static str {
        match self {
            Role::Superlink => "superlink",
            Role::Supernode => "supernode",
        }
    }
}

impl Framework {
    pub const ALL: [Framework; 4] = [Framework::None, Framework::Pytorch, Framework::Tensorflow, Framework::Sklearn];

    pub fn name(self) -> &'static str {
        match self {
            Framework::None => "none",
            Framework::Pytorch => "pytorch",
            Framework::Tensorflow => "tensorflow",
            Framework::Sklearn => "sklearn",
        }
    }

    /// Versions that are compatible with each other and with Flower. TensorFlow below 2.18 and Flower require different
    /// versions of protobuf; numpy 2 requires processors that some clouds do not expose.
    fn requirements(self) -> &'static [&'static str] {
        match self {
            Framework::None => &[],
            Framework::Pytorch => &["numpy==1.26.4", "torch==2.5.1", "torchvision==0.20.1"],
            Framework::Tensorflow => &["numpy==1.26.4", "tensorflow-cpu==2.18.1"],
            Framework::Sklearn => &["numpy==1.26.4", "scikit-learn==1.5.2"],
        }
    }
}

impl fmt::Display for Recipe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "trellis-{}", self.role.name())?;
        match (self.framework, self.edge) {
            (_, true) => f.write_str("-edge"),
            (Framework::None, false) => Ok(()),
            (framework, false) => write!(f, "-{}", framework.name()),
        }
    }
}

impl Recipe {
    /// All conflicts of the options.
    pub fn objections(&self) -> Vec<String> {
        let mut problems = Vec::new();
        if self.edge && self.role != Role::Supernode {
            problems.push("--edge requires the role supernode".to_owned());
        }
        if self.edge && self.framework != Framework::None {
            let framework = self.framework.name();
            problems.push(format!(
                "--edge excludes --framework {framework}: remove one of them (native apps need no framework)"
            ));
        }
        if let Some(bytes) = self.disk_bytes.filter(|bytes| *bytes < GIB) {
            problems.push(format!("--size {bytes} bytes are not sufficient: use at least 1G"));
        }
        let numbers: Vec<_> = self.flower_version.split('.').map(str::parse::<u16>).collect();
        if numbers.len() != 3 || numbers.iter().any(Result::is_err) {
            problems.push(format!("--flower-version {:?} is not a version like 1.42.0", self.flower_version));
        }
        problems
    }

    /// Debian packages, sorted.
    pub fn packages(&self) -> Vec<&'static str> {
        let mut packages = PACKAGES.to_vec();
        if !self.edge {
            packages.extend(COMFORT);
        }
        if self.framework != Framework::None {
            packages.extend(PYTHON);
        }
        if self.context_package {
            packages.extend(CONTEXT_NEEDS);
        }
        packages.sort_unstable();
        packages
    }

    /// PyPI packages; none without a framework.
    pub fn requirements(&self) -> Vec<String> {
        if self.framework == Framework::None {
            return Vec::new();
        }
        let flower = format!("flwr=={}", self.flower_version);
        self.framework.requirements().iter().map(|text| (*text).to_owned()).chain([flower]).collect()
    }

    pub fn disk_bytes(&self) -> u64 {
        self.disk_bytes.unwrap_or(match (self.role, self.framework) {
            (_, Framework::Pytorch | Framework::Tensorflow) => 12 * GIB,
            (_, Framework::Sklearn) => 6 * GIB,
            (Role::Superlink, Framework::None) => 4 * GIB,
            (Role::Supernode, Framework::None) => 2 * GIB,
        })
    }

    /// Maximum size of the compressed image.
    pub fn budget_bytes(&self) -> u64 {
        match self.framework {
            Framework::None => GB,
            Framework::Sklearn => GB + GB / 2,
            Framework::Tensorflow => 3 * GB,
            Framework::Pytorch => 6 * GB,
        }
    }

    /// Memory and processors of a machine with this image.
    pub fn machine(&self) -> (u64, u32) {
        match (self.role, self.framework) {
            (Role::Superlink, _) => (4 * GIB / MIB, 2),
            (Role::Supernode, Framework::None) => (2 * GIB / MIB, 2),
            (Role::Supernode, _) => (8 * GIB / MIB, 2),
        }
    }

    pub fn files(&self) -> Vec<Planted> {
        let mut files = vec![
            planted(ROLE_FILE, format!("{}\n", self.role.name())),
            planted("etc/trellis/framework", format!("{}\n", self.framework.name())),
            planted("etc/fstab", format!("UUID={} / ext4 errors=remount-ro,x-systemd.growfs 0 1\n", ext4::UUID)),
            planted("etc/repart.d/50-root.conf", "[Partition]\nType=root\n".to_owned()),
            planted("boot/grub/grub.cfg", grub_menu()),
            // Files are not newer than the image, so the first boot has nothing to update.
            planted("etc/.updated", String::new()),
            planted("var/.updated", String::new()),
            planted("etc/hosts", "127.0.0.1 localhost\n::1 localhost ip6-localhost ip6-loopback\n".to_owned()),
            planted("etc/systemd/system/trellis-ssh-keys.service", SSH_KEYS.to_owned()),
            planted("etc/systemd/system/systemd-networkd-wait-online.service.d/trellis.conf", WAIT_ONLINE.to_owned()),
            planted("etc/ssh/sshd_config.d/50-trellis.conf", SSH.to_owned()),
            planted("etc/systemd/resolved.conf.d/50-trellis.conf", NAMES.to_owned()),
            planted("etc/systemd/journald.conf.d/50-trellis.conf", JOURNAL.to_owned()),
        ];
        if !self.context_package {
            files.push(planted("etc/systemd/system/trellis-machine.service", MACHINE.to_owned()));
            files.push(planted("etc/systemd/system/trellis-start-script.service", START_SCRIPT.to_owned()));
            files.push(planted("etc/systemd/network/90-trellis-fallback.network", FALLBACK.to_owned()));
        }
        files
    }

    pub fn enabled(&self) -> Vec<Enabled> {
        let mut units = vec![
            Enabled { unit: "systemd-networkd.service", by: "multi-user.target" },
            Enabled { unit: "systemd-networkd-wait-online.service", by: "network-online.target" },
            Enabled { unit: "systemd-resolved.service", by: "multi-user.target" },
            Enabled { unit: "systemd-timesyncd.service", by: "sysinit.target" },
            Enabled { unit: "trellis-ssh-keys.service", by: "multi-user.target" },
            Enabled { unit: "ssh.service", by: "multi-user.target" },
        ];
        if !self.context_package {
            units.push(Enabled { unit: "trellis-machine.service", by: "multi-user.target" });
            units.push(Enabled { unit: "trellis-start-script.service", by: "multi-user.target" });
        }
        units
    }
}

fn planted(path: &'static str, content: String) -> Planted {
    Planted { path, mode: 0o644, content }
}

/// The first line is for the screen, the second for a serial console; systemd uses the last one for its messages.
fn grub_menu() -> String {
    let root = ext4::UUID;
    format!(
        "set timeout=0\n\
         search --no-floppy --set=root --fs-uuid {root}\n\
         menuentry 'Trellis' {{\n\
         \tlinux /vmlinuz root=UUID={root} ro net.ifnames=0 console=tty0 console=ttyS0,115200 quiet\n\
         \tinitrd /initrd.img\n\
         }}\n"
    )
}

/// Embedded configuration of GRUB: finds the file above.
pub fn grub_start() -> String {
    let root = ext4::UUID;
    format!(
        "search --no-floppy --set=root --fs-uuid {root}\nset prefix=($root)/boot/grub\nconfigfile /boot/grub/grub.cfg\n"
    )
}

/// Images contain no SSH host keys, because each machine needs its own.
const SSH_KEYS: &str = "\
[Unit]
Description=Keys of this machine's SSH server
Before=ssh.service
ConditionPathExists=!/etc/ssh/ssh_host_ed25519_key

[Service]
Type=oneshot
ExecStart=/usr/bin/ssh-keygen -A

[Install]
WantedBy=multi-user.target
";

const SSH: &str = "\
AuthorizedKeysFile .ssh/authorized_keys /run/one-context/authorized_keys.%u
PasswordAuthentication no
KbdInteractiveAuthentication no
PermitRootLogin prohibit-password
";

const WAIT_ONLINE: &str = "\
[Service]
ExecStart=
ExecStart=/lib/systemd/systemd-networkd-wait-online --any --timeout=60
";

/// Name resolution uses only the servers of the context, without multicast.
const NAMES: &str = "\
[Resolve]
LLMNR=no
MulticastDNS=no
";

const JOURNAL: &str = "\
[Journal]
SystemMaxUse=200M
";

const MACHINE: &str = "\
[Unit]
Description=Network, name and keys of this machine from its context
Before=network-pre.target systemd-networkd.service ssh.service trellis-appliance.service
Wants=network-pre.target
After=local-fs.target systemd-udev-trigger.service

[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart=/usr/bin/trellis appliance machine
TimeoutStartSec=120

[Install]
WantedBy=multi-user.target
";

/// Runs after the appliance, as in images with OpenNebula's own package. The directory of the context is mounted noexec.
const START_SCRIPT: &str = "\
[Unit]
Description=Start script of the context
After=trellis-machine.service network-online.target trellis-appliance.service
Wants=network-online.target
ConditionPathExists=/run/one-context/start-script

[Service]
Type=oneshot
RemainAfterExit=yes
StateDirectory=one-context
ExecStartPre=/usr/bin/install -m 0700 /run/one-context/start-script /var/lib/one-context/start-script
ExecStart=/var/lib/one-context/start-script

[Install]
WantedBy=multi-user.target
";

/// Default network for a machine without context.
const FALLBACK: &str = "\
[Match]
Name=eth*

[Network]
DHCP=yes
";

#[cfg(test)]
mod tests {
    use super::*;

    fn recipe() -> Recipe {
        Recipe {
            role: Role::Supernode,
            framework: Framework::None,
            edge: false,
            suite: "bookworm".into(),
            flower_version: "1.42.0".into(),
            disk_bytes: None,
            context_package: false,
        }
    }

    #[test]
    fn all_conflicts_are_reported_at_once() {
        let edge = Recipe {
            role: Role::Superlink,
            framework: Framework::Sklearn,
            edge: true,
            disk_bytes: Some(5),
            flower_version: "new".into(),
            ..recipe()
        };
        assert_eq!(edge.objections().len(), 4);
        assert_eq!(recipe().objections(), Vec::<String>::new());
    }

    #[test]
    fn python_is_there_only_where_a_framework_is() {
        assert!(!recipe().packages().contains(&"python3"));
        assert!(recipe().requirements().is_empty());
        for framework in Framework::ALL.into_iter().filter(|framework| *framework != Framework::None) {
            let with = Recipe { framework, ..recipe() };
            assert!(with.packages().contains(&"python3-venv"), "{framework:?}");
            assert_eq!(with.requirements().last().map(String::as_str), Some("flwr==1.42.0"));
        }
    }

    #[test]
    fn every_enabled_unit_of_ours_is_among_the_files() {
        for context_package in [false, true] {
            let recipe = Recipe { context_package, ..recipe() };
            for Enabled { unit, .. } in recipe.enabled().iter().filter(|enabled| enabled.unit.starts_with("trellis")) {
                let path = format!("etc/systemd/system/{unit}");
                assert!(recipe.files().iter().any(|file| file.path == path), "{unit}");
            }
        }
    }

    #[test]
    fn names_tell_images_apart() {
        let names: Vec<_> = [
            Recipe { role: Role::Superlink, ..recipe() },
            recipe(),
            Recipe { edge: true, ..recipe() },
            Recipe { framework: Framework::Sklearn, ..recipe() },
        ]
        .iter()
        .map(Recipe::to_string)
        .collect();
        assert_eq!(
            names,
            ["trellis-superlink", "trellis-supernode", "trellis-supernode-edge", "trellis-supernode-sklearn"]
        );
    }
}
