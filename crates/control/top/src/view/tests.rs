//! Transitions of the view.

use trellis_api::State;

use super::*;
use crate::scene::{federation, lab, report, round, run, view};

#[test]
fn the_first_federation_is_chosen_and_the_line_follows_it() {
    let mut view = view();
    assert_eq!((view.chosen.as_deref(), view.line(Pane::Federations)), (Some("lab"), Some(0)));
    // A federation that sorts before it does not change the selection.
    let before = Event::Federation { federation: federation("abc", State::New, "") };
    assert_eq!(view.apply(Update::Event(before)), Request::Nothing);
    assert_eq!((view.chosen.as_deref(), view.line(Pane::Federations)), (Some("lab"), Some(1)));
    assert_eq!(view.press(Key::Down), Request::Show("ward".to_owned()));
    assert!(view.details.nodes.is_empty(), "the nodes of the previous federation are removed");
    assert_eq!(view.press(Key::Down), Request::Nothing);
    assert_eq!(view.press(Key::First), Request::Show("abc".to_owned()));
}

#[test]
fn a_deleted_federation_is_removed_with_its_nodes() {
    let mut view = view();
    let gone = |name: &str| Update::Event(Event::Gone { federation: name.to_owned() });
    assert_eq!(view.apply(gone("lab")), Request::Show("ward".to_owned()));
    assert_eq!(view.details.nodes, []);
    assert_eq!(view.apply(gone("ward")), Request::Nothing);
    assert_eq!((view.chosen.as_deref(), view.line(Pane::Federations)), (None, None));
    assert_eq!(view.press(Key::Enter), Request::Nothing);
    assert!(!view.detail, "without a line there are no details");
}

#[test]
fn details_of_another_federation_are_ignored() {
    let mut view = view();
    view.press(Key::Down);
    view.apply(Update::Details(lab()));
    assert_eq!(view.details, Details { federation: "ward".to_owned(), ..Default::default() });
}

#[test]
fn events_of_runs_and_rounds_are_applied() {
    let mut view = view();
    let id = "9071358402917264501";
    view.apply(round("lab", id, report(4, 0.5, 0.9)));
    view.apply(round("lab", id, report(4, 0.5, 0.9)));
    assert_eq!(view.details.curves[id].accuracies(), [0.1, 0.55, 0.81, 0.9]);
    assert_eq!(view.details.runs[0].training.as_ref().unwrap().round, 4);
    view.apply(Update::Event(Event::Run { run: run("lab", id, RunState::Finished, 10) }));
    assert_eq!(state_of(&view.details.runs[0]), "completed");
    view.apply(Update::Event(Event::Run { run: run("lab", "12", RunState::Pending, 0) }));
    assert_eq!(view.details.runs.iter().map(|run| run.id.as_str()).collect::<Vec<_>>(), ["12", id, "11"]);
    // Of another federation.
    view.apply(Update::Event(Event::Run { run: run("ward", "13", RunState::Pending, 0) }));
    view.apply(round("ward", id, report(9, 0.5, 0.9)));
    assert_eq!((view.details.runs.len(), view.details.curves[id].last_round()), (3, Some(4)));
}

#[test]
fn keys_cycle_through_panes() {
    let mut view = view();
    for pane in [Pane::Nodes, Pane::Runs, Pane::Federations] {
        view.press(Key::Next);
        assert_eq!(view.focus, pane);
    }
    view.press(Key::Previous);
    assert_eq!(view.focus, Pane::Runs);
    view.press(Key::Last);
    assert_eq!(view.line(Pane::Runs), Some(1));
    view.press(Key::PageUp);
    assert_eq!(view.line(Pane::Runs), Some(0));
    view.press(Key::Enter);
    assert!(view.detail);
    view.press(Key::Back);
    assert!(!view.detail && view.focus == Pane::Runs);
    view.press(Key::Back);
    assert_eq!(view.focus, Pane::Federations);
    assert_eq!(view.press(Key::Quit), Request::Quit);
    assert_eq!(view.apply(Update::Stop), Request::Quit);
}

#[test]
fn the_selection_stays_within_a_shorter_list() {
    let mut view = view();
    view.press(Key::Next);
    view.press(Key::Last);
    assert_eq!(view.line(Pane::Nodes), Some(2));
    view.apply(Update::Details(Details { nodes: lab().nodes[..1].to_vec(), ..lab() }));
    assert_eq!(view.line(Pane::Nodes), Some(0));
}
