//! Files that every app may use: system libraries, a few files of /etc, devices. None of them holds a secret.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Programs and libraries of the system, and kernel information. Landlock protects the memory and the environment of
/// processes outside the sandbox, although they are files in /proc.
const SYSTEM: &[&str] = &[
    "/usr",
    "/bin",
    "/sbin",
    "/lib",
    "/lib32",
    "/lib64",
    "/nix/store",
    "/gnu/store",
    "/run/opengl-driver",
    "/run/systemd/resolve",
    "/run/NetworkManager/resolv.conf",
    "/run/resolvconf",
    "/proc",
    "/sys",
];

/// Files that libraries read: linker configuration, name resolution, CA certificates, time zone, GPU libraries.
const ETC: &[&str] = &[
    "ld.so.cache",
    "ld.so.conf",
    "ld.so.conf.d",
    "ld.so.preload",
    "alternatives",
    "ssl/certs",
    "ssl/openssl.cnf",
    "ssl/cert.pem",
    "pki/tls/certs",
    "pki/tls/cert.pem",
    "pki/tls/openssl.cnf",
    "pki/ca-trust",
    "ca-certificates",
    "ca-certificates.conf",
    "crypto-policies",
    "resolv.conf",
    "hosts",
    "host.conf",
    "hostname",
    "gai.conf",
    "nsswitch.conf",
    "localtime",
    "timezone",
    "passwd",
    "group",
    "services",
    "protocols",
    "mime.types",
    "os-release",
    "debian_version",
    "lsb-release",
    "OpenCL",
    "vulkan",
    "glvnd",
    "nvidia",
    "nvidia-container-runtime",
    "fonts",
    "inputrc",
    "terminfo",
    "locale.conf",
    "default/locale",
    "python",
    "python3",
    "magic",
    "machine-id",
];

/// Name prefixes of directories below /opt: GPU libraries.
const OPT: &[&str] = &["cuda", "rocm", "nvidia", "intel", "amdgpu"];

/// Character devices without hardware, and shared memory.
const DEVICES: &[&str] = &["/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/shm"];

/// Name prefixes of GPU devices in /dev.
const GPUS: &[&str] = &["nvidia", "dri", "kfd", "dxg", "accel"];

/// Paths that every app may read.
pub fn system() -> Vec<PathBuf> {
    let etc = ETC.iter().map(|name| Path::new("/etc").join(name));
    let all = SYSTEM.iter().map(PathBuf::from).chain(etc).chain(with_prefix(Path::new("/opt"), OPT));
    all.filter(|path| path.exists()).collect()
}

/// Devices that every app may use, including GPUs. Variables select the GPUs that CUDA shows to an app.
pub fn devices() -> Vec<PathBuf> {
    let all = DEVICES.iter().map(PathBuf::from).chain(gpus());
    all.filter(|path| path.exists()).collect()
}

fn gpus() -> Vec<PathBuf> {
    with_prefix(Path::new("/dev"), GPUS)
}

/// The groups of GPU devices, except for root's group.
pub fn gpu_groups() -> Vec<u32> {
    let below = |path: PathBuf| match fs::read_dir(&path) {
        Ok(entries) => entries.flatten().map(|entry| entry.path()).collect(),
        Err(_) => vec![path],
    };
    let devices = gpus().into_iter().flat_map(below);
    let mut groups: Vec<u32> = devices.filter_map(|path| Some(fs::metadata(path).ok()?.gid())).collect();
    groups.sort_unstable();
    groups.dedup();
    groups.retain(|group| *group != 0);
    groups
}

fn with_prefix(directory: &Path, names: &[&str]) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let fits = |name: &str| names.iter().any(|beginning| name.starts_with(beginning));
    entries.filter(|entry| entry.file_name().to_str().is_some_and(fits)).map(|entry| entry.path()).collect()
}

/// Removes `protected` from `paths`: a directory that contains a protected path is replaced by its other entries. A
/// path below a protected directory is kept, because it was named explicitly.
pub fn without(paths: Vec<PathBuf>, protected: &[PathBuf]) -> Vec<PathBuf> {
    let real = |path: &Path| fs::canonicalize(path).ok();
    let protected: Vec<PathBuf> = protected.iter().filter_map(|path| real(path)).collect();
    let mut rest: Vec<PathBuf> = paths.iter().filter_map(|path| real(path)).collect();
    let mut granted = Vec::new();
    while let Some(path) = rest.pop() {
        if protected.contains(&path) {
            continue;
        }
        if !protected.iter().any(|secret| secret.starts_with(&path)) {
            granted.push(path);
        } else if let Ok(entries) = fs::read_dir(&path) {
            // Symbolic links are skipped: they may lead back to a protected path.
            let entries = entries.flatten().filter(|entry| entry.file_type().is_ok_and(|kind| !kind.is_symlink()));
            rest.extend(entries.map(|entry| entry.path()));
        }
    }
    granted.sort();
    granted.dedup_by(|later, earlier| later.starts_with(earlier));
    granted
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn protected_paths_are_removed() {
        let home = tempfile::tempdir().unwrap();
        let home = fs::canonicalize(home.path()).unwrap();
        for directory in ["lib/python", "state/objects", "state/venv/lib", "other"] {
            fs::create_dir_all(home.join(directory)).unwrap();
        }
        fs::write(home.join("node.key"), "").unwrap();
        let protected = [home.join("state"), home.join("node.key")];
        let granted = without(vec![home.clone(), home.join("lib/python")], &protected);
        assert_eq!(granted, [home.join("lib"), home.join("other")]);
        let inside = home.join("state/venv");
        assert_eq!(without(vec![inside.clone(), inside.join("lib")], &protected), [inside]);
        assert_eq!(without(vec![home.join("state")], &protected), Vec::<PathBuf>::new().as_slice());
    }

    #[test]
    fn system_grants_exclude_home_directories_and_etc() {
        for path in system() {
            let path = fs::canonicalize(&path).unwrap_or(path);
            let closed = ["/", "/etc", "/root", "/home", "/var", "/run", "/tmp"];
            assert!(!closed.iter().any(|closed| path == Path::new(closed)), "{}", path.display());
        }
    }
}
