//! `trellis pki show`: authorities and certificates, for people and as JSON.

use std::fmt::Write as _;
use std::path::Path;

use serde_json::{Value, json};
use trellis_clock::now_unix;
use trellis_diagnostic::Diagnostic;
use trellis_pki::authority::{Authority, Role, Survey};
use trellis_pki::rotation::State;
use trellis_pki::span::roughly;
use trellis_pki::{Certificate, Error, UnixSeconds, date, pem};
use trellis_terminal::{Format, print_as};

use super::args::ShowArgs;
use super::report::{Failure, print_text};

pub fn run(args: &ShowArgs) -> Result<(), Failure> {
    let now = now_unix();
    let mut problems = Vec::new();
    let mut files = Vec::new();
    for path in &args.files {
        match certificates(path) {
            Ok(found) => files.push((path, found)),
            Err(problem) => problems.push(problem),
        }
    }
    let dir = args.dir.as_deref();
    let survey = match dir.map(|dir| Authority::open(dir)?.survey(now)).transpose() {
        Ok(survey) => survey,
        Err(Error::Refused(more)) => {
            problems.extend(more);
            None
        }
        Err(other) => return Err(other.into()),
    };
    if !problems.is_empty() {
        return Err(Error::Refused(problems).into());
    }
    let authority = dir.zip(survey.as_ref());
    match args.output.format {
        format @ (Format::Json | Format::Yaml) => {
            let shown: Vec<Value> = files
                .iter()
                .flat_map(|(path, found)| found.iter().map(move |one| located_json("file", path, one, now)))
                .collect();
            let mut value = authority.map_or(json!({}), |(dir, survey)| authority_json(dir, survey, now));
            if !args.files.is_empty() {
                value["certificates"] = shown.into();
            }
            print_as(format, &value);
        }
        Format::Table => {
            if let Some((dir, survey)) = authority {
                print_text(&authority_text(dir, survey, now));
            }
            for (path, found) in &files {
                for certificate in found {
                    print_text(&certificate_text(&format!("in {}", path.display()), certificate, now));
                }
            }
        }
    }
    Ok(())
}

fn certificates(path: &Path) -> Result<Vec<Certificate>, Diagnostic> {
    let place = path.display().to_string();
    let text = std::fs::read(path).map_err(|error| {
        Diagnostic::error(&place, format!("it cannot be read: {error}"), "give a readable PEM file")
    })?;
    let ders = pem::certificates(&text).map_err(|error| Diagnostic::error(&place, error.what, error.advice))?;
    let read: Result<Vec<Certificate>, String> = ders.iter().map(Certificate::read).collect();
    read.map_err(|what| Diagnostic::error(&place, what, "copy the file again"))
}

fn authority_text(dir: &Path, survey: &Survey, now: UnixSeconds) -> String {
    let mut text = format!("authority {} in {}\n\n{}", survey.name, dir.display(), rotation_text(&survey.rotation));
    for trusted in &survey.trusted {
        text += "\n";
        text += &certificate_text(&format!("CA ({})", role(trusted.role)), &trusted.certificate, now);
    }
    for leaf in &survey.leaves {
        text += "\n";
        text += &certificate_text(&format!("leaf for {}", leaf.out.display()), &leaf.certificate, now);
    }
    if survey.leaves.is_empty() {
        text += "\nno leaf was issued yet: trellis pki issue\n";
    }
    for Diagnostic { place, what, advice, .. } in &survey.warnings {
        let _ = write!(text, "\nwarning: {place}: {what}\n         to do: {advice}\n");
    }
    text
}

fn role(role: Role) -> &'static str {
    match role {
        Role::Signing => "signing",
        Role::Next => "next: trusted, signs after --switch",
        Role::Old => "old: trusted, signed before",
        Role::Foreign => "foreign, trusted",
    }
}

/// The state of a rotation, and the next steps.
pub fn rotation_text(state: &State) -> String {
    let stands = match state {
        State::Steady { .. } => "no rotation is under way",
        State::Announced { .. } => "a new CA is announced: it is in the trust bundle, and does not sign yet",
        State::Switched { .. } => "the new CA signs; the old one is still in the trust bundle",
    };
    let next = state.next_step();
    format!(
        "rotation      {}: {stands}\nnext step     {}: {}\nbefore that   {}\n",
        state.name(),
        next.flag,
        next.does,
        next.before
    )
}

/// One certificate as a paragraph.
pub fn certificate_text(heading: &str, certificate: &Certificate, now: UnixSeconds) -> String {
    let Certificate { subject, issuer, not_before, not_after, names, key_type, fingerprint, .. } = certificate;
    let left = match certificate.left_s(now) {
        ..0 => "EXPIRED".to_owned(),
        _ if now < *not_before => "NOT YET VALID".to_owned(),
        left => format!("{} left", roughly(left)),
    };
    let mut text = format!("{heading}: {subject}\n");
    let mut line = |name: &str, value: &str| {
        let _ = writeln!(text, "  {name:<12}{value}");
    };
    if !names.is_empty() {
        line("names", &names.join(", "));
    }
    if issuer != subject {
        line("issued by", issuer);
    }
    line("valid", &format!("{} to {} ({left})", date(*not_before), date(*not_after)));
    line("key", key_type);
    line("sha-256", fingerprint);
    text
}

pub fn authority_json(dir: &Path, survey: &Survey, now: UnixSeconds) -> Value {
    let trusted = survey.trusted.iter().map(|one| {
        let mut value = certificate_json(&one.certificate, now);
        value["role"] = json!(one.role);
        value
    });
    json!({
        "dir": dir,
        "name": survey.name,
        "rotation": survey.rotation,
        "next_step": survey.rotation.next_step(),
        "trusted": trusted.collect::<Vec<_>>(),
        "leaves": survey.leaves.iter().map(|leaf| located_json("out", &leaf.out, &leaf.certificate, now)).collect::<Vec<_>>(),
        "warnings": survey.warnings,
    })
}

fn located_json(key: &str, path: &Path, certificate: &Certificate, now: UnixSeconds) -> Value {
    let mut value = certificate_json(certificate, now);
    value[key] = json!(path);
    value
}

pub fn certificate_json(certificate: &Certificate, now: UnixSeconds) -> Value {
    json!({
        "subject": certificate.subject,
        "issuer": certificate.issuer,
        "not_before": date(certificate.not_before),
        "not_after": date(certificate.not_after),
        "left_s": certificate.left_s(now),
        "names": certificate.names,
        "is_ca": certificate.is_ca,
        "key_type": certificate.key_type,
        "key_id": certificate.key_id(),
        "fingerprint_sha256": certificate.fingerprint,
    })
}
