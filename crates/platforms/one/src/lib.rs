//! Clients of OpenNebula's APIs. Independent of federations: callers define the meaning of VMs and services.

mod backoff;
mod endpoint;
mod error;
pub mod flow;
pub mod gate;
mod http;
pub mod keys;
mod object;
mod oned;
mod session;
mod state;
pub mod template;
mod trust;
mod xml;
pub mod xmlrpc;

pub use backoff::Backoff;
pub use endpoint::{Endpoint, EndpointError};
pub use error::{Code, Error, FlowRefusal, Refusal, explain, explain_message};
pub use http::{HttpLimits, TransportError};
pub use object::{
    AddressRange, Datastore, Document, History, Host, Image, Nic, Owner, Pci, Quota, User, VirtualNetwork, Vm,
    VmTemplate, XmlObject, Zone, parse, parse_pool,
};
pub use oned::{Oned, Update, VmAction, VmFilter, interpret};
pub use session::{Session, SessionError, session_file};
pub use state::{DatastoreKind, DatastoreState, HostState, ImageKind, ImageState, LcmState, NetworkState, VmState};
pub use template::Template;
pub use trust::{Trust, TrustError};
