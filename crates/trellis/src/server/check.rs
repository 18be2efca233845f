//! Turns what was asked for into settings, or into the list of everything that is wrong with it.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use trellis_pki::Files;
use trellis_pki::endpoint::Endpoint;

use super::args::ServeArgs;
use super::ports;
use crate::home::Home;
use crate::logging::LogSettings;
use crate::remote::default_port;
use crate::settings::{self, Problem, RawArgs, Surroundings};

type Checker<'a> = settings::Checker<'a, ServeArgs>;

/// What passed the checks.
#[derive(Debug, Clone)]
pub struct Checked {
    pub home: Home,
    /// To be tried in this order; never empty.
    pub listen: Vec<SocketAddr>,
    pub tls: Option<Files>,
    pub hosts: Vec<Endpoint>,
    pub allow_insecure_network: bool,
    pub kept: bool,
    pub simulated_sites: bool,
    pub log: LogSettings,
    pub warnings: Vec<String>,
}

pub fn check(raw: &RawArgs<ServeArgs>, around: &Surroundings<'_>) -> Result<Checked, Vec<Problem>> {
    let mut checker = Checker::new(raw, around);
    let args = &raw.args;
    let home = home(&mut checker);
    let tls = tls(&mut checker);
    let given = listen(&mut checker);
    let hosts = hosts(&mut checker);
    let open = given.filter(|address| !address.ip().to_canonical().is_loopback());
    let plaintext = tls.is_none() && args.certificate.is_none() && !args.allow_insecure_network;
    if let Some(address) = open.filter(|_| plaintext) {
        let what = format!("{address} can be reached from a network, and tokens would travel in plain text");
        let advice = "give --certificate, --key and --trust; where the whole network is trusted, add \
                      --allow-insecure-network";
        checker.refuse(&["listen"], what, advice);
    }
    let log = checker.log(&args.log);
    let Checker { problems, warnings, .. } = checker;
    let Some(home) = home.filter(|_| problems.is_empty()) else { return Err(problems) };
    let usual = SocketAddr::new(Ipv4Addr::LOCALHOST.into(), default_port());
    let listen = given.map_or_else(|| ports(&home, usual), |address| vec![address]);
    let ServeArgs { allow_insecure_network, kept, simulated_sites, .. } = *args;
    Ok(Checked { home, listen, tls, hosts, allow_insecure_network, kept, simulated_sites, log, warnings })
}

fn home(checker: &mut Checker<'_>) -> Option<Home> {
    let given = checker.raw.args.home.as_deref().map(|path| checker.resolve("home", path));
    let home = Home::find(given.as_deref());
    if home.is_none() {
        checker.refuse(&["home"], "there is no place for the server's home", "give --home DIR, or set HOME");
    }
    home
}

fn listen(checker: &mut Checker<'_>) -> Option<SocketAddr> {
    let given = checker.raw.args.listen.as_deref()?;
    let alone = given.parse::<IpAddr>().map(|ip| SocketAddr::new(ip, default_port()));
    match alone.or_else(|_| given.replace("localhost:", "127.0.0.1:").parse()) {
        Ok(address) => Some(address),
        Err(_) => {
            let what = format!("--listen cannot be {given:?}");
            checker.refuse(&["listen"], what, "give an IP address and a port, as in 127.0.0.1:7766 or [::]:7766");
            None
        }
    }
}

fn tls(checker: &mut Checker<'_>) -> Option<Files> {
    let args = &checker.raw.args;
    let given = [("certificate", &args.certificate), ("key", &args.key), ("trust", &args.trust)];
    let missing: Vec<&str> = given.iter().filter(|(_, value)| value.is_none()).map(|(name, _)| *name).collect();
    if missing.len() == given.len() {
        return None;
    }
    if !missing.is_empty() {
        let what = format!("TLS needs {}, too", settings::dashed(&missing));
        checker.refuse(&missing, what, "give all three; `trellis pki` makes them");
    }
    let mut file = |name: &str, value: &Option<String>| {
        checker.file(name, value.as_deref(), "give the path of a readable PEM file")
    };
    let [certificate, key, ca] = given.map(|(name, value)| file(name, value));
    Some(Files { certificate: certificate?, key: key?, ca: ca? })
}

fn hosts(checker: &mut Checker<'_>) -> Vec<Endpoint> {
    let mut hosts = Vec::new();
    for host in &checker.raw.args.host {
        match Endpoint::parse(host) {
            Ok(host) => hosts.push(host),
            Err(why) => {
                let what = format!("--host cannot be {host:?}: {why}");
                checker.refuse(&["host"], what, "give a name or an address, as in trellis.example.org");
            }
        }
    }
    hosts
}
