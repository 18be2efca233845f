//! Inspects the first bytes of a connection to detect the protocol of the peer.

use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::{io, mem};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::oneshot;

/// The head of an HTTP/2 frame, which is enough to distinguish the protocols.
const MAX_PREFIX_BYTES: usize = 9;
const SETTINGS: u8 = 4;
const SETTING_BYTES: u32 = 6;

/// The protocol of a peer that received HTTP/2 without TLS.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Detected {
    Http2,
    Http1,
    Tls,
    /// The connection ended without a byte.
    Nothing,
    Other,
}

/// `None`: more bytes are needed.
fn classify(prefix: &[u8], is_all: bool) -> Option<Detected> {
    match prefix {
        // A TLS alert.
        [0x15, 0x03, ..] => Some(Detected::Tls),
        [b'H', b'T', b'T', b'P', b'/', b'1', b'.', ..] => Some(Detected::Http1),
        [a, b, c, kind, _, 0, 0, 0, 0, ..] => {
            let length = u32::from_be_bytes([0, *a, *b, *c]);
            Some(if *kind == SETTINGS && length.is_multiple_of(SETTING_BYTES) {
                Detected::Http2
            } else {
                Detected::Other
            })
        }
        [] if is_all => Some(Detected::Nothing),
        _ if is_all || prefix.len() >= MAX_PREFIX_BYTES => Some(Detected::Other),
        _ => None,
    }
}

/// A stream that reports its first bytes.
pub(super) struct Inspected<S> {
    stream: S,
    prefix: Vec<u8>,
    sender: Option<oneshot::Sender<Detected>>,
}

impl<S> Inspected<S> {
    /// The receiver gets the result; it fails if the stream is dropped.
    pub fn new(stream: S) -> (Inspected<S>, oneshot::Receiver<Detected>) {
        let (sender, detected) = oneshot::channel();
        (Inspected { stream, prefix: Vec::new(), sender: Some(sender) }, detected)
    }

    fn listen(&mut self, read: &[u8]) {
        self.prefix.extend_from_slice(&read[..read.len().min(MAX_PREFIX_BYTES - self.prefix.len())]);
        if let Some(detected) = classify(&self.prefix, read.is_empty())
            && let Some(sender) = self.sender.take()
        {
            // The receiver may be dropped.
            let _ = sender.send(detected);
            mem::take(&mut self.prefix);
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Inspected<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let read = ready!(Pin::new(&mut self.stream).poll_read(cx, buffer));
        if self.sender.is_some() {
            self.listen(&buffer.filled()[before..]);
        }
        Poll::Ready(read)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Inspected<S> {
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

    /// SETTINGS with two settings, the first frame of a gRPC server.
    const GRPC: &[u8] = b"\0\0\x0c\x04\0\0\0\0\0\0\x03\0\0\x03\xe8\0\x04\0\x10\0\0";

    #[test]
    fn first_bytes_are_classified() {
        for (prefix, is_all, expected) in [
            (GRPC, false, Some(Detected::Http2)),
            (b"\0\0\0\x04\0\0\0\0\0", false, Some(Detected::Http2)),
            (b"HTTP/1.1 400 Bad Request", false, Some(Detected::Http1)),
            (b"HTTP/1.", false, Some(Detected::Http1)),
            (b"HTTP/1", false, None),
            (b"HTTP/1", true, Some(Detected::Other)),
            (b"\x15\x03\x01\0\x02\x02\x16", false, Some(Detected::Tls)),
            (b"\x15", false, None),
            (b"\0\0\x0c\x04\0\0\0", false, None),
            (b"\0\0\x0c\x04\0\0\0", true, Some(Detected::Other)),
            (b"\0\0\x08\x07\0\0\0\0\0", false, Some(Detected::Other)), // GOAWAY
            (b"\0\0\x05\x04\0\0\0\0\0", false, Some(Detected::Other)), // incomplete settings
            (b"\0\0\x06\x04\0\0\0\0\x01", false, Some(Detected::Other)), // settings of a stream
            (b"SSH-2.0-OpenSSH", false, Some(Detected::Other)),
            (b"", true, Some(Detected::Nothing)),
            (b"", false, None),
        ] {
            assert_eq!(classify(prefix, is_all), expected, "{prefix:?}");
        }
    }

    #[tokio::test]
    async fn nothing_is_lost_by_listening() {
        // Byte by byte.
        let (ours, mut theirs) = tokio::io::duplex(1);
        let (mut stream, detected) = Inspected::new(ours);
        let sending = tokio::spawn(async move { tokio::io::AsyncWriteExt::write_all(&mut theirs, GRPC).await });
        let mut all = Vec::new();
        stream.read_to_end(&mut all).await.unwrap();
        sending.await.unwrap().unwrap();
        assert_eq!((all.as_slice(), detected.await.unwrap()), (GRPC, Detected::Http2));
    }
}
