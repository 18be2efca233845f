//! Certificates for a test: an authority and leaves that it signs, with or without faults.

use std::path::PathBuf;
use std::sync::Arc;

use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, date_time_ymd};
use tempfile::TempDir;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::aws_lc_rs::default_provider;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};

pub struct Authority {
    issuer: Issuer<'static, KeyPair>,
    certificate: CertificateDer<'static>,
}

impl Authority {
    pub fn new() -> Authority {
        let mut params = CertificateParams::new([]).expect("no names");
        params.distinguished_name.push(DnType::CommonName, "a test's authority");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().expect("a key");
        let certificate = params.self_signed(&key).expect("a certificate").der().clone();
        Authority { issuer: Issuer::new(params, key), certificate }
    }

    /// A file with this authority's certificate.
    pub fn bundle(&self, directory: &TempDir) -> PathBuf {
        let base64 = base64::Engine::encode(&base64::engine::general_purpose::STANDARD, &self.certificate);
        let path = directory.path().join("ca.pem");
        std::fs::write(&path, format!("-----BEGIN CERTIFICATE-----\n{base64}\n-----END CERTIFICATE-----\n"))
            .expect("a file");
        path
    }

    /// A server whose certificate has these names and this validity.
    pub fn server(&self, names: &[&str], years: std::ops::Range<i32>) -> TlsAcceptor {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let mut params = CertificateParams::new(names).expect("names");
        params.not_before = date_time_ymd(years.start, 1, 1);
        params.not_after = date_time_ymd(years.end, 1, 1);
        let key = KeyPair::generate().expect("a key");
        let leaf = params.signed_by(&key, &self.issuer).expect("a certificate").der().clone();
        let key = PrivateKeyDer::try_from(key.serialize_der()).expect("a key");
        let config = ServerConfig::builder_with_provider(Arc::new(default_provider()))
            .with_safe_default_protocol_versions()
            .expect("versions")
            .with_no_client_auth()
            .with_single_cert(vec![leaf], key)
            .expect("key and certificate match");
        TlsAcceptor::from(Arc::new(config))
    }
}
