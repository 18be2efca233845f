//! The door: what every call passes before it is read. Too many calls, or too many bytes, wait or are turned away here,
//! early and politely; object calls leave for the stream handlers.

use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{HeaderValue, Request, Response};
use http_body::Frame;
use http_body_util::BodyExt;
use tokio::sync::Semaphore;
use tonic::body::Body;
use tower::{Layer, Service};
use trellis_core::refusal::{Kind, Refusal};

use super::objects::{self, PREFIX_BYTES, Peer};
use super::status::status;
use crate::api::fleet::Caller;
use crate::link::Link;

/// Messages below this size do not count against the byte budget.
const SMALL_BYTES: usize = 64 << 10;
/// The byte budget is handed out in units of this.
const UNIT_BYTES: usize = 1 << 10;

/// Calls that are held open: they wait, they do not work.
const HELD: [&str; 4] = [
    "/flwr.proto.Fleet/PullMessages",
    "/flwr.proto.ServerAppIo/PullMessages",
    "/flwr.proto.ServerAppIo/ListAppsToLaunch",
    "/flwr.proto.Control/StreamLogs",
];

/// One for all ports.
#[derive(Clone)]
pub struct Door {
    link: Arc<Link>,
    calls: Arc<Semaphore>,
    units: Arc<Semaphore>,
    all_units: u32,
}

impl Door {
    pub fn new(link: Arc<Link>) -> Door {
        let all_units = (link.limits.buffered_bytes / UNIT_BYTES).max(1) as u32;
        Door {
            calls: Arc::new(Semaphore::new(link.limits.requests_in_flight)),
            units: Arc::new(Semaphore::new(all_units as usize)),
            all_units,
            link,
        }
    }

    async fn enter<S>(self, request: Request<Body>, mut inner: S) -> Result<Response<Body>, Refusal>
    where
        S: Service<Request<Body>, Response = Response<Body>, Error = Infallible>,
    {
        let path = request.uri().path();
        let _call = if HELD.contains(&path) {
            None
        } else {
            let full = || Refusal::new(Kind::Transient, "The SuperLink is busy; try again.");
            Some(self.calls.try_acquire().map_err(|_| full())?)
        };
        match path {
            "/flwr.proto.Fleet/PushObject" => {
                let peer = Peer::Node(Caller::verify(&self.link, request.headers())?);
                objects::push(&self.link, peer, request.into_body()).await
            }
            "/flwr.proto.Fleet/PullObject" => {
                let peer = Peer::Node(Caller::verify(&self.link, request.headers())?);
                objects::pull(&self.link, peer, request.into_body()).await
            }
            "/flwr.proto.ServerAppIo/PushObject" => objects::push(&self.link, Peer::App, request.into_body()).await,
            "/flwr.proto.ServerAppIo/PullObject" => objects::pull(&self.link, Peer::App, request.into_body()).await,
            _ => {
                let (parts, mut body) = request.into_parts();
                let first = body.frame().await.transpose().map_err(|_| went_away())?;
                let announced = first.as_ref().and_then(announced_bytes).unwrap_or(0);
                if announced > self.link.limits.message_bytes {
                    let limit = self.link.limits.message_bytes;
                    let text = format!("message of {announced} bytes is larger than the limit of {limit}");
                    return Err(Refusal::new(Kind::TooLarge, text));
                }
                let _bytes = if announced > SMALL_BYTES {
                    let units = (announced.div_ceil(UNIT_BYTES) as u32).min(self.all_units);
                    Some(self.units.acquire_many(units).await.map_err(|_| went_away())?)
                } else {
                    None
                };
                let body = Body::new(Replay { first, rest: body });
                match inner.call(Request::from_parts(parts, body)).await {
                    Ok(response) => Ok(blame_the_message(response)),
                    Err(never) => match never {},
                }
            }
        }
    }
}

/// tonic calls bytes that are no message an internal error. They are the sender's, so they are an invalid argument;
/// nothing of ours ever answers INTERNAL.
fn blame_the_message(mut response: Response<Body>) -> Response<Body> {
    if let Some(status) = response.headers_mut().get_mut("grpc-status")
        && status == "13"
    {
        *status = HeaderValue::from_static("3");
    }
    response
}

fn went_away() -> Refusal {
    Refusal::new(Kind::Transient, "the peer went away")
}

/// The length in a message's prefix. A first frame shorter than the prefix says nothing: tonic's own limit holds.
fn announced_bytes(first: &Frame<Bytes>) -> Option<usize> {
    let data = first.data_ref()?.get(1..PREFIX_BYTES)?;
    Some(u32::from_be_bytes([data[0], data[1], data[2], data[3]]) as usize)
}

/// A body whose first frame was looked at.
struct Replay {
    first: Option<Frame<Bytes>>,
    rest: Body,
}

impl http_body::Body for Replay {
    type Data = Bytes;
    type Error = tonic::Status;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, tonic::Status>>> {
        if let Some(first) = self.first.take() {
            return Poll::Ready(Some(Ok(first)));
        }
        Pin::new(&mut self.rest).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.first.is_none() && self.rest.is_end_stream()
    }
}

impl<S> Layer<S> for Door {
    type Service = Guarded<S>;

    fn layer(&self, inner: S) -> Guarded<S> {
        Guarded { door: self.clone(), inner }
    }
}

/// A service behind the door.
#[derive(Clone)]
pub struct Guarded<S> {
    door: Door,
    inner: S,
}

impl<S> Service<Request<Body>> for Guarded<S>
where
    S: Service<Request<Body>, Response = Response<Body>, Error = Infallible> + Clone + Send + 'static,
    S::Future: Send,
{
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Body>, Infallible>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        // The service that was asked whether it is ready is the one to be called.
        let fresh = self.inner.clone();
        let inner = std::mem::replace(&mut self.inner, fresh);
        let door = self.door.clone();
        Box::pin(
            async move { Ok(door.enter(request, inner).await.unwrap_or_else(|refusal| status(refusal).into_http())) },
        )
    }
}
