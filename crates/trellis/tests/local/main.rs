//! The local driver with real processes: the promises of its port, and what happens when things end where they should not.

mod conformance;
mod containers;
mod crashes;
mod federation;
mod official;
mod scene;
