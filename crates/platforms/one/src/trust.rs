//! Trusted certificate authorities: those of the system, and further ones.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tokio_rustls::rustls::crypto::aws_lc_rs::default_provider;
use tokio_rustls::rustls::pki_types::CertificateDer;
use tokio_rustls::rustls::pki_types::pem::{self, PemObject};
use tokio_rustls::rustls::{self, ClientConfig, RootCertStore};

use crate::Endpoint;

/// Authorities that verify a server's certificate.
#[derive(Clone)]
pub struct Trust {
    config: Arc<ClientConfig>,
    authorities: usize,
}

#[derive(Debug, thiserror::Error)]
pub enum TrustError {
    #[error("{path} cannot be read as PEM")]
    Unreadable { path: PathBuf, source: pem::Error },
    #[error("{path} contains no certificate")]
    NoCertificate { path: PathBuf },
    #[error("certificate {number} of {path} is damaged")]
    Damaged { path: PathBuf, number: usize, source: rustls::Error },
}

impl Trust {
    /// The system's authorities. A minimal VM may have none, and then no `https` endpoint is trusted.
    pub fn system() -> Trust {
        Trust::new(system_roots())
    }

    /// The system's authorities if the endpoint uses `https`.
    pub fn system_for(endpoint: &Endpoint) -> Trust {
        match endpoint.tls {
            true => Trust::system(),
            false => Trust::new(RootCertStore::empty()),
        }
    }

    /// The system's authorities and those of a PEM file.
    pub fn system_and(path: &Path) -> Result<Trust, TrustError> {
        let unreadable = |source| TrustError::Unreadable { path: path.to_owned(), source };
        let mut roots = system_roots();
        let before = roots.len();
        for (index, certificate) in CertificateDer::pem_file_iter(path).map_err(unreadable)?.enumerate() {
            let damaged = |source| TrustError::Damaged { path: path.to_owned(), number: index + 1, source };
            roots.add(certificate.map_err(unreadable)?).map_err(damaged)?;
        }
        if roots.len() == before {
            return Err(TrustError::NoCertificate { path: path.to_owned() });
        }
        Ok(Trust::new(roots))
    }

    fn new(roots: RootCertStore) -> Trust {
        let authorities = roots.len();
        let mut config = ClientConfig::builder_with_provider(Arc::new(default_provider()))
            .with_safe_default_protocol_versions()
            .expect("the provider has suites for the default versions of TLS")
            .with_root_certificates(roots)
            .with_no_client_auth();
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Trust { config: Arc::new(config), authorities }
    }

    pub(crate) fn config(&self) -> Arc<ClientConfig> {
        self.config.clone()
    }
}

fn system_roots() -> RootCertStore {
    let mut roots = RootCertStore::empty();
    // rustls cannot parse some old certificates of a system's store; they are skipped.
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    roots
}

impl fmt::Debug for Trust {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Trust({} authorities)", self.authorities)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_without_authorities_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("ca.pem");
        let damaged = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
        for (content, expected) in
            [("hello", "FILE contains no certificate"), (damaged, "certificate 1 of FILE is damaged")]
        {
            std::fs::write(&path, content).unwrap();
            let said = Trust::system_and(&path).unwrap_err().to_string();
            assert_eq!(said.replace(&path.display().to_string(), "FILE"), expected);
        }
        assert!(Trust::system_and(Path::new("/nowhere/ca.pem")).is_err());
    }
}
