//! `trellis pki issue`: once, if it is due, or for as long as it runs.

use std::time::Duration;

use serde_json::json;
use tokio::signal::unix::{SignalKind, signal};
use trellis_clock::now_unix;
use trellis_diagnostic::Diagnostic;
use trellis_logging::{LogFormat, LogSettings};
use trellis_pki::authority::{Authority, Issued, LEAF_VALIDITY, Order};
use trellis_pki::endpoint::Endpoint;
use trellis_pki::renewal::Reason;
use trellis_pki::{Error, date};
use trellis_terminal::{Format, print_as};

use super::args::IssueArgs;
use super::report::{Failure, print_text, warn};
use super::show::{certificate_json, certificate_text};
use super::span;
use crate::process::StopSignals;

/// Check interval of --watch. It follows a rotation within this time; SIGHUP is faster.
const POLL_INTERVAL: Duration = Duration::from_secs(60);

pub fn run(args: &IssueArgs) -> Result<(), Failure> {
    let order = order(args)?;
    if args.watch {
        return watch(args, &order);
    }
    let issued = issue(args, &order)?;
    match args.output.format {
        format @ (Format::Json | Format::Yaml) => print_as(
            format,
            &json!({
                "issued": issued.reason.is_some(),
                "reason": issued.reason.as_ref().map(Reason::words),
                "trust_renewed": issued.trust_renewed,
                "leaf": certificate_json(&issued.leaf, now_unix()),
                "files": {"certificate": issued.files.certificate, "key": issued.files.key, "ca": issued.files.ca},
                "warnings": issued.warnings,
            }),
        ),
        Format::Table => {
            warn(&issued.warnings);
            print_text(&summary(&issued));
        }
    }
    Ok(())
}

fn issue(args: &IssueArgs, order: &Order) -> Result<Issued, Error> {
    Authority::open(&args.dir)?.issue(order, now_unix())
}

/// The order, or everything that is wrong with it.
fn order(args: &IssueArgs) -> Result<Order, Error> {
    let mut problems = Vec::new();
    let validity = span(args.validity.as_deref(), LEAF_VALIDITY, &mut problems);
    let mut endpoints: Vec<Endpoint> = Vec::new();
    for text in &args.endpoints {
        match Endpoint::parse(text) {
            Ok(endpoint) => endpoints.push(endpoint),
            Err(why) => {
                let what = format!("{text:?} is not an endpoint: {why}");
                let advice = "write it like link.example.org, 10.0.0.7:9092 or [2001:db8::7]:9092";
                problems.push(Diagnostic::error("--endpoint", what, advice));
            }
        }
    }
    if !args.no_localhost {
        endpoints.extend(Endpoint::localhost());
    }
    let mut seen = std::collections::BTreeSet::new();
    endpoints.retain(|endpoint| seen.insert(endpoint.clone()));
    let name = args.name.clone();
    let order = Order { endpoints, out: args.out.clone(), validity, name, only_if_due: args.renew || args.watch };
    if problems.is_empty() {
        return Ok(order);
    }
    // Also checks the values that could be parsed, so that all problems are reported at once.
    problems.extend(order.problems());
    match Authority::open(&args.dir).and_then(|authority| authority.problems_with_destination(&order, now_unix())) {
        Ok(more) | Err(Error::Refused(more)) => problems.extend(more),
        Err(other) => return Err(other),
    }
    Err(Error::Refused(problems))
}

fn summary(issued: &Issued) -> String {
    let outcome = match (&issued.reason, issued.trust_renewed) {
        (Some(reason), _) => format!("issued a new certificate: {}\n", reason.words()),
        (None, true) => "the certificate is unchanged; the trust bundle was renewed\n".to_owned(),
        (None, false) => "the certificate is unchanged\n".to_owned(),
    };
    let files = &issued.files;
    let flags = [("certfile", &files.certificate), ("keyfile", &files.key), ("ca-certfile", &files.ca)];
    let flags: Vec<String> = flags.iter().map(|(name, path)| format!("--ssl-{name} {}", path.display())).collect();
    let text = certificate_text("leaf", &issued.leaf, now_unix());
    format!("{outcome}\n{text}\nfor the SuperLink: {}\n", flags.join(" "))
}

/// Issues certificates when they are due, until a stop is requested. Only problems at the start end it.
fn watch(args: &IssueArgs, order: &Order) -> Result<(), Failure> {
    let format = if args.output.format == Format::Json { LogFormat::Json } else { LogFormat::Text };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(Failure::Machine)?;
    let first = issue(args, order)?;
    trellis_logging::start("pki", &LogSettings { format, level: "info".to_owned(), file: None }, None)
        .map_err(Failure::Machine)?;
    for warning in &first.warnings {
        tracing::warn!("{warning}");
    }
    log(&first);
    runtime.block_on(async {
        let stop = StopSignals::listen().map_err(Failure::Machine)?.requested();
        let mut hangup = signal(SignalKind::hangup()).map_err(Failure::Machine)?;
        tracing::info!(directory = %order.out.display(), "watching");
        tokio::pin!(stop);
        loop {
            tokio::select! {
                () = &mut stop => return Ok(()),
                _ = hangup.recv() => {}
                () = tokio::time::sleep(POLL_INTERVAL) => {}
            }
            match issue(args, order) {
                Ok(issued) => log(&issued),
                Err(error) => tracing::error!("not renewed, retrying in a minute: {}", Failure::from(error).line()),
            }
        }
    })
}

fn log(issued: &Issued) {
    let (directory, until) = (issued.files.certificate.parent().unwrap_or("".as_ref()), date(issued.leaf.not_after));
    match &issued.reason {
        Some(reason) => {
            tracing::info!(directory = %directory.display(), %until, reason = %reason.words(), "certificate issued");
        }
        None if issued.trust_renewed => tracing::info!(directory = %directory.display(), "trust bundle renewed"),
        None => tracing::debug!(directory = %directory.display(), %until, "nothing is due"),
    }
}
