//! Verifies an object while it arrives, without buffering its body.

use std::mem;

use trellis_core::id::ObjectId;
use trellis_digest::Sha256;

use super::error::{Malformed, ObjectError};
use super::header::{Header, MAX_HEADER_BYTES};

/// Checks the bytes of one object in pieces of any size.
pub struct Verifier {
    expected: ObjectId,
    hash: Sha256,
    progress: Progress,
}

enum Progress {
    /// The header so far, without its NUL.
    Header(Vec<u8>),
    Body {
        header: Header,
        received: u64,
    },
    Broken(Malformed),
}

impl Verifier {
    pub fn new(expected: ObjectId) -> Self {
        Self { expected, hash: Sha256::default(), progress: Progress::Header(Vec::new()) }
    }

    /// Processes the next bytes. An error means that the object is malformed. The caller may continue after an error to
    /// learn from [`Verifier::finish`] whether the bytes match the id.
    pub fn update(&mut self, bytes: &[u8]) -> Result<(), ObjectError> {
        self.hash.update(bytes);
        self.progress = mem::replace(&mut self.progress, Progress::Header(Vec::new())).advance(bytes);
        match &self.progress {
            Progress::Broken(why) => Err(why.clone().into()),
            _ => Ok(()),
        }
    }

    /// Ends the object. Checks the hash before the form, as the official server does.
    pub fn finish(self) -> Result<Header, ObjectError> {
        let actual = ObjectId::new(self.hash.finish());
        if actual != self.expected {
            return Err(ObjectError::HashMismatch { expected: self.expected, actual });
        }
        match self.progress {
            Progress::Header(_) => Err(Malformed::HeaderCutOff.into()),
            Progress::Broken(why) => Err(why.into()),
            Progress::Body { header, received } => {
                header.check_body_len(received)?;
                Ok(header)
            }
        }
    }
}

impl Progress {
    fn advance(self, bytes: &[u8]) -> Self {
        match self {
            Self::Header(head) => Self::read_header(head, bytes).unwrap_or_else(Self::Broken),
            Self::Body { header, received } => Self::body(header, received.saturating_add(bytes.len() as u64)),
            broken @ Self::Broken(_) => broken,
        }
    }

    /// Searches for the NUL only in the new bytes: a long header in small pieces must not be scanned repeatedly.
    fn read_header(mut head: Vec<u8>, bytes: &[u8]) -> Result<Self, Malformed> {
        let room = MAX_HEADER_BYTES - head.len();
        let searched = &bytes[..bytes.len().min(room)];
        let Some(nul) = searched.iter().position(|&byte| byte == 0) else {
            if bytes.len() >= room {
                return Err(Malformed::HeaderTooLong);
            }
            head.extend_from_slice(bytes);
            return Ok(Self::Header(head));
        };
        head.extend_from_slice(&bytes[..nul]);
        Ok(Self::body(Header::read(&head)?, (bytes.len() - nul - 1) as u64))
    }

    fn body(header: Header, received: u64) -> Self {
        match header.body_bytes {
            announced if received > announced => Self::Broken(Malformed::BodyTooLong { announced }),
            _ => Self::Body { header, received },
        }
    }
}

/// Verifies a complete object.
pub fn verify(expected: ObjectId, object: &[u8]) -> Result<Header, ObjectError> {
    let mut verifier = Verifier::new(expected);
    // A malformed object may also have the wrong hash, which takes precedence: finish() decides.
    let _ = verifier.update(object);
    verifier.finish()
}
