//! Checks the settings of a server together, and reports all problems.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use trellis_api::Home;
use trellis_diagnostic::Diagnostic;
use trellis_logging::LogSettings;
use trellis_pki::Files;
use trellis_pki::endpoint::Endpoint;
use trellis_server::SignOnSettings;

use super::ports;
use super::table::SERVER;
use crate::remote::default_port;
use crate::settings::{self, Given, System, dashed};

const TLS_FILES: [&str; 3] = ["certificate", "key", "trust"];

pub type Checker<'a> = settings::Checker<'a, Checked>;

/// Checked settings.
#[derive(Debug, Clone, Default)]
pub struct Checked {
    pub home: Home,
    /// To be tried in this order; never empty after the checks.
    pub listen: Vec<SocketAddr>,
    pub tls: Option<Files>,
    pub hosts: Vec<Endpoint>,
    pub allow_insecure_network: bool,
    pub kept: bool,
    pub simulated_sites: bool,
    pub log: LogSettings,
    pub sign_on: Option<SignOnSettings>,
    pub warnings: Vec<String>,
}

pub fn check(given: &Given, system: &System<'_>) -> Result<Checked, Vec<Diagnostic>> {
    let mut checker = Checker::new(&SERVER, given, system, Checked::default());
    checker.plaintext();
    let (mut checked, warnings) = checker.finish()?;
    if checked.listen.is_empty() {
        checked.listen = ports(&checked.home, SocketAddr::new(Ipv4Addr::LOCALHOST.into(), default_port()));
    }
    Ok(Checked { warnings, ..checked })
}

impl Checker<'_> {
    fn plaintext(&mut self) {
        let open = self.checked.listen.iter().find(|address| !address.ip().to_canonical().is_loopback());
        let plaintext = !self.is_given("certificate") && !self.checked.allow_insecure_network;
        if let Some(address) = open.filter(|_| plaintext) {
            let what = format!("{address} is reachable from a network, where tokens would travel in plain text");
            let advice = "give --certificate, --key and --trust; where the whole network is trusted, add \
                          --allow-insecure-network";
            self.refuse(&["listen"], what, advice);
        }
    }

    pub(super) fn home(&mut self) {
        let given = self.text("home").map(|path| self.resolve("home", path));
        match Home::find(given.as_deref()) {
            Some(home) => self.checked.home = home,
            None => {
                let what = "there is no directory for the server's home";
                self.refuse(&["home"], what, "give --home DIR, or set HOME");
            }
        }
    }

    pub(super) fn listen(&mut self) {
        let Some(given) = self.text("listen") else { return };
        let alone = given.parse::<IpAddr>().map(|ip| SocketAddr::new(ip, default_port()));
        match alone.or_else(|_| given.replace("localhost:", "127.0.0.1:").parse()) {
            Ok(address) => self.checked.listen = vec![address],
            Err(_) => {
                let what = format!("--listen cannot be {given:?}");
                self.refuse(&["listen"], what, "give an IP address and a port, as in 127.0.0.1:7766 or [::]:7766");
            }
        }
    }

    pub(super) fn tls(&mut self) {
        let missing: Vec<&str> = TLS_FILES.into_iter().filter(|name| !self.is_given(name)).collect();
        if !missing.is_empty() && missing.len() < TLS_FILES.len() {
            let what = format!("TLS requires {}, too", dashed(&missing));
            self.refuse(&missing, what, "give all three; `trellis pki` creates them");
        }
        let files = TLS_FILES.map(|name| self.file(name, "give the path of a readable PEM file"));
        if let [Some(certificate), Some(key), Some(ca)] = files {
            self.checked.tls = Some(Files { certificate, key, ca });
        }
    }

    pub(super) fn hosts(&mut self) {
        for host in self.given.list("host") {
            match Endpoint::parse(host) {
                Ok(host) => self.checked.hosts.push(host),
                Err(why) => {
                    let what = format!("--host cannot be {host:?}: {why}");
                    self.refuse(&["host"], what, "give a name or an address, as in trellis.example.org");
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::path::Path;

    use super::*;
    use crate::settings::Flags;
    use crate::settings::given::{Outside, gather};
    use crate::settings::scan::scan;

    fn checked(line: &str) -> Result<Checked, Vec<String>> {
        let flags = Flags::new("trellis server", &SERVER);
        let arguments: Vec<_> = line.split_whitespace().map(Into::into).collect();
        let outside = Outside { environment: &BTreeMap::new(), read_file: &|_| Ok(String::new()), base: None };
        let system = System {
            current_dir: Path::new("/here"),
            home: None,
            state_home: None,
            unreadable: &|_| None,
            unwritable: &|_| None,
            read: &|_| Err("no such file".to_owned()),
        };
        let checked = check(&gather(scan(&arguments, &flags), &flags, &outside), &system);
        checked.map_err(|problems| problems.into_iter().map(|problem| problem.what).collect())
    }

    #[test]
    fn a_server_has_several_names() {
        let names = checked("--home h --host a.example --host b.example,::1").map(|checked| checked.hosts);
        let expected = ["a.example", "b.example", "::1"].map(|name| Endpoint::parse(name).expect("a name"));
        assert_eq!(names.as_deref(), Ok(expected.as_slice()));
    }

    #[test]
    fn single_sign_on_needs_an_issuer_a_client_and_a_group() {
        let all = "--home h --oidc-issuer https://login.example.org/dex --oidc-client-id t";
        let checked = self::checked(&format!("{all} --oidc-role a=b=runner --url https://t.example.org/")).unwrap();
        let sign_on = checked.sign_on.expect("it is on");
        assert_eq!(
            (sign_on.name.as_str(), sign_on.url.as_deref()),
            ("login.example.org", Some("https://t.example.org"))
        );
        assert_eq!(sign_on.rules.roles, [("a=b".to_owned(), trellis_api::Role::Runner)]);
        assert_eq!(checked.hosts, [Endpoint::parse("t.example.org").unwrap()]);
        for (line, problems) in [
            ("--home h --oidc-role a=admin", 1),
            (all, 1),
            ("--home h --oidc-issuer http://login.example.org", 3),
            (&format!("{all} --oidc-role a --oidc-role =admin --oidc-role a=boss"), 3),
            (&format!("{all} --oidc-role a=admin --oidc-confirm soon --url https://x/y"), 2),
        ] {
            assert_eq!(self::checked(line).map(drop).map_err(|found| found.len()), Err(problems), "{line}");
        }
    }

    #[test]
    fn tokens_leave_this_machine_only_with_tls_or_a_second_flag() {
        let tls = "--certificate c --key k --trust t";
        for (line, refused) in [
            ("--listen 127.0.0.1:1".to_owned(), false),
            ("--listen 0.0.0.0:1".to_owned(), true),
            ("--listen 0.0.0.0:1 --allow-insecure-network".to_owned(), false),
            (format!("--listen 0.0.0.0:1 {tls}"), false),
        ] {
            assert_eq!(checked(&format!("--home h {line}")).is_err(), refused, "{line}");
        }
        let missing = checked("--home h --certificate c").expect_err("two files are missing");
        assert_eq!(missing, ["TLS requires --key, --trust, too"]);
    }
}
