//! A SuperLink.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;

use super::{
    Apps, Arguments, CONTROL_PORT, Common, FLEET_PORT, HTTP_PORT, Launch, Listen, Probe, SERVERAPPIO_PORT, SuperExec,
    description, port, value,
};
use crate::Program;
use crate::changes::{APPS_BY_HTTP, APPS_IN_DATABASE, AppApi, CONTROL_BY_HTTP, FLEET_BY_HTTP, SUPEREXEC_TLS};

const DATABASE: &str = "superlink.db";
/// The directory of apps, below the state directory, for releases that do not store apps in the database.
const APPS: &str = "apps";

description! {
    pub struct SuperLink {
        pub common: Common,
        pub serving: Serving,
        /// `None`: the program's default.
        pub fleet: Option<Listen>,
        pub control: Option<Listen>,
        /// Address for ServerApps, for releases with a separate one.
        pub apps: Option<Listen>,
        /// Of official releases since 1.37 also the Control API, since 1.40 also the Fleet API.
        pub http: Option<Listen>,
        /// Serve ServerApps of 1.30 to 1.36 with the certificate, too. Without, their address must not leave the machine.
        pub apps_tls: bool,
        /// Any user of this machine may run ServerApps, not only that of the SuperLink.
        pub apps_trust_machine: bool,
        /// Allow an address that other machines reach, without TLS.
        pub open_network: bool,
        /// Whether callers need an account; `None`: the default of the program.
        pub accounts: Option<bool>,
        /// File with the token of the first administrator.
        pub admin_token: Option<PathBuf>,
        /// Names and addresses by which others call it.
        pub endpoints: Vec<String>,
        pub allowed_hosts: Vec<String>,
        pub node_auth: bool,
        pub state: State,
        /// Directory of models of native runs.
        pub models: Option<PathBuf>,
        /// File with defaults of runs, and its content.
        pub run_defaults: Option<(PathBuf, String)>,
    }
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Serving {
    #[default]
    Plain,
    Tls(TlsFiles),
    /// TLS as in the user's own arguments.
    Given,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TlsFiles {
    pub certificate: PathBuf,
    pub key: PathBuf,
    pub authority: PathBuf,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum State {
    #[default]
    Memory,
    /// `database`: `None`: a file in the directory.
    Directory { path: PathBuf, database: Option<PathBuf> },
    /// As in the user's own arguments.
    Given,
}

/// The address of each API. APIs may share an address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Listens {
    pub fleet: SocketAddr,
    pub control: SocketAddr,
    pub apps: SocketAddr,
    /// `None`: the release has no HTTP API, or one for apps alone.
    pub http: Option<SocketAddr>,
}

impl Program {
    /// Whether the SuperLink serves ServerApps at a separate gRPC address that is open to the network by default.
    pub fn has_serverappio(self) -> bool {
        !self.is_trellis() && !self.since(APPS_BY_HTTP)
    }

    /// The SuperLink has certificate flags of its own for the API of ServerApps.
    pub fn has_apps_certificate(self) -> bool {
        self.since(SUPEREXEC_TLS) && self.before(CONTROL_BY_HTTP)
    }

    /// The SuperLink serves the Control API over HTTP.
    pub fn control_is_http(self) -> bool {
        self.is_trellis() || self.since(CONTROL_BY_HTTP)
    }

    fn app_api(self) -> AppApi {
        match self {
            Program::Trellis | Program::Unknown => AppApi::OwnGrpc,
            Program::Flower(release) => release.app_api(),
        }
    }
}

impl SuperLink {
    pub fn launch(&self) -> Launch {
        let mut arguments = Arguments::default();
        arguments.set("--isolation", self.common.isolation.name());
        match &self.serving {
            Serving::Plain => arguments.flag("--insecure"),
            Serving::Given => {}
            Serving::Tls(files) => {
                arguments.path("--ssl-certfile", &*files.certificate);
                arguments.path("--ssl-keyfile", &*files.key);
                arguments.path("--ssl-ca-certfile", &*files.authority);
            }
        }
        match self.common.program {
            Program::Trellis => self.trellis(&mut arguments),
            program => self.flower(&mut arguments, program),
        }
        if self.node_auth {
            arguments.flag("--enable-supernode-auth");
        }
        let mut launch = self.common.launch(["trellis", "superlink"], "flower-superlink", arguments, self.probe());
        if self.common.program.is_trellis() {
            launch.files.extend(self.run_defaults.clone());
        }
        launch
    }

    fn trellis(&self, arguments: &mut Arguments) {
        if self.open_network {
            arguments.flag("--allow-insecure-network");
        }
        arguments.option("--account-auth", self.accounts.map(|on| if on { "on" } else { "off" }));
        arguments.host_and_port(self.http);
        arguments.address("--control-api-address", self.control, CONTROL_PORT);
        arguments.address("--fleet-api-address", self.fleet, FLEET_PORT);
        arguments.address("--serverappio-api-address", self.apps, SERVERAPPIO_PORT);
        for name in &self.endpoints {
            arguments.set("--endpoint", name);
        }
        for name in &self.allowed_hosts {
            arguments.set("--allowed-host", name);
        }
        arguments.path("--admin-token-file", self.admin_token.as_deref());
        if self.apps_trust_machine {
            arguments.set("--serverappio-trust", "machine");
        }
        match &self.state {
            State::Memory => arguments.set("--database", ":memory:"),
            State::Directory { path, database } => {
                arguments.path("--state-dir", &**path);
                arguments.path("--database", database.as_deref());
            }
            State::Given => {}
        }
        arguments.path("--models-dir", self.models.as_deref());
        arguments.path("--run-defaults", self.run_defaults.as_ref().map(|(path, _)| &**path));
        self.common.trellis(arguments);
    }

    fn flower(&self, arguments: &mut Arguments, program: Program) {
        let api = program.app_api();
        if !program.since(FLEET_BY_HTTP) {
            arguments.address("--fleet-api-address", self.fleet, FLEET_PORT);
        }
        if api != AppApi::Shared {
            arguments.address("--control-api-address", self.control, CONTROL_PORT);
        }
        match api {
            AppApi::OwnGrpc => {}
            AppApi::OwnHttp => arguments.host_and_port(self.apps),
            AppApi::Shared => arguments.host_and_port(self.http),
        }
        if let (Serving::Tls(files), true) = (&self.serving, self.apps_tls && program.has_apps_certificate()) {
            arguments.path("--appio-ssl-certfile", &*files.certificate);
            arguments.path("--appio-ssl-keyfile", &*files.key);
            arguments.path("--appio-ssl-ca-certfile", &*files.authority);
        }
        if api == AppApi::OwnGrpc {
            arguments.address("--serverappio-api-address", self.apps, SERVERAPPIO_PORT);
        }
        if let State::Directory { path, database } = &self.state {
            arguments.path("--database", &*database.clone().unwrap_or_else(|| path.join(DATABASE)));
            if program.before(APPS_IN_DATABASE) {
                arguments.path("--storage-dir", &*path.join(APPS));
            }
        }
        if !answers_http(program) {
            arguments.option("--health-server-address", self.common.health);
        }
    }

    fn probe(&self) -> Probe {
        match self.common.health() {
            _ if answers_http(self.common.program) => Probe::Http,
            Some(port) => Probe::Health(port),
            None => Probe::Calls,
        }
    }

    /// The user's own arguments move them, too.
    pub fn listens(&self) -> Listens {
        let program = self.common.program;
        let http = self.at(self.http, "--port", HTTP_PORT);
        let fleet = self.at(self.fleet, "--fleet-api-address", FLEET_PORT);
        let control = self.at(self.control, "--control-api-address", CONTROL_PORT);
        match program.app_api() {
            AppApi::OwnGrpc => {
                let apps = self.at(self.apps, "--serverappio-api-address", SERVERAPPIO_PORT);
                Listens { fleet, control, apps, http: program.is_trellis().then_some(http) }
            }
            AppApi::OwnHttp => Listens { fleet, control, apps: self.at(self.apps, "--port", HTTP_PORT), http: None },
            AppApi::Shared => {
                let fleet = if program.since(FLEET_BY_HTTP) { http } else { fleet };
                Listens { fleet, control: http, apps: http, http: Some(http) }
            }
        }
    }

    fn at(&self, listen: Option<Listen>, flag: &str, usual: u16) -> SocketAddr {
        let ip = listen.map_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED), |listen| listen.ip);
        let usual = listen.and_then(|listen| listen.port).unwrap_or(usual);
        SocketAddr::new(ip, port(&self.common.extra_args, flag, usual))
    }

    /// The address of a SuperExec for ServerApps. Official hosts of known releases decide by their own release.
    pub fn apps_for(&self, superexec: Program) -> SocketAddr {
        match self.common.program {
            Program::Trellis | Program::Unknown if superexec.since(APPS_BY_HTTP) => {
                self.at(self.http, "--port", HTTP_PORT)
            }
            _ => self.listens().apps,
        }
    }

    /// The authority that a SuperExec trusts. `None`: without TLS, because the release has none for apps or the address is local.
    pub fn apps_authority(&self, superexec: Program) -> Option<PathBuf> {
        if !superexec.since(SUPEREXEC_TLS) {
            return None;
        }
        let program = self.common.program;
        let given = |flag| value(&self.common.extra_args, flag).map(PathBuf::from);
        let shared = match program {
            Program::Trellis => superexec.since(APPS_BY_HTTP),
            _ => program.since(CONTROL_BY_HTTP),
        };
        match &self.serving {
            Serving::Plain => None,
            Serving::Given if shared => given("--ssl-ca-certfile"),
            Serving::Given if program.is_trellis() => None,
            Serving::Given => given("--appio-ssl-ca-certfile"),
            Serving::Tls(files) => {
                (shared || self.apps_tls && program.has_apps_certificate()).then(|| files.authority.clone())
            }
        }
    }

    /// The SuperExec beside an official SuperLink of the same release, for process isolation.
    pub fn superexec(&self, address: SocketAddr) -> Option<SuperExec> {
        self.common.superexec(Apps::Server, address, self.apps_authority(self.common.program), self.launch().env)
    }

    /// Directories that the program writes.
    pub fn directories(&self) -> Vec<PathBuf> {
        let State::Directory { path, database } = &self.state else { return Vec::new() };
        let beside = database.as_deref().and_then(|database| database.parent()).filter(|parent| *parent != path);
        let models = self.models.as_deref().filter(|_| self.common.program.is_trellis());
        let all = [Some(&**path), beside, models];
        all.into_iter().flatten().map(ToOwned::to_owned).collect()
    }
}

/// Whether `/health` of the HTTP API is that of the SuperLink. Before 1.40 it is that of apps alone.
fn answers_http(program: Program) -> bool {
    program.is_trellis() || program.since(FLEET_BY_HTTP)
}
