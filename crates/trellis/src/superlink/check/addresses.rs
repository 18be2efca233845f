//! Checks of where to listen, and of the names clients use.

use super::Checker;
use crate::address::Host;
use crate::settings::Place;

const EVERYWHERE: &str = "0.0.0.0";
const THIS_MACHINE: &str = "127.0.0.1";
const HTTP_PORT: u16 = 8000;
const CONTROL_PORT: u16 = 9093;
const FLEET_PORT: u16 = 9092;
const SERVERAPPIO_PORT: u16 = 9091;

#[derive(Debug)]
pub(super) struct Addresses {
    pub http: Place,
    pub control: Place,
    pub fleet: Place,
    pub serverappio: Place,
    pub health: Place,
    pub metrics: Place,
}

impl<'a> Checker<'a> {
    pub(super) fn addresses(&mut self) -> Addresses {
        let args = &self.raw.args.addresses;
        let open = if self.raw.args.security.insecure { THIS_MACHINE } else { EVERYWHERE };
        let (control_flag, control) = self.control();
        let (serverappio_flag, serverappio) = self.serverappio();
        let addresses = Addresses {
            http: self.host_and_port(args.host.as_deref(), args.port.as_deref(), (open, HTTP_PORT)),
            control: self.place(control_flag, control, Some((open, CONTROL_PORT))),
            fleet: self.place(&["fleet-api-address"], args.fleet_api_address.as_deref(), Some((open, FLEET_PORT))),
            // Never open by itself: it asks nobody who they are.
            serverappio: self.place(serverappio_flag, serverappio, Some((THIS_MACHINE, SERVERAPPIO_PORT))),
            health: self.place(&["health-server-address"], args.health_server_address.as_deref(), None),
            metrics: self.place(&["metrics-address"], args.metrics_address.as_deref(), None),
        };
        let Addresses { http, control, fleet, serverappio, health, metrics } = &addresses;
        self.refuse_collisions(&[http, control, fleet, serverappio, health, metrics]);
        addresses
    }

    /// The names clients use, without ports.
    pub(super) fn endpoints(&mut self) -> Vec<String> {
        self.hosts("endpoint", &self.raw.args.addresses.endpoint)
    }

    /// Additional accepted host names of HTTP requests, without ports.
    pub(super) fn allowed_hosts(&mut self) -> Vec<String> {
        self.hosts("allowed-host", &self.raw.args.addresses.allowed_host)
    }

    fn hosts(&mut self, flag: &'static str, given: &[String]) -> Vec<String> {
        let mut hosts = Vec::new();
        for text in given {
            match Host::parse_endpoint(text) {
                Ok(host) => hosts.push(host.to_string()),
                Err(why) => {
                    let what = format!("--{flag}: {text:?} is not what a client connects to: {why}");
                    self.refuse(&[flag], what, "write it like link.example.org, 10.0.0.7:9092 or [2001:db8::7]:9092");
                }
            }
        }
        hosts
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
}
