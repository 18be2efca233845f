//! The bodies of a call: sends a request in pieces, reads a response into one buffer. Copies received bytes once, sent bytes
//! never.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt;
use hyper::HeaderMap;
use hyper::body::{Body, Frame, Incoming, SizeHint};
use tokio::time::{Instant, Sleep};

use super::bandwidth::Throttle;
use super::error::Failure;

/// Requests are sent in pieces of this size, to observe progress and to limit bandwidth.
const PIECE_BYTES: usize = 16 << 10;
/// Limit of the buffer that a response's stated length reserves. The buffer of a longer one grows.
const RESERVED_BYTES: usize = 8 << 20;

/// When something moved last.
#[derive(Debug, Clone)]
pub(super) struct Pulse {
    began: Instant,
    last_ms: Arc<AtomicU64>,
}

impl Pulse {
    pub fn new() -> Pulse {
        Pulse { began: Instant::now(), last_ms: Arc::default() }
    }

    pub fn beat(&self) {
        let since = u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.last_ms.store(since, Ordering::Relaxed);
    }

    fn last(&self) -> Instant {
        self.began + Duration::from_millis(self.last_ms.load(Ordering::Relaxed))
    }

    /// The result of the work, unless there is no progress for `limit`.
    pub async fn watch<T>(
        &self,
        limit: Duration,
        work: impl Future<Output = Result<T, Failure>>,
    ) -> Result<T, Failure> {
        tokio::pin!(work);
        loop {
            let deadline = self.last() + limit;
            tokio::select! {
                outcome = &mut work => return outcome,
                () = tokio::time::sleep_until(deadline) => {
                    if self.last() + limit <= deadline {
                        return Err(Failure::Silent(limit));
                    }
                }
            }
        }
    }
}

/// A message to send: its beginning, and the content of an object, if any.
#[derive(Debug)]
pub(super) struct Outgoing {
    pub head: Bytes,
    pub content: Bytes,
    pub throttle: Option<Arc<Throttle>>,
    pub pulse: Pulse,
    /// When the next piece may be sent.
    due: Option<Pin<Box<Sleep>>>,
}

impl Outgoing {
    pub fn new(head: Bytes, content: Bytes, throttle: Option<Arc<Throttle>>, pulse: Pulse) -> Outgoing {
        Outgoing { head, content, throttle, pulse, due: None }
    }
}

impl Body for Outgoing {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        self.pulse.beat();
        if !self.head.is_empty() {
            return Poll::Ready(Some(Ok(Frame::data(std::mem::take(&mut self.head)))));
        }
        if self.content.is_empty() {
            return Poll::Ready(None);
        }
        let bytes = self.content.len().min(PIECE_BYTES);
        if let (Some(throttle), None) = (&self.throttle, &self.due) {
            self.due = Some(Box::pin(tokio::time::sleep(throttle.take(bytes))));
        }
        if let Some(due) = &mut self.due {
            ready!(due.as_mut().poll(cx));
            self.due = None;
        }
        Poll::Ready(Some(Ok(Frame::data(self.content.split_to(bytes)))))
    }

    fn is_end_stream(&self) -> bool {
        self.head.is_empty() && self.content.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.head.len() as u64 + self.content.len() as u64)
    }
}

/// How a response is read.
pub(super) struct Intake<'a> {
    pub max_bytes: usize,
    pub throttle: Option<&'a Throttle>,
    pub pulse: &'a Pulse,
}

impl Intake<'_> {
    /// Reads a body to its end. `expected` computes the total length from the first bytes.
    pub async fn read(
        &self,
        mut body: Incoming,
        expected: impl Fn(&[u8]) -> Option<usize>,
    ) -> Result<(Bytes, Option<HeaderMap>), Failure> {
        let (mut all, mut trailers) = (BytesMut::new(), None);
        while let Some(frame) = body.frame().await {
            self.pulse.beat();
            let data = match frame?.into_data() {
                Ok(data) => data,
                Err(frame) => {
                    trailers = frame.into_trailers().ok();
                    continue;
                }
            };
            if all.len() + data.len() > self.max_bytes {
                return Err(Failure::TooLong(format!("the answer is longer than {} bytes", self.max_bytes)));
            }
            if all.is_empty() {
                all.reserve(expected(&data).unwrap_or(0).clamp(data.len(), RESERVED_BYTES.max(data.len())));
            }
            all.extend_from_slice(&data);
            if let Some(throttle) = self.throttle {
                tokio::time::sleep(throttle.take(data.len())).await;
                self.pulse.beat();
            }
        }
        Ok((all.freeze(), trailers))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn pieces(mut body: Outgoing) -> Vec<Bytes> {
        let mut pieces = Vec::new();
        while let Some(frame) = body.frame().await {
            pieces.push(frame.unwrap().into_data().unwrap());
        }
        pieces
    }

    #[tokio::test]
    async fn what_goes_is_cut_and_not_copied() {
        let content = Bytes::from(vec![7; PIECE_BYTES + 1]);
        let body = Outgoing::new(Bytes::from_static(b"head"), content.clone(), None, Pulse::new());
        assert_eq!(body.size_hint().exact(), Some(PIECE_BYTES as u64 + 5));
        let pieces = pieces(body).await;
        assert_eq!(pieces.iter().map(Bytes::len).collect::<Vec<_>>(), [4, PIECE_BYTES, 1]);
        assert_eq!(pieces[1].as_ptr(), content.as_ptr());
        assert!(Outgoing::new(Bytes::new(), Bytes::new(), None, Pulse::new()).is_end_stream());
    }

    #[tokio::test(start_paused = true)]
    async fn what_goes_is_slowed_down() {
        let throttle = Arc::new(Throttle::new(PIECE_BYTES as u64));
        let content = Bytes::from(vec![7; 10 * PIECE_BYTES]);
        let began = Instant::now();
        pieces(Outgoing::new(Bytes::from_static(b"head"), content, Some(throttle), Pulse::new())).await;
        let took = began.elapsed().as_secs_f64();
        assert!((9.8..10.1).contains(&took), "{took}");
    }

    #[tokio::test(start_paused = true)]
    async fn work_may_take_long_but_not_stand_still() {
        let (pulse, limit, step) = (Pulse::new(), Duration::from_secs(60), Duration::from_secs(59));
        let moving = async {
            for _ in 0..10 {
                tokio::time::sleep(step).await;
                pulse.beat();
            }
            Ok(7)
        };
        assert_eq!(pulse.watch(limit, moving).await.unwrap(), 7);
        let began = Instant::now();
        let outcome = pulse.watch(limit, std::future::pending::<Result<(), Failure>>()).await;
        assert!(matches!(outcome, Err(Failure::Silent(_))), "{outcome:?}");
        assert_eq!(began.elapsed().as_secs(), 60);
    }
}
