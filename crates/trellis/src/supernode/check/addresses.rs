//! Checks of the addresses that the node listens on.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use trellis_client::{Address, Host};
use trellis_node::config::AppMode;

use super::Checker;
use crate::settings::{ListenAddress, dashed};

const THIS_MACHINE: &str = "127.0.0.1";
/// Flower's default, for users who start SuperExecs. Otherwise any free port is used.
const APP_PORT: u16 = 9094;
const ANY_PORT: u16 = 0;
/// The flags for the address of apps, in groups of equal meaning.
const APP_FLAGS: [&[&str]; 3] = [&["clientappio-api-address"], &["runtime-api-address"], &["host", "port"]];

impl Checker<'_> {
    pub(super) fn addresses(&mut self) {
        let apps = self.app_address();
        let health = self.listen_address(&["health-server-address"], None);
        let metrics = self.listen_address(&["metrics-address"], None);
        self.refuse_collisions(&[&apps, &health, &metrics]);
        self.checked.config.health_address = self.socket(&health);
        self.checked.config.metrics_address = self.socket(&metrics);
    }

    /// The address of apps.
    fn app_address(&mut self) -> ListenAddress {
        let by_superexecs = self.checked.config.apps.mode == AppMode::Process;
        let given: Vec<&'static [&'static str]> =
            APP_FLAGS.into_iter().filter(|group| group.iter().any(|name| self.is_given(name))).collect();
        if given.len() > 1 {
            let flags = given.concat();
            let what = format!("{} have the same meaning and are all set", dashed(&flags));
            self.refuse(&flags, what, "keep one of them");
        }
        let default = (THIS_MACHINE, if by_superexecs { APP_PORT } else { ANY_PORT });
        let place = match given.first() {
            Some(flags) if flags.len() == 1 => self.listen_address(flags, None),
            _ => self.host_and_port(default),
        };
        if place.is_on_network() && by_superexecs {
            let asks = "does not authenticate clients before it gives them work: let only trusted machines reach it, or give \
                        --superexec-auth-secret-file";
            self.warn(match self.is_given("superexec-auth-secret-file") {
                true => format!("{} has no TLS: let only trusted machines reach it", place.label()),
                false => format!("{} has no TLS, and {asks}", place.label()),
            });
        }
        let address = self.socket(&place).unwrap_or(SocketAddr::from((Ipv4Addr::LOCALHOST, default.1)));
        self.checked.config.apps.address = address;
        let address = Address { host: Host::Ip(address.ip()), port: address.port() };
        ListenAddress { flags: given.first().copied().unwrap_or(APP_FLAGS[0]), address: Some(address) }
    }

    /// An IP address to listen on. Names are refused, because they may resolve to another machine later.
    fn socket(&mut self, place: &ListenAddress) -> Option<SocketAddr> {
        let Address { host, port } = place.address.as_ref()?;
        let ip = match host {
            Host::Ip(ip) => *ip,
            Host::Name(_) if host.is_loopback() => IpAddr::V4(Ipv4Addr::LOCALHOST),
            Host::Name(name) => {
                let what = format!("{}: {name} is a name, not an address to listen on", dashed(place.flags));
                self.refuse(place.flags, what, "give the IP address of this machine, or 0.0.0.0 for all of them");
                return None;
            }
        };
        Some(SocketAddr::new(ip, *port))
    }
}
