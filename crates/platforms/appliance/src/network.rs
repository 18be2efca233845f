//! Network of the VM: routes to networks behind a gateway, and the WireGuard tunnel of a gateway. The commands are pure;
//! `apply` runs them. All are idempotent.

use trellis_tunnel::{Config, Device, Draft, PeerDraft, down, forward, up};

use crate::disk;
use crate::failure::{Code, Failure};
use crate::place::Place;
use crate::settings::{GatewaySettings, Route};
use crate::supervisor::run;

pub const INTERFACE: &str = "trellis0";
const CONFIG: &str = "wireguard.conf";

type Line = Vec<String>;

fn line(words: &[&str]) -> Line {
    words.iter().map(|word| (*word).to_owned()).collect()
}

/// Commands that add the routes.
pub fn routes(routes: &[Route]) -> Vec<Line> {
    let replace = |route: &Route| line(&["ip", "route", "replace", &route.destination, "via", &route.via.to_string()]);
    routes.iter().map(replace).collect()
}

/// Commands that create the tunnel. Values are validated, so none can end its line.
pub fn tunnel(gateway: &GatewaySettings) -> Result<Config, Failure> {
    let peer = |(index, peer): (usize, &crate::settings::Peer)| PeerDraft {
        name: format!("peer-{}", index + 1),
        public_key: peer.public_key.clone(),
        endpoint: peer.endpoint.clone(),
        allowed: peer.allowed_ips.clone(),
        keepalive_s: peer.keepalive_s,
    };
    let draft = Draft {
        private_key: gateway.private_key.clone(),
        address: gateway.local_address.clone(),
        listen_port: gateway.listen_port,
        mtu: gateway.mtu,
        peers: gateway.peers.iter().enumerate().map(peer).collect(),
    };
    Config::new(draft).map_err(|problems| Failure::new(Code::ConfigValidationFailed, problems.join("; ")))
}

/// Runs the commands in order, and stops at the first failure.
pub async fn apply(lines: &[Line]) -> Result<(), Failure> {
    for words in lines {
        let Some((program, args)) = words.split_first() else { continue };
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        run(program, &args).await.map_err(|why| Failure::new(Code::PreflightFailed, why))?;
    }
    Ok(())
}

/// Creates the gateway's tunnel with the kernel module, or with wireguard-go if there is none. A tunnel that is up to date is
/// not changed; a tunnel that cannot be configured is removed.
pub async fn raise(gateway: &GatewaySettings, place: &Place) -> Result<(), Failure> {
    let config = tunnel(gateway)?;
    let path = place.etc().join(CONFIG);
    let written = disk::write(&path, config.to_setconf().as_bytes(), 0o600, None);
    let changed = written.map_err(|error| Failure::new(Code::PreflightFailed, error.to_string()))?;
    let there = run("ip", &["link", "show", INTERFACE]).await.is_ok();
    if there && !changed {
        return Ok(());
    }
    if there {
        apply(&down(INTERFACE)).await?;
    }
    let path = path.display().to_string();
    let made = make(&config, &path).await;
    if made.is_err() {
        let _ = apply(&down(INTERFACE)).await;
    }
    made
}

async fn make(config: &Config, path: &str) -> Result<(), Failure> {
    let commands = up(INTERFACE, config, Device::Kernel, path);
    let (link, rest) = commands.split_at(1);
    if let Err(kernel) = apply(link).await {
        let other = apply(&up(INTERFACE, config, Device::Program, path)[..1]).await;
        let none = |other: Failure| format!("WireGuard is not available: {}; {}", kernel.what, other.what);
        other.map_err(|other| Failure::new(Code::PreflightFailed, none(other)))?;
    }
    apply(rest).await?;
    apply(&forward()).await
}

/// Whether the tunnel exists.
pub async fn is_up() -> bool {
    run("wg", &["show", INTERFACE]).await.is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::Peer;

    #[test]
    fn settings_become_a_tunnel_configuration() {
        let (private, public) =
            ("AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=", "3p7bfXt9wbTTW2HC7OQ1Nz+DQ8hbeGdNrfx+FG+IK08=");
        let peer = Peer {
            public_key: public.into(),
            endpoint: Some("192.0.2.1:51820".into()),
            allowed_ips: vec!["10.66.0.0/24".into(), "10.1.0.0/16".into()],
            keepalive_s: Some(25),
        };
        let mut gateway = GatewaySettings {
            private_key: private.into(),
            local_address: "10.66.0.2/24".into(),
            listen_port: 51820,
            mtu: 1420,
            peers: vec![peer],
        };
        let config = tunnel(&gateway).expect("valid settings");
        assert!(config.to_setconf().contains("Endpoint = 192.0.2.1:51820\nAllowedIPs = 10.66.0.0/24, 10.1.0.0/16\n"));
        let lines: Vec<String> =
            up(INTERFACE, &config, Device::Kernel, "/c").iter().map(|words| words.join(" ")).collect();
        assert!(lines.contains(&"ip route replace 10.1.0.0/16 dev trellis0".to_owned()), "{lines:?}");
        assert!(!lines.iter().any(|line| line.contains(private)), "arguments contain no secret");
        gateway.private_key = "short".into();
        assert_eq!(tunnel(&gateway).expect_err("an invalid key").code, Code::ConfigValidationFailed);
    }

    #[test]
    fn routes_are_replaced() {
        let route = Route { destination: "10.66.0.0/24".into(), via: "10.0.0.5".parse().expect("an address") };
        assert_eq!(routes(&[route])[0].join(" "), "ip route replace 10.66.0.0/24 via 10.0.0.5");
    }
}
