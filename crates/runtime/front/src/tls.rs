//! TLS: checks and serves a certificate, and replaces it without closing connections.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard};

use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::{self, ServerConfig};
use trellis_clock::now_unix;
use trellis_diagnostic::{Diagnostic, joined};
use trellis_pki::{Checked, Endpoint, Files, Look, Reload, Served};

/// All problems of the certificate files.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    #[error("the certificate cannot be served:\n  {}", joined(.0, "\n  "))]
    Files(Vec<Diagnostic>),
    #[error("TLS cannot be set up")]
    Setup(#[from] rustls::Error),
}

/// The certificate in use.
#[derive(Clone)]
pub struct TlsSettings {
    pub(crate) acceptor: TlsAcceptor,
    served: Served,
    reload: Arc<Mutex<Reload>>,
    /// The leaf of the certificate in use.
    leaf: Arc<Mutex<Leaf>>,
}

#[derive(Default)]
struct Leaf {
    /// Unix time in seconds.
    expires_at: i64,
    names: Vec<String>,
}

impl TlsSettings {
    /// Reads and checks the files. `endpoints` are the names that clients use; apps can read `state_dir`.
    pub fn load(files: Files, endpoints: Vec<Endpoint>, state_dir: Option<PathBuf>) -> Result<TlsSettings, TlsError> {
        let (reload, checked) = Reload::start(files, endpoints, state_dir, now_unix()).map_err(TlsError::Files)?;
        let served = Served::new(&checked);
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_no_client_auth()
            .with_cert_resolver(Arc::new(served.clone()));
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        let settings = TlsSettings {
            acceptor: TlsAcceptor::from(Arc::new(config)),
            served,
            reload: Arc::new(Mutex::new(reload)),
            leaf: Arc::default(),
        };
        settings.note(&checked);
        Ok(settings)
    }

    /// Reloads the files if they changed. Files with problems are not served.
    pub fn reload_if_changed(&self) {
        match self.reload.lock().expect("no holder panics").look(now_unix()) {
            Look::Unchanged => {}
            Look::New(checked) => {
                self.served.replace(&checked);
                self.note(&checked);
                tracing::info!(until = trellis_pki::date(checked.leaf.not_after), "serving a new certificate");
            }
            Look::Refused(problems) => {
                let problems = joined(&problems, "\n  ");
                tracing::error!("the new certificate is refused, the old one stays in use:\n  {problems}");
            }
        }
    }

    fn note(&self, checked: &Checked) {
        for warning in &checked.warnings {
            tracing::warn!("{warning}");
        }
        *self.leaf() = Leaf { expires_at: checked.leaf.not_after, names: checked.leaf.names.clone() };
    }

    fn leaf(&self) -> MutexGuard<'_, Leaf> {
        self.leaf.lock().expect("no holder panics")
    }

    /// Whether the certificate in use covers this lower-case name.
    pub fn covers(&self, name: &str) -> bool {
        let is = |pattern: &String| match (pattern.strip_prefix("*."), name.split_once('.')) {
            (Some(domain), Some((_, rest))) => rest.eq_ignore_ascii_case(domain),
            _ => name.eq_ignore_ascii_case(pattern),
        };
        self.leaf().names.iter().any(is)
    }

    /// Returns the end of validity of the served certificate in Unix seconds.
    pub fn expires_at(&self) -> i64 {
        self.leaf().expires_at
    }
}
