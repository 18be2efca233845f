//! Any bytes as `one_env`, `context.sh` and the settings of an assignment.
//!
//! Nothing may panic, what is told is one line for each problem, and a value never becomes another variable.
#![no_main]

use std::collections::BTreeMap;

use libfuzzer_sys::fuzz_target;
use trellis_appliance::context::{Values, single_quoted};
use trellis_appliance::settings::{Role, RoleSettings};
use trellis_appliance::variables::VARIABLES;
use trellis_appliance::{effective_values, read};
use trellis_one::keys::Assignment;

fuzz_target!(|data: &[u8]| {
    check_files(data);
    check_value(data);
});

/// The first byte says where the bytes are cut in three.
fn check_files(data: &[u8]) {
    let third = data.first().map_or(0, |byte| usize::from(*byte) * data.len() / 512);
    let (one_env, rest) = data.split_at(third);
    let (context_sh, assigned) = rest.split_at(rest.len() / 2);
    let mut values = Values::default();
    values.add_one_env(one_env);
    values.add_context_sh(context_sh);
    values.add_assignment(&Assignment { part: "p".into(), generation: "1".into(), settings: settings(assigned) });
    check(&values);
}

fn settings(bytes: &[u8]) -> BTreeMap<String, String> {
    let text = String::from_utf8_lossy(bytes);
    text.split('\n')
        .filter_map(|line| line.split_once('='))
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect()
}

/// The first byte chooses a variable, the others are its value: no other variable may come to be.
fn check_value(data: &[u8]) {
    let Some((choice, value)) = data.split_first() else { return };
    let name = VARIABLES[usize::from(*choice) % VARIABLES.len()].name;
    let mut values = Values::default();
    match std::str::from_utf8(value) {
        Ok(text) => values.add_context_sh(format!("{name}={}\n", single_quoted(text)).as_bytes()),
        Err(_) => values.add_one_env(&[b"export ", name.as_bytes(), b"=\"", value, b"\"\n"].concat()),
    }
    if std::str::from_utf8(value).is_ok() {
        for role in Role::ALL {
            for used in effective_values(&values, role).into_iter().filter(|used| used.said.is_some()) {
                assert_eq!(used.variable, name, "a value became another variable");
            }
            if let Ok((settings, _)) = read(&values, role)
                && let RoleSettings::SuperLink(link) = &settings.role
            {
                assert!(name == "FL_ADMIN_TOKEN" || link.admin_token.is_none());
            }
        }
    }
    check(&values);
}

fn check(values: &Values) {
    for role in Role::ALL {
        effective_values(values, role);
        let told = match read(values, role) {
            Ok((settings, warnings)) => {
                serde_json::to_vec(&settings).expect("settings are plain data");
                warnings
            }
            Err(problems) => problems.0,
        };
        for problem in told {
            assert!(!problem.to_string().chars().any(char::is_control), "{problem}");
        }
    }
}
