//! The certificate in use, which can be exchanged: open connections keep the old one.

use std::fmt;
use std::sync::{Arc, PoisonError, RwLock};

use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;

use crate::check::Checked;

/// For `ServerConfig::with_cert_resolver`. Clones share one certificate.
#[derive(Clone)]
pub struct Served(Arc<RwLock<Arc<CertifiedKey>>>);

impl Served {
    pub fn new(first: &Checked) -> Served {
        Served(Arc::new(RwLock::new(first.certified_key())))
    }

    /// Handshakes from now on get this one.
    pub fn replace(&self, next: &Checked) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = next.certified_key();
    }
}

impl ResolvesServerCert for Served {
    fn resolve(&self, _hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.0.read().unwrap_or_else(PoisonError::into_inner).clone())
    }
}

impl fmt::Debug for Served {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Served")
    }
}
