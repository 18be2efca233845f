//! ID tokens: whether one was signed by the provider, is meant for us, and counts now.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::claims::Claims;
use crate::keys::Keys;

/// Longer tokens are refused unread.
const MAX_TOKEN_BYTES: usize = 32 << 10;
/// Clocks of two machines may differ by this much.
const CLOCK_SKEW_S: f64 = 30.0;

/// Why an identity is not admitted. The texts are for the caller and the audit log.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Rejected {
    #[error("the ID token is malformed")]
    Malformed,
    #[error("the ID token is signed with an algorithm other than RS256 and ES256")]
    Algorithm,
    #[error("the ID token is signed with a key that the provider does not have")]
    UnknownKey,
    #[error("the signature of the ID token is wrong")]
    Signature,
    #[error("the ID token is of another issuer")]
    Issuer,
    #[error("the ID token is for another client (wrong audience)")]
    Audience,
    #[error("the ID token has expired")]
    Expired,
    #[error("the ID token is not valid yet")]
    NotYetValid,
    #[error("the ID token belongs to another login (wrong nonce)")]
    Nonce,
    #[error("the ID token has no usable claim {0:?} to name its user")]
    NoName(String),
    #[error("the e-mail address is not verified by the provider")]
    Unverified,
    #[error("no group of the user has a role here (missing group)")]
    NoGroup,
    #[error("the ID token is of another user than the session")]
    OtherUser,
}

/// What a token must say.
#[derive(Debug, Clone, Copy)]
pub struct Expected<'a> {
    pub issuer: &'a str,
    pub client_id: &'a str,
    /// `None`: the token comes from no login of ours with a nonce.
    pub nonce: Option<&'a str>,
}

#[derive(Deserialize)]
struct Header {
    alg: String,
    kid: Option<String>,
    /// Extensions that must be understood; we understand none.
    crit: Option<Value>,
}

#[derive(Deserialize)]
struct Registered {
    iss: String,
    aud: Audience,
    azp: Option<String>,
    exp: f64,
    nbf: Option<f64>,
    nonce: Option<String>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Audience {
    One(String),
    Many(Vec<String>),
}

/// The claims of a genuine token.
pub fn verify(token: &str, keys: &Keys, expected: &Expected<'_>, now_s: f64) -> Result<Claims, Rejected> {
    if token.len() > MAX_TOKEN_BYTES {
        return Err(Rejected::Malformed);
    }
    let (signed, signature) = token.rsplit_once('.').ok_or(Rejected::Malformed)?;
    let (header, payload) = signed.split_once('.').ok_or(Rejected::Malformed)?;
    let header: Header = decoded(header)?;
    if header.crit.is_some() {
        return Err(Rejected::Malformed);
    }
    if !matches!(header.alg.as_str(), "RS256" | "ES256") {
        return Err(Rejected::Algorithm);
    }
    let signature = URL_SAFE_NO_PAD.decode(signature).map_err(|_| Rejected::Malformed)?;
    keys.verify(&header.alg, header.kid.as_deref(), signed.as_bytes(), &signature)?;
    check(&decoded(payload)?, expected, now_s)?;
    decoded(payload).map(Claims)
}

fn check(claims: &Registered, expected: &Expected<'_>, now_s: f64) -> Result<(), Rejected> {
    let is_ours = |audience: &String| audience == expected.client_id;
    let for_us = match &claims.aud {
        Audience::One(audience) => is_ours(audience),
        // With several audiences the token names the client that asked for it.
        Audience::Many(several) => several.iter().any(is_ours) && (several.len() == 1 || claims.azp.is_some()),
    };
    let checks = [
        (claims.iss == expected.issuer, Rejected::Issuer),
        (for_us && claims.azp.as_ref().is_none_or(is_ours), Rejected::Audience),
        (now_s < claims.exp + CLOCK_SKEW_S, Rejected::Expired),
        (claims.nbf.is_none_or(|from| from <= now_s + CLOCK_SKEW_S), Rejected::NotYetValid),
        (expected.nonce.is_none_or(|nonce| claims.nonce.as_deref() == Some(nonce)), Rejected::Nonce),
    ];
    checks.into_iter().find_map(|(holds, rejected)| (!holds).then_some(rejected)).map_or(Ok(()), Err)
}

fn decoded<T: DeserializeOwned>(part: &str) -> Result<T, Rejected> {
    let json = URL_SAFE_NO_PAD.decode(part).map_err(|_| Rejected::Malformed)?;
    serde_json::from_slice(&json).map_err(|_| Rejected::Malformed)
}
