//! From the arguments of `trellis run` to a request, which `trellis_train::submit` prepares.

use std::path::Path;

use trellis_train::submit::{Given, Location, NATIVE, Request, ServerAppChoice, Source, Submission, prepare};

use super::args::RunArgs;
use super::federation::ClientApps;
use crate::remote::CommandError;

/// `app` is a directory or the name of a built-in app. With `app_server` its own ServerApp trains.
pub fn plan(args: &RunArgs, app: &str, app_server: bool, location: Location) -> Result<Submission, CommandError> {
    let (given, mistyped) = given(args);
    let server_app = match (args.native_server, app_server) {
        (true, _) => ServerAppChoice::Native,
        (false, true) => ServerAppChoice::Own,
        (false, false) => ServerAppChoice::ByValues(&given),
    };
    let submission = source(app, server_app).and_then(|source| {
        let request = Request { source, given: given.clone(), defaults: Default::default(), location };
        prepare(request).map_err(CommandError::from)
    });
    match (mistyped, submission) {
        (None, submission) => submission,
        (Some(mistyped), Err(others)) => Err(mistyped.and(others)),
        (Some(mistyped), Ok(_)) => Err(mistyped),
    }
}

/// The app of the nodes of a federation in this process.
pub fn client_apps(plan: &Submission) -> ClientApps {
    match &plan.built_in {
        Some(app) => ClientApps::BuiltIn { name: app.name.clone(), settings: app.settings.clone() },
        None => ClientApps::Python,
    }
}

fn source(name: &str, server_app: ServerAppChoice<'_>) -> Result<Source, CommandError> {
    let source = match name.strip_prefix(NATIVE) {
        Some(_) if matches!(server_app, ServerAppChoice::Own) => {
            let what = "--app-server: a built-in app has no ServerApp";
            return Err(CommandError::usage(what, "leave it out, or name the directory of a Flower app"));
        }
        Some(name) => Source::built_in(name),
        None => Source::directory(Path::new(name), server_app),
    };
    source.map_err(|problem| CommandError::from(vec![problem]))
}

/// Settings by flag and by `--set`, and malformed ones.
fn given(args: &RunArgs) -> (Vec<Given>, Option<CommandError>) {
    let flags = args.training.0.iter().map(|(flag, key, text)| Given {
        written: flag.clone(),
        key: (*key).to_owned(),
        text: text.clone(),
    });
    let mut given: Vec<Given> = flags.collect();
    let mut mistyped = Vec::new();
    for text in &args.set {
        match text.split_once('=') {
            Some((key, value)) if !key.trim().is_empty() => {
                let key = key.trim().to_owned();
                given.push(Given { written: format!("--set {key}"), key, text: value.trim().to_owned() });
            }
            _ => {
                let what = format!("--set: {text:?} has not the form KEY=VALUE");
                mistyped.push(CommandError::usage(what, "write it like --set local-epochs=2"));
            }
        }
    }
    (given, mistyped.into_iter().reduce(CommandError::and))
}

/// `1 round`, `2 rounds`
pub fn counted(number: u64, what: &str) -> String {
    format!("{number} {what}{}", if number == 1 { "" } else { "s" })
}
