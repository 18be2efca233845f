//! Checks of addresses to listen on.

use trellis_client::{Address, Host, parse_port};

use super::{Checker, dashed};

/// The address of one API.
#[derive(Debug)]
pub struct ListenAddress {
    /// The flags that set it.
    pub flags: &'static [&'static str],
    /// `None` if the API is not served, or the address was refused.
    pub address: Option<Address>,
}

impl ListenAddress {
    pub fn text(&self) -> Option<String> {
        self.address.as_ref().map(ToString::to_string)
    }

    /// Whether other machines can reach it.
    pub fn is_on_network(&self) -> bool {
        self.address.as_ref().is_some_and(|address| !address.host.is_loopback())
    }

    /// As in `--fleet-api-address 127.0.0.1:9092`.
    pub fn label(&self) -> String {
        format!("--{} {}", self.flags.join("/--"), self.text().unwrap_or_default())
    }
}

impl<C> Checker<'_, C> {
    /// The address that one of `flags` gives, or else the default, if any.
    pub fn listen_address(&mut self, flags: &'static [&'static str], default: Option<(&str, u16)>) -> ListenAddress {
        let given = flags.iter().find_map(|name| self.text(name));
        let default = default.map(|(host, port)| format!("{host}:{port}"));
        let address = given.or(default.as_deref()).and_then(|text| match Address::parse(text) {
            Ok(address) => Some(address),
            Err(why) => {
                let what = format!("{}: {text:?} is not an address: {why}", dashed(flags));
                self.refuse(flags, what, "write it like 0.0.0.0:9092, [::1]:9092 or link.example.org:9092");
                None
            }
        });
        ListenAddress { flags, address }
    }

    /// The address of `--host` and `--port`.
    pub fn host_and_port(&mut self, default: (&str, u16)) -> ListenAddress {
        let host = self.text("host").unwrap_or(default.0);
        let host = Host::parse(host).map_err(|why| {
            let what = format!("--host: {host:?} is not a host: {why}");
            self.refuse(&["host"], what, "write it like 0.0.0.0, ::1 or link.example.org, and the port with --port");
        });
        let port = self.text("port").map_or(Ok(default.1), |text| {
            parse_port(text).ok_or_else(|| {
                let what = format!("--port: {text:?} is not a port");
                self.refuse(&["port"], what, "use a number from 0 to 65535; 0 selects a free port");
            })
        });
        let address = host.ok().zip(port.ok()).map(|(host, port)| Address { host, port });
        ListenAddress { flags: &["host", "port"], address }
    }

    pub fn refuse_collisions(&mut self, places: &[&ListenAddress]) {
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
