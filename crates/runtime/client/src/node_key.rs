//! The key of a node: created on the node, in a file that only its owner reads, in the format of official SuperNodes
//! (`--auth-supernode-private-key`). Only its public key and signatures leave the machine.

mod curve;
pub(crate) mod openssh;

use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use aws_lc_rs::digest::Digest;
use aws_lc_rs::encoding::{AsBigEndian, EcPrivateKeyBin};
use aws_lc_rs::signature::{EcdsaKeyPair, KeyPair};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use trellis_digest::sha256;

use curve::Curve;
pub use openssh::FormError;

const LINE_CHARS: usize = 64;
/// Larger files are not keys.
const MAX_FILE_BYTES: u64 = 64 << 10;

/// The group may read: that is how container platforms hand secrets to a user without root.
const OPEN_TO_OTHERS: u32 = 0o027;

#[derive(Debug)]
pub struct NodeKey {
    path: PathBuf,
    curve: Curve,
    pair: EcdsaKeyPair,
}

#[derive(Debug, thiserror::Error)]
pub enum NodeKeyError {
    #[error("{path} cannot be read")]
    Unreadable { path: PathBuf, source: io::Error },
    #[error("{path} is no key that can be used here: {why}")]
    Form { path: PathBuf, why: FormError },
    #[error("others can read or change {path}: its mode is {mode:03o}")]
    Exposed { path: PathBuf, mode: u32 },
    #[error("{path} holds another key than {private} does")]
    OtherPublicKey { path: PathBuf, private: PathBuf },
    #[error("{path} cannot be written")]
    Unwritable { path: PathBuf, source: io::Error },
    #[error("the system cannot make a key")]
    Generation,
}

impl NodeKey {
    /// The key in a file; `None` if there is no such file.
    pub fn read(path: &Path) -> Result<Option<NodeKey>, NodeKeyError> {
        let key = read_file(path, openssh::read)?;
        Ok(key.map(|(curve, pair)| NodeKey { path: path.to_owned(), curve, pair }))
    }

    /// A key from another source than a file; `path` names it in errors.
    pub fn from_bytes(path: &Path, bytes: &[u8]) -> Result<NodeKey, NodeKeyError> {
        let form = |why| NodeKeyError::Form { path: path.to_owned(), why };
        let (curve, pair) = openssh::read(bytes).map_err(form)?;
        Ok(NodeKey { path: path.to_owned(), curve, pair })
    }

    /// A new key (P-384) as the text of its file.
    pub fn draw(comment: &str) -> Result<String, NodeKeyError> {
        Ok(NodeKey::drawn(comment)?.2)
    }

    fn drawn(comment: &str) -> Result<(Curve, EcdsaKeyPair, String), NodeKeyError> {
        let curve = Curve::P384;
        let pair = EcdsaKeyPair::generate(curve.signing()).map_err(|_| NodeKeyError::Generation)?;
        let scalar: EcPrivateKeyBin = pair.private_key().as_be_bytes().map_err(|_| NodeKeyError::Generation)?;
        let check = rand_u32().ok_or(NodeKeyError::Generation)?;
        let file = openssh::write(curve, pair.public_key().as_ref(), scalar.as_ref(), comment, check);
        Ok((curve, pair, file))
    }

    /// Creates a key (P-384) and writes it to a file that must not exist, with mode 0600.
    pub fn generate(path: &Path, comment: &str) -> Result<NodeKey, NodeKeyError> {
        let (curve, pair, file) = NodeKey::drawn(comment)?;
        write_new(path, file.as_bytes(), 0o600)?;
        Ok(NodeKey { path: path.to_owned(), curve, pair })
    }

    /// Writes the public key to `FILE.pub`, unless that exists. Returns its path.
    pub fn write_public(&self, comment: &str) -> Result<PathBuf, NodeKeyError> {
        let path = self.public_path();
        match fs::read_to_string(&path) {
            Ok(text) if text.starts_with(&self.openssh()) => Ok(path),
            Ok(_) => Err(NodeKeyError::OtherPublicKey { path, private: self.path.clone() }),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let line = format!("{} {}", self.openssh(), openssh::one_line(comment));
                write_new(&path, format!("{}\n", line.trim_end()).as_bytes(), 0o644)?;
                Ok(path)
            }
            Err(source) => Err(NodeKeyError::Unreadable { path, source }),
        }
    }

    fn public_path(&self) -> PathBuf {
        let mut name = self.path.clone().into_os_string();
        name.push(".pub");
        name.into()
    }

    /// The headers that nodes prove themselves with in each call: public key, time, and the signature of that time. They
    /// are good for about five minutes.
    pub fn sign_now(&self) -> [(&'static str, String); 3] {
        let time = Timestamp::now().strftime("%Y-%m-%dT%H:%M:%S%.6f+00:00").to_string();
        let signature = self.sign(time.as_bytes());
        let key = STANDARD.encode(self.public_pem());
        [("flwr-public-key", key), ("flwr-signature", STANDARD.encode(signature)), ("flwr-timestamp", time)]
    }

    /// ECDSA over SHA-256 for every curve, as in Flower; the library supports that for verification only. The signed value is the
    /// digest as a number, so a digest with leading zeros, in place of the longer one of the curve, gives exactly the required
    /// signature.
    fn sign(&self, message: &[u8]) -> Vec<u8> {
        let algorithm = self.curve.digest();
        let mut widened = vec![0; algorithm.output_len()];
        let short = sha256(message);
        widened[algorithm.output_len() - short.len()..].copy_from_slice(&short);
        let digest = Digest::import_less_safe(&widened, algorithm).expect("it has the length of the algorithm");
        self.pair.sign_digest(&digest).expect("a key that was checked signs").as_ref().to_vec()
    }

    /// The point on the curve, uncompressed.
    fn point(&self) -> &[u8] {
        self.pair.public_key().as_ref()
    }

    /// The public half as nodes send it with every call: PEM of a SubjectPublicKeyInfo.
    pub fn public_pem(&self) -> String {
        pem("PUBLIC KEY", &self.curve.public_key_info(self.point()), LINE_CHARS)
    }

    /// The public half as `flwr supernode register` reads it, without a comment.
    pub fn openssh(&self) -> String {
        let blob = openssh::public_blob(self.curve, self.point());
        format!("{} {}", self.curve.openssh_name(), STANDARD.encode(blob))
    }
}

/// Reads a private key that only its owner can read; `None` if there is no such file.
pub(crate) fn read_file<T>(
    path: &Path,
    parse: impl FnOnce(&[u8]) -> Result<T, FormError>,
) -> Result<Option<T>, NodeKeyError> {
    let unreadable = |source| NodeKeyError::Unreadable { path: path.to_owned(), source };
    let metadata = match fs::metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        other => other.map_err(unreadable)?,
    };
    let form = |why| NodeKeyError::Form { path: path.to_owned(), why };
    if metadata.is_file() && metadata.len() > MAX_FILE_BYTES {
        return Err(form(FormError::NotOpenSsh));
    }
    let key = parse(&fs::read(path).map_err(unreadable)?).map_err(form)?;
    // After parsing: a public key that was given by mistake may be world-readable.
    let mode = metadata.permissions().mode() & 0o777;
    if mode & OPEN_TO_OTHERS != 0 {
        return Err(NodeKeyError::Exposed { path: path.to_owned(), mode });
    }
    Ok(Some(key))
}

fn pem(label: &str, bytes: &[u8], line_chars: usize) -> String {
    let base64 = STANDARD.encode(bytes);
    let mut text = format!("-----BEGIN {label}-----\n");
    for line in base64.as_bytes().chunks(line_chars) {
        text.push_str(str::from_utf8(line).expect("base64 is ASCII"));
        text.push('\n');
    }
    text.push_str(&format!("-----END {label}-----\n"));
    text
}

fn rand_u32() -> Option<u32> {
    let mut bytes = [0; 4];
    aws_lc_rs::rand::fill(&mut bytes).ok()?;
    Some(u32::from_be_bytes(bytes))
}

/// Writes atomically, and never replaces a file.
fn write_new(path: &Path, content: &[u8], mode: u32) -> Result<(), NodeKeyError> {
    trellis_files::create(path, content, mode)
        .map_err(|source| NodeKeyError::Unwritable { path: path.to_owned(), source })
}

#[cfg(test)]
mod tests;
