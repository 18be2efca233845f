//! `trellis connect`: lets the official `flwr` command find a federation or a SuperLink by name, as `trellis up` does for its own.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use trellis_api::Connection;
use trellis_client::Address;
use trellis_flwr::connection::{self, PYPROJECT, Written, is_app};
use trellis_terminal::{OutputArgs, clean, print, remark};

use crate::remote::{self, CommandError, Destination as _, FederationArgs};
use crate::up::flwr;

const CALLED: &str = "trellis connect";
/// Variable of other commands; this command requires a file.
const TOKEN_VARIABLE: &str = "TRELLIS_TOKEN";

const AFTER_HELP: &str = "\
Examples:
  trellis connect lab                                a federation of the server, by its name
  flwr run . lab                                     with any release from 1.26 on
  trellis connect lab --app ./my-app                 also for Flower 1.25, in this app
  trellis connect prod --address link.example.org:8000 --root-certificates ca.crt
  trellis connect prod --address link.example.org:8000 --token-file my.token    without flwr login
  trellis connect test --address 127.0.0.1:8000 --insecure
  trellis connect lab --remove

`trellis up` and `trellis apply` do this for their federations. An address is that of the SuperLink's HTTP API (its flag
--port); it serves every release. The connection is written to config.toml in FLWR_HOME (~/.flwr); for Flower 1.25,
which does not read it, to the pyproject.toml of the app. Nothing else in these files changes, and --remove (or
`trellis down`) removes all of it.
";

/// Let the official flwr command find a federation or a SuperLink by name
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub struct ConnectArgs {
    #[command(flatten)]
    federation: FederationArgs,

    /// Host and port of the HTTP API of a SuperLink that is no federation of the server
    #[arg(long, value_name = "HOST:PORT")]
    address: Option<String>,

    /// PEM file with the authorities that may have signed its certificate [default: those of the system]
    #[arg(long, value_name = "FILE", conflicts_with = "insecure")]
    root_certificates: Option<PathBuf>,

    /// It serves without TLS
    #[arg(long, requires = "address")]
    insecure: bool,

    /// File with the token of your account, or - for standard input: `flwr` then needs no login
    ///
    /// The token is stored like that of `flwr login`, readable by you only.
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,

    /// Directory of an app for Flower 1.25 [default: this one, if the flwr on PATH is 1.25]
    #[arg(long, value_name = "DIR")]
    app: Option<PathBuf>,

    /// Remove the connection of this name
    #[arg(long, conflicts_with = "address")]
    remove: bool,

    #[command(flatten)]
    output: OutputArgs,
}

pub fn run(args: &ConnectArgs) -> ExitCode {
    remote::run(CALLED, async {
        let (written, lines) = connect(args).await?;
        let lines: String = lines.iter().map(|line| format!("{}\n", clean(line))).collect();
        match (written.is_ready(), lines.is_empty()) {
            (true, true) => {
                remark("There is no connection to remove.");
                args.output.print(&written, || {});
            }
            (true, false) => args.output.print(&written, || print(&lines)),
            (false, _) => {
                remark(lines.trim_end());
                let advice = "choose another name, or change the file by hand";
                return Err(CommandError::failed("not all files could be changed", Some(advice)));
            }
        }
        Ok(())
    })
}

async fn connect(args: &ConnectArgs) -> Result<(Written, Vec<String>), CommandError> {
    let failed = |why: String| CommandError::failed(why, None);
    if let Some(directory) = args.app.as_deref().filter(|directory| !args.remove && !is_app(directory)) {
        let what = format!("--app: {} is not the directory of a Flower app", directory.display());
        return Err(CommandError::usage(
            what,
            "give the directory with the app's pyproject.toml, which has a table tool.flwr.app",
        ));
    }
    let (name, connection, here) = match &args.address {
        Some(address) => (named(args)?, named_superlink(args, address)?, true),
        None if args.remove => {
            let here = std::env::current_dir().unwrap_or_default();
            // Also if another release was installed when the connection was written.
            let app = args.app.clone().or_else(|| here.join(PYPROJECT).is_file().then_some(here));
            let (name, ca) = (named(args)?, args.root_certificates.as_deref());
            let written = connection::remove(None, app.as_deref(), &name, ca).map_err(|it| failed(it.to_string()))?;
            let lines = written.lines();
            return Ok((written, lines));
        }
        None if args.root_certificates.is_some() => {
            let what = "--root-certificates requires --address";
            return Err(CommandError::usage(
                what,
                "leave it out: the server knows the certificates of its federations",
            ));
        }
        None => {
            let (found, name) = args.federation.found().await?;
            (name.clone(), found.client.connection(&name).await?, found.home.is_some())
        }
    };
    let token = match (&args.token_file, here) {
        (Some(file), _) => remote::token_from(Some(file), TOKEN_VARIABLE)?,
        (None, true) => flwr::token(&connection).map_err(failed)?,
        (None, false) => None,
    };
    let connected = flwr::connect(&name, &connection, here, token, args.app.as_deref()).await.map_err(failed)?;
    let lines = connected.lines();
    Ok((connected.written, lines))
}

/// The name, without a server that could list its federations.
fn named(args: &ConnectArgs) -> Result<String, CommandError> {
    let named = args.federation.named()?.map(str::to_owned);
    named.ok_or_else(|| CommandError::usage("the connection has no name", "name it, as in trellis connect lab"))
}

/// The connection that the arguments describe.
fn named_superlink(args: &ConnectArgs, text: &str) -> Result<Connection, CommandError> {
    let address = Address::parse(text).map_err(|why| {
        let what = format!("--address cannot be {text:?}: {why}");
        CommandError::usage(what, "give host and port of the HTTP API, as in link.example.org:8000")
    })?;
    let path = |path: &PathBuf| path.to_string_lossy().into_owned();
    if let Some(missing) = args.root_certificates.as_deref().filter(|path| !Path::is_file(path)) {
        let what = format!("--root-certificates: {} does not exist", missing.display());
        return Err(CommandError::usage(what, "give the PEM file with the authority of the SuperLink"));
    }
    Ok(Connection {
        http: Some(address.to_string()),
        insecure: args.insecure,
        root_certificates_path: args.root_certificates.as_ref().map(path),
        ..Default::default()
    })
}
