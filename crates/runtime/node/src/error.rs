//! Why a SuperNode does not start, or stops.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

use trellis_client::fleet::FleetError;
use trellis_client::node_key::NodeKeyError;
use trellis_diagnostic::{Diagnostic, joined};

use crate::store::StoreError;
use crate::watch::ListenError;
use crate::{official, resources, warm};

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("the SuperLink was unreachable for too long")]
    Link(#[source] FleetError),
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Key(#[from] NodeKeyError),
    #[error("there is no key in {path}: create one with `trellis node key`, and register it")]
    NoKey { path: PathBuf },
    #[error("{path} cannot be created or used")]
    Directory { path: PathBuf, source: io::Error },
    #[error("apps cannot be run")]
    Python(#[source] warm::StartError),
    #[error("apps cannot be served")]
    Apps(#[from] official::StartError),
    #[error("the built-in app cannot be used: {}", joined(.0, "; "))]
    NativeApp(Vec<Diagnostic>),
    #[error("the requested GPUs are not available")]
    Gpu(#[source] resources::GpuError),
    #[error(transparent)]
    Sandbox(#[from] trellis_sandbox::Unavailable),
    #[error(transparent)]
    Listen(#[from] ListenError),
    #[error("cannot listen on {address} for health checks")]
    Health { address: SocketAddr, source: io::Error },
    #[error("internal error: {0}")]
    Broken(String),
}
