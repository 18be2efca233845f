//! The SuperLink through its sockets.

mod app_logs;
mod app_trust;
mod attacks;
mod bad_input;
mod defaults;
mod first_account;
mod http;
mod marks;
mod native;
mod paths;
mod peer;
mod revocation;
mod round;
mod scopes;
mod security;
mod shards;
mod signatures;
mod streams;
mod tasks;
mod watch;
