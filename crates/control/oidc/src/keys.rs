//! The keys with which a provider signs (RFC 7517). Keys for other purposes and of other kinds are ignored.

use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_FIXED, RSA_PKCS1_2048_8192_SHA256, RsaPublicKeyComponents, UnparsedPublicKey,
};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::Deserialize;

use crate::id_token::Rejected;

/// A provider has a few.
const MAX_KEYS: usize = 64;
/// Before an uncompressed point of a curve.
const UNCOMPRESSED: u8 = 4;

#[derive(Debug, Clone, Default)]
pub struct Keys(Vec<Key>);

#[derive(Debug, Clone)]
struct Key {
    id: Option<String>,
    material: Material,
}

#[derive(Debug, Clone)]
enum Material {
    Rsa { n: Vec<u8>, e: Vec<u8> },
    P256 { point: Vec<u8> },
}

#[derive(Deserialize)]
struct KeySet {
    keys: Vec<serde_json::Value>,
}

#[derive(Deserialize)]
struct Jwk {
    kty: String,
    kid: Option<String>,
    #[serde(rename = "use")]
    purpose: Option<String>,
    alg: Option<String>,
    crv: Option<String>,
    n: Option<String>,
    e: Option<String>,
    x: Option<String>,
    y: Option<String>,
}

impl Keys {
    pub fn parse(json: &[u8]) -> Result<Keys, serde_json::Error> {
        let set: KeySet = serde_json::from_slice(json)?;
        let readable = set.keys.into_iter().filter_map(|key| Key::of(serde_json::from_value(key).ok()?));
        Ok(Keys(readable.take(MAX_KEYS).collect()))
    }

    /// Whether the signature is of the key with this id; without an id, of the only key for the algorithm.
    pub fn verify(&self, algorithm: &str, id: Option<&str>, signed: &[u8], signature: &[u8]) -> Result<(), Rejected> {
        let mut fitting = self.0.iter().filter(|key| key.algorithm() == algorithm);
        let key = match id {
            Some(id) => fitting.find(|key| key.id.as_deref() == Some(id)),
            None => fitting.next().filter(|_| fitting.next().is_none()),
        };
        let key = key.ok_or(Rejected::UnknownKey)?;
        let verified = match &key.material {
            Material::Rsa { n, e } => {
                RsaPublicKeyComponents { n, e }.verify(&RSA_PKCS1_2048_8192_SHA256, signed, signature)
            }
            Material::P256 { point } => {
                UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, point).verify(signed, signature)
            }
        };
        verified.map_err(|_| Rejected::Signature)
    }
}

impl Key {
    fn of(key: Jwk) -> Option<Key> {
        let bytes = |text: Option<String>| URL_SAFE_NO_PAD.decode(text?).ok();
        let material = match (key.kty.as_str(), key.crv.as_deref()) {
            ("RSA", _) => Material::Rsa { n: bytes(key.n)?, e: bytes(key.e)? },
            ("EC", Some("P-256")) => {
                Material::P256 { point: [vec![UNCOMPRESSED], bytes(key.x)?, bytes(key.y)?].concat() }
            }
            _ => return None,
        };
        let parsed = Key { id: key.kid, material };
        let for_signatures = key.purpose.is_none_or(|purpose| purpose == "sig");
        (for_signatures && key.alg.is_none_or(|alg| alg == parsed.algorithm())).then_some(parsed)
    }

    fn algorithm(&self) -> &'static str {
        match self.material {
            Material::Rsa { .. } => "RS256",
            Material::P256 { .. } => "ES256",
        }
    }
}
