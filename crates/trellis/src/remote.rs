//! What all commands that call a SuperLink or a server share: how it is reached, where tokens come from, how results and troubles
//! are shown. Knows no single command.

mod connection;
mod federation;
mod output;
mod secret;
mod server;
mod table;
mod time;
mod trouble;

use std::future::Future;
use std::process::ExitCode;

pub use connection::{CallerArgs, ConnectionArgs, SuperlinkArgs};
pub use federation::{FederationArgs, FederationFlag, OfFederationArgs, Place};
pub use output::{Format, Listing, OutputArgs, entry, print, print_as, print_json, remark};
pub use secret::{SaveArgs, token_from};
pub use server::{Found, ServerArgs, default_port, meant, only};
pub use table::{Cell, Column, Table, Tone, clean, colours, painted, plain};
pub use time::{age, moment, parse_ttl};
pub use trouble::{Trouble, explain};

/// Does the work of a command that is called `called`, and tells its trouble.
pub fn run(called: &str, work: impl Future<Output = Result<(), Trouble>>) -> ExitCode {
    let outcome = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime.block_on(work),
        Err(error) => Err(Trouble::failed(format!("the system gives no runtime: {error}"), None)),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(trouble) => trouble.tell(called),
    }
}
