//! Checks of which SuperLink is meant, and how the way there is secured.

use std::path::PathBuf;
use std::time::Duration;

use trellis_client::Security;
use trellis_node::config::{Keepalive, TransportChoice};

use super::{Checker, Machine};
use crate::address::{Address, Host};

const SUPERLINK: &str = "127.0.0.1:9092";
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(30);
const KEEPALIVE_TIMEOUT: Duration = Duration::from_secs(20);

impl Checker<'_> {
    pub(super) fn superlink(&mut self) -> Address {
        let text = self.raw.args.link.superlink.as_deref().unwrap_or(SUPERLINK);
        let parsed = Address::parse(text).and_then(|address| match address.port {
            0 => Err("nobody listens on port 0".to_owned()),
            _ => Ok(address),
        });
        match parsed {
            // The default of Flower 1.25, and what people then write. Connecting to it means this machine.
            Ok(Address { host, port }) if host.is_wildcard() => {
                let here = Host::parse("127.0.0.1").expect("it is an address");
                self.warn(format!(
                    "--superlink {text} says to listen everywhere; this machine is meant: {here}:{port}"
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
        }
    }

    /// How the way is secured, `None` if that was refused; and the file with the authorities, where one is given.
    pub(super) fn security(&mut self, target: &Address, machine: &Machine<'_>) -> (Option<Security>, Option<PathBuf>) {
        let args = &self.raw.args.link;
        let bundle = args.root_certificates.as_deref().map(|path| self.resolve("root-certificates", path));
        if args.insecure && bundle.is_some() {
            let advice = "keep one of them; --insecure=false overrides the environment and the file";
            self.refuse(&["insecure", "root-certificates"], "--insecure contradicts --root-certificates", advice);
            return (None, None);
        }
        if args.insecure {
            if !target.host.is_loopback() {
                self.warn(format!(
                    "no TLS (--insecure) to {target}, which is not on this machine: everybody on the way can read and \
                     change models and results, and pass for the SuperLink"
                ));
            }
            return (Some(Security::Plaintext), None);
        }
        // In a file that cannot be read the answer may stand.
        if bundle.is_none() && self.raw.incomplete {
            return (None, None);
        }
        match (machine.trust)(bundle.as_deref()) {
            Ok(trust) => (Some(Security::Tls(trust)), bundle),
            Err(why) => {
                let (what, advice) = match bundle {
                    Some(_) => (why, "give a PEM file with the certificates of the authorities that you trust"),
                    None => (why, "give some with --root-certificates; if the SuperLink has no TLS, add --insecure"),
                };
                self.refuse(&["root-certificates"], format!("--root-certificates: {what}"), advice);
                (None, bundle)
            }
        }
    }

    pub(super) fn transport(&mut self) -> TransportChoice {
        let choices =
            [("auto", TransportChoice::Auto), ("grpc", TransportChoice::Grpc), ("http", TransportChoice::Http)];
        let given = self.raw.args.link.transport.as_deref();
        let transport = self.choice("transport", given, &choices);
        if !self.raw.args.compatibility.grpc_rere {
            return transport;
        }
        if transport == TransportChoice::Http {
            let what = "--grpc-rere contradicts --transport http";
            self.refuse(&["grpc-rere", "transport"], what, "keep one of them, or none: the transport is found out");
        }
        if given.is_none() { TransportChoice::Grpc } else { transport }
    }

    pub(super) fn link_keepalive(&mut self) -> Keepalive {
        let args = &self.raw.args.link;
        let (interval, timeout) = self.keepalive(
            args.keepalive_interval.as_deref(),
            args.keepalive_timeout.as_deref(),
            (KEEPALIVE_INTERVAL, KEEPALIVE_TIMEOUT),
        );
        Keepalive { interval: Some(interval), timeout }
    }
}
