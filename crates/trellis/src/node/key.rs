//! `trellis node key`: creates a key for a node on its machine. Makes no call.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use serde_json::json;
use trellis_client::NodeKey;
use trellis_client::node_key::{FormError, NodeKeyError};
use trellis_terminal::{OutputArgs, explain, print, remark};

use crate::remote::{self, CommandError};

const AFTER_HELP: &str = "\
Example: a node that is registered with the tools of Flower
  trellis node key node.key
  flwr supernode register node.key.pub
  flower-supernode --auth-supernode-private-key node.key ...
";

/// Create a key for a node, without joining
///
/// Writes the private key (P-384, in the format of OpenSSH, mode 0600) to FILE, the public key to FILE.pub. An existing
/// key is kept, and a missing public key is written. Prints the public key.
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub struct KeyArgs {
    /// Path of the private key
    file: PathBuf,
    /// Comment in the files [default: the name of this machine]
    #[arg(long, value_name = "TEXT")]
    comment: Option<String>,
    #[command(flatten)]
    output: OutputArgs,
}

pub fn run(args: &KeyArgs) -> ExitCode {
    remote::run("trellis node key", async {
        let comment = args.comment.clone().unwrap_or_else(machine_name);
        let (key, public) = key_at(&args.file, &comment)?;
        args.output.print(&json!({"key": args.file, "public_key": public, "openssh": key.openssh()}), || {
            remark(&format!("The public key is in {}:", public.display()));
            print(&format!("{}\n", key.openssh()));
        });
        Ok(())
    })
}

/// The key in `file`, created if missing, and the path of its public key.
pub fn key_at(file: &Path, comment: &str) -> Result<(NodeKey, PathBuf), CommandError> {
    let key = match NodeKey::read(file)? {
        Some(key) => key,
        None => {
            let key = NodeKey::generate(file, comment)?;
            remark(&format!("A new key is in {}; keep it on this machine.", file.display()));
            key
        }
    };
    let public = key.write_public(comment)?;
    Ok((key, public))
}

/// The host name of this machine; empty if it is unknown.
pub fn machine_name() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

impl From<NodeKeyError> for CommandError {
    fn from(error: NodeKeyError) -> CommandError {
        let advice = match &error {
            NodeKeyError::Form { why: FormError::OtherPem, .. } => {
                Some("ssh-keygen -p -N '' -f FILE writes it in the form of OpenSSH")
            }
            NodeKeyError::Form { why: FormError::Encrypted, .. } => {
                Some("remove the password with ssh-keygen -p -f FILE")
            }
            NodeKeyError::Form { .. } => Some("give the path of a file that does not exist, to create a key"),
            NodeKeyError::Exposed { .. } => Some("chmod 600 FILE; if others may have read it, use a new key"),
            NodeKeyError::OtherPublicKey { .. } => Some("remove the public one if the private one is right"),
            NodeKeyError::Unwritable { .. } => Some("give a path in a directory that exists and can be written"),
            NodeKeyError::Unreadable { .. } | NodeKeyError::Generation => None,
        };
        CommandError::failed(explain(&error), advice)
    }
}
