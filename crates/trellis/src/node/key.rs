//! `trellis node key`: a key for a node, made where the node is. Calls nobody.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use serde_json::json;
use trellis_client::NodeKey;
use trellis_client::node_key::{FormError, NodeKeyError};

use crate::remote::{self, OutputArgs, Trouble, explain, print, remark};

const AFTER_HELP: &str = "\
Example: a node that is registered with the tools of Flower
  trellis node key node.key
  flwr supernode register node.key.pub
  flower-supernode --auth-supernode-private-key node.key ...
";

/// Make a key for a node, without joining
///
/// The private key (P-384, in the form of OpenSSH, mode 0600) goes to FILE, the public key to FILE.pub. A key that is
/// there is kept, and its public key is written if that is missing. The public key is printed.
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub struct KeyArgs {
    /// Where the private key is or shall be
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

/// The key in `file`, made if there is none, and where its public half is.
pub fn key_at(file: &Path, comment: &str) -> Result<(NodeKey, PathBuf), Trouble> {
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

/// What this machine calls itself; empty if it does not say.
pub fn machine_name() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

impl From<NodeKeyError> for Trouble {
    fn from(error: NodeKeyError) -> Trouble {
        let advice = match &error {
            NodeKeyError::Form { why: FormError::OtherPem, .. } => {
                Some("ssh-keygen -p -N '' -f FILE writes it in the form of OpenSSH")
            }
            NodeKeyError::Form { why: FormError::Encrypted, .. } => {
                Some("ssh-keygen -p -f FILE takes the password away")
            }
            NodeKeyError::Form { .. } => Some("give the path of a file that does not exist: then a key is made"),
            NodeKeyError::Exposed { .. } => Some("chmod 600 FILE; if others may have read it, use a new key"),
            NodeKeyError::OtherPublicKey { .. } => Some("remove the public one if the private one is right"),
            NodeKeyError::Unwritable { .. } => Some("give a path in a directory that exists and can be written"),
            NodeKeyError::Unreadable { .. } | NodeKeyError::Generation => None,
        };
        Trouble::failed(explain(&error), advice)
    }
}
