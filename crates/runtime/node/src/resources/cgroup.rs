//! Limits enforced by the kernel with cgroup v2. Each app gets its own cgroup beside that of the node.
//!
//! A cgroup that is not delegated to the node is never changed, even with sufficient permissions: its manager would undo the
//! change, or fail. Cgroup v1 is not used.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process;
use std::sync::{Arc, Mutex, PoisonError};

/// The cgroup that the node moves to: a cgroup with limits for its children must not contain processes.
const NODE: &str = "trellis-node";
const APP: &str = "trellis-app-";
const SWAP: &str = "memory.swap.max";
const CPU_PERIOD_US: u64 = 100_000;
/// The minimum that the kernel accepts.
const MIN_CPU_QUOTA_US: u64 = 1_000;

/// The parent of the apps' cgroups.
#[derive(Debug)]
pub struct Parent {
    directory: PathBuf,
    pub memory: bool,
    pub cpu: bool,
    /// Cgroups of ended apps that still contained a process.
    leftovers: Arc<Mutex<Vec<PathBuf>>>,
}

impl Parent {
    /// The cgroup of this process, if apps can be limited there, or reason not.
    pub fn find() -> Result<Parent, String> {
        let read = |path: &str| fs::read_to_string(path).map_err(|error| format!("{path} cannot be read: {error}"));
        let own = own_cgroup(&read("/proc/self/cgroup")?)?;
        let directory = directory_of(&own, &read("/proc/self/mountinfo")?)?;
        Parent::prepare(&own, &directory)
    }

    fn prepare(own: &str, directory: &Path) -> Result<Parent, String> {
        // After a restart within the same service the node is still in the cgroup it moved to.
        let (parent, path, inside) = match own.strip_suffix(NODE).and_then(|path| path.strip_suffix('/')) {
            Some(path) => (directory.parent().expect("it has a name"), path, false),
            None => (directory, own, true),
        };
        check_ours(path, parent)?;
        let available = words(&parent.join("cgroup.controllers"));
        let wanted: Vec<&str> =
            ["memory", "cpu"].into_iter().filter(|name| available.iter().any(|has| has == name)).collect();
        if wanted.is_empty() {
            return Err("the cgroup of the node has neither a memory nor a cpu controller".into());
        }
        let fault = |error: io::Error| format!("{} cannot be used: {error}", parent.display());
        let enabled = words(&parent.join("cgroup.subtree_control"));
        if !wanted.iter().all(|name| enabled.iter().any(|has| has == name)) {
            // Only the root cgroup may have limits for its children and contain processes.
            if inside && parent.join("cgroup.type").exists() {
                step_aside(parent)?;
            }
            let order = wanted.iter().map(|name| format!("+{name}")).collect::<Vec<_>>().join(" ");
            fs::write(parent.join("cgroup.subtree_control"), order).map_err(fault)?;
        }
        let has = |name| wanted.contains(&name);
        let found = Parent {
            directory: parent.to_owned(),
            memory: has("memory"),
            cpu: has("cpu"),
            leftovers: Arc::new(Mutex::new(stale(parent))),
        };
        found.sweep();
        // Detect failures now instead of with the first app.
        let probe = parent.join(format!("{APP}probe-{}", process::id()));
        fs::create_dir(&probe).and_then(|()| fs::remove_dir(&probe)).map_err(fault)?;
        Ok(found)
    }

    /// Moves a process and its future children into a new cgroup with these limits.
    pub fn admit(&self, pid: u32, memory: Option<u64>, cpus: Option<f64>) -> io::Result<AppCgroup> {
        self.sweep();
        let directory = self.directory.join(format!("{APP}{pid}"));
        match fs::create_dir(&directory) {
            // Left by an earlier process with this pid.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                fs::remove_dir(&directory)?;
                fs::create_dir(&directory)?;
            }
            other => other?,
        }
        let app = AppCgroup { directory, leftovers: Arc::clone(&self.leftovers) };
        for (file, value) in self.settings(memory, cpus) {
            match app.set(file, &value) {
                // A kernel without swap.
                Err(error) if error.kind() == io::ErrorKind::NotFound && file == SWAP => {}
                other => other?,
            }
        }
        app.set("cgroup.procs", &pid.to_string())?;
        Ok(app)
    }

    /// The values for the files of an app's cgroup.
    fn settings(&self, memory: Option<u64>, cpus: Option<f64>) -> Vec<(&'static str, String)> {
        let mut settings = Vec::new();
        if let Some(bytes) = memory.filter(|_| self.memory) {
            settings.push(("memory.max", bytes.to_string()));
            settings.push((SWAP, "0".into()));
            // Kill all processes of the app: the others might wait forever for a killed one.
            settings.push(("memory.oom.group", "1".into()));
        }
        if let Some(cpus) = cpus.filter(|_| self.cpu) {
            let quota = ((cpus * CPU_PERIOD_US as f64) as u64).max(MIN_CPU_QUOTA_US);
            settings.push(("cpu.max", format!("{quota} {CPU_PERIOD_US}")));
        }
        settings
    }

    /// Removes cgroups of earlier apps that are empty now.
    fn sweep(&self) {
        let mut leftovers = self.leftovers.lock().unwrap_or_else(PoisonError::into_inner);
        leftovers.retain(|directory| !removed(directory));
    }
}

impl Drop for Parent {
    fn drop(&mut self) {
        self.sweep();
    }
}

/// The cgroup of one app. Dropping it kills all its processes.
#[derive(Debug)]
pub struct AppCgroup {
    directory: PathBuf,
    leftovers: Arc<Mutex<Vec<PathBuf>>>,
}

impl AppCgroup {
    fn set(&self, file: &str, value: &str) -> io::Result<()> {
        let path = self.directory.join(file);
        // Never created: a missing file means that the kernel has no such feature.
        let mut file = fs::File::options().write(true).open(&path).map_err(|error| in_file(&path, error))?;
        io::Write::write_all(&mut file, value.as_bytes()).map_err(|error| in_file(&path, error))
    }

    /// Whether the kernel killed the app because of its memory.
    pub fn ran_out_of_memory(&self) -> bool {
        let events = fs::read_to_string(self.directory.join("memory.events")).unwrap_or_default();
        let killed = events.lines().find_map(|line| line.strip_prefix("oom_kill "));
        killed.and_then(|count| count.trim().parse().ok()).is_some_and(|count: u64| count > 0)
    }
}

impl Drop for AppCgroup {
    fn drop(&mut self) {
        // Kernels before 5.14 have no such file: then remaining processes of the app stay in its cgroup.
        let _old_kernel = self.set("cgroup.kill", "1");
        if !removed(&self.directory) {
            self.leftovers.lock().unwrap_or_else(PoisonError::into_inner).push(self.directory.clone());
        }
    }
}

fn in_file(path: &Path, error: io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{}: {error}", path.display()))
}

fn removed(directory: &Path) -> bool {
    match fs::remove_dir(directory) {
        Err(error) => error.kind() == io::ErrorKind::NotFound,
        Ok(()) => true,
    }
}

/// Cgroups of apps of a killed node, or of another node: those in use cannot be removed.
fn stale(parent: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(parent).into_iter().flatten().flatten();
    entries
        .filter(|entry| entry.file_name().as_encoded_bytes().starts_with(APP.as_bytes()))
        .map(|entry| entry.path())
        .collect()
}

/// The cgroup must be delegated to the node: by a container, or by systemd (`Delegate=yes`).
fn check_ours(path: &str, directory: &Path) -> Result<(), String> {
    let is_root = path.is_empty() || path == "/";
    let user = rustix::process::geteuid();
    let is_owner = || !user.is_root() && fs::metadata(directory).is_ok_and(|found| found.uid() == user.as_raw());
    if is_root || is_owner() || is_delegated(directory) {
        return Ok(());
    }
    Err(format!(
        "the cgroup {path} is not delegated to the node: run it as a service with Delegate=yes, or in a container"
    ))
}

/// Systemd marks delegated cgroups with an extended attribute.
fn is_delegated(directory: &Path) -> bool {
    let says_so = |name: &str| {
        let mut value = [0; 1];
        rustix::fs::getxattr(directory, name, &mut value).is_ok_and(|length| length == 1 && value == *b"1")
    };
    says_so("user.delegate") || says_so("trusted.delegate")
}

/// Moves the node into a child cgroup, unless other processes are in its cgroup too.
fn step_aside(parent: &Path) -> Result<(), String> {
    let own = process::id().to_string();
    if words(&parent.join("cgroup.procs")).iter().any(|pid| *pid != own) {
        return Err(format!("other processes than the node are in {}", parent.display()));
    }
    let leaf = parent.join(NODE);
    let made = match fs::create_dir(&leaf) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
        _ => fs::write(leaf.join("cgroup.procs"), own),
    };
    made.map_err(|error| format!("{} cannot be used: {error}", leaf.display()))
}

fn words(file: &Path) -> Vec<String> {
    fs::read_to_string(file).unwrap_or_default().split_whitespace().map(str::to_owned).collect()
}

/// The path of the own cgroup, from `/proc/self/cgroup`.
fn own_cgroup(text: &str) -> Result<String, String> {
    match text.lines().find_map(|line| line.strip_prefix("0::")) {
        Some(path) if path.starts_with("/..") => {
            Err("the cgroup of the node is outside of its cgroup namespace".into())
        }
        Some(path) => Ok(path.to_owned()),
        None => Err("this machine has no cgroup v2".into()),
    }
}

/// The directory of a cgroup, from `/proc/self/mountinfo`.
fn directory_of(own: &str, mounts: &str) -> Result<PathBuf, String> {
    let place = |line: &str| {
        let (mount, file_system) = line.split_once(" - ")?;
        let mut fields = mount.split(' ').skip(3);
        let (root, point) = (fields.next()?, fields.next()?);
        let below = own.strip_prefix(root.trim_end_matches('/'))?;
        let fits = file_system.starts_with("cgroup2 ") && (below.is_empty() || below.starts_with('/'));
        fits.then(|| Path::new(point).join(below.trim_start_matches('/')))
    };
    mounts.lines().find_map(place).ok_or_else(|| "no cgroup v2 file system is mounted".into())
}

#[cfg(test)]
mod tests;
