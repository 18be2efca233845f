//! Proof Key for Code Exchange (RFC 7636), with S256 only: a code is worth nothing without the verifier of who asked for it.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use trellis_digest::sha256;

/// Characters of a verifier (RFC 7636, 4.1).
const VERIFIER_CHARS: std::ops::RangeInclusive<usize> = 43..=128;
/// A SHA-256 in base64.
const CHALLENGE_CHARS: usize = 43;

pub fn challenge(verifier: &str) -> String {
    URL_SAFE_NO_PAD.encode(sha256(verifier.as_bytes()))
}

pub fn is_challenge(text: &str) -> bool {
    text.len() == CHALLENGE_CHARS && URL_SAFE_NO_PAD.decode(text).is_ok()
}

/// Whether the verifier belongs to the challenge. Both are hashes or random: comparing them tells nothing by its time.
pub fn fits(verifier: &str, challenge: &str) -> bool {
    VERIFIER_CHARS.contains(&verifier.len()) && self::challenge(verifier) == challenge
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The example of RFC 7636, appendix B.
    #[test]
    fn a_verifier_fits_its_challenge_only() {
        let (verifier, challenge) =
            ("dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk", "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM");
        assert!(is_challenge(challenge) && fits(verifier, challenge));
        assert!(!fits(challenge, verifier) && !fits("short", &self::challenge("short")));
        assert!(!is_challenge("") && !is_challenge(&"=".repeat(43)));
    }
}
