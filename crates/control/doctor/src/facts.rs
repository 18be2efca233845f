//! Observations of this machine as plain values, which `checks` judges.

use std::path::PathBuf;

use trellis_node::resources::Gpu;
use trellis_sandbox::Level;

use trellis_flwr::Installation;

#[derive(Debug, Clone)]
pub struct Facts {
    pub program: Program,
    pub home: Home,
    pub clock: Clock,
    pub open_files: Option<OpenFiles>,
    pub memory: Option<Memory>,
    pub cgroup: Cgroup,
    /// Restrictions of apps with the default settings.
    pub sandbox: Level,
    pub gpu: Gpus,
    pub engines: Vec<Engine>,
    pub flwr: Option<Installation>,
    pub ports: Vec<Port>,
    pub server: Server,
    pub certificates: Vec<CertificateFile>,
    pub connections: Connections,
}

/// This program, and the `trellis` that a shell would start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Program {
    pub path: Option<PathBuf>,
    pub version: String,
    pub on_path: Option<OnPath>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OnPath {
    pub path: PathBuf,
    /// It is the file of this process.
    pub same: bool,
    /// Its version, if it is another file.
    pub version: Option<String>,
}

/// The home directory of the control plane.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Home {
    /// `None` if no environment variable names one.
    pub path: Option<PathBuf>,
    pub exists: bool,
    /// Why the directory is not writable.
    pub unwritable: Option<String>,
    pub free_bytes: Option<u64>,
    pub free_files: Option<u64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Clock {
    pub now_s: i64,
    /// The modification time of this program's file.
    pub program_s: Option<i64>,
    /// Whether systemd-timesyncd has set the clock; `None` if it does not run.
    pub synchronized: Option<bool>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OpenFiles {
    pub soft: Option<u64>,
    pub hard: Option<u64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Memory {
    pub total_bytes: u64,
    pub available_bytes: u64,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Cgroup {
    /// Why there are no cgroups.
    Absent(String),
    Present {
        path: String,
        controllers: Vec<String>,
        /// This process may create cgroups for apps below it.
        delegated: bool,
    },
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Gpus {
    pub usable: Vec<Gpu>,
    /// NVIDIA GPUs on the PCI bus.
    pub on_bus: usize,
    /// The version of the loaded kernel driver.
    pub driver: Option<String>,
    /// `nvidia-smi` is on PATH.
    pub tool: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Engine {
    pub name: &'static str,
    pub path: PathBuf,
    /// The version, or why the engine does not answer.
    pub answer: Result<String, String>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Port {
    pub number: u16,
    pub purpose: &'static str,
    pub state: PortState,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PortState {
    Free,
    /// Another process listens on it: which one, if this user may see that.
    Taken(Option<Holder>),
    /// Binding fails for another reason.
    Refused(String),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Holder {
    pub pid: u32,
    pub name: String,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Server {
    NotRunning,
    /// `server.json` exists, but the process does not.
    Dead {
        pid: u32,
    },
    /// `answer` is its version, or why it does not answer.
    Running {
        pid: u32,
        url: String,
        answer: Result<String, String>,
    },
}

/// A file with certificates of a federation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CertificateFile {
    pub path: PathBuf,
    pub content: Result<Vec<Certificate>, String>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Certificate {
    pub subject: String,
    pub names: Vec<String>,
    pub is_ca: bool,
    pub not_before_s: i64,
    pub not_after_s: i64,
}

/// Connections of the official command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Connections {
    pub path: Option<PathBuf>,
    /// The names of connections that Trellis wrote; `None` if the file does not exist.
    pub ours: Option<Result<Vec<String>, String>>,
}
