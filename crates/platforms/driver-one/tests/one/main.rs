//! The driver against a cloud that answers as the recorded one, with agents that pretend.

mod conformance;
mod scene;
mod stories;
