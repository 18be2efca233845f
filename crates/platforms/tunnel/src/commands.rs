//! Commands that bring a gateway's interface up and down. Pure.

use crate::config::Config;

/// Creator of the interface.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Device {
    /// The kernel module.
    Kernel,
    /// A program, if the kernel has no module: `wireguard-go`.
    Program,
}

/// A command runs only after the one before succeeded. `setconf` is the path of a file with [`Config::to_setconf`].
pub fn up(interface: &str, config: &Config, device: Device, setconf: &str) -> Vec<Vec<String>> {
    let make = match device {
        Device::Kernel => vec!["ip", "link", "add", "dev", interface, "type", "wireguard"],
        Device::Program => vec!["wireguard-go", interface],
    };
    let mtu = config.mtu().to_string();
    let mut commands = vec![
        make,
        vec!["wg", "setconf", interface, setconf],
        vec!["ip", "address", "replace", config.address(), "dev", interface],
        vec!["ip", "link", "set", "dev", interface, "mtu", &mtu, "up"],
    ];
    // The address adds a route to the other gateways, so `replace` also accepts an existing one.
    for network in config.routes() {
        commands.push(vec!["ip", "route", "replace", network, "dev", interface]);
    }
    commands.into_iter().map(owned).collect()
}

pub fn down(interface: &str) -> Vec<Vec<String>> {
    vec![owned(vec!["ip", "link", "delete", "dev", interface])]
}

/// Enables IP forwarding.
pub fn forward() -> Vec<Vec<String>> {
    let setting = |name: &str| vec!["sysctl".to_owned(), "-w".to_owned(), format!("{name}=1")];
    vec![setting("net.ipv4.ip_forward"), setting("net.ipv6.conf.all.forwarding")]
}

fn owned(words: Vec<&str>) -> Vec<String> {
    words.into_iter().map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Draft, PeerDraft};
    use crate::key::PrivateKey;

    #[test]
    fn what_is_run_and_in_which_order() {
        let key = PrivateKey::from_bytes([1; 32]).unwrap();
        let peer = PeerDraft {
            name: "lyon".to_owned(),
            public_key: PrivateKey::from_bytes([2; 32]).unwrap().public().to_string(),
            allowed: vec!["10.66.0.2/32".to_owned(), "10.10.11.0/24".to_owned()],
            ..PeerDraft::default()
        };
        let (address, private_key) = ("10.66.0.1/24".to_owned(), key.reveal());
        let draft = Draft { private_key, address, listen_port: 51820, mtu: 1420, peers: vec![peer] };
        let config = Config::new(draft).unwrap();
        let lines: Vec<String> =
            up("wg0", &config, Device::Kernel, "/run/wg0.conf").iter().map(|words| words.join(" ")).collect();
        assert_eq!(
            lines,
            [
                "ip link add dev wg0 type wireguard",
                "wg setconf wg0 /run/wg0.conf",
                "ip address replace 10.66.0.1/24 dev wg0",
                "ip link set dev wg0 mtu 1420 up",
                "ip route replace 10.66.0.2/32 dev wg0",
                "ip route replace 10.10.11.0/24 dev wg0",
            ]
        );
        assert_eq!(up("wg0", &config, Device::Program, "f")[0], ["wireguard-go", "wg0"]);
        assert_eq!(down("wg0"), [["ip", "link", "delete", "dev", "wg0"]]);
    }
}
