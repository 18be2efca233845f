//! The key that signs apps: Ed25519, in the form of OpenSSH (`ssh-keygen -t ed25519`), as Flower's own `flwr app review` reads it.

use std::path::Path;

use aws_lc_rs::signature::{Ed25519KeyPair, KeyPair};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use trellis_wire::fab::Signature;

use crate::node_key::{NodeKeyError, openssh, read_file};

#[derive(Debug)]
pub struct SigningKey(Ed25519KeyPair);

impl SigningKey {
    /// The key in a file; `None` if there is no such file.
    pub fn read(path: &Path) -> Result<Option<SigningKey>, NodeKeyError> {
        Ok(read_file(path, openssh::read_ed25519)?.map(SigningKey))
    }

    /// Signs the bytes of a bundle.
    pub fn sign(&self, bundle: &[u8]) -> Signature {
        let now = u64::try_from(Timestamp::now().as_second()).expect("the clock is past 1970");
        Signature::new(&self.0, bundle, now)
    }

    /// The public key as in the file of `--trusted-entities`, without a comment.
    pub fn openssh(&self) -> String {
        let blob = openssh::ed25519_blob(self.0.public_key().as_ref());
        format!("{} {}", openssh::ED25519_NAME, STANDARD.encode(blob))
    }
}
