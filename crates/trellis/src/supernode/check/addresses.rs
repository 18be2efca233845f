//! Checks of where the node listens.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use trellis_node::config::Apps;

use super::Checker;
use crate::address::{Address, Host};
use crate::settings::{Place, dashed};

const THIS_MACHINE: &str = "127.0.0.1";
/// Flower's own, for those who start SuperExecs. Nobody else needs to know the port.
const APP_PORT: u16 = 9094;
const ANY_PORT: u16 = 0;
/// Where apps connect: the flags that say so, in groups that say the same.
const APP_FLAGS: [&[&str]; 3] = [&["clientappio-api-address"], &["runtime-api-address"], &["host", "port"]];

impl Checker<'_> {
    pub(super) fn app_address(&mut self, by_superexecs: bool) -> SocketAddr {
        let args = &self.raw.args.addresses;
        let given: Vec<&[&str]> =
            APP_FLAGS.into_iter().filter(|group| group.iter().any(|name| self.is_given(name))).collect();
        if given.len() > 1 {
            let flags = given.concat();
            let what = format!("{} say the same and are all set", dashed(&flags));
            self.refuse(&flags, what, "keep one of them");
        }
        let default = (THIS_MACHINE, if by_superexecs { APP_PORT } else { ANY_PORT });
        let place = match (&args.clientappio_api_address, &args.runtime_api_address) {
            (Some(address), _) => self.place(APP_FLAGS[0], Some(address), None),
            (_, Some(address)) => self.place(APP_FLAGS[1], Some(address), None),
            _ => self.host_and_port(args.host.as_deref(), args.port.as_deref(), default),
        };
        if place.is_on_network() && by_superexecs {
            let secret = args.superexec_auth_secret_file.is_some();
            let asks = "asks nobody who they are before it gives work away: let only trusted machines reach it, or give \
                        --superexec-auth-secret-file";
            self.warn(match secret {
                true => format!("{} has no TLS: let only trusted machines reach it", place.label()),
                false => format!("{} has no TLS, and {asks}", place.label()),
            });
        }
        self.socket(&place).unwrap_or(SocketAddr::from((Ipv4Addr::LOCALHOST, default.1)))
    }

    /// For health checks, and for metrics.
    pub(super) fn other_addresses(&mut self, apps: &Apps) -> (Option<SocketAddr>, Option<SocketAddr>) {
        let args = &self.raw.args.addresses;
        let health = self.place(&["health-server-address"], args.health_server_address.as_deref(), None);
        let metrics = self.place(&["metrics-address"], args.metrics_address.as_deref(), None);
        let given = APP_FLAGS.into_iter().find(|group| group.iter().any(|name| self.is_given(name)));
        let address = Address { host: Host::Ip(apps.address.ip()), port: apps.address.port() };
        let apps = Place { flags: given.unwrap_or(APP_FLAGS[0]), address: Some(address) };
        self.refuse_collisions(&[&apps, &health, &metrics]);
        (self.socket(&health), self.socket(&metrics))
    }

    /// The address to listen on. Names are not looked up: who knows where they lead tomorrow.
    fn socket(&mut self, place: &Place) -> Option<SocketAddr> {
        let Address { host, port } = place.address.as_ref()?;
        let ip = match host {
            Host::Ip(ip) => *ip,
            Host::Name(_) if host.is_loopback() => IpAddr::V4(Ipv4Addr::LOCALHOST),
            Host::Name(name) => {
                let what = format!("{}: the node listens on addresses, and {name} is a name", dashed(place.flags));
                self.refuse(place.flags, what, "give the IP address of this machine, or 0.0.0.0 for all it has");
                return None;
            }
        };
        Some(SocketAddr::new(ip, *port))
    }
}
