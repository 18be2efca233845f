//! Checks of where to listen.

use trellis_link::config::Isolation;

use super::Checker;
use crate::superlink::address::Address;

const CONTROL: &str = "0.0.0.0:9093";
const FLEET: &str = "0.0.0.0:9092";
const SERVERAPPIO: &str = "0.0.0.0:9091";
/// Where only ServerApps on this machine need it, and it asks nobody who they are.
const SERVERAPPIO_SUBPROCESS: &str = "127.0.0.1:9091";

#[derive(Debug)]
pub(super) struct Addresses {
    pub control: String,
    pub fleet: String,
    pub serverappio: String,
    pub health: Option<String>,
}

impl<'a> Checker<'a> {
    pub(super) fn addresses(&mut self, isolation: Isolation) -> Addresses {
        let args = &self.raw.args.addresses;
        let (control_name, control) = self.control();
        let serverappio_default = match isolation {
            Isolation::Subprocess => SERVERAPPIO_SUBPROCESS,
            Isolation::Process => SERVERAPPIO,
        };
        let serverappio = args.serverappio_api_address.as_deref().unwrap_or(serverappio_default);
        let wanted = [
            (control_name, Some(control)),
            ("fleet-api-address", Some(args.fleet_api_address.as_deref().unwrap_or(FLEET))),
            ("serverappio-api-address", Some(serverappio)),
            ("health-server-address", args.health_server_address.as_deref()),
        ];
        let parsed = wanted.map(|(name, text)| (name, text.and_then(|text| self.address(name, text))));
        self.refuse_collisions(&parsed);
        if let (_, Some(address)) = &parsed[2]
            && !address.is_loopback()
        {
            let warning = "the ServerAppIo API has no TLS and no login: let only trusted machines reach";
            self.warn(format!("{warning} {address}"));
        }
        let [control, fleet, serverappio, health] =
            parsed.map(|(_, address)| address.map(|address| address.to_string()));
        Addresses {
            control: control.unwrap_or_default(),
            fleet: fleet.unwrap_or_default(),
            serverappio: serverappio.unwrap_or_default(),
            health,
        }
    }

    /// The Control API's address, and the flag that gave it.
    fn control(&mut self) -> (&'static str, &'a str) {
        let given = self.raw.args.addresses.control_api_address.as_deref();
        let old = self.raw.args.compatibility.exec_api_address.as_deref();
        if old.is_some() {
            self.warn("--exec-api-address is the old name of --control-api-address");
        }
        match (given, old) {
            (Some(_), Some(_)) => {
                let what = "--control-api-address and --exec-api-address mean the same and are both set";
                self.refuse(&["control-api-address", "exec-api-address"], what, "keep --control-api-address only");
                ("control-api-address", CONTROL)
            }
            (None, Some(old)) => ("exec-api-address", old),
            (given, None) => ("control-api-address", given.unwrap_or(CONTROL)),
        }
    }

    fn address(&mut self, name: &str, text: &str) -> Option<Address> {
        match Address::parse(text) {
            Ok(address) => Some(address),
            Err(why) => {
                let what = format!("--{name}: {text:?} is not an address: {why}");
                self.refuse(&[name], what, "write it like 0.0.0.0:9092, [::1]:9092 or link.example.org:9092");
                None
            }
        }
    }

    fn refuse_collisions(&mut self, addresses: &[(&str, Option<Address>)]) {
        for (index, (name, address)) in addresses.iter().enumerate() {
            for (other_name, other) in &addresses[index + 1..] {
                let (Some(address), Some(other)) = (address, other) else { continue };
                if address.collides(other) {
                    let what = format!("--{name} {address} and --{other_name} {other} cannot be used at once");
                    self.refuse(&[name, other_name], what, "give each its own port");
                }
            }
        }
    }
}
