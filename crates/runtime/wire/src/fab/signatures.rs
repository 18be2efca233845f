//! Ed25519 signatures of apps.
//!
//! A signature covers the bytes of a bundle, so the bundle cannot contain it. The signatures are nevertheless a file in
//! the app's directory, so that every tool that packs the app delivers them, including `flwr run`. The SuperLink
//! removes the file from the bundle (`detach`) and serves the rest, which was signed, with Flower's `verifications`.

use std::collections::BTreeMap;
use std::io::{Cursor, Read};

use aws_lc_rs::signature::{ED25519, Ed25519KeyPair, UnparsedPublicKey};
use base64::Engine as _;
use base64::alphabet::URL_SAFE;
use base64::engine::DecodePaddingMode;
use base64::engine::general_purpose::{GeneralPurpose, GeneralPurposeConfig};
use serde::{Deserialize, Serialize};
use trellis_digest::sha256;

use super::{App, BadFab, Bundle, bad};

/// The signatures file in the directory of an app.
pub const SIGNATURES_FILE: &str = "app-signatures.toml";
/// Key in Flower's `verifications` that is not a signature. A non-empty value says that the SuperLink serves
/// signatures.
pub const VALID_LICENSE: &str = "valid_license";
const MAX_FILE_BYTES: u64 = 64 << 10;
const HEAD: &str =
    "# Signatures of this app, written by `trellis app sign`. Any change of the app makes them invalid.\n";

/// Without padding, as Flower writes it. Flower's decoder accepts both.
const BASE64_URL: GeneralPurpose = GeneralPurpose::new(
    &URL_SAFE,
    GeneralPurposeConfig::new().with_encode_padding(false).with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// One entry of Flower's `verifications` (JSON there, TOML in the file).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Signature {
    signature: String,
    /// Seconds since 1970, covered by the signature. Signatures do not expire, as in Flower.
    signed_at: u64,
}

impl Signature {
    pub fn new(key: &Ed25519KeyPair, bundle: &[u8], signed_at: u64) -> Signature {
        Signature { signature: BASE64_URL.encode(key.sign(&signed_bytes(bundle, signed_at))), signed_at }
    }

    /// Returns whether the owner of the key signed this bundle.
    pub fn verify(&self, public_key: &[u8], bundle: &[u8]) -> bool {
        let Ok(signature) = BASE64_URL.decode(&self.signature) else { return false };
        UnparsedPublicKey::new(&ED25519, public_key).verify(&signed_bytes(bundle, self.signed_at), &signature).is_ok()
    }
}

fn signed_bytes(bundle: &[u8], signed_at: u64) -> Vec<u8> {
    [signed_at.to_be_bytes().as_slice(), &sha256(bundle)].concat()
}

/// Signatures by signer.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Signatures(pub BTreeMap<String, Signature>);

impl Signatures {
    pub fn parse(text: &str) -> Result<Signatures, BadFab> {
        let wrong = |why: &str| bad(format!("{SIGNATURES_FILE}: {why}; sign the app again with `trellis app sign`"));
        let entries: BTreeMap<String, Signature> = toml::from_str(text).map_err(|error| wrong(error.message()))?;
        if entries.contains_key(VALID_LICENSE) {
            return Err(wrong("a signer cannot have the name \"valid_license\", which Flower reserves"));
        }
        Ok(Signatures(entries))
    }

    /// Returns the content of the signatures file.
    pub fn to_text(&self) -> String {
        format!("{HEAD}{}", toml::to_string(&self.0).expect("texts and numbers are TOML"))
    }

    /// Returns the entries of Flower's `verifications`.
    pub fn to_verifications(&self) -> BTreeMap<String, String> {
        let json = |signature| serde_json::to_string(signature).expect("texts and numbers are JSON");
        self.0.iter().map(|(name, signature)| (name.clone(), json(signature))).collect()
    }
}

/// Separates a bundle from its signatures. Returns `None` for an unsigned bundle, which is served unchanged.
pub fn detach(fab: &[u8]) -> Result<Option<(Bundle, Signatures)>, BadFab> {
    let mut archive = zip::ZipArchive::new(Cursor::new(fab)).map_err(|error| bad(format!("not a zip ({error})")))?;
    let Ok(file) = archive.by_name(SIGNATURES_FILE) else { return Ok(None) };
    let mut text = String::new();
    let read = file.take(MAX_FILE_BYTES + 1).read_to_string(&mut text);
    read.map_err(|error| bad(format!("{SIGNATURES_FILE} cannot be read ({error})")))?;
    if text.len() as u64 > MAX_FILE_BYTES {
        return Err(bad(format!("{SIGNATURES_FILE} is larger than {MAX_FILE_BYTES} bytes")));
    }
    let signatures = Signatures::parse(&text)?;
    Ok(Some((App::open(fab)?.without_signatures()?.bundle()?, signatures)))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use aws_lc_rs::signature::KeyPair as _;

    use super::*;

    const PROJECT: &str = "[project]\nname='app'\nversion='1.2'\n[tool.flwr.app]\npublisher='me'\n\
        [tool.flwr.app.components]\nserverapp='a.s:app'\nclientapp='a.c:app'\n";

    #[test]
    fn detaching_restores_the_signed_bundle() {
        let key = Ed25519KeyPair::from_seed_unchecked(&[7; 32]).unwrap();
        let directory = tempfile::tempdir().unwrap();
        fs::write(directory.path().join("pyproject.toml"), PROJECT).unwrap();
        fs::write(directory.path().join("a.py"), "app = None\n").unwrap();
        let bundle = |app: App| app.bundle().unwrap().fab.content;
        let app = || App::read(directory.path()).unwrap();

        let plain = bundle(app());
        assert!(!app().is_signed() && detach(&plain).unwrap().is_none());
        let signatures = Signatures([("ada".to_owned(), Signature::new(&key, &plain, 1_760_000_000))].into());
        fs::write(directory.path().join(SIGNATURES_FILE), signatures.to_text()).unwrap();
        assert!(app().is_signed() && bundle(app()) != plain);
        assert_eq!(bundle(app().without_signatures().unwrap()), plain);
        let (served, found) = detach(&bundle(app())).unwrap().unwrap();
        assert_eq!((&served.fab.content, &found), (&plain, &signatures));
        assert!(found.0["ada"].verify(key.public_key().as_ref(), &served.fab.content));

        // One changed byte.
        fs::write(directory.path().join("a.py"), "app = 0one\n").unwrap();
        let (served, found) = detach(&bundle(app())).unwrap().unwrap();
        assert!(!found.0["ada"].verify(key.public_key().as_ref(), &served.fab.content));
    }

    #[test]
    fn an_invalid_signatures_file_is_refused() {
        let entry = "signature = 'x'\nsigned_at = 1\n";
        assert!(Signatures::parse(&format!("[ada]\n{entry}")).is_ok());
        for (text, part) in [
            ("[ada]\nsignature = 'x'\n".to_owned(), "missing field `signed_at`"),
            (format!("[valid_license]\n{entry}"), "which Flower reserves"),
            ("= =".to_owned(), "app-signatures.toml: "),
        ] {
            let problem = Signatures::parse(&text).unwrap_err().to_string();
            assert!(problem.contains(part) && problem.ends_with("`trellis app sign`"), "{problem}");
        }
    }
}
