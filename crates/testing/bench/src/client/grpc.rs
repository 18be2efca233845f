//! Calls over gRPC: one HTTP/2 connection per client, as in Flower 1.25.

use std::error::Error;
use std::net::SocketAddr;

use http::HeaderMap;
use http::uri::PathAndQuery;
use prost::Message;
use tonic::client::Grpc;
use tonic::metadata::MetadataMap;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Extensions, Request, Status};
use tonic_prost::ProstCodec;

use crate::call::CallError;
use crate::rpc::Rpc;

/// Large enough for a few chunks, so that flow control of the generator never delays a server.
const STREAM_WINDOW_BYTES: u32 = 16 * 1024 * 1024;
const CONNECTION_WINDOW_BYTES: u32 = 64 * 1024 * 1024;

pub struct Client {
    client: Grpc<Channel>,
}

impl Client {
    pub async fn open(server: SocketAddr) -> Result<Self, CallError> {
        let endpoint = Endpoint::from_shared(format!("http://{server}"))
            .expect("a socket address makes a valid URI")
            .initial_stream_window_size(STREAM_WINDOW_BYTES)
            .initial_connection_window_size(CONNECTION_WINDOW_BYTES);
        let channel = endpoint.connect().await.map_err(|error| CallError::transient(error.to_string()))?;
        Ok(Self { client: Grpc::new(channel).max_decoding_message_size(usize::MAX) })
    }

    pub async fn call<Q, A>(&self, rpc: &Rpc<Q, A>, headers: HeaderMap, request: &Q) -> Result<A, CallError>
    where
        Q: Message + Clone + 'static,
        A: Message + Default + 'static,
    {
        let mut client = self.client.clone();
        client.ready().await.map_err(|error| CallError::transient(error.to_string()))?;
        let metadata = MetadataMap::from_headers(headers);
        let request = Request::from_parts(metadata, Extensions::new(), request.clone());
        let codec = ProstCodec::<Q, A>::default();
        let answer = client.unary(request, PathAndQuery::from_static(rpc.grpc), codec).await;
        answer.map(tonic::Response::into_inner).map_err(|status| error(&status))
    }
}

fn error(status: &Status) -> CallError {
    let text = format!("{:?}: {}", status.code(), status.message());
    if is_unavailable(status) { CallError::transient(text) } else { CallError::fatal(text) }
}

/// Official clients see a broken connection as UNAVAILABLE; this library reports UNKNOWN with a local cause.
fn is_unavailable(status: &Status) -> bool {
    status.code() == Code::Unavailable || (status.code() == Code::Unknown && status.source().is_some())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_unavailable_is_retried() {
        assert_eq!(error(&Status::unavailable("busy")), CallError::transient("Unavailable: busy"));
        assert_eq!(error(&Status::cancelled("shed")), CallError::fatal("Cancelled: shed"));
        assert_eq!(error(&Status::unknown("Exception")), CallError::fatal("Unknown: Exception"));
    }
}
