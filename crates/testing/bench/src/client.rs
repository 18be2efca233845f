//! A client of either transport: sends any call over gRPC or HTTP.

mod grpc;
mod http;

use std::net::{Ipv4Addr, SocketAddr};

use ::http::{HeaderMap, HeaderValue};
use prost::Message;

use crate::call::CallError;
use crate::rpc::Rpc;

/// The transport, and with it the official release to compare with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Transport {
    /// gRPC, as Flower 1.25 speaks it
    Grpc,
    /// Protobuf over HTTP/1.1, as Flower 1.42 speaks it
    Http,
}

impl Transport {
    pub const ALL: [Transport; 2] = [Transport::Grpc, Transport::Http];

    pub fn name(self) -> &'static str {
        match self {
            Transport::Grpc => "gRPC",
            Transport::Http => "HTTP",
        }
    }

    /// Returns the official release that uses the transport.
    pub fn official_version(self) -> &'static str {
        match self {
            Transport::Grpc => "1.25",
            Transport::Http => "1.42",
        }
    }

    /// Returns the headers with which a program of that release identifies itself. 1.25 sends none.
    pub fn announcement(self, component: &'static str) -> HeaderMap {
        let mut headers = HeaderMap::new();
        if self == Transport::Http {
            headers.insert("flwr-package-name", HeaderValue::from_static("flwr"));
            headers.insert("flwr-package-version", HeaderValue::from_static("1.42.0"));
            headers.insert("flwr-component-name", HeaderValue::from_static(component));
        }
        headers
    }
}

/// A client of one server.
pub enum Client {
    Grpc(grpc::Client),
    Http(http::Client),
}

impl Client {
    /// Connects. `home` is the local address of the client; gRPC clients use one connection each and need none.
    pub async fn open(transport: Transport, server: SocketAddr, home: Ipv4Addr) -> Result<Self, CallError> {
        Ok(match transport {
            Transport::Grpc => Client::Grpc(grpc::Client::open(server).await?),
            Transport::Http => Client::Http(http::Client::open(server, home).await?),
        })
    }

    /// Makes a call once.
    pub async fn call<Q, A>(&self, rpc: &Rpc<Q, A>, headers: HeaderMap, request: &Q) -> Result<A, CallError>
    where
        Q: Message + Clone + 'static,
        A: Message + Default + 'static,
    {
        match self {
            Client::Grpc(client) => client.call(rpc, headers, request).await,
            Client::Http(client) => client.call(rpc, headers, request).await,
        }
    }
}
