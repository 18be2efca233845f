//! The driver against a real API server with its controllers, and pods that nobody runs.

mod conformance;
mod scene;
mod stories;
