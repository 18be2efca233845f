//! Checks of where to listen, and of the names clients use.

use super::{Checker, dashed};
use crate::superlink::address::{Address, Host, parse_port};

const EVERYWHERE: &str = "0.0.0.0";
const THIS_MACHINE: &str = "127.0.0.1";
const HTTP_PORT: u16 = 8000;
const CONTROL_PORT: u16 = 9093;
const FLEET_PORT: u16 = 9092;
const SERVERAPPIO_PORT: u16 = 9091;

/// Where one API is to listen.
#[derive(Debug)]
pub(super) struct Place {
    /// The flags that say so.
    pub flags: &'static [&'static str],
    /// `None` where it is not wanted, or was refused.
    pub address: Option<Address>,
}

#[derive(Debug)]
pub(super) struct Addresses {
    pub http: Place,
    pub control: Place,
    pub fleet: Place,
    pub serverappio: Place,
    pub health: Place,
    pub metrics: Place,
}

impl Place {
    pub(super) fn text(&self) -> Option<String> {
        self.address.as_ref().map(ToString::to_string)
    }

    /// Whether other machines can reach it.
    pub(super) fn is_on_network(&self) -> bool {
        self.address.as_ref().is_some_and(|address| !address.host.is_loopback())
    }

    /// As in `--fleet-api-address 127.0.0.1:9092`.
    pub(super) fn label(&self) -> String {
        format!("--{} {}", self.flags.join("/--"), self.text().unwrap_or_default())
    }
}

impl<'a> Checker<'a> {
    pub(super) fn addresses(&mut self) -> Addresses {
        let args = &self.raw.args.addresses;
        let open = if self.raw.args.security.insecure { THIS_MACHINE } else { EVERYWHERE };
        let (control_flag, control) = self.control();
        let (serverappio_flag, serverappio) = self.serverappio();
        let addresses = Addresses {
            http: self.http(open),
            control: self.place(control_flag, control, Some((open, CONTROL_PORT))),
            fleet: self.place(&["fleet-api-address"], args.fleet_api_address.as_deref(), Some((open, FLEET_PORT))),
            // Never open by itself: it asks nobody who they are.
            serverappio: self.place(serverappio_flag, serverappio, Some((THIS_MACHINE, SERVERAPPIO_PORT))),
            health: self.place(&["health-server-address"], args.health_server_address.as_deref(), None),
            metrics: self.place(&["metrics-address"], args.metrics_address.as_deref(), None),
        };
        self.refuse_collisions(&addresses);
        addresses
    }

    /// The names clients use, without ports.
    pub(super) fn endpoints(&mut self) -> Vec<String> {
        let args = &self.raw.args;
        let mut endpoints = Vec::new();
        for text in &args.addresses.endpoint {
            match Host::parse_endpoint(text) {
                Ok(host) => endpoints.push(host.to_string()),
                Err(why) => {
                    let what = format!("--endpoint: {text:?} is not what a client connects to: {why}");
                    self.refuse(
                        &["endpoint"],
                        what,
                        "write it like link.example.org, 10.0.0.7:9092 or [2001:db8::7]:9092",
                    );
                }
            }
        }
        if args.security.insecure && !endpoints.is_empty() {
            self.warn("--endpoint has no effect with --insecure: there is no certificate to cover it");
        }
        endpoints
    }

    fn http(&mut self, open: &str) -> Place {
        let args = &self.raw.args.addresses;
        let host = args.host.as_deref().unwrap_or(open);
        let host = Host::parse(host).map_err(|why| {
            let what = format!("--host: {host:?} is not a host: {why}");
            self.refuse(&["host"], what, "write it like 0.0.0.0, ::1 or link.example.org, and the port with --port");
        });
        let port = args.port.as_deref().map_or(Ok(HTTP_PORT), |text| {
            parse_port(text).ok_or_else(|| {
                let what = format!("--port: {text:?} is not a port");
                self.refuse(&["port"], what, "use a number from 0 to 65535; 0 takes any free one");
            })
        });
        let address = host.ok().zip(port.ok()).map(|(host, port)| Address { host, port });
        Place { flags: &["host", "port"], address }
    }

    /// The Control API's address, and the flag that gave it.
    fn control(&mut self) -> (&'static [&'static str], Option<&'a str>) {
        let given = self.raw.args.addresses.control_api_address.as_deref();
        let old = self.raw.args.compatibility.exec_api_address.as_deref();
        if old.is_some() {
            self.warn("--exec-api-address is the old name of --control-api-address");
        }
        match (given, old) {
            (Some(_), Some(_)) => {
                let what = "--control-api-address and --exec-api-address mean the same and are both set";
                self.refuse(&["control-api-address", "exec-api-address"], what, "keep --control-api-address only");
                (&["control-api-address"], None)
            }
            (None, Some(old)) => (&["exec-api-address"], Some(old)),
            (given, None) => (&["control-api-address"], given),
        }
    }

    /// The ServerAppIo API's address, and the flag that gave it.
    fn serverappio(&mut self) -> (&'static [&'static str], Option<&'a str>) {
        let given = self.raw.args.addresses.serverappio_api_address.as_deref();
        let other = self.raw.args.addresses.runtime_api_address.as_deref();
        match (given, other) {
            (Some(given), Some(other)) if given != other => {
                let what = "--serverappio-api-address and --runtime-api-address mean the same and differ";
                self.refuse(&["serverappio-api-address", "runtime-api-address"], what, "keep one of them");
                (&["serverappio-api-address"], None)
            }
            (None, Some(other)) => (&["runtime-api-address"], Some(other)),
            (given, _) => (&["serverappio-api-address"], given),
        }
    }

    /// Where `flags` say to listen, or else the default, if there is one.
    fn place(&mut self, flags: &'static [&'static str], given: Option<&str>, default: Option<(&str, u16)>) -> Place {
        let default = default.map(|(host, port)| format!("{host}:{port}"));
        let address = given.or(default.as_deref()).and_then(|text| match Address::parse(text) {
            Ok(address) => Some(address),
            Err(why) => {
                let what = format!("{}: {text:?} is not an address: {why}", dashed(flags));
                self.refuse(flags, what, "write it like 0.0.0.0:9092, [::1]:9092 or link.example.org:9092");
                None
            }
        });
        Place { flags, address }
    }

    fn refuse_collisions(&mut self, addresses: &Addresses) {
        let Addresses { http, control, fleet, serverappio, health, metrics } = addresses;
        let places = [http, control, fleet, serverappio, health, metrics];
        for (index, place) in places.iter().enumerate() {
            for other in &places[index + 1..] {
                let (Some(address), Some(taken)) = (&place.address, &other.address) else { continue };
                if address.collides(taken) {
                    let what = format!("{} and {} cannot be used at once", place.label(), other.label());
                    self.refuse(&[place.flags, other.flags].concat(), what, "give each its own port");
                }
            }
        }
    }
}
