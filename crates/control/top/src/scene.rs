//! Example data for tests of state and rendering.

use std::collections::BTreeMap;

use trellis_api::{
    Event, FederationSummary, MetricReport, Node, NodeCounts, PhaseReport, Run, RunState, State, Training,
    TrainingReport, Weight, Why,
};

use super::view::{Connection, Curve, Details, Request, Update, View};

pub fn federation(name: &str, state: State, message: &str) -> FederationSummary {
    FederationSummary {
        name: name.to_owned(),
        state,
        message: message.to_owned(),
        revision: 3,
        runtime: "trellis".to_owned(),
        sites: 1,
        nodes: NodeCounts { wanted: 3, present: 3, ready: 2, busy: 1, joined: 0 },
        active_runs: Some(1),
        changed_at: 1_763_197_200.0,
    }
}

pub fn node(name: &str, phase: &str, busy: Option<bool>, why: Option<&str>) -> Node {
    Node {
        name: name.to_owned(),
        pool: "clinic".to_owned(),
        site: "local".to_owned(),
        id: Some("17446744073709551615".to_owned()),
        shard: Some(1),
        wanted: true,
        phase: phase.to_owned(),
        why: why.map(str::to_owned),
        updated: true,
        busy,
        draining: false,
        drained: false,
        joined: false,
        version: Some("1.42.0".to_owned()),
        since_ms: None,
    }
}

pub fn run(federation: &str, id: &str, state: RunState, round: u64) -> Run {
    Run {
        id: id.to_owned(),
        federation: federation.to_owned(),
        app: "trellis/digits".to_owned(),
        version: "1.0.0".to_owned(),
        state,
        outcome: (state == RunState::Finished).then(|| "completed".to_owned()),
        details: String::new(),
        native: true,
        account: String::new(),
        started_by: None,
        config: BTreeMap::new(),
        submitted_at: 1_763_197_200.0,
        started_at: None,
        finished_at: None,
        training: Some(Training { strategy: "fedavg".to_owned(), round, rounds_planned: 10, ..Default::default() }),
    }
}

pub fn report(round: u64, loss: f64, accuracy: f64) -> TrainingReport {
    let metrics = [("eval_loss", loss), ("eval_acc", accuracy)];
    let metrics = metrics.map(|(name, value)| (name.to_owned(), MetricReport::number(value)));
    let evaluate = Some(PhaseReport { metrics: BTreeMap::from(metrics), ..Default::default() });
    TrainingReport { round, kind: "round".to_owned(), rounds_planned: 10, evaluate, ..Default::default() }
}

pub fn round(federation: &str, run: &str, report: TrainingReport) -> Update {
    Update::Event(Event::Round { federation: federation.to_owned(), run: run.to_owned(), report })
}

/// The data of `lab`.
pub fn lab() -> Details {
    let mut curve = Curve::default();
    for (round, loss, accuracy) in [(1, 2.3, 0.1), (2, 1.1, 0.55), (3, 0.6, 0.81)] {
        curve.add(&report(round, loss, accuracy));
    }
    Details {
        federation: "lab".to_owned(),
        nodes: vec![
            node("clinic-0", "ready", Some(true), None),
            node("clinic-1", "ready", Some(false), None),
            node("clinic-2", "failed", None, Some("it ended with 1; see its log")),
        ],
        runs: vec![run("lab", "9071358402917264501", RunState::Running, 3), run("lab", "11", RunState::Finished, 10)],
        curves: BTreeMap::from([("9071358402917264501".to_owned(), curve)]),
        why: vec![Why {
            weight: Weight::Waits,
            about: "clinic-2".to_owned(),
            text: "it is started again in 8 s".to_owned(),
        }],
    }
}

/// Two federations, of which `lab` is chosen and loaded.
pub fn view() -> View {
    let mut view = View::new("127.0.0.1:7766".to_owned());
    view.apply(Update::Connection(Connection::Live));
    let all = vec![federation("ward", State::Ready, ""), federation("lab", State::Reconciling, "1 of 3 nodes failed")];
    assert_eq!(view.apply(Update::Federations(all)), Request::Show("lab".to_owned()));
    view.apply(Update::Details(lab()));
    view
}
