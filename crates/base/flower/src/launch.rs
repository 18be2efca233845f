//! How SuperLink, SuperNode and SuperExec are started: a description with a field for every setting, and a function from it to
//! arguments, environment, files and a probe, for our programs and official ones of every release.
//!
//! Platforms fill in paths, ports and secrets; only this module knows the flags of each release. Fields that a program or a
//! platform does not use are listed in `trellis_testing::launch`. The order of arguments is stable: Kubernetes replaces pods
//! whose arguments change.

mod arguments;
mod superexec;
mod superlink;
mod supernode;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

pub use self::arguments::{Argument, gives, port};
use self::arguments::{Arguments, value};
pub use self::superexec::{Apps, SuperExec};
pub use self::superlink::{Listens, Serving, State, SuperLink, TlsFiles};
pub use self::supernode::{Backoff, Gpus, Limits, NodeConfig, SuperNode, Trust};
use crate::{Isolation, Program};

/// The default ports of the programs.
pub const SERVERAPPIO_PORT: u16 = 9091;
pub const FLEET_PORT: u16 = 9092;
pub const CONTROL_PORT: u16 = 9093;
pub const CLIENTAPPIO_PORT: u16 = 9094;
pub const HTTP_PORT: u16 = 8000;

/// Arguments of official programs that name certificates and keys to read.
pub const SECRET_FILES: [&str; 5] =
    ["--ssl-certfile", "--ssl-keyfile", "--ssl-ca-certfile", "--root-certificates", "--auth-supernode-private-key"];

/// Declares a description, so that tests can name its fields.
macro_rules! description {
    ($(#[$about:meta])* pub struct $name:ident { $($(#[$doc:meta])* pub $field:ident: $kind:ty,)* }) => {
        $(#[$about])*
        #[derive(Debug, Clone, Default, PartialEq)]
        pub struct $name {
            $($(#[$doc])* pub $field: $kind,)*
        }

        impl $name {
            pub const FIELDS: &[&str] = &[$(stringify!($field)),*];

            /// The fields in which two descriptions differ.
            pub fn differences(&self, other: &$name) -> Vec<&'static str> {
                let fields = [$((stringify!($field), self.$field != other.$field)),*];
                fields.into_iter().filter_map(|(field, differs)| differs.then_some(field)).collect()
            }
        }
    };
}
use description;

description! {
    /// Settings of both SuperLink and SuperNode.
    pub struct Common {
        pub program: Program,
        pub isolation: Isolation,
        /// The interpreter of apps.
        pub python: Option<PathBuf>,
        /// Of apps that the program starts.
        pub sandbox: Option<Sandbox>,
        pub keepalive: Option<Keepalive>,
        pub metrics: Option<SocketAddr>,
        /// Of the gRPC health protocol.
        pub health: Option<SocketAddr>,
        pub json_logs: bool,
        pub log_level: Option<LogLevel>,
        /// Home directory of an official program. With it, the program sends no telemetry, does not check for updates and does not buffer its log.
        pub home: Option<PathBuf>,
        /// The directories in which official programs find each other.
        pub search_path: Option<OsString>,
        /// The user's own variables, which take precedence.
        pub env: BTreeMap<String, String>,
        /// The user's own arguments, which come last and take precedence.
        pub extra_args: Vec<String>,
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sandbox {
    BestEffort,
    Required,
}

/// Pings on silent connections, client and server alike.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Keepalive {
    pub interval_s: u32,
    pub timeout_s: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LogLevel {
    Debug,
    Info,
    Warning,
    Error,
}

/// The address that a program listens on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Listen {
    pub ip: IpAddr,
    /// `None`: the program's default.
    pub port: Option<u16>,
}

impl From<SocketAddr> for Listen {
    fn from(address: SocketAddr) -> Listen {
        Listen { ip: address.ip(), port: Some(address.port()) }
    }
}

/// The health check of a program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Probe {
    /// `/health` of its HTTP API.
    Http,
    /// The gRPC health protocol, at this port.
    Health(u16),
    /// By answering calls: it has no API of its own for this.
    Calls,
    /// The status socket of our SuperNode.
    Socket(PathBuf),
    /// An official SuperNode writes into its log when it is connected.
    Log,
}

/// A program to start.
#[derive(Debug, Clone, PartialEq)]
pub struct Launch {
    /// The program, and the sub-command of ours: `trellis superlink`, `flower-superlink`.
    pub command: Vec<&'static str>,
    pub arguments: Vec<Argument>,
    pub extra_args: Vec<String>,
    pub env: BTreeMap<String, OsString>,
    pub files: BTreeMap<PathBuf, String>,
    pub probe: Probe,
}

impl Launch {
    /// `--name value`, without the program itself.
    pub fn words(&self) -> Vec<OsString> {
        let commands = self.command.iter().skip(1).map(OsString::from);
        let own = self.arguments.iter().flat_map(Argument::words);
        commands.chain(own).chain(self.extra_args.iter().map(OsString::from)).collect()
    }

    /// `--name=value`. Arguments of the user take precedence and are not repeated, except the node config, which is merged.
    pub fn joined(&self) -> Vec<String> {
        let (config, own): (Vec<_>, Vec<_>) = self.arguments.iter().partition(|argument| argument.name == NODE_CONFIG);
        let own = own.into_iter().filter(|argument| !gives(&self.extra_args, argument.name)).map(Argument::joined);
        own.chain(self.extra_args.iter().cloned()).chain(config.into_iter().map(Argument::joined)).collect()
    }
}

const NODE_CONFIG: &str = "--node-config";

impl Common {
    /// Arguments that our SuperLink and SuperNode share.
    fn trellis(&self, arguments: &mut Arguments) {
        arguments.path("--python", self.python.as_deref());
        arguments.option("--sandbox", self.sandbox.map(Sandbox::name));
        arguments.option("--metrics-address", self.metrics);
        if self.json_logs {
            arguments.set("--log-format", "json");
        }
        arguments.option("--log-level", self.log_level.map(LogLevel::name));
        arguments.list.extend(self.keepalive());
    }

    /// Official programs have no setting for it.
    pub fn keepalive(&self) -> Vec<Argument> {
        let mut arguments = Arguments::default();
        let keepalive = self.keepalive.filter(|_| self.program.is_trellis());
        arguments.option("--keepalive-interval", keepalive.map(|keepalive| format!("{}s", keepalive.interval_s)));
        arguments.option("--keepalive-timeout", keepalive.map(|keepalive| format!("{}s", keepalive.timeout_s)));
        arguments.list
    }

    fn health(&self) -> Option<u16> {
        self.health.map(|usual| port(&self.extra_args, "--health-server-address", usual.port()))
    }

    fn launch(&self, command: [&'static str; 2], official: &'static str, arguments: Arguments, probe: Probe) -> Launch {
        let command = if self.program.is_trellis() { command.to_vec() } else { vec![official] };
        Launch {
            command,
            arguments: arguments.list,
            extra_args: self.extra_args.clone(),
            env: self.environment(self.log_level),
            files: BTreeMap::new(),
            probe,
        }
    }

    fn environment(&self, log_level: Option<LogLevel>) -> BTreeMap<String, OsString> {
        let mut env = BTreeMap::new();
        if !self.program.is_trellis() {
            let mut set = |name: &str, value: OsString| env.insert(name.to_owned(), value).map_or((), drop);
            if let Some(home) = &self.home {
                set("FLWR_HOME", home.into());
                set("FLWR_TELEMETRY_ENABLED", "0".into());
                set("FLWR_DISABLE_UPDATE_CHECK", "1".into());
                set("PYTHONUNBUFFERED", "1".into());
            }
            if let Some(level) = log_level {
                set("FLWR_LOG_LEVEL", level.official().into());
            }
            if let Some(path) = &self.search_path {
                set("PATH", path.clone());
            }
        }
        env.extend(self.env.iter().map(|(name, value)| (name.clone(), value.into())));
        env
    }
}

impl Sandbox {
    fn name(self) -> &'static str {
        match self {
            Sandbox::BestEffort => "best-effort",
            Sandbox::Required => "required",
        }
    }
}

impl LogLevel {
    fn name(self) -> &'static str {
        match self {
            LogLevel::Debug => "debug",
            LogLevel::Info => "info",
            LogLevel::Warning => "warn",
            LogLevel::Error => "error",
        }
    }

    fn official(self) -> &'static str {
        match self {
            LogLevel::Debug => "DEBUG",
            LogLevel::Info => "INFO",
            LogLevel::Warning => "WARNING",
            LogLevel::Error => "ERROR",
        }
    }
}

#[cfg(test)]
mod tests;
