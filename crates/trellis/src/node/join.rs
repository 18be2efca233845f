//! `trellis node join`: creates the key of a node and registers it at a SuperLink.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use serde::Serialize;
use trellis_client::Error;
use trellis_terminal::{Format, OutputArgs, explain, print, print_as, remark};
use trellis_wire::call::Join;
use trellis_wire::token::Token;

use super::key::{key_at, machine_name};
use crate::remote::{self, CommandError, ConnectionArgs, token_from};

const TOKEN_VARIABLE: &str = "TRELLIS_JOIN_TOKEN";

const AFTER_HELP: &str = "\
Example:
  trellis node join --superlink link.example.org:8000 --root-certificates ca.crt \\
      --key node.key --token-file edge-7.join

Then start the node. Flower 1.40 and later use the same port, earlier ones that of the Fleet API:
  flower-supernode --superlink link.example.org:8000 --root-certificates ca.crt \\
      --auth-supernode-private-key node.key
  flower-supernode --superlink link.example.org:9092 --root-certificates ca.crt \\
      --auth-supernode-private-key node.key

The private key stays on this machine. Prints the id of the node.
";

/// Register this machine as a node, with a token from `trellis node token`
///
/// If the file of --key does not exist, a key is created there (as by `trellis node key`). Joining again with the same key
/// and token has no effect.
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub struct JoinArgs {
    /// Private key of the node; created if missing
    #[arg(long, value_name = "FILE")]
    key: PathBuf,
    /// File with the join token, or - for standard input
    ///
    /// Without it, the token itself may be in the environment variable TRELLIS_JOIN_TOKEN.
    #[arg(long, value_name = "FILE", env = "TRELLIS_JOIN_TOKEN_FILE", hide_env_values = true)]
    token_file: Option<PathBuf>,
    /// Display name of the node [default: the name of this machine]
    #[arg(long)]
    name: Option<String>,
    /// Location of the node
    #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true)]
    location: String,
    #[command(flatten)]
    output: OutputArgs,
    #[command(flatten)]
    connection: ConnectionArgs,
}

#[derive(Serialize)]
struct Outcome {
    node_id: String,
    name: String,
    key: PathBuf,
    public_key: PathBuf,
}

pub fn run(args: &JoinArgs) -> ExitCode {
    remote::run("trellis node join", join(args))
}

async fn join(args: &JoinArgs) -> Result<(), CommandError> {
    let token = join_token(args)?;
    // The join token follows the same TLS rule as the token of an account, but travels in the body.
    let superlink = args.connection.superlink(Some(token.clone()))?;
    let name = args.name.clone().unwrap_or_else(machine_name);
    let (key, public_key) = key_at(&args.key, &name)?;
    let call = Join {
        token: token.reveal().to_owned(),
        public_key: key.public_pem(),
        name: name.clone(),
        location: args.location.clone(),
    };
    let node_id = superlink.call_as_node(&call, &key).await.map_err(refused)?.node_id;
    match args.output.format {
        format @ (Format::Json | Format::Yaml) => {
            print_as(format, &Outcome { node_id, name, key: args.key.clone(), public_key })
        }
        Format::Table => {
            remark(&format!("Joined {} as {name}; the id of the node is:", superlink.endpoint()));
            print(&format!("{node_id}\n"));
        }
    }
    Ok(())
}

fn join_token(args: &JoinArgs) -> Result<Token, CommandError> {
    token_from(args.token_file.as_deref(), TOKEN_VARIABLE)?.ok_or_else(|| {
        let what = "there is no join token: neither --token-file nor TRELLIS_JOIN_TOKEN is set";
        CommandError::usage(what, "an admin creates one with: trellis node token")
    })
}

/// A refused join needs another advice than a refused call.
fn refused(error: Error) -> CommandError {
    match &error {
        Error::Refused { status: 401 | 403, .. } => {
            CommandError::failed(explain(&error), Some("ask an admin for a new join token: trellis node token"))
        }
        _ => error.into(),
    }
}
