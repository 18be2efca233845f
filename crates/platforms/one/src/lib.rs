//! OpenNebula as its callers see it. Knows nothing of federations: what a VM or a service means is for the callers.

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
pub use http::{Patience, TransportError};
pub use object::{
    AddressRange, Datastore, Document, History, Host, Image, Nic, Owner, Pci, Quota, Told, User, VirtualNetwork, Vm,
    VmTemplate, Zone, parse, parse_pool,
};
pub use oned::{Oned, Update, VmAction, VmFilter, judge};
pub use session::{Session, SessionError, session_file};
pub use state::{DatastoreKind, DatastoreState, HostState, ImageKind, ImageState, LcmState, NetworkState, VmState};
pub use template::Template;
pub use trust::{Trust, TrustError};
