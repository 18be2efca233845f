//! TLS of federations: each has an authority, stored apart from its SuperLink, and a certificate that is renewed before it expires.
//! The SuperLink reloads changed files by itself.

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

/// File names in the directory of a SuperLink, as `trellis pki` uses them.
const CERTIFICATE: &str = "server.pem";
const KEY: &str = "server.key";
const TRUST: &str = "ca.crt";

/// The TLS files of a part; `None` without TLS.
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

/// The authorities that nodes and users of a federation trust; `None` without TLS.
pub fn trust(home: &Home, federation: &Name, tls: &Tls) -> Option<PathBuf> {
    match tls {
        Tls::Off => None,
        Tls::Auto => Some(home.tls(federation).join(TRUST)),
        Tls::Files { trust, .. } => Some(trust.clone()),
    }
}

/// Creates the files of `tls: auto`, and checks the others. Blocks on file operations.
pub fn prepare(home: &Home, federation: &Name, spec: &Spec) -> Result<(), String> {
    match spec {
        Spec::Coordinator(spec) if spec.tls == Tls::Auto => issue(home, federation, &spec.endpoints.advertise),
        Spec::Coordinator(_) => Ok(()),
        Spec::Node(spec) => match trust(home, federation, &spec.tls) {
            Some(trust) if !trust.exists() => Err(format!(
                "the certificate of the authority, {}, does not exist: if the coordinator is on another machine, copy it \
                 from there, or set security.tls to its path",
                trust.display()
            )),
            _ => Ok(()),
        },
    }
}

/// Issues the certificate if there is none, or if it is due for renewal.
pub fn issue(home: &Home, federation: &Name, advertised: &[String]) -> Result<(), String> {
    let now = now_unix();
    let directory = home.authority(federation);
    let mut authority = open(home, federation, now)?;
    let mut endpoints = Endpoint::localhost().to_vec();
    for name in advertised {
        let endpoint = Endpoint::parse(name).map_err(|why| format!("a certificate cannot contain {name}: {why}"))?;
        if !endpoints.contains(&endpoint) {
            endpoints.push(endpoint);
        }
    }
    let out = home.tls(federation);
    let order = Order { endpoints, out, validity: LEAF_VALIDITY, name: None, only_if_due: true };
    let text = |error: trellis_pki::Error| {
        format!("cannot issue a certificate from {}: {}", directory.display(), explain(&error))
    };
    let issued = authority.issue(&order, now).map_err(text)?;
    if let Some(reason) = &issued.reason {
        tracing::info!(%federation, "issued a new certificate: {}", reason.words());
    }
    Ok(())
}

fn open(home: &Home, federation: &Name, now: UnixSeconds) -> Result<Authority, String> {
    let directory = home.authority(federation);
    let above = directory.parent().unwrap_or(&directory);
    private::make_directory(above).map_err(|error| error.to_string())?;
    let text = |error: trellis_pki::Error| {
        format!("cannot open the authority in {}: {}", directory.display(), explain(&error))
    };
    // An authority that a crash left incomplete is created again; a damaged one is an error.
    let make = |opening| Authority::init(&directory, federation.as_str(), CA_VALIDITY, now).map_err(|_| opening);
    Authority::open(&directory).or_else(make).map_err(text)
}

/// Deletes the authority and its certificates, once the federation has no parts.
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
