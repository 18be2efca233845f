//! Checks of the SuperLink's address, and of the security of the connection.

use trellis_client::Security;
use trellis_client::{Address, Host};
use trellis_node::config::{Keepalive, TransportChoice};

use super::{Checker, Machine};
use crate::settings::kind;

const SUPERLINK: &str = "127.0.0.1:9092";

impl Checker<'_> {
    pub(super) fn superlink(&mut self) {
        let text = self.text("superlink").unwrap_or(SUPERLINK);
        let parsed = Address::parse(text).and_then(|address| match address.port {
            0 => Err("port 0 is not a port to connect to".to_owned()),
            _ => Ok(address),
        });
        let Address { host, port } = match parsed {
            // The default of Flower 1.25, which users copy. The operating system connects to this machine.
            Ok(Address { host, port }) if host.is_wildcard() => {
                let here = Host::parse("127.0.0.1").expect("it is an address");
                self.warn(format!(
                    "--superlink {text} is an address to listen on; connecting to {here}:{port} instead"
                ));
                Address { host: here, port }
            }
            Ok(address) => address,
            Err(why) => {
                let what = format!("--superlink: {text:?} is not an address: {why}");
                let advice = "write it like link.example.org:9092, 10.0.0.7:9092 or [2001:db8::7]:9092";
                self.refuse(&["superlink"], what, advice);
                Address::parse(SUPERLINK).expect("it is an address")
            }
        };
        if self.is_on("insecure") && !self.is_given("root-certificates") && !host.is_loopback() {
            self.warn(format!(
                "no TLS (--insecure) to {}, which is not on this machine: all machines on the path can read and change models \
                 and results, and impersonate the SuperLink",
                Address { host: host.clone(), port }
            ));
        }
        let target = &mut self.checked.config.superlink;
        (target.host, target.port) = (host.to_string(), port);
    }

    /// The security of the connection, and the file with the authorities, if given.
    pub(super) fn security(&mut self, machine: &Machine<'_>) {
        let bundle = self.read("root-certificates", &kind::Path);
        if self.is_on("insecure") {
            if bundle.is_some() {
                let advice = "keep one of them; --insecure=false overrides the environment and the file";
                self.refuse(&["insecure", "root-certificates"], "--insecure contradicts --root-certificates", advice);
            }
            return;
        }
        // If a configuration file could not be read, it may have the missing setting.
        if bundle.is_none() && self.given.incomplete {
            return;
        }
        match (machine.trust)(bundle.as_deref()) {
            Ok(trust) => self.checked.config.superlink.security = Security::Tls(trust),
            Err(why) => {
                let advice = match bundle {
                    Some(_) => "give a PEM file with the certificates of the authorities that you trust",
                    None => "give some with --root-certificates; if the SuperLink has no TLS, add --insecure",
                };
                self.refuse(&["root-certificates"], format!("--root-certificates: {why}"), advice);
            }
        }
        self.checked.root_certificates = bundle;
    }

    pub(super) fn transport(&mut self) {
        if !self.is_on("grpc-rere") {
            return;
        }
        if self.checked.config.transport == TransportChoice::Http {
            let what = "--grpc-rere contradicts --transport http";
            self.refuse(&["grpc-rere", "transport"], what, "keep one of them, or none: the transport is detected");
        }
        if !self.is_given("transport") {
            self.checked.config.transport = TransportChoice::Grpc;
        }
    }

    pub(super) fn keepalive_of_link(&mut self) {
        let Keepalive { interval, timeout } = Keepalive::default();
        let (interval, timeout) = self.keepalive((interval.unwrap_or(timeout), timeout));
        self.checked.config.keepalive = Keepalive { interval: Some(interval), timeout };
    }
}
