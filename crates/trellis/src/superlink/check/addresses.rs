//! Checks of the addresses to listen on.

use super::Checker;
use crate::settings::ListenAddress;

const EVERYWHERE: &str = "0.0.0.0";
const THIS_MACHINE: &str = "127.0.0.1";
const HTTP_PORT: u16 = 8000;
const CONTROL_PORT: u16 = 9093;
const FLEET_PORT: u16 = 9092;
const SERVERAPPIO_PORT: u16 = 9091;

#[derive(Debug)]
pub(super) struct Addresses {
    pub http: ListenAddress,
    pub control: ListenAddress,
    pub fleet: ListenAddress,
    pub serverappio: ListenAddress,
    pub health: ListenAddress,
    pub metrics: ListenAddress,
}

impl Checker<'_> {
    pub(super) fn addresses(&mut self) -> Addresses {
        let open = if self.is_on("insecure") { THIS_MACHINE } else { EVERYWHERE };
        let (control, serverappio) = (self.control(), self.serverappio());
        let addresses = Addresses {
            http: self.host_and_port((open, HTTP_PORT)),
            control: self.listen_address(control, Some((open, CONTROL_PORT))),
            fleet: self.listen_address(&["fleet-api-address"], Some((open, FLEET_PORT))),
            // Never on the network by default: this API does not authenticate its callers.
            serverappio: self.listen_address(serverappio, Some((THIS_MACHINE, SERVERAPPIO_PORT))),
            health: self.listen_address(&["health-server-address"], None),
            metrics: self.listen_address(&["metrics-address"], None),
        };
        let Addresses { http, control, fleet, serverappio, health, metrics } = &addresses;
        self.refuse_collisions(&[http, control, fleet, serverappio, health, metrics]);
        let config = &mut self.checked.config;
        config.http_address = http.text().unwrap_or_default();
        config.control_address = control.text().unwrap_or_default();
        config.fleet_address = fleet.text().unwrap_or_default();
        config.serverappio_address = serverappio.text().unwrap_or_default();
        config.health_address = health.text();
        config.metrics_address = metrics.text();
        addresses
    }

    /// The flag that gives the Control API's address.
    fn control(&mut self) -> &'static [&'static str] {
        let (given, old) = (self.is_given("control-api-address"), self.is_given("exec-api-address"));
        if old {
            self.warn("--exec-api-address is the old name of --control-api-address");
        }
        if given && old {
            let what = "--control-api-address and --exec-api-address mean the same and are both set";
            self.refuse(&["control-api-address", "exec-api-address"], what, "keep --control-api-address only");
        }
        if old && !given { &["exec-api-address"] } else { &["control-api-address"] }
    }

    /// The flag that gives the ServerAppIo API's address.
    fn serverappio(&mut self) -> &'static [&'static str] {
        match (self.text("serverappio-api-address"), self.text("runtime-api-address")) {
            (None, Some(_)) => return &["runtime-api-address"],
            (Some(given), Some(other)) if given != other => {
                let what = "--serverappio-api-address and --runtime-api-address mean the same and differ";
                self.refuse(&["serverappio-api-address", "runtime-api-address"], what, "keep one of them");
            }
            _ => {}
        }
        &["serverappio-api-address"]
    }
}
