//! `trellis pki`: converts arguments for `trellis_pki`, and its results to text, JSON and exit codes. Decides nothing about
//! certificates.

mod args;
mod issue;
mod report;
mod show;
mod trust;

use std::process::ExitCode;

pub use args::PkiArgs;
use args::{InitArgs, PkiCommand, RotateArgs};
use report::{Failure, print_text};
use serde_json::json;
use trellis_clock::now_unix;
use trellis_diagnostic::Diagnostic;
use trellis_pki::Error;
use trellis_pki::authority::{self, Authority, CA_VALIDITY};
use trellis_pki::span::Span;

use trellis_terminal::{Format, print_as};

/// The default name of an authority.
const DEFAULT_NAME: &str = "trellis";

pub fn run(args: PkiArgs) -> ExitCode {
    let (name, done) = match args.command {
        PkiCommand::Init(args) => ("init", init(&args)),
        PkiCommand::Issue(args) => ("issue", issue::run(&args)),
        PkiCommand::Show(args) => ("show", show::run(&args)),
        PkiCommand::Rotate(args) => ("rotate", rotate(&args)),
        PkiCommand::Trust(args) => ("trust", trust::run(&args)),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.report(name),
    }
}

fn init(args: &InitArgs) -> Result<(), Failure> {
    let name = args.name.as_deref().unwrap_or(DEFAULT_NAME);
    let mut problems = Vec::new();
    let validity = span(args.validity.as_deref(), CA_VALIDITY, &mut problems);
    if !problems.is_empty() {
        problems.extend(authority::problems(name, validity));
        return Err(Error::Refused(problems).into());
    }
    let authority = Authority::init(&args.dir, name, validity, now_unix())?;
    let survey = authority.survey(now_unix())?;
    match args.output.format {
        format @ (Format::Json | Format::Yaml) => {
            print_as(format, &show::authority_json(authority.dir(), &survey, now_unix()))
        }
        Format::Table => {
            let dir = authority.dir().display();
            print_text(&show::certificate_text("CA", &survey.trusted[0].certificate, now_unix()));
            print_text(&format!(
                "\nIts key is in {dir}: keep that directory where no app can read it, and back it up.\n\
                 Next: trellis pki issue --dir {dir} --endpoint HOST --out TLS-DIRECTORY\n"
            ));
        }
    }
    Ok(())
}

fn rotate(args: &RotateArgs) -> Result<(), Failure> {
    let step = args.step();
    let mut authority = Authority::open(&args.dir)?;
    let changed = match step {
        Some(step) => authority.rotate(step, args.force, now_unix())?,
        None => false,
    };
    let (state, next) = (authority.rotation(), authority.rotation().next_step());
    match args.output.format {
        format @ (Format::Json | Format::Yaml) => {
            print_as(format, &json!({"changed": changed, "rotation": state, "next_step": next}))
        }
        Format::Table => {
            if step.is_some() && !changed {
                print_text("no change\n");
            }
            print_text(&show::rotation_text(state));
        }
    }
    Ok(())
}

/// Parses a duration. A duration that cannot be parsed gives a problem and the default.
fn span(given: Option<&str>, default: Span, problems: &mut Vec<Diagnostic>) -> Span {
    match given.map(|text| (text, Span::parse(text))) {
        None => default,
        Some((_, Some(span))) => span,
        Some((text, None)) => {
            let what = format!("{text:?} is not a duration");
            problems.push(Diagnostic::error("--validity", what, "write it like 30d, 12h or 10y"));
            default
        }
    }
}
