//! The appliance as it boots in a VM: the real program with a root of its own, and a OneGate that can be made to fail. Each
//! case has the outcome that the documentation promises: a code, an exit, what the VM says of itself.

mod federation;
mod identity;
mod life;
mod matrix;
mod prober;
mod scene;

/// What the documentation promises, a test shows.
#[test]
fn every_promised_outcome_is_shown() {
    let sources = [
        include_str!("federation.rs"),
        include_str!("identity.rs"),
        include_str!("life.rs"),
        include_str!("matrix.rs"),
    ];
    let is_shown =
        |test: &str| sources.iter().any(|source| source.contains(&format!("#[tokio::test]\nasync fn {test}()")));
    let missing: Vec<&str> = trellis_appliance::outcomes::OUTCOMES
        .iter()
        .map(|outcome| outcome.shown_by)
        .filter(|test| !is_shown(test))
        .collect();
    assert!(missing.is_empty(), "no such tests: {missing:?}");
}
