//! The driver of this machine: SuperLinks and SuperNodes as processes or containers, in a state directory, surviving whoever
//! started them. It translates and never decides.

mod home;
mod packages;
mod recipe;

pub use recipe::{Place, Ports, Probe, Program, Recipe, ServedFiles, TlsFiles};
