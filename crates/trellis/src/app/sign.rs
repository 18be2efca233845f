//! `trellis app sign`: signs the app in a directory, for SuperNodes with `--trusted-entities`. Calls no SuperLink.

use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use serde_json::json;
use trellis_client::SigningKey;
use trellis_client::node_key::NodeKeyError;
use trellis_terminal::{OutputArgs, print, remark};
use trellis_wire::fab::{App, BadFab, SIGNATURES_FILE, Signatures, VALID_LICENSE};

use crate::remote::CommandError;

const AFTER_HELP: &str = "\
Example: a node runs only apps that ada signed
  ssh-keygen -t ed25519 -N '' -f ada.key
  trellis app sign ./my-app --key ada.key --name ada > trusted.yaml
  flower-supernode --trusted-entities trusted.yaml ...      or: trellis supernode --trusted-entities trusted.yaml ...
  flwr run ./my-app                                         or: trellis run ./my-app --superlink ...

The signatures are app-signatures.toml in the app's directory. `flwr run` and `trellis run` deliver the file with the app,
and the SuperLink (of Trellis) serves it to the nodes. Sign again after any change of the app.
Exit codes: 0 signed; 1 it cannot be written; 2 refused arguments.
";

/// Sign an app, for SuperNodes with --trusted-entities
///
/// Signs the bundle of the app as `flwr build` packs it. Signatures of other names are kept. Prints the line for the file
/// of --trusted-entities.
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub struct SignArgs {
    /// The directory of the app
    directory: PathBuf,
    /// The private key: Ed25519, in the form of OpenSSH, without a password
    #[arg(long, value_name = "FILE")]
    key: PathBuf,
    /// The name of the key in the file of --trusted-entities
    #[arg(long, value_name = "NAME")]
    name: String,
    #[command(flatten)]
    output: OutputArgs,
}

pub fn run(args: &SignArgs) -> Result<ExitCode, CommandError> {
    if args.name.is_empty() || args.name == VALID_LICENSE {
        let what = format!("--name: {:?} cannot be the name of a signer", args.name);
        return Err(CommandError::usage(what, "give the name of the key in the file of --trusted-entities"));
    }
    let key = key(&args.key)?;
    let app = App::read(&args.directory).map_err(unusable)?.without_signatures().map_err(unusable)?;
    let fab = app.bundle().map_err(unusable)?.fab;
    let path = args.directory.join(SIGNATURES_FILE);
    let mut signatures = read(&path)?;
    signatures.0.insert(args.name.clone(), key.sign(&fab.content));
    trellis_files::replace(&path, signatures.to_text().as_bytes(), trellis_files::PUBLIC_FILE).map_err(|error| {
        let advice = "make the directory writable, or sign a copy of it";
        CommandError::failed(format!("{} cannot be written: {error}", path.display()), Some(advice))
    })?;
    if !App::read(&args.directory).map_err(unusable)?.is_signed() {
        let what = format!("the rules of the app exclude {SIGNATURES_FILE} from its bundle");
        let advice = "see to .gitignore, and to fab-include and fab-exclude in [tool.flwr.app] of pyproject.toml";
        return Err(CommandError::failed(what, Some(advice)));
    }
    remark(&format!("{} signed the bundle {}; the signature is in {}", args.name, fab.hash_str, path.display()));
    let result = json!({"name": args.name, "key": key.openssh(), "fab_hash": fab.hash_str, "path": path});
    args.output.print(&result, || {
        // A JSON text is a YAML text, too.
        print(&format!("{}: {:?}\n", serde_json::Value::from(args.name.as_str()), key.openssh()));
    });
    Ok(ExitCode::SUCCESS)
}

fn key(path: &Path) -> Result<SigningKey, CommandError> {
    let advice = "make one with `ssh-keygen -t ed25519 -N '' -f FILE`";
    match SigningKey::read(path) {
        Ok(Some(key)) => Ok(key),
        Ok(None) => Err(CommandError::usage(format!("--key: {} does not exist", path.display()), advice)),
        Err(error @ NodeKeyError::Exposed { .. }) => {
            Err(CommandError::usage(format!("--key: {error}"), "give it mode 600 (chmod 600 FILE)"))
        }
        Err(error) => Err(CommandError::usage(format!("--key: {}", trellis_terminal::explain(&error)), advice)),
    }
}

fn unusable(problem: BadFab) -> CommandError {
    CommandError::usage(problem.to_string(), "name the directory of a Flower app, with its pyproject.toml")
}

/// The signatures that are there already.
fn read(path: &Path) -> Result<Signatures, CommandError> {
    let failed = |what: String| CommandError::failed(what, Some("delete the file, and sign the app again"));
    match std::fs::read_to_string(path) {
        Ok(text) => Signatures::parse(&text).map_err(|problem| failed(problem.to_string())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Signatures::default()),
        Err(error) => Err(failed(format!("{} cannot be read: {error}", path.display()))),
    }
}
