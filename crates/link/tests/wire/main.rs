//! The SuperLink through its sockets.

mod bad_input;
mod peer;
mod revocation;
mod round;
