//! From the arguments of `trellis run` to what is sent. What that is, is decided in `trellis_train::submit`.

use std::path::Path;

use trellis_train::settings::Problem;
use trellis_train::submit::{Given, NATIVE, Place, Request, ServerAppChoice, Source, Submission, prepare};

use super::args::RunArgs;
use super::federation::ClientApps;
use crate::remote::Trouble;

/// `app` is a directory or the name of a built-in app; `app_server`: its own ServerApp trains, whatever is given.
pub fn plan(args: &RunArgs, app: &str, app_server: bool, place: Place) -> Result<Submission, Trouble> {
    let (given, mistyped) = given(args);
    let server_app = match (args.native_server, app_server) {
        (true, _) => ServerAppChoice::Native,
        (false, true) => ServerAppChoice::Own,
        (false, false) => ServerAppChoice::ByValues(&given),
    };
    let submission = source(app, server_app).and_then(|source| {
        let request = Request { source, given: given.clone(), defaults: Default::default(), place };
        prepare(request).map_err(|problems| troubles(problems).expect("who refuses says why"))
    });
    match (mistyped, submission) {
        (None, submission) => submission,
        (Some(mistyped), Err(others)) => Err(mistyped.and(others)),
        (Some(mistyped), Ok(_)) => Err(mistyped),
    }
}

/// What trains on the nodes of a federation in this process.
pub fn client_apps(plan: &Submission) -> ClientApps {
    match &plan.built_in {
        Some(app) => ClientApps::BuiltIn { name: app.name.clone(), settings: app.settings.clone() },
        None => ClientApps::Python,
    }
}

fn source(name: &str, server_app: ServerAppChoice<'_>) -> Result<Source, Trouble> {
    let source = match name.strip_prefix(NATIVE) {
        Some(_) if matches!(server_app, ServerAppChoice::Own) => {
            let what = "--app-server: an app of this program has no ServerApp of its own";
            return Err(Trouble::usage(what, "leave it out, or name the directory of a Flower app"));
        }
        Some(name) => Source::built_in(name),
        None => Source::directory(Path::new(name), server_app),
    };
    source.map_err(trouble)
}

/// What was given by flags, and what with `--set`; and what is none.
fn given(args: &RunArgs) -> (Vec<Given>, Option<Trouble>) {
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
                let what = format!("--set: {text:?} is no KEY=VALUE");
                mistyped.push(Trouble::usage(what, "write it like --set local-epochs=2"));
            }
        }
    }
    (given, mistyped.into_iter().reduce(Trouble::and))
}

fn troubles(problems: Vec<Problem>) -> Option<Trouble> {
    problems.into_iter().map(trouble).reduce(Trouble::and)
}

fn trouble(Problem { place, what, advice }: Problem) -> Trouble {
    let what = if place.is_empty() { what } else { format!("{place}: {what}") };
    Trouble::usage(what, &advice)
}

/// `1 round`, `2 rounds`
pub fn counted(number: u64, what: &str) -> String {
    format!("{number} {what}{}", if number == 1 { "" } else { "s" })
}
