//! Every declared variable changes what is started, or is named here with the place where it counts instead.

#[allow(dead_code, reason = "each test uses its part of the cases")]
mod cases;

use std::collections::BTreeMap;

use cases::{Case, Then};
use trellis_appliance::context::{Values, single_quoted};
use trellis_appliance::discovery::Coordinator;
use trellis_appliance::place::Place;
use trellis_appliance::read;
use trellis_appliance::recipe::{Recipe, Surroundings, recipe};
use trellis_appliance::settings::Role;
use trellis_appliance::variables::{Status, VARIABLES};

/// What is not an argument or a file of a program. A gateway has no programs: its variables are the tunnel's.
const COUNTS_ELSEWHERE: [(&str, &str); 17] = [
    ("FL_ROUTES", "routes of the machine"),
    ("FL_DEFER_RECONFIGURE", "when a changed recipe is put into force"),
    ("FLOWER_VERSION", "what is published, and compared before a node starts; the packages of Flower"),
    ("FL_USE_CASE", "the app that is submitted when nodes are there; what a node must have"),
    ("FL_SSL_CA_CERTFILE", "files that the certificates are written to; whom a node trusts"),
    ("FL_SSL_CERTFILE", "files that the certificates are written to"),
    ("FL_SSL_KEYFILE", "files that the certificates are written to"),
    ("FL_CERT_EXTRA_SAN", "names of the certificate that is made"),
    ("FL_ALLOWED_NETWORKS", "the firewall"),
    ("FL_ADMIN_TOKEN", "a file that the SuperLink is given at its first start"),
    ("FL_SUPERLINK_ADDRESS", "discovery: which SuperLink is found"),
    ("FL_FRAMEWORK", "what must be there before a node is ready"),
    ("FL_JOIN_TOKEN", "enrolment, before the node is started"),
    ("FL_DCGM_ENABLED", "a service of its own"),
    ("REPORT_READY", "what is published"),
    ("READY_SCRIPT_PATH", "what is published"),
    ("TOKEN", "whether anything can be published"),
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
    let counts_elsewhere = |name: &str| COUNTS_ELSEWHERE.iter().any(|(known, _)| *known == name);
    let idle: Vec<&str> = VARIABLES
        .iter()
        .filter(|variable| variable.status == Status::Effective && variable.roles != [Role::Gateway])
        .map(|variable| variable.name)
        .filter(|name| !changes[name] && !counts_elsewhere(name))
        .collect();
    assert!(idle.is_empty(), "they change nothing of what is started, and are not said to count elsewhere: {idle:?}");
}

/// Run settings reach every run where there is no app of the appliance to be submitted with them.
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
