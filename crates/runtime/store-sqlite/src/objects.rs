//! The object port on files. Disk access runs on tokio's blocking threads.

use std::fs::File;
use std::io::{self, Read};
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use tokio::sync::mpsc;
use trellis_core::id::ObjectId;
use trellis_core::port::objects::{Blocks, BoxFuture, Objects, Upload};
use trellis_core::refusal::Refusal;

use crate::file_store::{FileStore, Spool};

/// Bytes read from a file at once.
const BLOCK_BYTES: usize = 512 << 10;
/// Maximum number of blocks read before the reader takes them.
const BLOCKS_AHEAD: usize = 2;

/// The object port of a file store.
pub(crate) struct ObjectFiles(pub(crate) Arc<FileStore>);

impl Objects for ObjectFiles {
    fn upload(&self) -> Box<dyn Upload> {
        Box::new(FileUpload { files: Arc::clone(&self.0), spool: None })
    }

    fn read(&self, name: &str, bytes: u64) -> BoxFuture<'static, Result<Bytes, Refusal>> {
        let (files, name) = (Arc::clone(&self.0), name.to_owned());
        Box::pin(on_disk(move || {
            let mut whole = Vec::with_capacity(bytes as usize);
            files.open_file(&name)?.read_to_end(&mut whole)?;
            Ok(Bytes::from(whole))
        }))
    }

    fn open(&self, name: &str) -> BoxFuture<'static, Result<Box<dyn Blocks>, Refusal>> {
        let (files, name) = (Arc::clone(&self.0), name.to_owned());
        Box::pin(async move {
            let file = on_disk(move || files.open_file(&name)).await?;
            let (send, blocks) = mpsc::channel(BLOCKS_AHEAD);
            tokio::task::spawn_blocking(move || read_blocks(file, &send));
            Ok(Box::new(FileBlocks(blocks)) as Box<dyn Blocks>)
        })
    }

    fn remove(&self, name: &str) -> BoxFuture<'static, ()> {
        let (files, name) = (Arc::clone(&self.0), name.to_owned());
        Box::pin(async move {
            let _ = tokio::task::spawn_blocking(move || files.remove(&name)).await;
        })
    }
}

/// An upload. The first block creates its file.
struct FileUpload {
    files: Arc<FileStore>,
    spool: Option<Spool>,
}

impl Upload for FileUpload {
    fn write(&mut self, block: Bytes) -> BoxFuture<'_, Result<(), Refusal>> {
        Box::pin(async move {
            let (files, spool) = (Arc::clone(&self.files), self.spool.take());
            let write = move || {
                let mut spool = spool.map_or_else(|| files.spool(), Ok)?;
                spool.write(&block)?;
                Ok(spool)
            };
            self.spool = Some(on_disk(write).await?);
            Ok(())
        })
    }

    fn finish(self: Box<Self>, id: ObjectId) -> BoxFuture<'static, Result<String, Refusal>> {
        let FileUpload { files, spool } = *self;
        Box::pin(on_disk(move || files.place(spool.map_or_else(|| files.spool(), Ok)?, id)))
    }
}

struct FileBlocks(mpsc::Receiver<io::Result<Bytes>>);

impl Blocks for FileBlocks {
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, Refusal>>> {
        self.0.poll_recv(cx).map(|block| block.map(|block| block.map_err(disk_failed)))
    }
}

fn read_blocks(mut file: File, send: &mpsc::Sender<io::Result<Bytes>>) {
    loop {
        let mut block = Vec::with_capacity(BLOCK_BYTES);
        let read = (&mut file).take(BLOCK_BYTES as u64).read_to_end(&mut block);
        let more = match read {
            Ok(0) => return,
            Ok(_) => send.blocking_send(Ok(block.into())),
            Err(error) => {
                let _ = send.blocking_send(Err(error));
                return;
            }
        };
        if more.is_err() {
            return; // The reader disconnected.
        }
    }
}

async fn on_disk<T: Send + 'static>(work: impl FnOnce() -> io::Result<T> + Send + 'static) -> Result<T, Refusal> {
    match tokio::task::spawn_blocking(work).await {
        Ok(result) => result.map_err(disk_failed),
        Err(error) => Err(disk_failed(io::Error::other(error))),
    }
}

fn disk_failed(error: io::Error) -> Refusal {
    Refusal::transient("The SuperLink cannot use its object store right now.", error)
}
