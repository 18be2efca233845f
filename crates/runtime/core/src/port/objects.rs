//! Content that is too large for a row. It moves in blocks, in and out, so that no object is held whole.
//!
//! A store may keep it in files, or on another machine. So every operation is a future, boxed once for each block or
//! object. Nothing here knows of an async runtime.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;

use crate::id::ObjectId;
use crate::refusal::Refusal;

pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Stored content, by name. A name is never used twice, so a deleted object can never be one that has just arrived.
pub trait Objects: Send + Sync {
    /// Begins an upload. An upload that is dropped before it is finished leaves nothing.
    fn upload(&self) -> Box<dyn Upload>;
    /// Reads content of `bytes` bytes into memory.
    fn read(&self, name: &str, bytes: u64) -> BoxFuture<'static, Result<Bytes, Refusal>>;
    /// Opens content to be read block by block. It can be read to its end even if it is removed meanwhile.
    fn open(&self, name: &str) -> BoxFuture<'static, Result<Box<dyn Blocks>, Refusal>>;
    /// Removes content that no row names; a name that is not there is fine.
    fn remove(&self, name: &str) -> BoxFuture<'static, ()>;
}

/// Content on its way in.
pub trait Upload: Send {
    fn write(&mut self, block: Bytes) -> BoxFuture<'_, Result<(), Refusal>>;
    /// Makes the content of the object `id` durable and returns its name. A commit that names it in
    /// [`put_content`](super::Tx::put_content) makes it known; without one it may be removed at any later start.
    fn finish(self: Box<Self>, id: ObjectId) -> BoxFuture<'static, Result<String, Refusal>>;
}

/// Content on its way out.
pub trait Blocks: Send {
    /// The next block; `None` after the last.
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, Refusal>>>;
}
