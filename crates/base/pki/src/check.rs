//! Checks whether a SuperLink can serve with given files. Reports all problems at once.
//!
//! [`read`] reads files, [`examine`] is pure.

mod chain;
mod read;
#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::crypto::aws_lc_rs::sign::any_supported_type;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::{CertifiedKey, SigningKey};

pub use self::read::{Contents, KeyBeside, Stamp, read};
use crate::certificate::{Certificate, KeyId};
use crate::endpoint::Endpoint;
use crate::span::{Span, roughly};
use crate::{UnixSeconds, date, pem};
use trellis_diagnostic::{Diagnostic, Severity};

/// A certificate with less time left gets a warning: its renewal has failed.
const SOON: Span = Span::hours(24);
/// The usual name of an authority's key, which counts as one whatever its content.
const CA_KEY: &str = "ca.key";
/// Permissions of users other than owner and group.
const OTHERS: u32 = 0o007;

/// The three files of a TLS server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Files {
    /// The server's certificate and intermediate certificates.
    pub certificate: PathBuf,
    pub key: PathBuf,
    /// The authorities that clients trust.
    pub ca: PathBuf,
}

/// Files that pass the check.
#[derive(Debug, Clone)]
pub struct Checked {
    pub certificates: Vec<CertificateDer<'static>>,
    pub ca: Vec<CertificateDer<'static>>,
    /// The first of the certificates, read.
    pub leaf: Certificate,
    /// Warnings.
    pub warnings: Vec<Diagnostic>,
    key: Arc<PrivateKeyDer<'static>>,
    certified: Arc<CertifiedKey>,
}

impl Checked {
    pub fn key(&self) -> &PrivateKeyDer<'static> {
        &self.key
    }

    /// Certificate and key as rustls serves them.
    pub fn certified_key(&self) -> Arc<CertifiedKey> {
        self.certified.clone()
    }
}

/// Reads and examines. Apps write to `state_dir`, and so may read it.
pub fn check(
    files: &Files,
    endpoints: &[Endpoint],
    state_dir: Option<&Path>,
    now: UnixSeconds,
) -> Result<Checked, Vec<Diagnostic>> {
    examine(&read(files, state_dir), endpoints, now)
}

/// Decides. Listening everywhere (`0.0.0.0`, `::`) is no endpoint.
pub fn examine(contents: &Contents, endpoints: &[Endpoint], now: UnixSeconds) -> Result<Checked, Vec<Diagnostic>> {
    let mut examiner = Examiner { files: &contents.files, now, problems: Vec::new() };
    let chain = examiner.certificates(&contents.files.certificate, &contents.certificate);
    let key = examiner.key(contents);
    let authorities = examiner.certificates(&contents.files.ca, &contents.ca);

    if let Some(leaf) = chain.as_deref().and_then(<[_]>::first) {
        examiner.names(leaf, endpoints);
        examiner.usage(leaf);
    }
    for certificate in chain.iter().flatten() {
        examiner.validity(&contents.files.certificate, certificate, Severity::Error);
    }
    if let Some(authorities) = &authorities {
        examiner.authorities(authorities);
        examiner.exposure(contents, authorities, key.as_ref().map(|(_, signing)| signing.as_ref()));
    }
    if let (Some(chain), Some(authorities)) = (&chain, &authorities) {
        examiner.chain(chain, authorities);
    }
    if let (Some(chain), Some((_, signing))) = (&chain, &key) {
        examiner.pair(chain, signing.as_ref());
    }

    let mut problems = examiner.problems;
    problems.sort_by_key(|problem| problem.severity);
    let (Some(chain), Some((key, signing)), Some(authorities)) = (chain, key, authorities) else {
        return Err(problems);
    };
    if problems.iter().any(|problem| problem.severity == Severity::Error) {
        return Err(problems);
    }
    let certificates: Vec<_> = chain.iter().map(|one| one.der().clone()).collect();
    Ok(Checked {
        ca: authorities.iter().map(|one| one.der().clone()).collect(),
        leaf: chain.into_iter().next().expect("a chain has a first certificate"),
        warnings: problems,
        key: Arc::new(key),
        certified: Arc::new(CertifiedKey::new(certificates.clone(), signing)),
        certificates,
    })
}

/// The public key that belongs to a private one, if it is of a kind that can be used.
pub fn public_key(key: &PrivateKeyDer<'_>) -> Option<Vec<u8>> {
    Some(any_supported_type(key).ok()?.public_key()?.to_vec())
}

struct Examiner<'a> {
    files: &'a Files,
    now: UnixSeconds,
    problems: Vec<Diagnostic>,
}

impl Examiner<'_> {
    fn error(&mut self, path: &Path, what: impl Into<String>, advice: impl Into<String>) {
        self.problems.push(Diagnostic::in_file(path, what, advice));
    }

    fn warn(&mut self, path: &Path, what: impl Into<String>, advice: impl Into<String>) {
        self.problems.push(Diagnostic { severity: Severity::Warning, ..Diagnostic::in_file(path, what, advice) });
    }

    fn text<'c>(&mut self, path: &Path, content: &'c Result<Vec<u8>, String>) -> Option<&'c [u8]> {
        match content {
            Ok(text) => Some(text),
            Err(why) => {
                self.error(path, format!("it cannot be read: {why}"), "give the path of a readable PEM file");
                None
            }
        }
    }

    /// The certificates of a file; never an empty list.
    fn certificates(&mut self, path: &Path, content: &Result<Vec<u8>, String>) -> Option<Vec<Certificate>> {
        let text = self.text(path, content)?;
        let all = match pem::certificates(text) {
            Ok(all) => all,
            Err(problem) => {
                self.error(path, problem.what, problem.advice);
                return None;
            }
        };
        match all.iter().map(Certificate::read).collect() {
            Ok(read) => Some(read),
            Err(why) => {
                self.error(path, why, "copy the file again, or issue it again");
                None
            }
        }
    }

    fn key(&mut self, contents: &Contents) -> Option<(PrivateKeyDer<'static>, Arc<dyn SigningKey>)> {
        let path = &contents.files.key;
        let text = self.text(path, &contents.key)?;
        if contents.key_mode & OTHERS != 0 {
            let what =
                format!("every user of this machine can get at the key (mode {:04o})", contents.key_mode & 0o7777);
            self.warn(path, what, format!("chmod 600 {}", path.display()));
        }
        let key = match pem::private_key(text) {
            Ok(key) => key,
            Err(problem) => {
                self.error(path, problem.what, problem.advice);
                return None;
            }
        };
        match any_supported_type(&key) {
            Ok(signing) => Some((key, signing)),
            Err(_) => {
                let what = "the private key is damaged, or of a kind that cannot be used";
                self.error(
                    path,
                    what,
                    "use an RSA key of 2048 to 8192 bits, ECDSA on P-256, P-384 or P-521, or Ed25519",
                );
                None
            }
        }
    }

    fn validity(&mut self, path: &Path, certificate: &Certificate, severity: Severity) {
        let Certificate { subject, not_before, not_after, is_ca, .. } = certificate;
        let renew =
            if *is_ca { "replace the CA: trellis pki rotate" } else { "issue it again: trellis pki issue --renew" };
        let (severity, what, advice) = if self.now < *not_before {
            let what = format!("{subject} is not valid before {}", date(*not_before));
            (severity, what, "check this machine's clock, or issue it again")
        } else if self.now > *not_after {
            (severity, format!("{subject} expired on {}", date(*not_after)), renew)
        } else if certificate.left_s(self.now) < SOON.seconds() {
            let left = roughly(certificate.left_s(self.now));
            (Severity::Warning, format!("{subject} expires in {left}, on {}", date(*not_after)), renew)
        } else {
            return;
        };
        self.problems.push(Diagnostic { severity, ..Diagnostic::in_file(path, what, advice) });
    }

    fn names(&mut self, leaf: &Certificate, endpoints: &[Endpoint]) {
        let path = &self.files.certificate.clone();
        if leaf.names.is_empty() {
            let what = "it names no host (subjectAltName): clients do not accept it, whatever its common name is";
            return self.error(path, what, "issue it again, with every endpoint that clients use");
        }
        let missing: Vec<String> = endpoints
            .iter()
            .filter(|endpoint| !endpoint.is_wildcard() && !chain::covers(leaf, endpoint))
            .map(Endpoint::to_string)
            .collect();
        if !missing.is_empty() {
            let what = format!("it does not cover {}; it covers {}", missing.join(", "), leaf.names.join(", "));
            self.error(path, what, "issue it again, with every endpoint that clients use");
        }
    }

    fn usage(&mut self, leaf: &Certificate) {
        if !leaf.may_sign_handshakes {
            let what = "its key usage lacks digitalSignature: Flower's clients refuse it";
            self.error(&self.files.certificate.clone(), what, "issue it again, with keyUsage digitalSignature or none");
        }
    }

    fn authorities(&mut self, authorities: &[Certificate]) {
        let path = &self.files.ca.clone();
        for authority in authorities {
            if !authority.is_ca || !authority.may_sign_certificates {
                let what = format!("{} is not the certificate of an authority (CA)", authority.subject);
                self.error(path, what, "give the certificate of the CA here: was it exchanged with the server's?");
            }
            // Only one of several may have expired; the check of the chain finds the relevant one.
            self.validity(path, authority, Severity::Warning);
        }
    }

    fn chain(&mut self, chain: &[Certificate], authorities: &[Certificate]) {
        match chain::verify(chain, authorities, self.now) {
            Ok(root) if root.is_valid_at(self.now) => {}
            Ok(root) => {
                let what = format!("{}, the root of the certificate, is not valid now", root.subject);
                self.error(&self.files.ca.clone(), what, "rotate the CA, and issue the certificate again");
            }
            Err(Some(chain::Fault { what, advice })) => self.error(&self.files.certificate.clone(), what, advice),
            // A certificate of the chain is not valid now, which is reported already.
            Err(None) => {}
        }
    }

    fn pair(&mut self, chain: &[Certificate], key: &dyn SigningKey) {
        let public = key.public_key();
        let belongs = |certificate: &Certificate| public.as_deref().is_some_and(|key| key == certificate.public_key());
        if belongs(&chain[0]) {
            return;
        }
        let path = self.files.key.clone();
        if chain.iter().any(belongs) {
            let what = "the key belongs to a later certificate of the chain, not to the first";
            return self.error(
                &self.files.certificate.clone(),
                what,
                "put the server's certificate first, its issuer next",
            );
        }
        let what = format!("the key does not belong to the certificate {}", chain[0].subject);
        let advice = format!("give the key that {} was issued for", self.files.certificate.display());
        self.error(&path, what, advice);
    }

    /// Reports a key of an authority that apps could read.
    fn exposure(&mut self, contents: &Contents, authorities: &[Certificate], own: Option<&dyn SigningKey>) {
        let owner = |key: &[u8]| authorities.iter().find(|authority| authority.public_key() == key);
        let advice = "move it to a directory of another user, or off this machine; to sign, use trellis pki";
        if let Some(authority) = own.and_then(|key| key.public_key()).and_then(|key| owner(&key)) {
            let what =
                format!("it is the key of the authority {}: an app could read it and sign anything", authority.subject);
            let advice = "let an authority issue a certificate for this server: trellis pki init, trellis pki issue";
            self.error(&contents.files.key, what, advice);
        }
        for beside in &contents.keys_beside {
            let known = beside.public_key.as_deref().and_then(owner);
            if let Some(authority) = known {
                let what = format!("the key of the authority {} is here: an app could read it", authority.subject);
                self.error(&beside.path, what, advice);
            } else if beside.path.file_name().is_some_and(|name| name == CA_KEY) {
                self.error(&beside.path, "by its name, this is the key of an authority: an app could read it", advice);
            }
        }
    }
}

impl Contents {
    /// As if read from files that only their owner can read, without other files beside them.
    pub fn from_text(files: Files, certificate: &str, key: &str, ca: &str) -> Contents {
        Contents {
            files,
            certificate: Ok(certificate.as_bytes().to_vec()),
            key: Ok(key.as_bytes().to_vec()),
            ca: Ok(ca.as_bytes().to_vec()),
            key_mode: 0o600,
            keys_beside: Vec::new(),
            stamps: [None; 3],
        }
    }

    /// The problems without file names.
    pub(crate) fn fingerprint(&self) -> [u8; 32] {
        let mut all = Vec::new();
        for content in [&self.certificate, &self.key, &self.ca] {
            match content {
                Ok(bytes) => {
                    all.extend_from_slice(&(bytes.len() as u64).to_be_bytes());
                    all.extend_from_slice(bytes);
                }
                Err(_) => all.extend_from_slice(&u64::MAX.to_be_bytes()),
            }
        }
        trellis_digest::sha256(&all)
    }
}

/// The authority that signs for `leaf`, by the issuer's name.
pub(crate) fn issued_by(leaf: &Certificate, authorities: &[Certificate]) -> Option<KeyId> {
    authorities.iter().find(|authority| authority.subject == leaf.issuer).map(Certificate::key_id)
}
