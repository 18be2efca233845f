//! What is done to the network of the VM: routes by way of a gateway, rules for who may come in, and the gateway's own tunnel.
//! The commands are pure; `apply` alone runs them. Each may be repeated.

use std::fmt::Write as _;
use std::path::Path;

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

/// As `wg setconf` reads it.
pub fn wireguard(gateway: &GatewaySettings) -> String {
    let mut text = format!("[Interface]\nPrivateKey = {}\nListenPort = {}\n", gateway.private_key, gateway.listen_port);
    for peer in &gateway.peers {
        let allowed = peer.allowed_ips.join(", ");
        let _ = write!(text, "\n[Peer]\nPublicKey = {}\nAllowedIPs = {allowed}\n", peer.public_key);
        if let Some(endpoint) = &peer.endpoint {
            let _ = writeln!(text, "Endpoint = {endpoint}");
        }
        if let Some(seconds) = peer.keepalive_s {
            let _ = writeln!(text, "PersistentKeepalive = {seconds}");
        }
    }
    text
}

/// What makes the tunnel, once its interface is there.
pub fn tunnel(gateway: &GatewaySettings, config: &Path) -> Vec<Line> {
    let config = config.display().to_string();
    let mut lines = vec![
        line(&["wg", "setconf", INTERFACE, &config]),
        line(&["ip", "address", "replace", &gateway.local_address, "dev", INTERFACE]),
        line(&["ip", "link", "set", INTERFACE, "mtu", &gateway.mtu.to_string(), "up"]),
        line(&["sysctl", "-q", "-w", "net.ipv4.ip_forward=1"]),
        line(&["sysctl", "-q", "-w", "net.ipv6.conf.all.forwarding=1"]),
    ];
    for network in gateway.peers.iter().flat_map(|peer| &peer.allowed_ips) {
        lines.push(line(&["ip", "route", "replace", network, "dev", INTERFACE]));
    }
    lines
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

/// Makes the gateway's tunnel: in the kernel, or by wireguard-go where that has none.
pub async fn raise(gateway: &GatewaySettings, place: &Place) -> Result<(), Trouble> {
    let failed = |why: String| Trouble::new(Code::PreflightFailed, why);
    let config = place.etc().join(CONFIG);
    let written = disk::write(&config, wireguard(gateway).as_bytes(), 0o600, None);
    let changed = written.map_err(|error| failed(error.to_string()))?;
    let there = run("ip", &["link", "show", INTERFACE]).await.is_ok();
    if there && !changed {
        return Ok(());
    }
    if !there {
        let kernel = run("ip", &["link", "add", INTERFACE, "type", "wireguard"]).await;
        if let Err(kernel) = kernel {
            let other = run("wireguard-go", &[INTERFACE]).await;
            other.map_err(|other| failed(format!("there is no WireGuard: {kernel}; {other}")))?;
        }
    }
    apply(&tunnel(gateway, &config)).await
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
        let peer = Peer {
            public_key: "PUB=".into(),
            endpoint: Some("192.0.2.1:51820".into()),
            allowed_ips: vec!["10.66.0.0/24".into(), "10.1.0.0/16".into()],
            keepalive_s: Some(25),
        };
        let gateway = GatewaySettings {
            private_key: "KEY=".into(),
            local_address: "10.66.0.2/24".into(),
            listen_port: 51820,
            mtu: 1420,
            peers: vec![peer],
        };
        let expected = "[Interface]\nPrivateKey = KEY=\nListenPort = 51820\n\n[Peer]\nPublicKey = PUB=\nAllowedIPs = \
                        10.66.0.0/24, 10.1.0.0/16\nEndpoint = 192.0.2.1:51820\nPersistentKeepalive = 25\n";
        assert_eq!(wireguard(&gateway), expected);
        let lines: Vec<String> = tunnel(&gateway, Path::new("/c")).iter().map(|words| words.join(" ")).collect();
        assert_eq!(lines[0], "wg setconf trellis0 /c");
        assert!(lines.contains(&"ip route replace 10.1.0.0/16 dev trellis0".to_owned()), "{lines:?}");
        assert!(!lines.iter().any(|line| line.contains("KEY")), "no argument shows a secret");
    }

    #[test]
    fn routes_are_replaced() {
        let route = Route { destination: "10.66.0.0/24".into(), via: "10.0.0.5".parse().expect("an address") };
        assert_eq!(routes(&[route])[0].join(" "), "ip route replace 10.66.0.0/24 via 10.0.0.5");
    }
}
