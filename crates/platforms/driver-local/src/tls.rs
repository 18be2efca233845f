//! Certificates of federations: an authority for each, apart from its SuperLink, and a certificate that is renewed before it
//! ends. The SuperLink takes up new files by itself.

use std::io;
use std::path::PathBuf;

use trellis_clock::now_unix;
use trellis_files::private;
use trellis_pki::authority::{Authority, CA_VALIDITY, LEAF_VALIDITY, Order};
use trellis_pki::{Endpoint, UnixSeconds};
use trellis_plan::Spec;
use trellis_spec::{Name, Tls};

use crate::home::Home;
use crate::recipe::{ServedFiles, TlsFiles};

/// In the directory of a SuperLink, as `trellis pki` puts it there.
const CERTIFICATE: &str = "server.pem";
const KEY: &str = "server.key";
const TRUST: &str = "ca.crt";

/// Where a part finds what it needs for TLS; `None`: there is none.
pub fn files(home: &Home, federation: &Name, spec: &Spec) -> Option<TlsFiles> {
    match spec {
        Spec::Node(spec) => {
            let trust = trust(home, federation, &spec.tls)?;
            Some(TlsFiles { served: None, trust: Some(trust) })
        }
        Spec::Coordinator(spec) => {
            let trust = trust(home, federation, &spec.tls)?;
            let (certificate, key) = match &spec.tls {
                Tls::Files { certificate, key, .. } => (certificate.clone(), key.clone()),
                Tls::Auto | Tls::Off => (home.tls(federation).join(CERTIFICATE), home.tls(federation).join(KEY)),
            };
            Some(TlsFiles { served: Some(ServedFiles { certificate, key }), trust: Some(trust) })
        }
    }
}

/// Whom nodes and users of a federation trust; `None`: there is no TLS.
pub fn trust(home: &Home, federation: &Name, tls: &Tls) -> Option<PathBuf> {
    match tls {
        Tls::Off => None,
        Tls::Auto => Some(home.tls(federation).join(TRUST)),
        Tls::Files { trust, .. } => Some(trust.clone()),
    }
}

/// Sees to it that those files are there, as far as they are ours to make. Not for a thread that others wait for.
pub fn prepare(home: &Home, federation: &Name, spec: &Spec) -> Result<(), String> {
    match spec {
        Spec::Coordinator(spec) if spec.tls == Tls::Auto => issue(home, federation, &spec.endpoints.advertise),
        Spec::Coordinator(_) => Ok(()),
        Spec::Node(spec) => match trust(home, federation, &spec.tls) {
            Some(trust) if !trust.exists() => Err(format!(
                "the certificate of the authority, {}, is not there: where the coordinator is on another machine, copy it \
                 from there, or name it in security.tls",
                trust.display()
            )),
            _ => Ok(()),
        },
    }
}

/// Makes the certificate, or another where it is due.
pub fn issue(home: &Home, federation: &Name, advertised: &[String]) -> Result<(), String> {
    let now = now_unix();
    let directory = home.authority(federation);
    let mut authority = open(home, federation, now)?;
    let mut endpoints = Endpoint::localhost().to_vec();
    for name in advertised {
        let endpoint = Endpoint::parse(name).map_err(|why| format!("{name} cannot be in a certificate: {why}"))?;
        if !endpoints.contains(&endpoint) {
            endpoints.push(endpoint);
        }
    }
    let out = home.tls(federation);
    let order = Order { endpoints, out, validity: LEAF_VALIDITY, name: None, only_if_due: true };
    let told = |error: trellis_pki::Error| format!("no certificate from {}: {}", directory.display(), explain(&error));
    let issued = authority.issue(&order, now).map_err(told)?;
    if let Some(reason) = &issued.reason {
        tracing::info!(%federation, "a new certificate was made: {}", reason.words());
    }
    Ok(())
}

fn open(home: &Home, federation: &Name, now: UnixSeconds) -> Result<Authority, String> {
    let directory = home.authority(federation);
    let above = directory.parent().unwrap_or(&directory);
    private::make_directory(above).map_err(|error| error.to_string())?;
    let told =
        |error: trellis_pki::Error| format!("the authority in {} fails: {}", directory.display(), explain(&error));
    // Also one that a crash left half made is made anew; a damaged one is not.
    let make = |opening| Authority::init(&directory, federation.as_str(), CA_VALIDITY, now).map_err(|_| opening);
    Authority::open(&directory).or_else(make).map_err(told)
}

/// Takes away the authority and what it made. Nobody of the federation may be left.
pub fn remove(home: &Home, federation: &Name) -> io::Result<()> {
    for directory in [home.tls(federation), home.authority(federation)] {
        match std::fs::remove_dir_all(&directory) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
    }
    Ok(())
}

fn explain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        text = format!("{text}: {error}");
        source = error.source();
    }
    text
}
