//! Every declared variable changes the recipe, or is listed here with its other effect.

#[allow(dead_code, reason = "each test uses its part of the cases")]
mod cases;

use std::collections::BTreeMap;
use std::path::Path;

use cases::{Case, Then};
use trellis_appliance::context::{Values, single_quoted};
use trellis_appliance::discovery::Coordinator;
use trellis_appliance::place::Place;
use trellis_appliance::read;
use trellis_appliance::recipe::{Recipe, Surroundings, recipe};
use trellis_appliance::settings::Role;
use trellis_appliance::variables::{Status, VARIABLES};

/// Variables without an effect on a recipe: the effect, and the file and name of the test that shows it. A gateway has no
/// programs: its variables configure the tunnel.
#[rustfmt::skip]
const COUNTS_ELSEWHERE: [(&str, &str, &str, &str); 17] = [
    ("FL_ROUTES", "routes of the machine", "tests/appliance/test_systemd.py", "test_the_machine_has_the_routes_that_were_said"),
    ("FL_DEFER_RECONFIGURE", "when a changed recipe is put into force", "crates/trellis/tests/appliance/federation.rs", "a_change_waits_for_nobody_where_that_is_said"),
    ("FLOWER_VERSION", "what is published, and compared before a node starts", "crates/trellis/tests/appliance/matrix.rs", "official_programs_of_two_releases_are_not_brought_together"),
    ("FL_USE_CASE", "the app that is submitted when nodes are there", "crates/trellis/tests/appliance/federation.rs", "a_use_case_is_submitted_when_enough_nodes_are_there"),
    ("FL_SSL_CA_CERTFILE", "certificates that are served; whom a node trusts", "crates/trellis/tests/appliance/identity.rs", "an_operators_certificates_are_served_whatever_their_keys"),
    ("FL_SSL_CERTFILE", "certificates that are served", "crates/trellis/tests/appliance/identity.rs", "an_operators_certificates_are_served_whatever_their_keys"),
    ("FL_SSL_KEYFILE", "certificates that are served", "crates/trellis/tests/appliance/identity.rs", "an_operators_certificates_are_served_whatever_their_keys"),
    ("FL_CERT_EXTRA_SAN", "names of the certificate that is made", "crates/trellis/tests/appliance/identity.rs", "another_name_is_another_certificate_and_no_run_is_lost"),
    ("FL_ALLOWED_NETWORKS", "the firewall", "tests/appliance/test_systemd.py", "test_only_networks_that_may_reach_the_fleet_port"),
    ("FL_STATE_DISK", "what is mounted before anything starts", "crates/platforms/appliance/src/state_disk.rs", "only_what_is_wholly_empty_is_formatted"),
    ("FL_ADMIN_TOKEN", "a file that the SuperLink is given at its first start", "crates/trellis/tests/appliance/identity.rs", "a_node_joins_by_a_token_and_not_without"),
    ("FL_SUPERLINK_ADDRESS", "discovery: which SuperLink is found", "crates/trellis/tests/appliance/matrix.rs", "a_node_that_cannot_connect_is_not_ready"),
    ("FL_FRAMEWORK", "what must be there before a node is ready", "crates/trellis/tests/appliance/matrix.rs", "a_framework_that_is_not_there_is_missed"),
    ("FL_JOIN_TOKEN", "enrolment, before the node is started", "crates/trellis/tests/appliance/identity.rs", "a_node_joins_by_a_token_and_not_without"),
    ("REPORT_READY", "what is published", "crates/trellis/tests/appliance/life.rs", "who_is_not_awaited_says_nothing_to_oneflow"),
    ("READY_SCRIPT_PATH", "what is published", "crates/trellis/tests/appliance/life.rs", "a_script_of_the_operator_has_a_say_in_what_ready_means"),
    ("TOKEN", "whether anything can be published", "crates/trellis/tests/appliance/matrix.rs", "without_a_token_nothing_is_pretended"),
];

fn started(said: &[(&'static str, String)], role: Role) -> Option<Recipe> {
    let text: String = said.iter().map(|(name, value)| format!("{name}={}\n", single_quoted(value))).collect();
    let mut values = Values::default();
    values.add_context_sh(text.as_bytes());
    let (settings, _) = read(&values, role).ok()?;
    let found = Coordinator {
        endpoint: "10.0.0.1:9092".into(),
        trust: Some(cases::CA.into()),
        version: None,
        http: None,
        shard: Some((1, 4)),
    };
    let around = Surroundings { coordinator: Some(found), gpu: true, ..Surroundings::default() };
    Some(recipe(&settings, &around, &Place::new("/", "/usr/bin/trellis")).expect("a recipe"))
}

fn changes_what_is_started(case: &Case) -> bool {
    let effective = matches!(case.then, Then::Is(..));
    effective && started(&case.said, case.role) != started(&case.said[1..], case.role)
}

#[test]
fn every_variable_changes_what_is_started_or_counts_elsewhere() {
    let mut changes: BTreeMap<&str, bool> = BTreeMap::new();
    for case in cases::all() {
        *changes.entry(case.variable).or_default() |= changes_what_is_started(&case);
    }
    let counts_elsewhere = |name: &str| COUNTS_ELSEWHERE.iter().any(|(known, ..)| *known == name);
    let idle: Vec<&str> = VARIABLES
        .iter()
        .filter(|variable| variable.status == Status::Effective && variable.roles != [Role::Gateway])
        .map(|variable| variable.name)
        .filter(|name| !changes[name] && !counts_elsewhere(name))
        .collect();
    assert!(idle.is_empty(), "they change nothing of what is started, and are not said to count elsewhere: {idle:?}");
}

#[test]
fn what_counts_elsewhere_is_shown_there() {
    for (variable, effect, file, test) in COUNTS_ELSEWHERE {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../..").join(file);
        let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{file}: {error}"));
        let has = |word: &str| text.contains(&format!("{word} {test}("));
        assert!(has("fn") || has("def"), "{variable}, {effect}: {file} has no test {test}");
        assert!(text.contains(&format!("\"{variable}\"")), "{file} does not speak of {variable}");
    }
}

/// Run settings reach every run if no app is submitted with them.
#[test]
fn settings_of_training_are_defaults_of_runs() {
    let said = [("FL_STRATEGY", "FedProx"), ("FL_PROXIMAL_MU", "0.5"), ("FL_NUM_ROUNDS", "9")];
    let said = said.map(|(name, value)| (name, value.to_owned()));
    let recipe = started(&said, Role::SuperLink).expect("a SuperLink");
    let (_, text) =
        recipe.files.iter().find(|(path, _)| path.ends_with("run-defaults.toml")).expect("defaults of runs");
    let defaults: toml::Table = text.parse().expect("TOML");
    assert_eq!(defaults["strategy"].as_str(), Some("FedProx"));
    assert_eq!(defaults["proximal-mu"].as_float(), Some(0.5));
    assert_eq!(defaults["num-server-rounds"].as_integer(), Some(9));
    assert_eq!(defaults.len(), 3);
}
