//! The local driver with real processes: the conformance suite, and unexpected ends of processes.

mod conformance;
mod containers;
mod crashes;
mod federation;
mod official;
mod scene;
