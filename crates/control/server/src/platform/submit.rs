//! Builds the submission to the SuperLink from a requested run and the training defaults of the document.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use trellis_api::{Bundle, Detail, NewRun, Scalar};
use trellis_diagnostic::Diagnostic;
use trellis_digest::sha256_hex;
use trellis_spec::{ConfigTemplate, Federation, Runtime, ScalingPolicy};
use trellis_train::submit::{Given, Location, NATIVE, Request, Source, Submission, prepare};
use trellis_wire::fab::MAX_BUNDLE_BYTES;

use super::Refusal;
use super::document::{invalid, wrong};

/// Builds the submission, or returns all problems of the request.
pub fn submission(federation: &Federation, new: &NewRun) -> Result<Submission, Refusal> {
    let refused = |problems: Vec<Detail>| invalid("the run cannot be started", problems);
    let source = source(new).map_err(|detail| refused(vec![detail]))?;
    let given = new.settings.iter().map(|(key, value)| Given {
        written: format!("settings.{key}"),
        key: key.clone(),
        text: text(value),
    });
    let defaults = federation.training.defaults.iter().map(|(key, value)| (key.clone(), template(value)));
    let request = Request {
        source,
        given: given.collect(),
        defaults: defaults.collect::<BTreeMap<_, _>>(),
        location: Location::SuperLink { nodes: Some(expected_nodes(federation)) },
    };
    let submission = prepare(request).map_err(|problems| refused(problems.into_iter().map(detail).collect()))?;
    if submission.training.is_some() && federation.runtime != Runtime::Trellis {
        let what = format!("the SuperLink of {} is Flower's own, which cannot train natively", federation.runtime);
        return Err(refused(vec![wrong("app", what, "send an app with its own ServerApp, or use runtime: trellis")]));
    }
    Ok(submission)
}

fn source(new: &NewRun) -> Result<Source, Detail> {
    match (&new.app, &new.bundle) {
        (Some(app), None) => match app.strip_prefix(NATIVE) {
            Some(name) => {
                Source::built_in(name).map_err(|problem| Detail { path: "app".to_owned(), ..detail(problem) })
            }
            None => Err(wrong("app", format!("{app:?} is no app of this program"), "send other apps as a bundle")),
        },
        (None, Some(bundle)) => {
            let content = content(bundle)?;
            Source::bundle(&content).map_err(|problem| Detail { path: "bundle".to_owned(), ..detail(problem) })
        }
        (Some(_), Some(_)) => Err(wrong("app", "there is a bundle too", "give one of them")),
        (None, None) => {
            Err(wrong("app", "there is neither an app nor a bundle", "give app, like native:mlp; or bundle"))
        }
    }
}

/// The bytes of a bundle, if their digest is right.
fn content(bundle: &Bundle) -> Result<Vec<u8>, Detail> {
    // Base64 has four characters for three bytes.
    if bundle.content.len() / 4 > MAX_BUNDLE_BYTES / 3 + 1 {
        let what = format!("it has more than {MAX_BUNDLE_BYTES} bytes");
        return Err(wrong("bundle.content", what, "leave out files that the nodes do not need"));
    }
    let content = STANDARD.decode(bundle.content.as_bytes());
    let content =
        content.map_err(|error| wrong("bundle.content", format!("it is not Base64: {error}"), "encode it so"))?;
    let found = sha256_hex(&content);
    if !bundle.sha256.eq_ignore_ascii_case(&found) {
        let what = format!("the SHA-256 of the content is {found}");
        return Err(wrong("bundle.sha256", what, "it was damaged in transit: send it again"));
    }
    Ok(content)
}

/// Number of desired nodes that are not drained.
fn expected_nodes(federation: &Federation) -> usize {
    let pool = |pool: &trellis_spec::Pool| match &pool.scaling {
        Some(scaling) => match scaling.policy {
            ScalingPolicy::PerRun { nodes } => pool.count.max(nodes).min(scaling.max),
            ScalingPolicy::Manual
            | ScalingPolicy::Idle { .. }
            | ScalingPolicy::RoundTime { .. }
            | ScalingPolicy::Waiting => pool.count,
        },
        None => pool.count,
    };
    federation.pools.iter().map(|each| (pool(each) as usize).saturating_sub(each.drained.len())).sum()
}

fn text(value: &Scalar) -> String {
    match value {
        Scalar::Bool(truth) => truth.to_string(),
        Scalar::Int(number) => number.to_string(),
        // Whole numbers keep their decimal point, so that they stay floats.
        Scalar::Float(number) => format!("{number:?}"),
        Scalar::Text(text) => text.clone(),
    }
}

fn template(value: &ConfigTemplate) -> String {
    match value {
        ConfigTemplate::Bool(truth) => truth.to_string(),
        ConfigTemplate::Int(number) => number.to_string(),
        ConfigTemplate::Float(number) => format!("{number:?}"),
        ConfigTemplate::Text(text) => text.clone(),
    }
}

fn detail(Diagnostic { place, what, advice, .. }: Diagnostic) -> Detail {
    wrong(&place, what, advice)
}

#[cfg(test)]
mod tests {
    use super::*;

    const DOCUMENT: &str = "apiVersion: trellis.dev/v1\nkind: Federation\nmetadata: {name: demo}\nspec:\n  pools:\n  - \
                            {name: clinic, count: 3}\n  training: {strategy: FedAdam, rounds: 7, runConfig: {lr: 0.5}}\n";

    fn federation() -> Federation {
        trellis_spec::read(DOCUMENT, "demo").expect("a document").pop().expect("a federation")
    }

    fn problems(new: &NewRun) -> Vec<(String, String)> {
        match submission(&federation(), new) {
            Err(Refusal::Invalid { problems, .. }) => {
                problems.into_iter().map(|problem| (problem.path, problem.what)).collect()
            }
            other => panic!("it was not refused as invalid: {other:?}"),
        }
    }

    #[test]
    fn the_document_decides_where_the_caller_says_nothing() {
        let settings = BTreeMap::from([("num-server-rounds".to_owned(), Scalar::Int(2))]);
        let new = NewRun { app: Some("native:mlp".to_owned()), bundle: None, settings };
        let training = submission(&federation(), &new).expect("it can be sent").training.expect("it is native");
        assert_eq!((training.strategy.name(), training.rounds, training.train.min_available), ("FedAdam", 2, 3));
    }

    #[test]
    fn what_cannot_be_sent_is_told() {
        let app = |name: &str| NewRun { app: Some(name.to_owned()), ..NewRun::default() };
        let bundle = |content: &str, sha256: &str| NewRun {
            bundle: Some(Bundle { content: content.to_owned(), sha256: sha256.to_owned() }),
            ..NewRun::default()
        };
        for (new, path, what) in [
            (NewRun::default(), "app", "neither an app nor a bundle"),
            (NewRun { app: Some("native:mlp".to_owned()), ..bundle("", "") }, "app", "a bundle too"),
            (app("mlp"), "app", "no app of this program"),
            (app("native:mpl"), "app", "there is no built-in app native:mpl"),
            (bundle("!", ""), "bundle.content", "not Base64"),
            (
                bundle("aGVsbG8=", "00"),
                "bundle.sha256",
                "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824",
            ),
            (
                bundle("aGVsbG8=", "2CF24DBA5FB0A30E26E83B2AC5B9E29E1B161E5C1FA7425E73043362938B9824"),
                "bundle",
                "not a zip",
            ),
        ] {
            let found = problems(&new);
            assert!(found.len() == 1 && found[0].0 == path && found[0].1.contains(what), "{found:?}");
        }
        let settings = BTreeMap::from([
            ("rounds".to_owned(), Scalar::Text("many".to_owned())),
            ("hiden".to_owned(), Scalar::Int(1)),
        ]);
        let found = problems(&NewRun { settings, ..app("native:mlp") });
        let paths: Vec<&str> = found.iter().map(|(path, _)| path.as_str()).collect();
        assert_eq!(paths, ["settings.hiden", "settings.rounds"]);
    }
}
