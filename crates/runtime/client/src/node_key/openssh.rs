//! Private keys in the format of OpenSSH, the only one that official SuperNodes read. Passwords are not supported: a SuperNode
//! cannot ask for one.
//!
//! The container is a list of lengths and bytes: a name, cipher, key derivation, its options, the number of keys, the
//! public key, and a block with the private key that is padded with 1, 2, 3, ...

use aws_lc_rs::signature::{EcdsaKeyPair, Ed25519KeyPair};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use super::curve::Curve;
use super::pem;

const LABEL: &str = "OPENSSH PRIVATE KEY";
pub const ED25519_NAME: &str = "ssh-ed25519";
const ED25519_BYTES: usize = 32;
const MAGIC: &[u8] = b"openssh-key-v1\0";
/// As ssh-keygen does.
const LINE_CHARS: usize = 70;
/// Of the private block, when there is no cipher.
const BLOCK_BYTES: usize = 8;

/// Why a file is not the key that is needed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum FormError {
    #[error("it is no private key in the form of OpenSSH")]
    NotOpenSsh,
    #[error("it is a private key, but not in the form of OpenSSH")]
    OtherPem,
    #[error("it is a public key")]
    Public,
    #[error("it has a password; give a key without one")]
    Encrypted,
    #[error("it is not a key on a NIST curve (P-256, P-384 or P-521)")]
    OtherKind,
    #[error("it is not an Ed25519 key of `ssh-keygen -t ed25519`")]
    NotEd25519,
    #[error("it is damaged")]
    Damaged,
}

/// The file of a key. `check` is any number; it occurs twice in the file, to detect a wrong password.
pub fn write(curve: Curve, point: &[u8], scalar: &[u8], comment: &str, check: u32) -> String {
    let mut private = [check.to_be_bytes(), check.to_be_bytes()].concat();
    private.extend(public_blob(curve, point));
    put(&mut private, &positive(scalar));
    put(&mut private, one_line(comment).as_bytes());
    let missing = private.len().next_multiple_of(BLOCK_BYTES) - private.len();
    private.extend((1..).take(missing));

    let mut file = MAGIC.to_vec();
    put(&mut file, b"none");
    put(&mut file, b"none");
    put(&mut file, b"");
    file.extend(1u32.to_be_bytes());
    put(&mut file, &public_blob(curve, point));
    put(&mut file, &private);
    pem(LABEL, &file, LINE_CHARS)
}

/// The public key as OpenSSH encodes it.
pub fn public_blob(curve: Curve, point: &[u8]) -> Vec<u8> {
    let mut blob = Vec::new();
    put(&mut blob, curve.openssh_name().as_bytes());
    put(&mut blob, curve.openssh_curve().as_bytes());
    put(&mut blob, point);
    blob
}

/// A comment must not end the line of a public key.
pub fn one_line(comment: &str) -> String {
    comment.chars().map(|char| if char.is_control() { ' ' } else { char }).collect()
}

/// An Ed25519 public key as OpenSSH encodes it.
pub fn ed25519_blob(public: &[u8]) -> Vec<u8> {
    let mut blob = Vec::new();
    put(&mut blob, ED25519_NAME.as_bytes());
    put(&mut blob, public);
    blob
}

pub fn read(file: &[u8]) -> Result<(Curve, EcdsaKeyPair), FormError> {
    let bytes = unwrap(file)?;
    let (public, private) = parts(&bytes)?;
    let (curve, pair) = read_private(private)?;
    let point = aws_lc_rs::signature::KeyPair::public_key(&pair);
    if public != public_blob(curve, point.as_ref()) {
        return Err(FormError::Damaged);
    }
    Ok((curve, pair))
}

pub fn read_ed25519(file: &[u8]) -> Result<Ed25519KeyPair, FormError> {
    let bytes = unwrap(file)?;
    let (public_part, mut rest) = parts(&bytes)?;
    if take_u32(&mut rest)? != take_u32(&mut rest)? {
        return Err(FormError::Damaged);
    }
    if take(&mut rest)? != ED25519_NAME.as_bytes() {
        return Err(FormError::NotEd25519);
    }
    // The private part is the seed, and the public key once more.
    let (public, private) = (take(&mut rest)?, take(&mut rest)?);
    let seed = private.get(..ED25519_BYTES).ok_or(FormError::Damaged)?;
    if public_part != ed25519_blob(public) {
        return Err(FormError::Damaged);
    }
    Ed25519KeyPair::from_seed_and_public_key(seed, public).map_err(|_| FormError::Damaged)
}

/// The public key and the private block of a file with one key and no password.
fn parts(bytes: &[u8]) -> Result<(&[u8], &[u8]), FormError> {
    let mut rest = bytes.strip_prefix(MAGIC).ok_or(FormError::Damaged)?;
    let (cipher, derivation, _options) = (take(&mut rest)?, take(&mut rest)?, take(&mut rest)?);
    if (cipher, derivation) != (b"none", b"none") {
        return Err(FormError::Encrypted);
    }
    if take_u32(&mut rest)? != 1 {
        return Err(FormError::Damaged);
    }
    Ok((take(&mut rest)?, take(&mut rest)?))
}

fn read_private(mut rest: &[u8]) -> Result<(Curve, EcdsaKeyPair), FormError> {
    if take_u32(&mut rest)? != take_u32(&mut rest)? {
        return Err(FormError::Damaged);
    }
    let curve = Curve::named(take(&mut rest)?).ok_or(FormError::OtherKind)?;
    if take(&mut rest)? != curve.openssh_curve().as_bytes() {
        return Err(FormError::Damaged);
    }
    let (point, scalar) = (take(&mut rest)?, take(&mut rest)?);
    let significant = &scalar[scalar.iter().take_while(|byte| **byte == 0).count()..];
    let zeros = curve.scalar_bytes().checked_sub(significant.len()).ok_or(FormError::Damaged)?;
    let scalar = [&vec![0; zeros], significant].concat();
    let pair = EcdsaKeyPair::from_private_key_and_public_key(curve.signing(), &scalar, point);
    Ok((curve, pair.map_err(|_| FormError::Damaged)?))
}

/// The bytes inside the armour, or the kind of other content.
fn unwrap(file: &[u8]) -> Result<Vec<u8>, FormError> {
    let text = str::from_utf8(file).map_err(|_| FormError::NotOpenSsh)?.trim();
    let inside = text
        .strip_prefix(&format!("-----BEGIN {LABEL}-----"))
        .and_then(|rest| rest.strip_suffix(&format!("-----END {LABEL}-----")));
    match inside {
        Some(base64) => {
            let base64: String = base64.split_ascii_whitespace().collect();
            STANDARD.decode(base64).map_err(|_| FormError::Damaged)
        }
        None if text.starts_with(&format!("-----BEGIN {LABEL}-----")) => Err(FormError::Damaged),
        None if text.starts_with("-----BEGIN PUBLIC KEY") || text.starts_with("ecdsa-sha2-") => Err(FormError::Public),
        None if text.starts_with("ssh-") => Err(FormError::Public),
        None if text.starts_with("-----BEGIN ") && text.contains("PRIVATE KEY-----") => Err(FormError::OtherPem),
        None => Err(FormError::NotOpenSsh),
    }
}

/// A number that is never read as negative, in the fewest bytes.
fn positive(number: &[u8]) -> Vec<u8> {
    let significant = &number[number.iter().take_while(|byte| **byte == 0).count()..];
    match significant.first() {
        Some(first) if *first >= 0x80 => [&[0], significant].concat(),
        _ => significant.to_vec(),
    }
}

fn put(to: &mut Vec<u8>, bytes: &[u8]) {
    let length = u32::try_from(bytes.len()).expect("parts of keys are short");
    to.extend(length.to_be_bytes());
    to.extend(bytes);
}

fn take<'a>(from: &mut &'a [u8]) -> Result<&'a [u8], FormError> {
    let length = usize::try_from(take_u32(from)?).map_err(|_| FormError::Damaged)?;
    let (taken, rest) = from.split_at_checked(length).ok_or(FormError::Damaged)?;
    *from = rest;
    Ok(taken)
}

fn take_u32(from: &mut &[u8]) -> Result<u32, FormError> {
    let (taken, rest) = from.split_first_chunk().ok_or(FormError::Damaged)?;
    *from = rest;
    Ok(u32::from_be_bytes(*taken))
}
