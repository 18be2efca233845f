//! Content that is too large for a row. It is read and written in blocks, so that no object is in memory as a whole.
//!
//! A store may use files or another machine, so every operation is a boxed future. The port knows nothing of an async
//! runtime.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;

use crate::id::ObjectId;
use crate::refusal::Refusal;

pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Stored content by name. Names are never reused, so a late removal cannot hit newer content.
pub trait Objects: Send + Sync {
    /// Starts an upload. An upload that is dropped before `finish` leaves nothing.
    fn upload(&self) -> Box<dyn Upload>;
    /// Reads content of `bytes` bytes into memory.
    fn read(&self, name: &str, bytes: u64) -> BoxFuture<'static, Result<Bytes, Refusal>>;
    /// Opens content for reading in blocks. It stays readable to its end if it is removed meanwhile.
    fn open(&self, name: &str) -> BoxFuture<'static, Result<Box<dyn Blocks>, Refusal>>;
    /// Removes content without references. A missing name is no error.
    fn remove(&self, name: &str) -> BoxFuture<'static, ()>;
}

/// Incoming content.
pub trait Upload: Send {
    fn write(&mut self, block: Bytes) -> BoxFuture<'_, Result<(), Refusal>>;
    /// Makes the content of the object `id` durable and returns its name. The caller must commit the name with
    /// [`put_content`](super::Tx::put_content); otherwise the store may remove the content at its next start.
    fn finish(self: Box<Self>, id: ObjectId) -> BoxFuture<'static, Result<String, Refusal>>;
}

/// Outgoing content.
pub trait Blocks: Send {
    /// Returns the next block, or `None` at the end.
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, Refusal>>>;
}
