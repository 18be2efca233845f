//! Verifies the chain from a server's certificate to a trusted authority, and explains failures.
//! The verification itself is that of webpki.

use std::time::Duration;

use rustls::crypto::aws_lc_rs::default_provider;
use rustls::pki_types::{CertificateDer, UnixTime};
use webpki::{EndEntityCert, Error, KeyUsage, anchor_from_trusted_cert};

use crate::UnixSeconds;
use crate::certificate::Certificate;
use crate::endpoint::Endpoint;

/// Why the verification failed, and the advice.
pub struct Fault {
    pub what: String,
    pub advice: String,
}

/// The authority at the end of the chain; or the failure; or `None` if only the time is wrong.
pub fn verify<'a>(
    chain: &[Certificate],
    authorities: &'a [Certificate],
    now: UnixSeconds,
) -> Result<&'a Certificate, Option<Fault>> {
    let (leaf, rest) = chain.split_first().ok_or(None)?;
    let end = EndEntityCert::try_from(leaf.der()).map_err(|error| Some(explain(&error, leaf, chain, authorities)))?;
    let mut anchors = Vec::new();
    for authority in authorities {
        let anchor = anchor_from_trusted_cert(authority.der());
        anchors.push(anchor.map_err(|error| Some(explain(&error, leaf, chain, authorities)))?);
    }
    let between: Vec<CertificateDer<'_>> = rest.iter().map(|one| one.der().clone()).collect();
    // An expired certificate is reported already; the rest of the chain is worth checking, too.
    let at = now.clamp(leaf.not_before, leaf.not_after.max(leaf.not_before));
    let at = UnixTime::since_unix_epoch(Duration::from_secs(u64::try_from(at).unwrap_or(0)));
    let algorithms = default_provider().signature_verification_algorithms.all;
    let path = end.verify_for_usage(algorithms, &anchors, &between, at, KeyUsage::server_auth(), None, None);
    match path {
        Ok(path) => {
            let index = anchors.iter().position(|anchor| anchor == path.anchor());
            index.and_then(|index| authorities.get(index)).ok_or(None)
        }
        Err(Error::CertExpired { .. } | Error::CertNotValidYet { .. }) => Err(None),
        Err(error) => Err(Some(explain(&error, leaf, chain, authorities))),
    }
}

/// Whether a client that connects to `endpoint` accepts the names in `leaf`.
pub fn covers(leaf: &Certificate, endpoint: &Endpoint) -> bool {
    let (Ok(end), Some(name)) = (EndEntityCert::try_from(leaf.der()), endpoint.server_name()) else { return false };
    end.verify_is_valid_for_subject_name(&name).is_ok()
}

fn explain(error: &Error, leaf: &Certificate, chain: &[Certificate], authorities: &[Certificate]) -> Fault {
    let issuer_is_here = chain.iter().skip(1).chain(authorities).any(|one| one.subject == leaf.issuer);
    let (what, advice) = match error {
        Error::CaUsedAsEndEntity => (
            format!("its first certificate, {}, is one of an authority (CA), not of a server", leaf.subject),
            "put the server's certificate first; one that signed itself must be replaced: trellis pki init, issue",
        ),
        Error::UnknownIssuer | Error::InvalidSignatureForPublicKey if issuer_is_here => (
            format!("it says that {} issued it, but the authority of that name did not sign it", leaf.issuer),
            "give the CA certificate that was current when it was issued, or issue it again",
        ),
        Error::UnknownIssuer => (
            format!("{} issued it, which is neither in this file nor in the CA file", leaf.issuer),
            "append the missing certificate to this file if it is an intermediate, else give the right CA file",
        ),
        Error::RequiredEkuNotFoundContext(_) | Error::EmptyEkuExtension => (
            "its extended key usage does not allow a server (serverAuth)".to_owned(),
            "issue it again, with extendedKeyUsage serverAuth or none",
        ),
        Error::PathLenConstraintViolated | Error::EndEntityUsedAsCa | Error::NameConstraintViolation => (
            format!("an authority on its way to the root was not allowed to sign it ({error})"),
            "have it issued by an authority that may sign for these names",
        ),
        Error::UnsupportedCertVersion => (
            "a certificate is of an old version of X.509 (1 or 2) that clients do not accept".to_owned(),
            "issue it again as version 3, with subjectAltName",
        ),
        error if is_algorithm(error) => (
            "a signature in the chain is of a kind that clients do not accept (SHA-1, RSA below 2048 bits?)".to_owned(),
            "issue it again with SHA-256 or better, and RSA of 2048 bits or more, or ECDSA",
        ),
        other => (
            format!("its chain to the CA cannot be verified ({other})"),
            "issue it again; `openssl verify -CAfile CA FILE` may say more",
        ),
    };
    Fault { what, advice: advice.to_owned() }
}

fn is_algorithm(error: &Error) -> bool {
    matches!(
        error,
        Error::UnsupportedSignatureAlgorithmContext(_) | Error::UnsupportedSignatureAlgorithmForPublicKeyContext(_)
    )
}
