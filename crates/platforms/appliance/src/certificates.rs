//! Certificates of a SuperLink in its VM: issued and renewed by a local authority whose key only the agent can read, or given
//! by an operator and validated. A new address means a new leaf certificate, never a new authority.

use std::io;
use std::net::IpAddr;
use std::path::Path;

use trellis_diagnostic::Diagnostic;
use trellis_pki::authority::{Authority, CA_VALIDITY, LEAF_VALIDITY, Order};
use trellis_pki::{Endpoint, Files, UnixSeconds};

use crate::disk::{self, Owner};
use crate::failure::{Code, Failure};
use crate::place::Place;
use crate::settings::{Certificates, Name};

const AUTHORITY: &str = "Trellis appliance CA";

/// Certificates in use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Provided {
    /// PEM of all trusted authorities; two during a rotation.
    pub trust: String,
    /// The certificate differs from the one before.
    pub is_new: bool,
}

/// All names and addresses of the certificate. The advertised address comes first.
pub fn names(advertised: Option<IpAddr>, addresses: &[IpAddr], extra: &[Name]) -> Vec<Endpoint> {
    let mut names: Vec<Endpoint> = Vec::new();
    let extra = extra.iter().filter_map(|name| match name {
        Name::Ip(ip) => Some(Endpoint::Ip(*ip)),
        Name::Dns(name) => Endpoint::parse(name).ok(),
    });
    let all = advertised.iter().chain(addresses).map(|ip| Endpoint::Ip(*ip)).chain(extra).chain(Endpoint::localhost());
    for name in all {
        if !names.contains(&name) && !name.is_wildcard() {
            names.push(name);
        }
    }
    names
}

/// Provides the files, and returns the authorities. Idempotent.
pub fn provide(
    certificates: &Certificates,
    advertised: Option<IpAddr>,
    addresses: &[IpAddr],
    place: &Place,
    owner: Option<Owner>,
    now: UnixSeconds,
) -> Result<Provided, Failure> {
    let out = place.served(certificates);
    // The programs must traverse the directory, whatever the umask is, and own its contents.
    disk::make_directory(out.parent().unwrap_or(&out), 0o755, None).map_err(|error| failed(&error))?;
    match certificates {
        Certificates::Own { extra } => {
            let names = names(advertised, addresses, extra);
            let issued = issue(names, &out, place, now).map_err(|error| failed(&error))?;
            disk::give_all(&out, owner).map_err(|error| failed(&error))?;
            Ok(issued)
        }
        Certificates::Operator { ca, certificate, key } => {
            let texts = [("ca.crt", ca, 0o644), ("server.pem", certificate, 0o644), ("server.key", key, 0o600)];
            let endpoints: Vec<Endpoint> = advertised.iter().map(|ip| Endpoint::Ip(*ip)).collect();
            install(&texts, &out, &endpoints, owner, now)
        }
    }
}

fn failed(error: &dyn std::error::Error) -> Failure {
    let mut what = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        what = format!("{what}: {error}");
        source = error.source();
    }
    Failure::new(Code::TlsSetupFailed, what)
}

fn issue(
    endpoints: Vec<Endpoint>,
    out: &Path,
    place: &Place,
    now: UnixSeconds,
) -> Result<Provided, trellis_pki::Error> {
    let directory = place.authority();
    let mut authority = match directory.join("state.json").exists() {
        true => Authority::open(&directory)?,
        false => Authority::init(&directory, AUTHORITY, CA_VALIDITY, now)?,
    };
    let order = Order { endpoints, out: out.to_owned(), validity: LEAF_VALIDITY, name: None, only_if_due: true };
    let issued = authority.issue(&order, now)?;
    if let Some(reason) = &issued.reason {
        tracing::info!(reason = %reason.words(), "the SuperLink has a new certificate");
    }
    Ok(Provided { trust: authority.trust_bundle()?, is_new: issued.reason.is_some() })
}

/// Installs the operator's files after all of them are validated together.
fn install(
    texts: &[(&str, &String, u32); 3],
    out: &Path,
    endpoints: &[Endpoint],
    owner: Option<Owner>,
    now: UnixSeconds,
) -> Result<Provided, Failure> {
    let write = |directory: &Path| -> io::Result<bool> {
        disk::make_directory(directory, 0o700, owner)?;
        let mut is_new = false;
        for (name, text, mode) in texts {
            is_new |= disk::write(&directory.join(name), text.as_bytes(), *mode, owner)?;
        }
        Ok(is_new)
    };
    let trial = out.with_extension("new");
    write(&trial).map_err(|error| failed(&error))?;
    let at = |name: &str| trial.join(name);
    let files = Files { certificate: at("server.pem"), key: at("server.key"), ca: at("ca.crt") };
    let checked = trellis_pki::check(&files, endpoints, None, now);
    let _ = std::fs::remove_dir_all(&trial);
    let checked = checked.map_err(|problems| Failure::new(Code::TlsSetupFailed, summary(&problems)))?;
    for warning in &checked.warnings {
        tracing::warn!("{warning}");
    }
    let is_new = write(out).map_err(|error| failed(&error))?;
    Ok(Provided { trust: texts[0].1.clone(), is_new })
}

fn summary(problems: &[Diagnostic]) -> String {
    problems
        .iter()
        .map(|problem| format!("{} (to do: {})", problem.what, problem.advice))
        .collect::<Vec<_>>()
        .join("; ")
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: UnixSeconds = 1_800_000_000;
    const DAY: i64 = 86_400;

    fn ip(text: &str) -> IpAddr {
        text.parse().expect("an address")
    }

    fn make(root: &Path, addresses: &[&str], now: UnixSeconds) -> Provided {
        let addresses: Vec<IpAddr> = addresses.iter().map(|text| ip(text)).collect();
        let place = Place::new(root, "/bin/trellis");
        let issue = Certificates::Own { extra: vec![Name::Dns("link.example.org".into())] };
        provide(&issue, addresses.first().copied(), &addresses, &place, None, now).expect("certificates")
    }

    #[test]
    fn another_address_is_another_leaf_of_the_same_authority() {
        let root = tempfile::tempdir().expect("a directory");
        let first = make(root.path(), &["10.0.0.5", "2001:db8::5"], NOW);
        assert!(first.is_new);
        assert!(!make(root.path(), &["10.0.0.5", "2001:db8::5"], NOW + DAY).is_new, "it is valid for long");
        let moved = make(root.path(), &["10.0.0.6"], NOW + DAY);
        assert!(moved.is_new);
        assert_eq!(moved.trust, first.trust);
        assert!(make(root.path(), &["10.0.0.6"], NOW + 31 * DAY).is_new, "it is renewed before it expires");
    }

    #[test]
    fn names_are_unique_and_contain_no_wildcard() {
        let extra = [Name::Dns("a.example".into()), Name::Ip(ip("10.0.0.5"))];
        let names = names(Some(ip("10.0.0.5")), &[ip("10.0.0.5"), ip("0.0.0.0"), ip("fd00::2")], &extra);
        let summary: Vec<String> = names.iter().map(Endpoint::to_string).collect();
        assert_eq!(summary[..3], ["10.0.0.5", "fd00::2", "a.example"]);
        assert_eq!(summary.len(), 6);
    }

    #[test]
    fn an_operators_files_are_taken_together_or_not_at_all() {
        let root = tempfile::tempdir().expect("a directory");
        make(root.path(), &["10.0.0.5"], NOW);
        let place = Place::new(root.path(), "/bin/trellis");
        let served = place.served(&Certificates::Own { extra: Vec::new() });
        let read = |name: &str| std::fs::read_to_string(served.join(name)).expect("the file exists");
        let (ca, certificate, key) = (read("ca.crt"), read("server.pem"), read("server.key"));
        let good = Certificates::Operator { ca: ca.clone(), certificate: certificate.clone(), key };
        let provided = provide(&good, Some(ip("10.0.0.5")), &[], &place, None, NOW).expect("valid certificates");
        assert_eq!((provided.trust.as_str(), provided.is_new), (ca.as_str(), true));
        let elsewhere = provide(&good, Some(ip("10.9.9.9")), &[], &place, None, NOW).expect_err("not covered");
        assert_eq!(elsewhere.code, Code::TlsSetupFailed);
        let other = tempfile::tempdir().expect("a directory");
        make(other.path(), &["10.0.0.5"], NOW);
        let wrong = std::fs::read_to_string(other.path().join("var/lib/trellis/tls/own/server.key")).expect("made");
        let bad = Certificates::Operator { ca, certificate, key: wrong };
        assert!(provide(&bad, Some(ip("10.0.0.5")), &[], &place, None, NOW).is_err());
        let kept = std::fs::read_to_string(place.served(&bad).join("server.key")).expect("the valid key stays");
        assert_eq!(kept, read("server.key"));
    }
}
