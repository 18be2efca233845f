//! The object port in memory. Readers share the bytes with the store.

use std::collections::HashMap;
use std::future::ready;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};

use bytes::{Bytes, BytesMut};
use trellis_core::id::ObjectId;
use trellis_core::port::objects::{Blocks, BoxFuture, Objects, Upload};
use trellis_core::refusal::{Kind, Refusal};

pub(crate) struct Contents {
    by_name: Mutex<HashMap<String, Bytes>>,
    last_number: AtomicU64,
    /// Bytes of stored content and of open uploads.
    bytes: AtomicU64,
    max_bytes: u64,
}

impl Contents {
    pub(crate) fn new(max_bytes: u64) -> Contents {
        Contents { by_name: Mutex::default(), last_number: AtomicU64::new(0), bytes: AtomicU64::new(0), max_bytes }
    }

    pub(crate) fn remove(&self, name: &str) {
        if let Some(content) = self.by_name.lock().expect("no holder panics").remove(name) {
            self.bytes.fetch_sub(content.len() as u64, Ordering::Relaxed);
        }
    }

    /// Reserves memory for bytes before they are stored.
    fn reserve(&self, bytes: u64) -> Result<(), Refusal> {
        let fits = |taken: u64| taken.checked_add(bytes).filter(|sum| *sum <= self.max_bytes);
        match self.bytes.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fits) {
            Ok(_) => Ok(()),
            Err(_) => Err(Refusal::new(Kind::Transient, "The SuperLink has no memory for more objects right now.")),
        }
    }

    fn get(&self, name: &str) -> Result<Bytes, Refusal> {
        let found = self.by_name.lock().expect("no holder panics").get(name).cloned();
        found.ok_or_else(|| Refusal::new(Kind::Transient, "The content of the object was removed."))
    }
}

pub(crate) struct MemoryObjects(pub(crate) Arc<Contents>);

impl Objects for MemoryObjects {
    fn upload(&self) -> Box<dyn Upload> {
        Box::new(MemoryUpload { contents: Arc::clone(&self.0), received: BytesMut::new() })
    }

    fn read(&self, name: &str, _bytes: u64) -> BoxFuture<'static, Result<Bytes, Refusal>> {
        Box::pin(ready(self.0.get(name)))
    }

    fn open(&self, name: &str) -> BoxFuture<'static, Result<Box<dyn Blocks>, Refusal>> {
        let content = self.0.get(name).map(|bytes| Box::new(Whole(Some(bytes))) as Box<dyn Blocks>);
        Box::pin(ready(content))
    }

    fn remove(&self, name: &str) -> BoxFuture<'static, ()> {
        self.0.remove(name);
        Box::pin(ready(()))
    }
}

struct MemoryUpload {
    contents: Arc<Contents>,
    received: BytesMut,
}

impl Upload for MemoryUpload {
    fn write(&mut self, block: Bytes) -> BoxFuture<'_, Result<(), Refusal>> {
        let reserved = self.contents.reserve(block.len() as u64);
        if reserved.is_ok() {
            self.received.extend_from_slice(&block);
        }
        Box::pin(ready(reserved))
    }

    fn finish(mut self: Box<Self>, id: ObjectId) -> BoxFuture<'static, Result<String, Refusal>> {
        let number = self.contents.last_number.fetch_add(1, Ordering::Relaxed);
        let (name, received) = (format!("{id}.{number:x}"), std::mem::take(&mut self.received));
        self.contents.by_name.lock().expect("no holder panics").insert(name.clone(), received.freeze());
        Box::pin(ready(Ok(name)))
    }
}

impl Drop for MemoryUpload {
    fn drop(&mut self) {
        self.contents.bytes.fetch_sub(self.received.len() as u64, Ordering::Relaxed);
    }
}

/// Returns the content as one block without a copy.
struct Whole(Option<Bytes>);

impl Blocks for Whole {
    fn poll_next(&mut self, _cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, Refusal>>> {
        Poll::Ready(self.0.take().filter(|bytes| !bytes.is_empty()).map(Ok))
    }
}
