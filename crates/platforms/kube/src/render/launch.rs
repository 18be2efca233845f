//! Launch descriptions of the programs of a federation: ports, files and Secrets of pods. [`trellis_flower::launch`]
//! makes arguments of them.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;

use trellis_flower::changes::APPS_BY_HTTP;
use trellis_flower::launch::{
    Apps, CLIENTAPPIO_PORT, CONTROL_PORT, Common, FLEET_PORT, Listen, NodeConfig, SERVERAPPIO_PORT, Sandbox, Serving,
    State, SuperExec, SuperLink, SuperNode, TlsFiles, Trust,
};
use trellis_flower::{Isolation, Program};

use super::pod::{ADMIN_TOKEN_FILE, FLOWER_STATE, NODE_KEY_FILE, TRELLIS_STATE};
use super::superlink::durability;
use super::{Durability, Scene, env, node_config};
use crate::federation::Pool;
use crate::flower::PoolPrograms;

/// Ports of the gRPC health protocol: of the main program, and of its SuperExec.
pub(super) const HEALTH_PORT: u16 = 9098;
const SUPEREXEC_HEALTH_PORT: u16 = 9099;
/// Port of the metrics of Trellis programs.
pub(super) const METRICS_PORT: u16 = 9464;
/// Mount path of the certificate, the key and the authorities.
pub(super) const TRUST_DIRECTORY: &str = "/etc/trellis/tls";

const EVERYWHERE: IpAddr = IpAddr::V4(Ipv4Addr::UNSPECIFIED);
/// Address for programs of the same pod.
const POD: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

impl Scene<'_> {
    pub(super) fn serving(&self) -> Serving {
        let at = |file: &str| PathBuf::from(TRUST_DIRECTORY).join(file);
        match (&self.ground.trust, self.federation.spec.insecure) {
            (Some(_), _) => {
                Serving::Tls(TlsFiles { certificate: at("tls.crt"), key: at("tls.key"), authority: at("ca.crt") })
            }
            (None, Some(false)) => Serving::Given,
            (None, _) => Serving::Plain,
        }
    }

    fn common(&self, program: Program, given: &[String]) -> Common {
        let spec = &self.federation.spec;
        let isolation = spec.isolation_mode;
        Common {
            // Not `required`, because the kernels of the machines are unknown. Users can set it.
            sandbox: (isolation == Isolation::Subprocess).then_some(Sandbox::BestEffort),
            metrics: spec.monitoring.metrics.then_some(SocketAddr::new(EVERYWHERE, METRICS_PORT)),
            health: Some(SocketAddr::new(EVERYWHERE, HEALTH_PORT)),
            json_logs: spec.monitoring.json_logs,
            extra_args: given.to_vec(),
            program,
            isolation,
            keepalive: self.ground.launch.keepalive,
            ..Common::default()
        }
    }

    pub(super) fn superlink(&self) -> SuperLink {
        let spec = &self.federation.spec;
        let (program, serving) = (self.programs.superlink, self.serving());
        let process = spec.isolation_mode == Isolation::Process;
        let everywhere = |port: Option<u16>| Some(Listen { ip: EVERYWHERE, port });
        // With TLS a Trellis SuperLink listens on all addresses by default, and the certificate has the names.
        let plain = serving == Serving::Plain;
        let open = program.is_trellis() && plain;
        let apps = match program {
            _ if program.since(APPS_BY_HTTP) => everywhere(None),
            // Without TLS this API has no authentication: no other pod may reach it.
            _ if program.before(APPS_BY_HTTP) && !self.serves_serverappio() => {
                Some(SocketAddr::new(POD, SERVERAPPIO_PORT).into())
            }
            _ => None,
        };
        let state = match durability(self) {
            Durability::Given => State::Given,
            Durability::Claim | Durability::Pod => {
                State::Directory { path: state_directory(program).into(), database: None }
            }
        };
        let admin = self.ground.trust.as_ref().and_then(|trust| trust.admin_secret.as_ref());
        // `NAME` and `NAME.NAMESPACE.svc` are allowed by default.
        let service = format!("{}.{}", self.federation.superlink_name(), self.federation.namespace);
        SuperLink {
            fleet: everywhere(Some(FLEET_PORT)).filter(|_| open),
            control: everywhere(Some(CONTROL_PORT)).filter(|_| open),
            apps,
            http: everywhere(None).filter(|_| open || !program.is_trellis()),
            apps_tls: self.serves_apps_with_tls(),
            // The SuperExec container runs as another user. The network of the pod has no other programs.
            apps_trust_machine: process,
            open_network: plain,
            accounts: plain.then_some(false),
            admin_token: admin.map(|_| ADMIN_TOKEN_FILE.into()),
            endpoints: self.ground.launch.endpoints.clone(),
            allowed_hosts: plain.then_some(service).into_iter().collect(),
            node_auth: spec.security.node_auth,
            common: self.common(program, &spec.superlink.extra_args),
            serving,
            state,
            ..SuperLink::default()
        }
    }

    /// In 1.35 and 1.36 the API for apps is the HTTP port, which other pods reach. Before, only a SuperExec calls it.
    fn serves_apps_with_tls(&self) -> bool {
        let (program, process) = (self.programs.superlink, self.federation.spec.isolation_mode == Isolation::Process);
        program.has_apps_certificate() && (process || program.since(APPS_BY_HTTP))
    }

    /// Whether other pods reach the API for apps at a port of its own.
    pub(super) fn serves_serverappio(&self) -> bool {
        let process = self.federation.spec.isolation_mode == Isolation::Process;
        let open = self.ground.trust.is_none() || self.serves_apps_with_tls();
        self.programs.superlink.has_serverappio() && process && open
    }

    pub(super) fn superlink_superexec(&self) -> Option<SuperExec> {
        let program = self.programs.superlink_superexec?;
        let superlink = self.superlink();
        let given = &self.federation.spec.superlink.superexec_extra_args;
        let port = superlink.apps_for(program).port();
        Some(superexec(program, Apps::Server, port, superlink.apps_authority(program), given))
    }

    pub(super) fn supernode(&self, pool: &Pool, programs: &PoolPrograms) -> SuperNode {
        let (program, settings) = (programs.supernode, &self.ground.launch);
        let service = || format!("{}:{}", self.federation.superlink_name(), self.dialled(program));
        let superlink = settings.superlink.clone().unwrap_or_else(service);
        let trust = match self.serving() {
            Serving::Plain => Trust::Plain,
            Serving::Given => Trust::Default,
            Serving::Tls(files) => Trust::Authority(files.authority),
        };
        // A caller of this API can take work from the node.
        let open = program.has_open_clientappio(self.federation.spec.isolation_mode);
        let config = node_config::argument(&pool.node_config, &settings.node_config, &pool.name, self.size(pool));
        SuperNode {
            key: self.has_node_keys(pool).then(|| NODE_KEY_FILE.into()),
            apps: open.then_some(SocketAddr::new(POD, CLIENTAPPIO_PORT).into()),
            name: Some(settings.node_name.clone().unwrap_or_else(|| "$(POD_NAME)".to_owned())),
            state: Some(state_directory(program).into()),
            client_app: settings.client_app.as_deref().map(env::literal),
            gpu_memory_fraction: settings.gpu_memory_fraction,
            node_config: (!config.is_empty()).then_some(NodeConfig::Inline(config)),
            common: self.common(program, &pool.extra_args),
            superlink,
            trust,
            ..SuperNode::default()
        }
    }

    pub(super) fn has_node_keys(&self, pool: &Pool) -> bool {
        self.ground.trust.as_ref().is_some_and(|trust| trust.node_keys.contains_key(&pool.name))
    }

    pub(super) fn pool_superexec(&self, pool: &Pool, programs: &PoolPrograms) -> Option<SuperExec> {
        let program = programs.superexec?;
        let supernode = self.supernode(pool, programs);
        let authority = supernode.apps_authority(program);
        Some(superexec(program, Apps::Client, supernode.apps_port(), authority, &pool.superexec_extra_args))
    }
}

fn superexec(program: Program, apps: Apps, port: u16, authority: Option<PathBuf>, given: &[String]) -> SuperExec {
    SuperExec {
        program,
        apps,
        address: format!("localhost:{port}"),
        authority,
        health: Some(SocketAddr::new(EVERYWHERE, SUPEREXEC_HEALTH_PORT)),
        extra_args: given.to_vec(),
        ..SuperExec::default()
    }
}

pub(super) fn state_directory(program: Program) -> &'static str {
    if program.is_trellis() { TRELLIS_STATE } else { FLOWER_STATE }
}

#[cfg(test)]
mod tests;
