//! Removes leftovers of the build, and files that must be unique to each machine. Pure rules about paths; `build` applies
//! them.

use std::path::Path;

use crate::tree::{Entry, Kind};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    Stays,
    Goes,
    /// Must exist and be empty: systemd fills it at the first boot.
    Emptied,
}

/// Directories whose contents are removed.
const EMPTY_DIRECTORIES: [&str; 12] = [
    "dev",
    "proc",
    "run",
    "sys",
    "tmp",
    "var/cache/apt",
    "var/cache/ldconfig",
    "var/lib/apt/lists",
    "var/lib/systemd/catalog",
    "var/tmp",
    "usr/share/man",
    "usr/share/info",
];
/// Directories that a server does not need.
const GONE: [&str; 12] = [
    "etc/hostname",
    "etc/resolv.conf",
    "initrd.img.old",
    "root/.bash_history",
    "root/.cache",
    "root/.ssh",
    "root/.wget-hsts",
    "usr/share/locale",
    "var/lib/dbus/machine-id",
    "var/lib/systemd/credential.secret",
    "var/lib/systemd/random-seed",
    "vmlinuz.old",
];
const DOCUMENTATION: &str = "usr/share/doc";
/// The licence file of a package's documentation.
const LICENCE: &str = "copyright";

pub fn fate(entry: &Entry) -> Fate {
    let (path, is_directory) = (entry.path.as_path(), entry.kind == Kind::Directory);
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let inside = |directory: &str| path != Path::new(directory) && path.starts_with(directory);
    if path == Path::new("etc/machine-id") {
        return Fate::Emptied;
    }
    let goes = EMPTY_DIRECTORIES.iter().any(|directory| inside(directory))
        || GONE.iter().any(|gone| path.starts_with(gone))
        || inside("var/log") && !is_directory
        || inside(DOCUMENTATION) && !is_directory && name != LICENCE
        || path.starts_with("etc/ssh") && name.starts_with("ssh_host_")
        || path.parent() == Some(Path::new("etc")) && name.ends_with('-')
        || path.starts_with("var/lib/dpkg") && name.ends_with("-old")
        || path.starts_with("var/cache/debconf") && name.ends_with("-old")
        || is_directory && name == "__pycache__" && !path.starts_with("opt/trellis");
    if goes { Fate::Goes } else { Fate::Stays }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fate_of(path: &str, kind: Kind) -> Fate {
        let (mode, uid, gid, modified) = (0o644, 0, 0, 0);
        fate(&Entry { path: path.into(), kind, mode, uid, gid, modified, capability: None })
    }

    #[test]
    fn what_belongs_to_one_machine_does_not_stay() {
        let file = || Kind::File { bytes: 1 };
        for gone in [
            "etc/ssh/ssh_host_rsa_key",
            "etc/shadow-",
            "var/lib/systemd/random-seed",
            "root/.bash_history",
            "root/.ssh/authorized_keys",
            "var/log/dpkg.log",
            "var/lib/apt/lists/mirror_Packages",
            "var/cache/apt/pkgcache.bin",
            "usr/share/doc/apt/changelog.gz",
            "tmp/x",
        ] {
            assert_eq!(fate_of(gone, file()), Fate::Goes, "{gone}");
        }
        for stays in
            ["etc/shadow", "etc/ssh/sshd_config", "usr/share/doc/apt/copyright", "usr/bin/trellis", "etc/fstab"]
        {
            assert_eq!(fate_of(stays, file()), Fate::Stays, "{stays}");
        }
        for stays in ["tmp", "var/log", "var/log/journal", "usr/share/doc/apt", "var/cache/apt", "run"] {
            assert_eq!(fate_of(stays, Kind::Directory), Fate::Stays, "{stays}");
        }
        assert_eq!(fate_of("etc/machine-id", file()), Fate::Emptied);
    }
}
