//! The driver of this machine: SuperLinks and SuperNodes as processes or containers, in a state directory, surviving whoever
//! started them. It translates and never decides.
//!
//! `recipe` says what is started for a part, and is pure; `record` is what is kept of it; `part` follows from both what is
//! to be done next; `keeper`, `launch` and `ending` do it; `sight` tells what is there.

mod driver;
mod ending;
mod enrolment;
mod gpus;
mod home;
mod keeper;
mod launch;
mod logs;
mod mark;
mod packages;
mod part;
mod ports;
mod probe;
mod process;
mod recipe;
mod record;
mod sight;
mod tls;
mod world;

pub use driver::{Local, LocalDriver, LocalSettings, OpenError};
pub use home::superlinks;
pub use mark::STARTED;
