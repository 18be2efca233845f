//! The seam between the two transports: a line carries any call to a server, over gRPC or over HTTP. What is called,
//! and why, it does not know.

mod grpc;
mod http;

use std::net::{Ipv4Addr, SocketAddr};

use ::http::{HeaderMap, HeaderValue};
use prost::Message;

use crate::call::CallError;
use crate::rpc::Rpc;

/// How Flower is spoken, and so with which release of it ours is compared.
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

    /// The release of the original that speaks it.
    pub fn official_version(self) -> &'static str {
        match self {
            Transport::Grpc => "1.25",
            Transport::Http => "1.42",
        }
    }

    /// The headers by which a program of that release says what it is. 1.25 says nothing.
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

/// One client's way to one server.
pub enum Line {
    Grpc(grpc::Line),
    Http(http::Line),
}

impl Line {
    /// Connects. `home` is the address of this machine that the client has for its own; over gRPC, with one connection
    /// for each client, all may share one.
    pub async fn open(transport: Transport, server: SocketAddr, home: Ipv4Addr) -> Result<Self, CallError> {
        Ok(match transport {
            Transport::Grpc => Line::Grpc(grpc::Line::open(server).await?),
            Transport::Http => Line::Http(http::Line::open(server, home).await?),
        })
    }

    /// Makes a call once.
    pub async fn call<Q, A>(&self, rpc: &Rpc<Q, A>, headers: HeaderMap, request: &Q) -> Result<A, CallError>
    where
        Q: Message + Clone + 'static,
        A: Message + Default + 'static,
    {
        match self {
            Line::Grpc(line) => line.call(rpc, headers, request).await,
            Line::Http(line) => line.call(rpc, headers, request).await,
        }
    }
}
