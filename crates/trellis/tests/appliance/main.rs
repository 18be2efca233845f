//! The appliance as it boots in a VM: the real program with a separate root, and a OneGate with faults. Each case has the
//! documented outcome: an error code, an exit code, a status.

mod federation;
mod identity;
mod life;
mod matrix;
mod prober;
mod scene;

/// Each documented outcome has a test.
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
