//! The key that a node is known by: made once on the node, kept in a file that only its owner reads, in the form that
//! official SuperNodes take (`--auth-supernode-private-key`). Only the public half ever leaves the machine.

mod curve;
mod openssh;

use std::fs::{self, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use aws_lc_rs::encoding::{AsBigEndian, EcPrivateKeyBin};
use aws_lc_rs::signature::{EcdsaKeyPair, KeyPair};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use curve::Curve;
pub use openssh::FormError;

const LINE_CHARS: usize = 64;
/// Keys are below 1 KiB; what is much larger is some other file.
const LARGEST_FILE_BYTES: u64 = 64 << 10;

/// The group may read: that is how container platforms hand secrets to a user without root.
const OPEN_TO_OTHERS: u32 = 0o027;

/// The public half of a node's key, and where the private half is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeKey {
    path: PathBuf,
    curve: Curve,
    /// The point on the curve, uncompressed.
    point: Vec<u8>,
}

#[derive(Debug, thiserror::Error)]
pub enum NodeKeyError {
    #[error("{path} cannot be read")]
    Unreadable { path: PathBuf, source: io::Error },
    #[error("{path} is no key that a SuperNode can use: {why}")]
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
        let unreadable = |source| NodeKeyError::Unreadable { path: path.to_owned(), source };
        let metadata = match fs::metadata(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            other => other.map_err(unreadable)?,
        };
        let form = |why| NodeKeyError::Form { path: path.to_owned(), why };
        if metadata.is_file() && metadata.len() > LARGEST_FILE_BYTES {
            return Err(form(FormError::NotOpenSsh));
        }
        let bytes = fs::read(path).map_err(unreadable)?;
        let (curve, pair) = openssh::read(&bytes).map_err(form)?;
        // After the form: a public key that was given by mistake may be read by all.
        let mode = metadata.permissions().mode() & 0o777;
        if mode & OPEN_TO_OTHERS != 0 {
            return Err(NodeKeyError::Exposed { path: path.to_owned(), mode });
        }
        Ok(Some(NodeKey { path: path.to_owned(), curve, point: pair.public_key().as_ref().to_vec() }))
    }

    /// Makes a new key (P-384) and writes it to a file that must not exist, with mode 0600.
    pub fn generate(path: &Path, comment: &str) -> Result<NodeKey, NodeKeyError> {
        let curve = Curve::P384;
        let pair = EcdsaKeyPair::generate(curve.signing()).map_err(|_| NodeKeyError::Generation)?;
        let point = pair.public_key().as_ref().to_vec();
        let scalar: EcPrivateKeyBin = pair.private_key().as_be_bytes().map_err(|_| NodeKeyError::Generation)?;
        let check = rand_u32().ok_or(NodeKeyError::Generation)?;
        write_new(path, openssh::write(curve, &point, scalar.as_ref(), comment, check).as_bytes(), 0o600)?;
        Ok(NodeKey { path: path.to_owned(), curve, point })
    }

    /// Puts the public half beside the private one, as `FILE.pub`, unless it is there. Returns where that is.
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

    /// The public half as nodes send it with every call: PEM of a SubjectPublicKeyInfo.
    pub fn public_pem(&self) -> String {
        pem("PUBLIC KEY", &self.curve.public_key_info(&self.point), LINE_CHARS)
    }

    /// The public half as `flwr supernode register` reads it, without a comment.
    pub fn openssh(&self) -> String {
        let blob = openssh::public_blob(self.curve, &self.point);
        format!("{} {}", self.curve.openssh_name(), STANDARD.encode(blob))
    }
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

/// Whole or not at all, and never in place of something else.
fn write_new(path: &Path, content: &[u8], mode: u32) -> Result<(), NodeKeyError> {
    let write = || {
        let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        // Made with mode 0600.
        let mut file = tempfile::NamedTempFile::new_in(directory)?;
        file.write_all(content)?;
        file.as_file().set_permissions(Permissions::from_mode(mode))?;
        file.as_file().sync_all()?;
        file.persist_noclobber(path)?;
        fs::File::open(directory)?.sync_all()
    };
    write().map_err(|source: io::Error| NodeKeyError::Unwritable { path: path.to_owned(), source })
}

#[cfg(test)]
mod tests;
