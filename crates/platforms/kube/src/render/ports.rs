//! Ports of the Service of the SuperLink, by release, and its addresses.

use trellis_diagnostic::Diagnostic;
use trellis_flower::Program;
use trellis_flower::changes::{APPS_BY_HTTP, FLEET_BY_HTTP};
use trellis_flower::launch::{CONTROL_PORT, FLEET_PORT, HTTP_PORT, SERVERAPPIO_PORT, port as given_port};

use super::Scene;
use crate::federation::{Federation, Ports};
use crate::flower::Programs;

/// A port of the Service and the port of the container.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ServicePort {
    pub name: &'static str,
    pub port: i32,
    pub target: u16,
}

/// Ports of the SuperLink container. Ports in arguments of the user take precedence.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ContainerPorts {
    pub fleet: u16,
    pub control: u16,
    pub http: u16,
    pub serverappio: u16,
}

pub(super) fn serves_http(program: Program) -> bool {
    program.is_trellis() || program.since(APPS_BY_HTTP)
}

/// Zero and absent mean the default.
fn wanted(said: Option<i32>, usual: u16) -> i32 {
    said.filter(|port| *port != 0).unwrap_or(usual.into())
}

fn said(federation: &Federation) -> Ports {
    federation.spec.superlink.service.as_ref().and_then(|service| service.ports).unwrap_or_default()
}

impl Scene<'_> {
    pub(super) fn container_ports(&self) -> ContainerPorts {
        let superlink = self.superlink();
        let listens = superlink.listens();
        ContainerPorts {
            fleet: listens.fleet.port(),
            control: listens.control.port(),
            http: given_port(&superlink.common.extra_args, "--port", HTTP_PORT),
            serverappio: listens.apps.port(),
        }
    }

    /// Fleet and control have the same Service ports in all releases, also if one container port serves both.
    pub(super) fn service_ports(&self) -> Vec<ServicePort> {
        let program = self.programs.superlink;
        let (said, pod) = (said(self.federation), self.container_ports());
        let mut ports = vec![
            ServicePort { name: "fleet", port: wanted(said.grpc, FLEET_PORT), target: pod.fleet },
            ServicePort { name: "control", port: wanted(said.extra, CONTROL_PORT), target: pod.control },
        ];
        if self.serves_serverappio() {
            let port = wanted(said.server_app_io, SERVERAPPIO_PORT);
            ports.push(ServicePort { name: "serverappio", port, target: pod.serverappio });
        }
        let asked = said.http.is_some_and(|port| port != 0);
        if asked || serves_http(program) {
            let http = ServicePort { name: "http", port: wanted(said.http, HTTP_PORT), target: pod.http };
            // The user gave this port to another name with the same target.
            let there = ports.iter().any(|other| other.port == http.port && other.target == http.target);
            if asked || !there {
                ports.push(http);
            }
        }
        ports
    }

    fn service_port(&self, name: &str) -> Option<i32> {
        self.service_ports().into_iter().find(|port| port.name == name).map(|port| port.port)
    }

    /// The Service port that a node connects to.
    pub(super) fn dialled(&self, supernode: Program) -> i32 {
        let by_http = match self.programs.superlink {
            Program::Trellis => supernode.since(FLEET_BY_HTTP),
            superlink => superlink.since(FLEET_BY_HTTP),
        };
        let name = if by_http { "http" } else { "fleet" };
        self.service_port(name).or_else(|| self.service_port("fleet")).unwrap_or(FLEET_PORT.into())
    }

    pub(super) fn port_problems(&self) -> Vec<Diagnostic> {
        let place = "spec.superlink.service.ports".to_owned();
        let ports = self.service_ports();
        let mut problems = Vec::new();
        for (at, port) in ports.iter().enumerate() {
            if !(1..=i32::from(u16::MAX)).contains(&port.port) {
                problems.push(Diagnostic::error(
                    place.clone(),
                    format!("{} is not a port, for {}", port.port, port.name),
                    "use 1 to 65535",
                ));
            }
            if let Some(other) = ports[..at].iter().find(|other| other.port == port.port) {
                problems.push(Diagnostic::error(
                    place.clone(),
                    format!("{} and {} have the same port, {}", other.name, port.name, port.port),
                    "give each a port of its own",
                ));
            }
        }
        problems
    }
}

/// Addresses of the SuperLink in the cluster: `name.namespace.svc:port`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Endpoints {
    pub fleet: String,
    pub control: String,
    pub http: Option<String>,
}

pub fn endpoints(federation: &Federation) -> Endpoints {
    let (programs, ground) = (Programs::of(federation), super::Ground::default());
    let scene = Scene { federation, ground: &ground, programs: &programs };
    let host = format!("{}.{}.svc", federation.superlink_name(), federation.namespace);
    let at = |name: &str| scene.service_port(name).map(|port| format!("{host}:{port}"));
    Endpoints { fleet: at("fleet").unwrap_or_default(), control: at("control").unwrap_or_default(), http: at("http") }
}
