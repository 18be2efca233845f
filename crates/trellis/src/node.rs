//! `trellis node`: registers nodes at a SuperLink and removes them.

mod drain;
mod join;
mod key;
mod revoke;
mod token;

use std::process::ExitCode;

use clap::{Args, Subcommand};

const AFTER_HELP: &str = "\
A node joins in two steps. An admin creates a token, which can be used once:
  trellis node token --label edge-7 --save edge-7.join --token-file admin.token

The node creates a key, and registers it with the token:
  trellis node join --superlink link.example.org:8000 --root-certificates ca.crt \\
      --key node.key --token-file edge-7.join --name edge-7
  flower-supernode --superlink link.example.org:9092 --root-certificates ca.crt \\
      --auth-supernode-private-key node.key
";

/// Let nodes join, or take them away
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP, subcommand_required = true, arg_required_else_help = true)]
pub struct NodeArgs {
    #[command(subcommand)]
    command: NodeCommand,
}

#[derive(Debug, Subcommand)]
enum NodeCommand {
    Token(token::TokenArgs),
    Join(join::JoinArgs),
    Drain(drain::DrainArgs),
    Revoke(revoke::RevokeArgs),
    Key(key::KeyArgs),
}

pub fn run(args: &NodeArgs) -> ExitCode {
    match &args.command {
        NodeCommand::Token(args) => token::run(args),
        NodeCommand::Join(args) => join::run(args),
        NodeCommand::Drain(args) => drain::run(args),
        NodeCommand::Revoke(args) => revoke::run(args),
        NodeCommand::Key(args) => key::run(args),
    }
}
