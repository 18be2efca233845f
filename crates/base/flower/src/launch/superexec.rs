//! A SuperExec: the launcher of apps for process isolation, beside a SuperLink or a SuperNode. Official programs only.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::PathBuf;

use super::{Arguments, Common, Launch, Probe, description, gives, port};
use crate::changes::{NO_SUPEREXEC_PLUGINS, RUNTIME_API_ADDRESS};
use crate::{Isolation, Program};

description! {
    pub struct SuperExec {
        pub program: Program,
        pub apps: Apps,
        /// `host:port` of its SuperLink or SuperNode.
        pub address: String,
        /// `None`: without TLS.
        pub authority: Option<PathBuf>,
        pub health: Option<SocketAddr>,
        /// The isolation of its SuperLink or SuperNode.
        pub env: BTreeMap<String, OsString>,
        pub extra_args: Vec<String>,
    }
}

/// Which apps a SuperExec starts.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Apps {
    #[default]
    Server,
    Client,
}

impl Common {
    pub(super) fn superexec(
        &self,
        apps: Apps,
        address: SocketAddr,
        authority: Option<PathBuf>,
        env: BTreeMap<String, OsString>,
    ) -> Option<SuperExec> {
        let address = address.to_string();
        let superexec = SuperExec { program: self.program, apps, address, authority, env, ..SuperExec::default() };
        (self.isolation == Isolation::Process && !self.program.is_trellis()).then_some(superexec)
    }
}

impl SuperExec {
    pub fn launch(&self) -> Launch {
        let given = &self.extra_args;
        let mut arguments = Arguments::default();
        if !self.program.since(NO_SUPEREXEC_PLUGINS) {
            arguments.set("--plugin-type", if self.apps == Apps::Server { "serverapp" } else { "clientapp" });
        }
        let since = self.program.since(RUNTIME_API_ADDRESS);
        arguments.set(if since { "--runtime-api-address" } else { "--appio-api-address" }, &self.address);
        if !gives(given, "--insecure") && !gives(given, "--root-certificates") {
            match &self.authority {
                Some(file) => arguments.path("--root-certificates", &**file),
                None => arguments.flag("--insecure"),
            }
        }
        arguments.option("--health-server-address", self.health);
        let probe = match self.health {
            Some(usual) => Probe::Health(port(given, "--health-server-address", usual.port())),
            None => Probe::Calls,
        };
        Launch {
            command: vec!["flower-superexec"],
            arguments: arguments.list,
            extra_args: given.clone(),
            env: self.env.clone(),
            files: BTreeMap::new(),
            probe,
        }
    }
}
