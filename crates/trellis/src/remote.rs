//! Arguments and connections of all commands that call a SuperLink or a server: addresses, tokens, federations, errors.

mod connection;
mod error;
mod federation;
mod secret;
mod server;
mod session;
mod url;

use std::future::Future;
use std::process::ExitCode;

pub use connection::{CallerArgs, ConnectionArgs, SuperlinkArgs};
pub use error::CommandError;
pub use federation::{Destination, FederationArgs, FederationFlag, OfFederationArgs};
pub use secret::{SaveArgs, token_from};
pub use server::{Found, ServerArgs, default_port, only, resolve_federation};
pub use url::HttpUrl;

/// Runs the work of a command on a runtime, and prints its error. `called` is the name of the command.
pub fn run(called: &str, work: impl Future<Output = Result<(), CommandError>>) -> ExitCode {
    let outcome = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime.block_on(work),
        Err(error) => Err(CommandError::failed(format!("no async runtime: {error}"), None)),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.report(called),
    }
}
