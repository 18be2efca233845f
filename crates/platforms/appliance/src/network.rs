//! What is done to the network of the VM: routes by way of a gateway, rules for who may come in, and the gateway's own tunnel.
//! The commands are pure; `apply` alone runs them. Each may be repeated.

use trellis_tunnel::{Config, Device, Draft, PeerDraft, down, forward, up};

use crate::disk;
use crate::place::Place;
use crate::settings::{GatewaySettings, Route};
use crate::supervisor::run;
use crate::trouble::{Code, Trouble};

pub const INTERFACE: &str = "trellis0";
const CONFIG: &str = "wireguard.conf";

type Line = Vec<String>;

fn line(words: &[&str]) -> Line {
    words.iter().map(|word| (*word).to_owned()).collect()
}

/// Routes to networks behind a gateway.
pub fn routes(routes: &[Route]) -> Vec<Line> {
    let replace = |route: &Route| line(&["ip", "route", "replace", &route.destination, "via", &route.via.to_string()]);
    routes.iter().map(replace).collect()
}

/// The tunnel that the settings speak of; nothing in it can break out of its line.
pub fn tunnel(gateway: &GatewaySettings) -> Result<Config, Trouble> {
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
    Config::new(draft).map_err(|problems| Trouble::new(Code::ConfigValidationFailed, problems.join("; ")))
}

/// Runs them one after the other, to the first that fails.
pub async fn apply(lines: &[Line]) -> Result<(), Trouble> {
    for words in lines {
        let Some((program, args)) = words.split_first() else { continue };
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        run(program, &args).await.map_err(|why| Trouble::new(Code::PreflightFailed, why))?;
    }
    Ok(())
}

/// Makes the gateway's tunnel: in the kernel, or by wireguard-go where that has none. One that is there as it shall be is left
/// alone; nothing is left of one that could not be made whole.
pub async fn raise(gateway: &GatewaySettings, place: &Place) -> Result<(), Trouble> {
    let config = tunnel(gateway)?;
    let path = place.etc().join(CONFIG);
    let written = disk::write(&path, config.to_setconf().as_bytes(), 0o600, None);
    let changed = written.map_err(|error| Trouble::new(Code::PreflightFailed, error.to_string()))?;
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

async fn make(config: &Config, path: &str) -> Result<(), Trouble> {
    let commands = up(INTERFACE, config, Device::Kernel, path);
    let (link, rest) = commands.split_at(1);
    if let Err(kernel) = apply(link).await {
        let other = apply(&up(INTERFACE, config, Device::Program, path)[..1]).await;
        let none = |other: Trouble| format!("there is no WireGuard: {}; {}", kernel.what, other.what);
        other.map_err(|other| Trouble::new(Code::PreflightFailed, none(other)))?;
    }
    apply(rest).await?;
    apply(&forward()).await
}

/// The tunnel is there.
pub async fn is_up() -> bool {
    run("wg", &["show", INTERFACE]).await.is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::Peer;

    #[test]
    fn a_tunnel_is_made_of_what_was_said() {
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
        let config = tunnel(&gateway).expect("it is good");
        assert!(config.to_setconf().contains("Endpoint = 192.0.2.1:51820\nAllowedIPs = 10.66.0.0/24, 10.1.0.0/16\n"));
        let lines: Vec<String> =
            up(INTERFACE, &config, Device::Kernel, "/c").iter().map(|words| words.join(" ")).collect();
        assert!(lines.contains(&"ip route replace 10.1.0.0/16 dev trellis0".to_owned()), "{lines:?}");
        assert!(!lines.iter().any(|line| line.contains(private)), "no argument shows a secret");
        gateway.private_key = "short".into();
        assert_eq!(tunnel(&gateway).expect_err("it is no key").code, Code::ConfigValidationFailed);
    }

    #[test]
    fn routes_are_replaced() {
        let route = Route { destination: "10.66.0.0/24".into(), via: "10.0.0.5".parse().expect("an address") };
        assert_eq!(routes(&[route])[0].join(" "), "ip route replace 10.66.0.0/24 via 10.0.0.5");
    }
}
