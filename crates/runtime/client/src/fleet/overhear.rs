//! Listens in on a connection for its first bytes, to find out what is spoken on the other side.

use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::{io, mem};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::oneshot;

/// The head of an HTTP/2 frame, and more than enough to tell the others.
const TELLING_BYTES: usize = 9;
const SETTINGS: u8 = 4;
const SETTING_BYTES: u32 = 6;

/// What was said first by somebody who was spoken to in HTTP/2 without TLS.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Heard {
    Http2,
    Http1,
    Tls,
    /// The connection ended before anything was said.
    Nothing,
    Other,
}

/// `None`: not enough was said yet.
fn judge(said: &[u8], is_all: bool) -> Option<Heard> {
    match said {
        // A record of TLS that says what went wrong.
        [0x15, 0x03, ..] => Some(Heard::Tls),
        [b'H', b'T', b'T', b'P', b'/', b'1', b'.', ..] => Some(Heard::Http1),
        [a, b, c, kind, _, 0, 0, 0, 0, ..] => {
            let length = u32::from_be_bytes([0, *a, *b, *c]);
            Some(if *kind == SETTINGS && length.is_multiple_of(SETTING_BYTES) { Heard::Http2 } else { Heard::Other })
        }
        [] if is_all => Some(Heard::Nothing),
        _ if is_all || said.len() >= TELLING_BYTES => Some(Heard::Other),
        _ => None,
    }
}

/// A stream that tells once what it heard.
pub(super) struct Overheard<S> {
    stream: S,
    said: Vec<u8>,
    tell: Option<oneshot::Sender<Heard>>,
}

impl<S> Overheard<S> {
    /// What is heard first comes through the receiver; it fails if nobody listens to the stream any more.
    pub fn new(stream: S) -> (Overheard<S>, oneshot::Receiver<Heard>) {
        let (tell, heard) = oneshot::channel();
        (Overheard { stream, said: Vec::new(), tell: Some(tell) }, heard)
    }

    fn listen(&mut self, read: &[u8]) {
        self.said.extend_from_slice(&read[..read.len().min(TELLING_BYTES - self.said.len())]);
        if let Some(heard) = judge(&self.said, read.is_empty())
            && let Some(tell) = self.tell.take()
        {
            // Nobody waits for it any more: then it does not matter.
            let _ = tell.send(heard);
            mem::take(&mut self.said);
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Overheard<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let read = ready!(Pin::new(&mut self.stream).poll_read(cx, buffer));
        if self.tell.is_some() {
            self.listen(&buffer.filled()[before..]);
        }
        Poll::Ready(read)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Overheard<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::AsyncReadExt;

    /// SETTINGS with two settings, as a gRPC server begins.
    const GRPC: &[u8] = b"\0\0\x0c\x04\0\0\0\0\0\0\x03\0\0\x03\xe8\0\x04\0\x10\0\0";

    #[test]
    fn judgements() {
        for (said, is_all, expected) in [
            (GRPC, false, Some(Heard::Http2)),
            (b"\0\0\0\x04\0\0\0\0\0", false, Some(Heard::Http2)),
            (b"HTTP/1.1 400 Bad Request", false, Some(Heard::Http1)),
            (b"HTTP/1.", false, Some(Heard::Http1)),
            (b"HTTP/1", false, None),
            (b"HTTP/1", true, Some(Heard::Other)),
            (b"\x15\x03\x01\0\x02\x02\x16", false, Some(Heard::Tls)),
            (b"\x15", false, None),
            (b"\0\0\x0c\x04\0\0\0", false, None),
            (b"\0\0\x0c\x04\0\0\0", true, Some(Heard::Other)),
            (b"\0\0\x08\x07\0\0\0\0\0", false, Some(Heard::Other)), // GOAWAY
            (b"\0\0\x05\x04\0\0\0\0\0", false, Some(Heard::Other)), // no whole settings
            (b"\0\0\x06\x04\0\0\0\0\x01", false, Some(Heard::Other)), // of a call
            (b"SSH-2.0-OpenSSH", false, Some(Heard::Other)),
            (b"", true, Some(Heard::Nothing)),
            (b"", false, None),
        ] {
            assert_eq!(judge(said, is_all), expected, "{said:?}");
        }
    }

    #[tokio::test]
    async fn nothing_is_lost_by_listening() {
        // It comes byte by byte.
        let (ours, mut theirs) = tokio::io::duplex(1);
        let (mut stream, heard) = Overheard::new(ours);
        let sending = tokio::spawn(async move { tokio::io::AsyncWriteExt::write_all(&mut theirs, GRPC).await });
        let mut all = Vec::new();
        stream.read_to_end(&mut all).await.unwrap();
        sending.await.unwrap().unwrap();
        assert_eq!((all.as_slice(), heard.await.unwrap()), (GRPC, Heard::Http2));
    }
}
