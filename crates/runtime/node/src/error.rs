//! Why a SuperNode does not start, or ends.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

use trellis_client::fleet::FleetError;
use trellis_client::node_key::NodeKeyError;

use crate::store::StoreError;
use crate::watch::ListenError;
use crate::{official, resources, warm};

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("the link to the SuperLink was given up")]
    Link(#[source] FleetError),
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Key(#[from] NodeKeyError),
    #[error("there is no key in {path}: make one with `trellis node key`, and let it be registered")]
    NoKey { path: PathBuf },
    #[error("{path} cannot be made or used")]
    Directory { path: PathBuf, source: io::Error },
    #[error("apps cannot be run")]
    Python(#[source] warm::StartError),
    #[error("apps cannot be served")]
    Apps(#[from] official::StartError),
    #[error("the app of this program cannot be used: {}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))]
    NativeApp(Vec<trellis_native::Problem>),
    #[error("apps cannot have the GPUs that were asked for")]
    Gpu(#[source] resources::Refusal),
    #[error(transparent)]
    Sandbox(#[from] trellis_sandbox::Unavailable),
    #[error(transparent)]
    Listen(#[from] ListenError),
    #[error("cannot listen on {address} for health checks")]
    Health { address: SocketAddr, source: io::Error },
    #[error("a part of the node broke: {0}")]
    Broken(String),
}
