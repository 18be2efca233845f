//! Transfers object bytes. They are hashed and written as they arrive, and are in memory as a whole only if they are
//! small.

use bytes::{Bytes, BytesMut};
use quick_cache::Weighter;
use quick_cache::sync::Cache;
use trellis_core::fleet::running;
use trellis_core::id::ObjectId;
use trellis_core::object::{self, Arrival, Content, Scope};
use trellis_core::port::objects::{Blocks, Upload};
use trellis_core::port::{Store, Tx, crash};
use trellis_core::refusal::{Kind, Refusal};
use trellis_wire::object::{ObjectError, Verifier};

use crate::link::Link;

/// Objects up to this size are stored in their rows, larger ones outside of the rows.
const INLINE_BYTES: usize = 32 << 10;
/// Bytes collected before they are written to the store.
const BLOCK_BYTES: usize = 512 << 10;
/// Large content up to this size may be cached (Flower splits arrays into chunks of 5 MiB).
const HOT_BYTES: u64 = 8 << 20;

/// A cache of recently used objects, so that many pulls of one model cost one read.
pub struct HotObjects {
    cache: Cache<ObjectId, Bytes, ByBytes>,
}

#[derive(Clone)]
struct ByBytes;

impl Weighter<ObjectId, Bytes> for ByBytes {
    fn weight(&self, _: &ObjectId, bytes: &Bytes) -> u64 {
        bytes.len() as u64 + 128
    }
}

impl HotObjects {
    pub fn new(limit_bytes: u64) -> HotObjects {
        let expected = (limit_bytes / (1 << 20)).max(16) as usize;
        HotObjects { cache: Cache::with_weighter(expected, limit_bytes.max(1), ByBytes) }
    }

    /// Frees the memory.
    pub fn clear(&self) {
        self.cache.clear();
    }
}

/// The decision about a push before its bytes are read.
pub enum Admission {
    /// The bytes are needed.
    Wanted(Box<Incoming>),
    /// The bytes are already stored and not needed.
    Known,
    /// The sender did not announce the object.
    Unannounced,
}

/// Decides whether to accept the bytes of an object from the sender of `scope`.
pub fn admit(link: &Link, scope: Scope, id: ObjectId) -> Result<Admission, Refusal> {
    let known = link.read(|view| {
        running(view, scope.run)?;
        view.object(scope, id)
    })?;
    Ok(match known {
        None => Admission::Unannounced,
        Some(object) if object.has_content => Admission::Known,
        Some(_) => {
            let (verifier, gathered) = (Verifier::new(id), BytesMut::new());
            Admission::Wanted(Box::new(Incoming { scope, id, verifier, gathered, upload: None, bytes: 0 }))
        }
    })
}

/// An incoming object.
pub struct Incoming {
    scope: Scope,
    id: ObjectId,
    verifier: Verifier,
    gathered: BytesMut,
    upload: Option<Box<dyn Upload>>,
    bytes: u64,
}

impl Incoming {
    /// Processes the next bytes.
    pub async fn take(&mut self, link: &Link, bytes: &[u8]) -> Result<(), Refusal> {
        self.bytes += bytes.len() as u64;
        if self.bytes > link.limits.object_bytes {
            let text = format!("object {} is larger than the limit of {} bytes", self.id, link.limits.object_bytes);
            return Err(Refusal::new(Kind::TooLarge, text));
        }
        self.verifier.update(bytes).map_err(|error| refuse(self.id, &error))?;
        self.gathered.extend_from_slice(bytes);
        let enough = if self.upload.is_some() { BLOCK_BYTES } else { INLINE_BYTES + 1 };
        if self.gathered.len() >= enough {
            self.spill(link.store()).await?;
        }
        Ok(())
    }

    async fn spill(&mut self, store: &dyn Store) -> Result<(), Refusal> {
        let block = std::mem::take(&mut self.gathered).freeze();
        let upload = self.upload.get_or_insert_with(|| store.objects().upload());
        upload.write(block.clone()).await?;
        // A store that does not keep the block leaves its memory for the next one.
        self.gathered = block.try_into_mut().unwrap_or_default();
        self.gathered.clear();
        self.gathered.reserve(BLOCK_BYTES);
        Ok(())
    }

    /// Ends the upload: verifies the bytes and commits them. Returns `false` if they do not match the id.
    pub async fn finish(mut self, link: &Link) -> Result<bool, Refusal> {
        let (scope, id) = (self.scope, self.id);
        if self.upload.is_some() && !self.gathered.is_empty() {
            self.spill(link.store()).await?;
        }
        let header = match self.verifier.finish() {
            Ok(header) => header,
            Err(error) if is_other_object(&error) => return Ok(false),
            Err(error) => return Err(refuse(id, &error)),
        };
        let content = match self.upload {
            None => Content::Inline(self.gathered.freeze()),
            Some(upload) => Content::Large { name: upload.finish(id).await?, bytes: self.bytes },
        };
        let name = match &content {
            Content::Large { name, .. } => Some(name.clone()),
            Content::Inline(_) => None,
        };
        let arrival = link.write(move |tx| take(tx, scope, id, &content, &header.children)).await;
        if let (Err(_), Some(name)) = (&arrival, name) {
            discard_unless_kept(link, id, &name).await;
        }
        let arrival = arrival??;
        crash::point("object-stored");
        Ok(arrival != Arrival::Unannounced)
    }
}

/// Commits even if the content is refused or not needed, because the commit removes it. Only an error of the store
/// rolls back.
fn take(
    tx: &mut dyn Tx,
    scope: Scope,
    id: ObjectId,
    content: &Content,
    children: &[ObjectId],
) -> Result<Result<Arrival, Refusal>, Refusal> {
    let arrival = match running(tx, scope.run) {
        Ok(_) => object::arrive(tx, scope, id, content, children),
        Err(refusal) => Err(refusal),
    };
    match arrival {
        Err(refusal) if refusal.kind == Kind::Transient => return Err(refusal),
        Ok(Arrival::Stored) => {}
        _ => tx.discard(content),
    }
    Ok(arrival)
}

/// Removes the content of a failed upload unless a row refers to it: the sender retries with another upload.
async fn discard_unless_kept(link: &Link, id: ObjectId, name: &str) {
    let kept = link.read(|view| view.content(id));
    if !matches!(kept, Ok(Some(Content::Large { name: kept, .. })) if kept == name) {
        link.store().objects().remove(name).await;
    }
}

fn refuse(id: ObjectId, error: &ObjectError) -> Refusal {
    Refusal::new(Kind::Precondition, format!("object {id}: {error}"))
}

fn is_other_object(error: &ObjectError) -> bool {
    matches!(error, ObjectError::HashMismatch { .. })
}

/// An object to send.
pub enum Outgoing {
    NotFound,
    /// Announced, without content.
    NotHere,
    Whole(Bytes),
    /// Too large for memory: sent in blocks.
    Blocks {
        bytes: u64,
        blocks: Box<dyn Blocks>,
    },
}

impl Outgoing {
    pub fn len_bytes(&self) -> u64 {
        match self {
            Outgoing::NotFound | Outgoing::NotHere => 0,
            Outgoing::Whole(bytes) => bytes.len() as u64,
            Outgoing::Blocks { bytes, .. } => *bytes,
        }
    }
}

/// Finds an object of a running run that the sender of `scope` may read.
pub async fn fetch(link: &Link, scope: Scope, id: ObjectId) -> Result<Outgoing, Refusal> {
    let found = link.read(|view| {
        running(view, scope.run)?;
        Ok(match object::visible(view, scope, id)? {
            None => None,
            // The content may be stored for another run although this object is still missing.
            Some(object) => Some(if object.has_content { view.content(id)? } else { None }),
        })
    })?;
    match found {
        None => Ok(Outgoing::NotFound),
        Some(None) => Ok(Outgoing::NotHere),
        Some(Some(Content::Inline(bytes))) => Ok(Outgoing::Whole(bytes)),
        Some(Some(Content::Large { name, bytes })) if bytes <= HOT_BYTES => {
            let metrics = &link.watch.metrics;
            if let Some(hot) = link.hot.cache.get(&id) {
                metrics.object_from_memory();
                return Ok(Outgoing::Whole(hot));
            }
            metrics.object_from_disk();
            let load = link.store().objects().read(&name, bytes);
            link.hot.cache.get_or_insert_async(&id, load).await.map(Outgoing::Whole)
        }
        Some(Some(Content::Large { name, bytes })) => {
            let blocks = link.store().objects().open(&name).await?;
            Ok(Outgoing::Blocks { bytes, blocks })
        }
    }
}
