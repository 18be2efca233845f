//! The context is read or rejected, whatever it contains; no part of a value becomes another variable.

use proptest::prelude::*;
use trellis_appliance::context::{MAX_VALUE_BYTES, Values, single_quoted};
use trellis_appliance::settings::{Role, RoleSettings, Settings};
use trellis_appliance::{effective_values, read};
use trellis_one::keys::Assignment;

/// Characters with a meaning for shells, units, environment files and templates.
const HOSTILE: [&str; 12] = [
    "$(touch /tmp/marker)",
    "`touch /tmp/marker`",
    "${HOME}",
    "';touch /tmp/marker;'",
    "\";touch /tmp/marker;\"",
    "\nexport FL_ADMIN_TOKEN=\"marker",
    "\nFL_ADMIN_TOKEN='marker",
    "'\\''",
    "\\",
    "a|b&c>d<e",
    "%n%s{}",
    "\u{202e}\u{0}",
];

fn hostile() -> impl Strategy<Value = String> {
    let piece = prop_oneof![prop::sample::select(HOSTILE.to_vec()).prop_map(str::to_owned), ".{0,20}"];
    prop::collection::vec(piece, 0..6).prop_map(|pieces| pieces.concat())
}

fn context_sh(pairs: &[(&str, &str)]) -> Values {
    let text: String = pairs.iter().map(|(name, value)| format!("{name}={}\n", single_quoted(value))).collect();
    let mut values = Values::default();
    values.add_context_sh(text.as_bytes());
    values
}

fn superlink(settings: &Settings) -> (Option<&str>, &str) {
    match &settings.role {
        RoleSettings::SuperLink(link) => (link.admin_token.as_deref(), link.database.as_str()),
        other => panic!("{other:?} is no SuperLink"),
    }
}

proptest! {
    /// There is no token, and the path is valid, whatever the other variables are.
    #[test]
    fn a_value_stays_in_its_variable(note in hostile(), database in hostile(), one_env in any::<bool>()) {
        let mut values = context_sh(&[("NOTE", &note), ("FL_DATABASE", &database)]);
        if one_env {
            values.add_one_env(format!("export NOTE=\"{note}\"\nexport FL_DATABASE=\"{database}\"\n").as_bytes());
        }
        if let Ok((settings, _)) = read(&values, Role::SuperLink) {
            let (token, path) = superlink(&settings);
            prop_assert_eq!(token, None);
            let harmless = path.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._-/".contains(&byte));
            prop_assert!(harmless && !path.starts_with('/') && !path.contains(".."), "{}", path);
        }
    }

    /// Problems are single lines without control characters, because they go into logs and templates.
    #[test]
    fn what_is_told_is_one_line(value in hostile()) {
        let names = ["FL_DATABASE", "FL_NODE_CONFIG", "FL_ROUTES", "FL_CERT_EXTRA_SAN", "FL_SUPERLINK_ADDRESS", "FL_ROLE"];
        let pairs = names.map(|name| (name, value.as_str()));
        for role in Role::ALL {
            if let Err(problems) = read(&context_sh(&pairs), role) {
                for problem in problems.0 {
                    prop_assert!(!problem.to_string().chars().any(char::is_control), "{:?}", problem.to_string());
                }
            }
        }
    }

    /// Secrets are never printed, even if they are invalid.
    #[test]
    fn secrets_are_not_printed(secret in "[a-z]{12,40}", spoiled in hostile()) {
        let value = format!("{secret} {spoiled}");
        for name in ["FL_ADMIN_TOKEN", "FL_SSL_KEYFILE", "FL_JOIN_TOKEN", "WG_PRIVATE_KEY"] {
            for role in Role::ALL {
                let values = context_sh(&[(name, &value)]);
                let shown = format!("{:?}", effective_values(&values, role));
                let told = read(&values, role).map_or_else(|problems| problems.to_string(), |(_, warnings)| format!("{warnings:?}"));
                prop_assert!(!shown.contains(&secret) && !told.contains(&secret), "{name}: {told} {shown}");
            }
        }
    }

    #[test]
    fn no_bytes_bring_it_down(one_env in bytes(), sh in bytes(), assigned in hostile()) {
        let mut values = Values::default();
        values.add_one_env(&[b"export FL_STRATEGY=\"", &one_env[..], b"\"\n"].concat());
        values.add_context_sh(&[b"FL_NODE_CONFIG='", &sh[..]].concat());
        let settings = [("FL_NODE_CONFIG", "WG_PEER_1_ALLOWED_IPS"), ("FL_ROUTES", "FL_CUDA_VISIBLE_DEVICES")]
            .into_iter()
            .flat_map(|(one, two)| [(one.to_owned(), assigned.clone()), (two.to_owned(), assigned.clone())])
            .collect();
        values.add_assignment(&Assignment { part: "p".into(), generation: "1".into(), settings });
        for role in Role::ALL {
            let _ = (read(&values, role), effective_values(&values, role));
        }
    }
}

fn bytes() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![prop::collection::vec(any::<u8>(), 0..300), hostile().prop_map(String::into_bytes)]
}

/// Found by the fuzz target: names in assignments and in the environment are as untrusted as values.
#[test]
fn a_name_that_is_none_is_told_nowhere() {
    let mut values = Values::default();
    let settings =
        [("FL_NUM\u{0}ROUNDS".to_owned(), "3".to_owned()), ("FL_X\nREADY=YES".to_owned(), "3".to_owned())].into();
    values.add_assignment(&Assignment { part: "p".into(), generation: "1".into(), settings });
    values.add_environment([("FL_Y\u{1b}[2J".into(), "3".into())]);
    let (_, warnings) = read(&values, Role::SuperLink).expect("they are no variables");
    assert_eq!(warnings, Vec::new());
}

#[test]
fn long_values_are_read_and_longer_ones_refused() {
    let config: Vec<String> = (0..200).map(|n| format!("key-{n}={}", "x".repeat(320))).collect();
    let config = config.join(" ");
    assert!(config.len() > 64 << 10);
    let (settings, _) =
        read(&context_sh(&[("FL_NODE_CONFIG", &config)]), Role::SuperNode).expect("64 KiB are no problem");
    let RoleSettings::SuperNode(node) = settings.role else { panic!("no SuperNode") };
    assert_eq!(node.node_config.len(), 200);
    let long = "x".repeat(MAX_VALUE_BYTES + 1);
    let problems = read(&context_sh(&[("FL_NODE_CONFIG", &long)]), Role::SuperNode).expect_err("it is too long");
    assert!(problems.to_string().len() < 1000, "{problems}");
}
