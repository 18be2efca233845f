//! Creates an authority, and leaves of one, as data. Callers store them: [`crate::authority`] in a directory,
//! [`crate::keyring`] wherever names map to bytes.

use rustls::pki_types::PrivateKeyDer;

use crate::certificate::Certificate;
use crate::check::{Contents, Files, examine};
use crate::delivery::Delivery;
use crate::endpoint::Endpoint;
use crate::mint::{self, MAX_COMMON_NAME_CHARS, Signer, Window};
use crate::span::Span;
use crate::{Error, UnixSeconds, pem};

/// Clients' clocks may be behind by this much.
pub const CLOCK_SKEW: Span = Span::hours(1);
const DEFAULT_NAME: &str = "superlink";

/// A leaf to create.
#[derive(Debug, Clone, Copy)]
pub struct Wish<'a> {
    /// All that clients use, the local ones included.
    pub endpoints: &'a [Endpoint],
    /// The common name; by default the first endpoint.
    pub name: Option<&'a str>,
    /// It ends with its authority at the latest.
    pub validity: Span,
}

/// An unused authority: its certificate, and its key in PEM.
pub fn new_authority(name: &str, validity: Span, now: UnixSeconds) -> Result<(Certificate, String), Error> {
    let window = Window { from: now - CLOCK_SKEW.seconds(), until: now + validity.seconds() };
    let minted = mint::authority(name, window)?;
    let certificate = Certificate::read(&minted.certificate).map_err(|_| rcgen::Error::CouldNotParseCertificate)?;
    Ok((certificate, minted.key_pem))
}

/// A leaf that `signing` signs with its `key`, beside the bundle `trust`. `places` names the three in problems.
pub fn new_leaf(
    signing: &Certificate,
    key: PrivateKeyDer<'static>,
    wish: Wish<'_>,
    trust: String,
    places: Files,
    now: UnixSeconds,
) -> Result<Delivery, Error> {
    let first = wish.endpoints.first().map(Endpoint::to_string).filter(|name| name.len() <= MAX_COMMON_NAME_CHARS);
    let name = wish.name.map(str::to_owned).or(first).unwrap_or_else(|| DEFAULT_NAME.to_owned());
    let until = (now + wish.validity.seconds()).min(signing.not_after);
    let window = Window { from: now - CLOCK_SKEW.seconds(), until };
    let minted = mint::leaf(&Signer { certificate: signing, key }, &name, wish.endpoints, window)?;
    let chain = pem::encode_certificates([&minted.certificate]);
    let delivery = Delivery { chain, key: minted.key_pem, trust };
    // Verifies that a SuperLink would accept the leaf, which includes that the key is that of the authority.
    let contents = Contents::from_text(places, &delivery.chain, &delivery.key, &delivery.trust);
    examine(&contents, wish.endpoints, now).map_err(Error::Refused)?;
    Ok(delivery)
}
