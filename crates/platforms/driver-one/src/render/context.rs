//! Context of a role's VMs, and assignment of each VM. The context has what all VMs of the role may know; the assignment is
//! specific to a VM. Secrets are only in contexts of the roles that need them, because OneGate shows attributes to all VMs of
//! the service.

use trellis_digest::fnv1a;
use trellis_one::keys::Assignment;
use trellis_plan::{Spec, Tunnel};
use trellis_spec::{Name, Persistence, Runtime, Tls};

use super::settings::{Settings, set, settings};
use super::template::STATE_TARGET;
use super::{GATEWAY, RoleOf, SUPERLINK, SUPERNODE};
use crate::secrets::{OwnCertificate, Secrets};

/// Variables that differ between nodes of a pool, or depend on the coordinator's address.
const OF_ONE_VM: [&str; 2] = ["FL_NODE_CONFIG", "FL_SUPERLINK_ADDRESS"];

pub const JOIN_TOKEN: &str = "FL_JOIN_TOKEN";
pub const ADMIN_TOKEN: &str = "FL_ADMIN_TOKEN";
pub const TUNNEL_KEY: &str = "WG_PRIVATE_KEY";
/// Prefix of our variables in a context.
pub const PREFIX: &str = "ONEAPP_";

/// Inputs of an assignment from the rest of the federation.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Surroundings {
    /// Base64 of the PEM of all trusted authorities.
    pub trust: Option<String>,
    /// Address of the site's gateway in the VM network.
    pub gateway: Option<String>,
}

/// CONTEXT of a role's VMs.
pub fn context(role: &RoleOf, spec: Option<&Spec>, secrets: &Secrets) -> Vec<(String, String)> {
    let mut values = spec.map(settings).unwrap_or_default();
    values.retain(|name, _| !OF_ONE_VM.contains(&name.as_str()));
    let word = match role {
        RoleOf::SuperLink => SUPERLINK,
        RoleOf::Pool(_) => SUPERNODE,
        RoleOf::Gateway => GATEWAY,
    };
    set(&mut values, "FL_ROLE", word);
    match spec {
        Some(Spec::Coordinator(spec)) => {
            set(&mut values, ADMIN_TOKEN, secrets.admin_token.clone());
            if matches!(spec.persistence, Persistence::Disk { .. }) {
                set(&mut values, "FL_STATE_DISK", format!("/dev/{STATE_TARGET}"));
            }
            if let (Tls::Files { .. }, Some(own)) = (&spec.tls, &secrets.certificate) {
                let OwnCertificate { trust, certificate, key } = own;
                set(&mut values, "FL_SSL_CA_CERTFILE", trust.clone());
                set(&mut values, "FL_SSL_CERTFILE", certificate.clone());
                set(&mut values, "FL_SSL_KEYFILE", key.clone());
            }
        }
        Some(Spec::Node(_)) => {}
        None => {
            if let Some(keys) = &secrets.tunnel {
                set(&mut values, TUNNEL_KEY, keys.private.clone());
            }
        }
    }
    let infrastructure =
        [("NETWORK", "YES"), ("REPORT_READY", "YES"), ("SSH_PUBLIC_KEY", "$USER[SSH_PUBLIC_KEY]"), ("TOKEN", "YES")];
    let ours = values.into_iter().map(|(name, value)| (format!("{PREFIX}{name}"), value));
    let theirs = infrastructure.map(|(name, value)| (name.to_owned(), value.to_owned()));
    ours.chain(theirs).collect()
}

/// Assignment of a part.
pub fn assignment(
    part: String,
    generation: String,
    spec: &Spec,
    surroundings: &Surroundings,
    join_token: Option<&str>,
) -> Assignment {
    let mut values = settings(spec);
    if let Spec::Node(spec) = spec {
        if let (true, Some(trust)) = (spec.tls != Tls::Off, &surroundings.trust) {
            set(&mut values, "FL_SSL_CA_CERTFILE", trust.clone());
        }
        // Flower's own nodes are registered by their keys and use no tokens.
        if let (Runtime::Trellis, Some(token)) = (&spec.runtime, join_token) {
            set(&mut values, JOIN_TOKEN, token);
        }
    }
    if let (Some(tunnel), Some(gateway)) = (tunnel(spec), &surroundings.gateway) {
        set(&mut values, "FL_ROUTES", routes(tunnel, gateway));
    }
    if let (Spec::Coordinator(_), Some(tunnel)) = (spec, tunnel(spec)) {
        let networks: Vec<&str> = allowed(tunnel).collect();
        set(&mut values, "FL_ALLOWED_NETWORKS", networks.join(","));
    }
    Assignment { part, generation, settings: values }
}

/// Assignment of a site's gateway.
pub fn gateway_assignment(federation: &Name, site: &Name, tunnel: &Tunnel, secrets: &Secrets) -> Assignment {
    let mut values = Settings::new();
    set(&mut values, "WG_LOCAL_ADDRESS", tunnel.address.clone());
    set(&mut values, "WG_LISTEN_PORT", tunnel.listen_port.to_string());
    set(&mut values, "WG_MTU", tunnel.mtu.to_string());
    for (number, peer) in (1..).zip(&tunnel.peers) {
        let Some(public) = secrets.tunnel.as_ref().and_then(|keys| keys.public.get(&peer.site)) else { continue };
        let name = |rest: &str| format!("WG_PEER_{number}_{rest}");
        set(&mut values, &name("PUBLIC_KEY"), public.clone());
        set(&mut values, &name("ALLOWED_IPS"), peer.allowed.join(","));
        if let Some(endpoint) = &peer.endpoint {
            set(&mut values, &name("ENDPOINT"), endpoint.clone());
        }
        set(&mut values, &name("KEEPALIVE"), peer.keepalive_s.unwrap_or(0).to_string());
    }
    let generation = fnv1a(format!("{values:?}").as_bytes());
    Assignment { part: gateway_part(federation, site), generation: format!("{generation:016x}"), settings: values }
}

/// Mark of a gateway. It is no part of the plan: it exists while parts need it.
pub fn gateway_part(federation: &Name, site: &Name) -> String {
    format!("{federation}/{site}/{GATEWAY}")
}

pub fn tunnel(spec: &Spec) -> Option<&Tunnel> {
    match spec {
        Spec::Coordinator(spec) => spec.tunnel.as_ref(),
        Spec::Node(spec) => spec.tunnel.as_ref(),
    }
}

fn allowed(tunnel: &Tunnel) -> impl Iterator<Item = &str> {
    tunnel.peers.iter().flat_map(|peer| &peer.allowed).map(String::as_str)
}

fn routes(tunnel: &Tunnel, gateway: &str) -> String {
    let routes: Vec<String> = allowed(tunnel).map(|network| format!("{network} via {gateway}")).collect();
    routes.join(", ")
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::ffi::OsString;

    use trellis_appliance::context::Values;
    use trellis_appliance::settings::{Role, RoleSettings, Settings as Read};
    use trellis_flower::launch::Keepalive;
    use trellis_plan::TunnelPeer;
    use trellis_spec::{ConfigValue, Framework, Release};
    use trellis_tunnel::PrivateKey;

    use super::*;
    use crate::secrets::TunnelKeys;
    use crate::testing;

    fn secrets() -> Secrets {
        let private = PrivateKey::from_bytes([7; 32]).expect("a key");
        let other = PrivateKey::from_bytes([9; 32]).expect("a key").public().to_string();
        let tunnel = TunnelKeys { private: private.reveal(), public: BTreeMap::from([(testing::name("far"), other)]) };
        Secrets {
            admin_token: "token-of-the-first-administrator-of-all".to_owned(),
            tunnel: Some(tunnel),
            certificate: None,
        }
    }

    fn with_tunnel() -> Tunnel {
        Tunnel {
            address: "10.66.0.1/24".to_owned(),
            listen_port: 51820,
            mtu: 1420,
            peers: vec![TunnelPeer {
                site: testing::name("far"),
                endpoint: Some("gw.example.org:51820".to_owned()),
                allowed: vec!["10.66.0.2/32".to_owned(), "10.2.0.0/16".to_owned()],
                keepalive_s: Some(25),
            }],
        }
    }

    /// Parses context and assignment like the appliance.
    fn read(context: Vec<(String, String)>, assignment: &Assignment, role: Role) -> Read {
        let mut values = Values::default();
        values.add_environment(context.into_iter().map(|(name, value)| (OsString::from(name), OsString::from(value))));
        values.add_assignment(assignment);
        match trellis_appliance::read(&values, role) {
            Ok((settings, _)) => settings,
            Err(problems) => panic!("{problems}"),
        }
    }

    #[test]
    fn the_appliance_accepts_the_assignment_of_a_coordinator() {
        let mut spec = testing::coordinator();
        spec.tunnel = Some(with_tunnel());
        spec.keepalive = Some(Keepalive { interval_s: 60, timeout_s: 20 });
        spec.node_auth = true;
        let spec = Spec::Coordinator(spec);
        let context = context(&RoleOf::SuperLink, Some(&spec), &secrets());
        let around = Surroundings { trust: None, gateway: Some("10.0.0.5".to_owned()) };
        let agent_state =
            assignment("f/lab/coordinator".to_owned(), "00000000000000ab".to_owned(), &spec, &around, None);
        assert!(!agent_state.settings.contains_key("FL_ADMIN_TOKEN"), "OneGate shows it to all VMs of the service");
        let read = read(context, &agent_state, Role::SuperLink);
        assert_eq!(read.common.routes.len(), 2);
        let RoleSettings::SuperLink(link) = read.role else { panic!("{:?}", read.role) };
        assert_eq!(link.admin_token.as_deref(), Some("token-of-the-first-administrator-of-all"));
        assert!(link.node_auth);
    }

    #[test]
    fn the_appliance_accepts_the_assignment_of_a_node() {
        let text = ConfigValue::Text("two words, \"quoted\"".to_owned());
        let Spec::Node(mut spec) = testing::desired("f/lab/node/gpu-3").spec else { panic!("a node") };
        spec.node_config.insert("data".to_owned(), text);
        spec.framework = Some(Framework::Sklearn);
        spec.runtime = Runtime::Flower(Release { minor: 31, patch: 0 });
        spec.keepalive = Some(Keepalive { interval_s: 60, timeout_s: 20 });
        let spec = Spec::Node(spec);
        let context = context(&RoleOf::Pool(testing::name("gpu")), Some(&spec), &secrets());
        assert!(!context.iter().any(|(name, _)| name.contains("ADMIN") || name.contains("PRIVATE")), "{context:?}");
        let part = "f/lab/node/gpu-3".to_owned();
        let around = Surroundings::default();
        let agent_state = assignment(part.clone(), "00000000000000ab".to_owned(), &spec, &around, Some("join"));
        let read = read(context, &agent_state, Role::SuperNode);
        assert_eq!((read.common.part, read.common.flower_version), (Some(part), Some("1.31.0".to_owned())));
        let RoleSettings::SuperNode(node) = read.role else { panic!("{:?}", read.role) };
        assert_eq!(node.coordinator.as_deref(), Some("10.0.0.4:9092"));
        assert_eq!(node.join_token, None, "Flower's own nodes use keys instead of tokens");
        assert_eq!(node.node_config["data"].as_str(), Some("two words, \"quoted\""));
        assert_eq!(node.node_config["partition-id"].as_integer(), Some(0));
        assert!(node.gpu.is_some_and(|gpu| !gpu.fallback_to_cpu));
    }

    #[test]
    fn the_appliance_accepts_the_assignment_of_a_gateway() {
        let (federation, site) = (testing::name("f"), testing::name("lab"));
        let context = context(&RoleOf::Gateway, None, &secrets());
        let agent_state = gateway_assignment(&federation, &site, &with_tunnel(), &secrets());
        assert!(!format!("{agent_state:?}").contains(&secrets().tunnel.expect("keys").private), "{agent_state:?}");
        // The image has the role SuperLink.
        let read = read(context, &agent_state, Role::SuperLink);
        let RoleSettings::Gateway(gateway) = read.role else { panic!("{:?}", read.role) };
        assert_eq!(gateway.peers.len(), 1);
        assert_eq!(gateway.peers[0].allowed_ips, ["10.66.0.2/32", "10.2.0.0/16"]);
    }
}
