//! Signatures of FABs by trusted entities. Keys are Ed25519 in OpenSSH format.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use trellis_wire::fab::{Signature, VALID_LICENSE};
use trellis_wire::proto;

use super::FabError;

const ALGORITHM: &str = "ssh-ed25519";
const KEY_BYTES: usize = 32;

/// If the node has trusted entities, one of them must have signed the FAB.
///
/// If the SuperLink serves no signatures, the FAB is refused, as in Flower 1.42; Flower 1.25 only logs a warning.
pub fn verify(fab: &proto::Fab, trusted: &BTreeMap<String, String>) -> Result<(), FabError> {
    if trusted.is_empty() {
        return Ok(());
    }
    let unverified = |why: String| Err(FabError::Unverified(why));
    if fab.verifications.get(VALID_LICENSE).is_none_or(String::is_empty) {
        return unverified("the SuperLink does not serve signatures of apps".to_owned());
    }
    let mut invalid = Vec::new();
    for (name, line) in trusted {
        let Some(entry) = fab.verifications.get(name) else { continue };
        let signature: Option<Signature> = serde_json::from_str(entry).ok();
        let key = ed25519_key(line).ok();
        match signature.zip(key).is_some_and(|(signature, key)| signature.verify(&key, &fab.content)) {
            true => return Ok(()),
            false => invalid.push(name.as_str()),
        }
    }
    if invalid.is_empty() {
        let names: Vec<&str> = trusted.keys().map(String::as_str).collect();
        return unverified(format!("no trusted entity signed it ({}); see `trellis app sign`", names.join(", ")));
    }
    let names = invalid.join(", ");
    unverified(format!(
        "the signature of {names} does not match: the app was changed after signing, or the key differs"
    ))
}

/// The key of a line `ssh-ed25519 AAAA... [comment]`, or why the line is invalid.
pub fn ed25519_key(line: &str) -> Result<[u8; KEY_BYTES], String> {
    let mut words = line.split_whitespace();
    let algorithm = words.next().unwrap_or_default();
    if algorithm != ALGORITHM {
        return Err(format!("the key is of type {algorithm:?}; {ALGORITHM:?} is required"));
    }
    let blob = STANDARD.decode(words.next().unwrap_or_default()).map_err(|_| "the key is not base64".to_owned())?;
    // Two length-prefixed strings: the algorithm again, and the key.
    let head =
        [&(ALGORITHM.len() as u32).to_be_bytes(), ALGORITHM.as_bytes(), &(KEY_BYTES as u32).to_be_bytes()].concat();
    let key = blob.strip_prefix(head.as_slice()).and_then(|key| key.try_into().ok());
    key.ok_or_else(|| format!("the data after {ALGORITHM:?} is not a key of that type"))
}

#[cfg(test)]
mod tests {
    use super::*;

    // Made by Flower 1.42 for the bundle, with a key of the bytes 0 to 31.
    const FAB: &[u8] = include_bytes!("../../testdata/tiny-1.42.fab");
    const SIGNER: &str = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAOhB7/zzhC+HXDdGOdLwJln5NYwm6UNXx3chmQSVTG4 someone";
    const OTHER: &str = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIHm1Vi6P5lT5QHixEuipi6eQH4U65pW+1+DjkQutBJZk";
    const SIGNED: &str = r#"{"signature":"_RQC1ZTBtRM4ml1IloH8AUf7rUN9LXbdfjzNVHxaZlbH9-NqsKCvnfud20Y-cA0toD9wV_MPbEjt7-ZYdoN7CQ","signed_at":1760000000}"#;

    fn map(entries: &[(&str, &str)]) -> BTreeMap<String, String> {
        entries.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn only_apps_signed_by_a_trusted_key_are_verified() {
        let later = &SIGNED.replace("1760000000", "1760000001");
        let padded = &SIGNED.replace("N7CQ", "N7CQ==");
        let licence = (VALID_LICENSE, "Valid");
        let none: &[(&str, &str)] = &[];
        type Pairs<'a> = &'a [(&'a str, &'a str)];
        let cases: [(Pairs, Pairs, bool, &str); 11] = [
            (none, none, true, "without trusted entities everything is executed"),
            (none, &[("a", SIGNER)], false, "no signature"),
            (&[licence, ("a", SIGNED)], &[("a", SIGNER)], true, "signed"),
            (&[licence, ("a", padded)], &[("a", SIGNER)], true, "signed, with padding"),
            (
                &[licence, ("x", "not JSON"), ("a", SIGNED)],
                &[("x", OTHER), ("a", SIGNER)],
                true,
                "one of two is enough",
            ),
            (&[("a", SIGNED)], &[("a", SIGNER)], false, "the SuperLink serves no signatures"),
            (&[(VALID_LICENSE, ""), ("a", SIGNED)], &[("a", SIGNER)], false, "the SuperLink serves no signatures"),
            (&[licence, ("a", SIGNED)], &[("a", OTHER)], false, "another key of that name"),
            (&[licence, ("b", SIGNED)], &[("a", SIGNER)], false, "the same key under another name"),
            (&[licence, ("a", later)], &[("a", SIGNER)], false, "another time was signed"),
            (&[licence, (VALID_LICENSE, SIGNED)], &[("a", SIGNER)], false, "a licence is not a signature"),
        ];
        for (verifications, trusted, good, what) in cases {
            let fab = proto::Fab { content: FAB.into(), verifications: map(verifications), ..Default::default() };
            assert_eq!(verify(&fab, &map(trusted)).is_ok(), good, "{what}");
        }
        let content = [FAB, b"x"].concat().into();
        let fab = proto::Fab { content, verifications: map(&[licence, ("a", SIGNED)]), ..Default::default() };
        assert!(verify(&fab, &map(&[("a", SIGNER)])).is_err(), "another FAB");
    }

    #[test]
    fn invalid_keys_are_refused() {
        let odd = [
            "",
            "ssh-rsa AAAA",
            "ssh-ed25519",
            "ssh-ed25519 !",
            "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAOhB7/zzhC+HXDdGOdLwJln5NYwm6UNXx3chmQSVTE=",
            "AAAAC3NzaC1lZDI1NTE5AAAAIAOhB7/zzhC+HXDdGOdLwJln5NYwm6UNXx3chmQSVTG4",
        ];
        assert!(ed25519_key(SIGNER).is_ok() && ed25519_key(&format!("  {OTHER}\n")).is_ok());
        for line in odd {
            assert!(ed25519_key(line).is_err(), "{line:?}");
        }
    }
}
