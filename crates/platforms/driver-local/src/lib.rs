//! The local driver: SuperLinks and SuperNodes as processes or containers of this machine. They survive the control plane, and their
//! state is in its home. The driver makes no decisions.
//!
//! `recipe` describes what is started for a part, and is pure. `record` is the stored state of a part. `part` derives the next
//! step from both; `reconciler`, `launch` and `termination` execute it. `observation` observes the part.

mod driver;
mod enrolment;
mod gpus;
mod home;
mod launch;
mod logs;
mod mark;
mod observation;
mod packages;
mod part;
mod ports;
mod probe;
mod process;
mod recipe;
mod reconciler;
mod record;
mod shared;
mod termination;
mod tls;

pub use driver::{Local, LocalDriver, LocalSettings, OpenError};
pub use home::superlinks;
pub use mark::STARTED;
