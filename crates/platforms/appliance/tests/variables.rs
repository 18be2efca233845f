//! Every declared variable changes the settings or is rejected, under both of its spellings.

#[allow(dead_code, reason = "each test uses its part of the cases")]
mod cases;

use std::collections::BTreeSet;

use cases::{Case, Then};
use serde_json::Value;
use trellis_appliance::context::{Values, single_quoted};
use trellis_appliance::problem::{Diagnostic, Problems};
use trellis_appliance::settings::{Role, Settings};
use trellis_appliance::variables::{VARIABLES, find};
use trellis_appliance::{read, reference};

fn values(said: &[(String, String)]) -> Values {
    let text: String = said.iter().map(|(name, value)| format!("{name}={}\n", single_quoted(value))).collect();
    let mut values = Values::default();
    values.add_context_sh(text.as_bytes());
    values
}

type Outcome = Result<(Settings, Vec<Diagnostic>), Problems>;

fn outcome(case: &Case, prefix: &str, leave_out: usize) -> Outcome {
    let said: Vec<_> =
        case.said.iter().skip(leave_out).map(|(name, value)| (format!("{prefix}{name}"), value.clone())).collect();
    read(&values(&said), case.role)
}

fn at(outcome: &Outcome, place: &str) -> Option<Value> {
    let (settings, _) = outcome.as_ref().ok()?;
    let json = serde_json::to_value(settings).expect("settings are plain data");
    Some(json.pointer(place).cloned().unwrap_or(Value::String("(absent)".to_owned())))
}

fn told(problems: &[Diagnostic], variable: &str, words: &str) -> bool {
    let about = |name: &str| find(name).is_some_and(|(found, _)| found.name == variable);
    // The problem names the missing variable.
    problems.iter().any(|problem| {
        problem.what.contains(words)
            && (about(&problem.place.variable) || words.contains("missing") || words.contains("no such app"))
    })
}

#[test]
fn every_variable_has_an_effect() {
    for case in cases::all() {
        for prefix in ["", "ONEAPP_", "oneapp_"] {
            let name = format!("{prefix}{}", case.variable);
            let (without, with) = (outcome(&case, prefix, 1), outcome(&case, prefix, 0));
            match &case.then {
                Then::Is(place, expected) => {
                    assert!(with.is_ok(), "{name}: {}", with.as_ref().expect_err("it is wrong"));
                    assert_eq!(at(&with, place).as_ref(), Some(expected), "{name} at {place}");
                    assert_ne!(at(&without, place).as_ref(), Some(expected), "{name} changes nothing at {place}");
                }
                Then::Refused(words) => {
                    let Problems(problems, _) = with.expect_err(&name);
                    assert!(told(&problems, case.variable, words), "{name}: {problems:?}");
                    assert!(problems.iter().all(|problem| !problem.advice.is_empty()), "{problems:?}");
                }
                Then::Warned(words) => {
                    let (_, warnings) = with.unwrap_or_else(|problems| panic!("{name}: {problems}"));
                    assert!(told(&warnings, case.variable, words), "{name}: {warnings:?}");
                }
                Then::Untouched => assert_eq!(with, without, "{name}"),
            }
        }
    }
}

#[test]
fn no_variable_is_without_a_case() {
    let tried: BTreeSet<&str> = cases::all().iter().map(|case| case.variable).collect();
    let declared: BTreeSet<&str> = VARIABLES.iter().map(|variable| variable.name).collect();
    assert_eq!(declared.difference(&tried).collect::<Vec<_>>(), Vec::<&&str>::new());
    assert_eq!(tried.difference(&declared).collect::<Vec<_>>(), Vec::<&&str>::new());
}

#[test]
fn nothing_said_is_a_superlink_and_a_supernode_with_tls() {
    for role in [Role::SuperLink, Role::SuperNode] {
        let (settings, warnings) = read(&Values::default(), role).expect("defaults are enough");
        assert!(settings.common.tls && settings.role() == role);
        assert_eq!(warnings, Vec::new());
    }
    let Problems(problems, _) = read(&Values::default(), Role::Gateway).expect_err("a gateway needs a key");
    let names: Vec<_> = problems.iter().map(|problem| problem.place.variable.as_str()).collect();
    assert_eq!(names, ["WG_PRIVATE_KEY", "WG_LOCAL_ADDRESS", "WG_PEER_PUBLIC_KEY"]);
}

#[test]
fn all_that_is_wrong_is_told_at_once_and_secrets_are_not() {
    let said = [
        ("FL_NUM_ROUNDS", "0"),
        ("FL_STRATEGY", "FedMagic"),
        ("FL_FLEET_API_ADDRESS", "localhost:9092"),
        ("FL_TRIM_BETA", "nan"),
        ("FL_SSL_KEYFILE", "bXkgcHJpdmF0ZSBrZXk="),
        ("FL_ADMIN_TOKEN", "two words"),
        ("FL_LOG_LEVEL", "LOUD"),
    ];
    let said = said.map(|(name, value)| (name.to_owned(), value.to_owned()));
    let problems = read(&values(&said), Role::SuperLink).expect_err("much is wrong");
    for (name, _) in &said {
        assert!(problems.0.iter().any(|problem| problem.place.variable == *name), "{name} in {problems}");
    }
    let text = problems.to_string();
    assert!(!text.contains("two words") && !text.contains("bXkgc") && !text.contains("my private key"), "{text}");
}

#[test]
fn spellings_are_one_variable() {
    let said = |pairs: &[(&str, &str)]| {
        let pairs: Vec<_> = pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        read(&values(&pairs), Role::SuperNode)
    };
    assert!(said(&[("FL_LOG_LEVEL", "DEBUG"), ("ONEAPP_FL_LOG_LEVEL", "debug")]).is_ok());
    let problems = said(&[("FL_LOG_LEVEL", "DEBUG"), ("ONEAPP_FL_LOG_LEVEL", "ERROR")]).expect_err("they differ");
    assert!(problems.to_string().contains("keep one of FL_LOG_LEVEL and ONEAPP_FL_LOG_LEVEL"), "{problems}");
    let (settings, warnings) = said(&[("ONEAPP_ML_FRAMEWORK", "pytorch")]).expect("an old name is understood");
    assert_eq!(at(&Ok((settings, Vec::new())), "/role/supernode/framework"), Some("pytorch".into()));
    assert!(warnings.iter().any(|warning| warning.advice == "write FL_FRAMEWORK"), "{warnings:?}");
    assert!(said(&[("ML_FRAMEWORK", "pytorch"), ("FL_FRAMEWORK", "sklearn")]).is_err());
    let (_, warnings) =
        said(&[("FL_NODE_CONFG", "a=1"), ("FL_NUM_ROUNDS", "4"), ("ETH0_IP", "10.0.0.1")]).expect("only warned");
    let texts: Vec<_> =
        warnings.iter().map(|warning| (warning.place.variable.as_str(), warning.advice.as_str())).collect();
    assert_eq!(texts[0], ("FL_NODE_CONFG", "did you mean FL_NODE_CONFIG?"));
    assert_eq!((texts.len(), texts[1].0), (2, "FL_NUM_ROUNDS"));
}

#[test]
fn zero_is_for_ever() {
    let said =
        [("FL_MAX_RETRIES", "0"), ("FL_MAX_WAIT_TIME", "0")].map(|(name, value)| (name.to_owned(), value.to_owned()));
    let outcome = read(&values(&said), Role::SuperNode);
    for place in ["/role/supernode/max_retries", "/role/supernode/max_wait"] {
        assert_eq!(at(&outcome, place), Some("unlimited".into()));
    }
}

#[test]
fn values_that_are_not_text_are_problems() {
    for (bytes, words) in [
        (&b"FL_STRATEGY='\xff\xfe'\n"[..], "not UTF-8"),
        (b"FL_STRATEGY='Fed\0Avg'\n", "control characters"),
        (b"FL_STRATEGY='FedAvg\nFL_ADMIN_TOKEN=x'\n", "line breaks"),
    ] {
        let mut values = Values::default();
        values.add_context_sh(bytes);
        let Problems(problems, _) = read(&values, Role::SuperLink).expect_err(words);
        assert!(told(&problems, "FL_STRATEGY", words) && problems.len() == 1, "{problems:?}");
    }
}

#[test]
fn several_peers_are_told_apart() {
    let one = [
        ("WG_PRIVATE_KEY", cases::ONE_KEY),
        ("WG_LOCAL_ADDRESS", "10.66.0.1/24"),
        ("WG_PEER_1_PUBLIC_KEY", cases::OTHER_KEY),
        ("WG_PEER_1_ALLOWED_IPS", "10.1.0.0/24"),
        ("WG_PEER_2_PUBLIC_KEY", cases::ONE_KEY),
        ("WG_PEER_2_ALLOWED_IPS", "10.2.0.0/24"),
        ("ONEAPP_WG_PEER_2_ENDPOINT", "[fd00::2]:51820"),
    ];
    let said = one.map(|(name, value)| (name.to_owned(), value.to_owned()));
    let outcome = read(&values(&said), Role::Gateway);
    assert_eq!(at(&outcome, "/role/gateway/peers/1/endpoint"), Some("[fd00::2]:51820".into()));
    assert_eq!(at(&outcome, "/role/gateway/peers/0/endpoint"), Some(Value::Null));
    let Problems(problems, _) =
        read(&values(&said[..4].iter().cloned().chain(said[6..].iter().cloned()).collect::<Vec<_>>()), Role::Gateway)
            .expect_err("the second peer has no key");
    let advice: Vec<_> = problems.iter().map(|problem| problem.advice.as_str()).collect();
    assert_eq!(advice, ["give WG_PEER_2_PUBLIC_KEY", "give WG_PEER_2_ALLOWED_IPS"]);
}

#[test]
fn a_mistyped_name_is_told_beside_what_is_wrong() {
    let said =
        [("FL_STRATGY", "Krum"), ("FL_NUM_ROUNDS", "x")].map(|(name, value)| (name.to_owned(), value.to_owned()));
    let Problems(problems, warnings) = read(&values(&said), Role::SuperLink).expect_err("a number is wrong");
    assert_eq!(problems.len(), 1);
    assert!(warnings.iter().any(|warning| warning.to_string().contains("FL_STRATEGY")), "{warnings:?}");
}

/// `UPDATE_GOLDENS=1` writes it.
#[test]
fn the_page_of_variables_is_the_table() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../docs/appliance-variables.md");
    if std::env::var_os("UPDATE_GOLDENS").is_some() {
        std::fs::write(path, reference()).expect("the page can be written");
    }
    let page = std::fs::read_to_string(path).unwrap_or_default();
    assert!(
        page == reference(),
        "docs/appliance-variables.md is old: UPDATE_GOLDENS=1 cargo test -p trellis-appliance"
    );
}
