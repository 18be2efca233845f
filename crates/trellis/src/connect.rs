//! `trellis connect`: lets the official `flwr` command find a SuperLink by name, as `trellis up` does for its own.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use trellis_api::Connection;

use crate::address::Address;
use crate::flwr_connection::{self, Written, app_here};
use crate::python::FlwrHere;
use crate::remote::{self, Trouble, clean, print, remark};

const CALLED: &str = "trellis connect";
/// Variable of other commands; this command requires a file.
const TOKEN_VARIABLE: &str = "TRELLIS_TOKEN";

const AFTER_HELP: &str = "\
Examples:
  trellis connect lab --address link.example.org:8000 --root-certificates ca.crt
  flwr run . lab                                     from now on, with any release from 1.25 on
  trellis connect local --address 127.0.0.1:8000 --insecure
  trellis connect lab --address link.example.org:8000 --token-file my.token    no flwr login is needed
  trellis connect lab --remove

The address is that of the SuperLink's HTTP API (its flag --port); it serves every release. The
connection is written to config.toml in FLWR_HOME (~/.flwr); for Flower 1.25, which does not
read it, to the pyproject.toml of the app in this directory. Nothing else in these files changes.
";

/// Let the official flwr command find a SuperLink by name
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub struct ConnectArgs {
    /// How `flwr` shall call it, as in `flwr run . NAME`
    name: String,

    /// Host and port of the SuperLink's HTTP API
    #[arg(long, value_name = "HOST:PORT", required_unless_present = "remove")]
    address: Option<String>,

    /// PEM file with the authorities that may have signed its certificate [default: those of the system]
    #[arg(long, value_name = "FILE", conflicts_with = "insecure")]
    root_certificates: Option<PathBuf>,

    /// It serves without TLS
    #[arg(long)]
    insecure: bool,

    /// File with the token of your account, or - for standard input: `flwr` then needs no login
    ///
    /// The token is put where `flwr login` would put one, readable by you only.
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,

    /// Take away what was written for this name before
    #[arg(long, conflicts_with_all = ["address", "insecure", "token_file"])]
    remove: bool,
}

pub fn run(args: &ConnectArgs) -> ExitCode {
    remote::run(CALLED, async {
        let written = connect(args).await?;
        let lines: String = written.lines().iter().map(|line| format!("{}\n", clean(line))).collect();
        match (written.is_ready(), lines.is_empty()) {
            (true, true) => remark("There was nothing to take away."),
            (true, false) => print(&lines),
            (false, _) => {
                remark(lines.trim_end());
                let advice = "choose another name, or change the file by hand";
                return Err(Trouble::failed("not everything could be done", Some(advice)));
            }
        }
        Ok(())
    })
}

async fn connect(args: &ConnectArgs) -> Result<Written, Trouble> {
    let here = std::env::current_dir().unwrap_or_default();
    let ca = args.root_certificates.as_deref();
    let refused = |error: flwr_connection::Error| Trouble::failed(error.to_string(), None);
    if args.remove {
        // Also where it was written for another release than there is now.
        let app = here.join("pyproject.toml").is_file().then_some(here.as_path());
        return flwr_connection::remove(None, app, &args.name, ca).map_err(refused);
    }
    let connection = connection(args)?;
    let release = FlwrHere::look(false).await.and_then(|found| found.release());
    let app = app_here(&here, release);
    let token = match &args.token_file {
        Some(file) => remote::token_from(Some(file), TOKEN_VARIABLE)?,
        None => None,
    };
    flwr_connection::write(None, app.as_deref(), &args.name, &connection, ca, token.as_ref()).map_err(refused)
}

fn connection(args: &ConnectArgs) -> Result<Connection, Trouble> {
    let text = args.address.as_deref().unwrap_or_default();
    let address = Address::parse(text).map_err(|why| {
        let what = format!("--address cannot be {text:?}: {why}");
        Trouble::usage(what, "give host and port of the HTTP API, as in link.example.org:8000")
    })?;
    if let Some(missing) = args.root_certificates.as_deref().filter(|path| !Path::is_file(path)) {
        let what = format!("--root-certificates: there is no file {}", missing.display());
        return Err(Trouble::usage(what, "give the PEM file with the authority of the SuperLink"));
    }
    Ok(Connection { http: Some(address.to_string()), insecure: args.insecure, ..Default::default() })
}
