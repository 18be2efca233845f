//! The trusted authorities of a caller: a PEM bundle, or those of the system.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::SystemTime;

use tokio_rustls::rustls::crypto::aws_lc_rs::default_provider;
use tokio_rustls::rustls::pki_types::CertificateDer;
use tokio_rustls::rustls::pki_types::pem::{self, PemObject};
use tokio_rustls::rustls::{self, ClientConfig, RootCertStore};

/// Authorities, ready to check a SuperLink's certificate.
#[derive(Clone)]
pub struct Trust {
    /// Their origin, in words.
    origin: String,
    config: Arc<ClientConfig>,
    followed: Option<Arc<Followed>>,
}

/// A bundle that may be exchanged while it is in use, as in the rotation of an authority.
struct Followed {
    path: PathBuf,
    /// The trusted authorities, and the version of the file when it was read.
    kept: Mutex<(Option<Stamp>, Arc<ClientConfig>)>,
}

/// A file that is another has another.
type Stamp = (SystemTime, u64);

fn stamp(path: &Path) -> Option<Stamp> {
    let found = std::fs::metadata(path).ok()?;
    Some((found.modified().ok()?, found.len()))
}

#[derive(Debug, thiserror::Error)]
pub enum TrustError {
    #[error("{path} cannot be read as PEM")]
    Unreadable { path: PathBuf, source: pem::Error },
    #[error("{path} has no certificate in it")]
    NoCertificate { path: PathBuf },
    #[error("certificate {number} of {path} is damaged")]
    Damaged { path: PathBuf, number: usize, source: rustls::Error },
    #[error("the system has no certificates of authorities{}", because(why))]
    NoSystemStore { why: String },
}

fn because(why: &str) -> String {
    if why.is_empty() { String::new() } else { format!(": {why}") }
}

impl Trust {
    /// Trusts only the authorities in a PEM file. Each new connection uses the current content of the file, or the last valid
    /// one.
    pub fn bundle(path: &Path) -> Result<Trust, TrustError> {
        let seen = stamp(path);
        let trust = Trust::new(path.display().to_string(), Trust::roots(path)?);
        let kept = Mutex::new((seen, Arc::clone(&trust.config)));
        Ok(Trust { followed: Some(Arc::new(Followed { path: path.to_owned(), kept })), ..trust })
    }

    fn roots(path: &Path) -> Result<RootCertStore, TrustError> {
        let unreadable = |source| TrustError::Unreadable { path: path.to_owned(), source };
        let mut roots = RootCertStore::empty();
        for (index, certificate) in CertificateDer::pem_file_iter(path).map_err(unreadable)?.enumerate() {
            let damaged = |source| TrustError::Damaged { path: path.to_owned(), number: index + 1, source };
            roots.add(certificate.map_err(unreadable)?).map_err(damaged)?;
        }
        if roots.is_empty() {
            return Err(TrustError::NoCertificate { path: path.to_owned() });
        }
        Ok(roots)
    }

    /// Trusts only the authorities in a PEM text. `origin` names its source.
    pub fn pem(origin: &str, text: &[u8]) -> Result<Trust, TrustError> {
        let place = PathBuf::from(origin);
        let mut roots = RootCertStore::empty();
        for (index, certificate) in CertificateDer::pem_slice_iter(text).enumerate() {
            let unreadable = |source| TrustError::Unreadable { path: place.clone(), source };
            let damaged = |source| TrustError::Damaged { path: place.clone(), number: index + 1, source };
            roots.add(certificate.map_err(unreadable)?).map_err(damaged)?;
        }
        if roots.is_empty() {
            return Err(TrustError::NoCertificate { path: place });
        }
        Ok(Trust::new(origin.to_owned(), roots))
    }

    /// Trusts the authorities of the system. Respects SSL_CERT_FILE and SSL_CERT_DIR.
    pub fn system() -> Result<Trust, TrustError> {
        let found = rustls_native_certs::load_native_certs();
        let mut roots = RootCertStore::empty();
        // A system's store may hold old certificates that rustls does not read; the others still count.
        let (usable, _) = roots.add_parsable_certificates(found.certs);
        if usable == 0 {
            let why = found.errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ");
            return Err(TrustError::NoSystemStore { why });
        }
        Ok(Trust::new("the system".to_owned(), roots))
    }

    /// Trusts no authority; for the detection of TLS only.
    pub(crate) fn nobody() -> Trust {
        Trust::new("nobody".to_owned(), RootCertStore::empty())
    }

    fn new(origin: String, roots: RootCertStore) -> Trust {
        let config = ClientConfig::builder_with_provider(Arc::new(default_provider()))
            .with_safe_default_protocol_versions()
            .expect("the provider has suites for the default versions of TLS")
            .with_root_certificates(roots)
            .with_no_client_auth();
        Trust { origin, config: Arc::new(config), followed: None }
    }

    fn current(&self) -> Arc<ClientConfig> {
        let Some(followed) = &self.followed else { return Arc::clone(&self.config) };
        let mut kept = followed.kept.lock().expect("the lock is not poisoned");
        let found = stamp(&followed.path);
        if found.is_some() && found != kept.0 {
            kept.0 = found;
            // An invalid file is ignored, and the last valid content stays trusted.
            if let Ok(roots) = Trust::roots(&followed.path) {
                kept.1 = Trust::new(self.origin.clone(), roots).config;
            }
        }
        Arc::clone(&kept.1)
    }

    pub(crate) fn origin(&self) -> &str {
        &self.origin
    }

    /// For a connection with one of these protocols, in order of preference. Sessions are resumed in any case.
    pub(crate) fn config(&self, protocols: &[&[u8]]) -> Arc<ClientConfig> {
        let mut config = ClientConfig::clone(&self.current());
        config.alpn_protocols = protocols.iter().map(|protocol| protocol.to_vec()).collect();
        Arc::new(config)
    }
}

impl fmt::Debug for Trust {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Trust({})", self.origin)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(content: &str) -> String {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("ca.pem");
        std::fs::write(&path, content).unwrap();
        Trust::bundle(&path).unwrap_err().to_string().replace(&path.display().to_string(), "FILE")
    }

    #[test]
    fn a_bundle_without_authorities_is_refused() {
        let key = "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n";
        let damaged = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
        let cut = "-----BEGIN CERTIFICATE-----\nAAAA\n";
        for (content, expected) in [
            ("", "FILE has no certificate in it"),
            ("hello", "FILE has no certificate in it"),
            (key, "FILE has no certificate in it"),
            (damaged, "certificate 1 of FILE is damaged"),
            (cut, "FILE cannot be read as PEM"),
        ] {
            assert_eq!(refusal(content), expected, "{content}");
        }
        let gone = Trust::bundle(Path::new("/nowhere/ca.pem")).unwrap_err();
        assert!(matches!(gone, TrustError::Unreadable { .. }), "{gone}");
    }
}
