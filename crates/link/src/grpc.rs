//! The gRPC front end of Flower 1.25: three services, three ports.

mod door;
mod listen;
mod objects;
mod services;
pub mod status;

pub use door::Door;
use listen::Line;
pub use listen::{Listener, TlsError, TlsSettings};
pub use services::{AppService, ControlService, FleetService};
