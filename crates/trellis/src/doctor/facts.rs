//! What was seen on this machine, as plain values. Whether that is good is decided in `judge`.

use std::path::PathBuf;

use trellis_node::resources::Gpu;
use trellis_sandbox::Level;

use crate::python::FlwrHere;

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
    pub flwr: Option<FlwrHere>,
    pub ports: Vec<Port>,
    pub server: Server,
    pub certificates: Vec<CertificateFile>,
    pub connections: Connections,
}

/// This program, and the one that a shell would start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Program {
    pub path: Option<PathBuf>,
    pub version: String,
    pub on_path: Option<OnPath>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OnPath {
    pub path: PathBuf,
    /// It is this very file.
    pub same: bool,
    /// What it says of itself, where it is another.
    pub version: Option<String>,
}

/// Where the control plane keeps its things.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Home {
    /// None: nobody says where.
    pub path: Option<PathBuf>,
    pub exists: bool,
    /// Why nothing could be written there.
    pub unwritable: Option<String>,
    pub free_bytes: Option<u64>,
    pub free_files: Option<u64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Clock {
    pub now_s: i64,
    /// When this program's file was written.
    pub program_s: Option<i64>,
    /// What the time service of the machine says, where there is one that tells.
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
    /// Why limits cannot be given to the kernel at all.
    Absent(String),
    Present {
        path: String,
        controllers: Vec<String>,
        /// We may divide it among apps.
        ours: bool,
    },
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Gpus {
    pub usable: Vec<Gpu>,
    /// Devices of NVIDIA on the bus.
    pub on_bus: usize,
    /// The kernel has its driver.
    pub driver: Option<String>,
    /// `nvidia-smi` is on PATH.
    pub tool: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Engine {
    pub name: &'static str,
    pub path: PathBuf,
    /// Its version, or why it does not answer.
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
    /// Who has it, where that can be seen.
    Taken(Option<Holder>),
    /// It cannot be had for another reason.
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
    /// It left its note without a clean stop.
    Dead {
        pid: u32,
    },
    /// With the version that it says it has, or why it says nothing.
    Running {
        pid: u32,
        url: String,
        answer: Result<String, String>,
    },
}

/// A file with certificates among those of federations.
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

/// Those of the official command line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Connections {
    pub path: Option<PathBuf>,
    /// Names of connections that Trellis wrote; none: there is no such file.
    pub ours: Option<Result<Vec<String>, String>>,
}
