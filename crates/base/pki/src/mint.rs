//! Creates certificates: the wall around rcgen. Callers decide on the content.

use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyIdMethod,
    KeyPair, KeyUsagePurpose, PublicKeyData as _, SanType,
};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use time::OffsetDateTime;

use crate::certificate::{Certificate, KeyId};
use crate::endpoint::Endpoint;
use crate::{Error, UnixSeconds, pem};

/// P-384 like the keys of nodes, since it signs for the whole life of the authority.
const CA_KEY: &rcgen::SignatureAlgorithm = &rcgen::PKCS_ECDSA_P384_SHA384;
/// Signs each handshake; P-256 is several times faster there.
const LEAF_KEY: &rcgen::SignatureAlgorithm = &rcgen::PKCS_ECDSA_P256_SHA256;
/// X.509 ends a common name there.
pub const MAX_COMMON_NAME_CHARS: usize = 64;

/// From when until when a certificate is valid.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Window {
    pub from: UnixSeconds,
    pub until: UnixSeconds,
}

/// A new certificate and its key.
pub struct Minted {
    pub certificate: CertificateDer<'static>,
    pub key_pem: String,
}

/// An authority that can sign: its certificate, and its key.
pub struct Signer<'a> {
    pub certificate: &'a Certificate,
    pub key: PrivateKeyDer<'static>,
}

pub fn authority(name: &str, window: Window) -> Result<Minted, Error> {
    let key = KeyPair::generate_for(CA_KEY)?;
    let id = KeyId::of(&key.subject_public_key_info());
    let mut params = params(window)?;
    // Names of authorities are unique, because some clients find the issuer by its name alone.
    params.distinguished_name = common_name(&format!("{name} CA {id}"));
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    let certificate = params.self_signed(&key)?;
    Ok(minted(certificate, &key))
}

pub fn leaf(signer: &Signer<'_>, name: &str, endpoints: &[Endpoint], window: Window) -> Result<Minted, Error> {
    let key = KeyPair::generate_for(LEAF_KEY)?;
    let mut params = params(window)?;
    params.distinguished_name = common_name(name);
    params.subject_alt_names = endpoints.iter().map(alternative_name).collect::<Result<_, _>>()?;
    params.is_ca = IsCa::ExplicitNoCa;
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    params.use_authority_key_identifier_extension = true;
    let certificate = params.signed_by(&key, &issuer(signer)?)?;
    Ok(minted(certificate, &key))
}

/// The issuer for rcgen. Our authorities have a common name only, see [`authority`].
fn issuer(signer: &Signer<'_>) -> Result<Issuer<'static, KeyPair>, Error> {
    let key = KeyPair::from_der_and_sign_algo(&signer.key, CA_KEY)?;
    let name = signer.certificate.subject.strip_prefix("CN=").ok_or(rcgen::Error::CouldNotParseCertificate)?;
    let id = signer.certificate.subject_key_id().ok_or(rcgen::Error::CouldNotParseCertificate)?;
    let mut params = CertificateParams::default();
    params.distinguished_name = common_name(name);
    params.key_identifier_method = KeyIdMethod::PreSpecified(id.to_vec());
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
    Ok(Issuer::new(params, key))
}

fn params(window: Window) -> Result<CertificateParams, Error> {
    let moment = |at| OffsetDateTime::from_unix_timestamp(at).map_err(|_| Error::Mint(rcgen::Error::Time));
    let mut params = CertificateParams::default();
    params.not_before = moment(window.from)?;
    params.not_after = moment(window.until)?;
    Ok(params)
}

fn common_name(name: &str) -> DistinguishedName {
    let mut whole = DistinguishedName::new();
    whole.push(DnType::CommonName, name);
    whole
}

fn alternative_name(endpoint: &Endpoint) -> Result<SanType, rcgen::Error> {
    Ok(match endpoint {
        Endpoint::Ip(ip) => SanType::IpAddress(*ip),
        Endpoint::Name(name) => SanType::DnsName(name.as_str().try_into()?),
    })
}

fn minted(certificate: rcgen::Certificate, key: &KeyPair) -> Minted {
    let key = PrivatePkcs8KeyDer::from(key.serialize_der());
    Minted { certificate: certificate.der().clone(), key_pem: pem::encode("PRIVATE KEY", key.secret_pkcs8_der()) }
}
