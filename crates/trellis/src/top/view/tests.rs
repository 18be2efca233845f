use trellis_api::State;

use super::super::scene::{federation, lab, report, round, run, view};
use super::*;

#[test]
fn the_first_federation_is_chosen_and_the_line_follows_it() {
    let mut view = view();
    assert_eq!((view.chosen.as_deref(), view.line(Pane::Federations)), (Some("lab"), Some(0)));
    // One that comes before it by name does not take its place.
    let before = Event::Federation { federation: federation("abc", State::New, "") };
    assert_eq!(view.hear(News::Event(before)), Wish::Nothing);
    assert_eq!((view.chosen.as_deref(), view.line(Pane::Federations)), (Some("lab"), Some(1)));
    assert_eq!(view.press(Key::Down), Wish::Show("ward".to_owned()));
    assert!(view.shown.nodes.is_empty(), "those of another federation are not shown as its own");
    assert_eq!(view.press(Key::Down), Wish::Nothing);
    assert_eq!(view.press(Key::First), Wish::Show("abc".to_owned()));
}

#[test]
fn a_federation_that_goes_takes_its_nodes_along() {
    let mut view = view();
    let gone = |name: &str| News::Event(Event::Gone { federation: name.to_owned() });
    assert_eq!(view.hear(gone("lab")), Wish::Show("ward".to_owned()));
    assert_eq!(view.shown.nodes, []);
    assert_eq!(view.hear(gone("ward")), Wish::Nothing);
    assert_eq!((view.chosen.as_deref(), view.line(Pane::Federations)), (None, None));
    assert_eq!(view.press(Key::Enter), Wish::Nothing);
    assert!(!view.detail, "there is nothing to show alone");
}

#[test]
fn answers_that_come_too_late_are_not_shown() {
    let mut view = view();
    view.press(Key::Down);
    view.hear(News::Shown(lab()));
    assert_eq!(view.shown, Shown { federation: "ward".to_owned(), ..Default::default() });
}

#[test]
fn runs_and_rounds_as_they_happen() {
    let mut view = view();
    let id = "9071358402917264501";
    view.hear(round("lab", id, report(4, 0.5, 0.9)));
    view.hear(round("lab", id, report(4, 0.5, 0.9)));
    assert_eq!(view.shown.curves[id].accuracies(), [0.1, 0.55, 0.81, 0.9]);
    assert_eq!(view.shown.runs[0].training.as_ref().unwrap().round, 4);
    view.hear(News::Event(Event::Run { run: run("lab", id, RunState::Finished, 10) }));
    assert_eq!(state_of(&view.shown.runs[0]), "completed");
    view.hear(News::Event(Event::Run { run: run("lab", "12", RunState::Pending, 0) }));
    assert_eq!(view.shown.runs.iter().map(|run| run.id.as_str()).collect::<Vec<_>>(), ["12", id, "11"]);
    // Of another federation.
    view.hear(News::Event(Event::Run { run: run("ward", "13", RunState::Pending, 0) }));
    view.hear(round("ward", id, report(9, 0.5, 0.9)));
    assert_eq!((view.shown.runs.len(), view.shown.curves[id].last_round()), (3, Some(4)));
}

#[test]
fn keys_go_around() {
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
    assert_eq!(view.press(Key::Quit), Wish::Quit);
    assert_eq!(view.hear(News::Stop), Wish::Quit);
}

#[test]
fn fewer_nodes_keep_the_line_within() {
    let mut view = view();
    view.press(Key::Next);
    view.press(Key::Last);
    assert_eq!(view.line(Pane::Nodes), Some(2));
    view.hear(News::Shown(Shown { nodes: lab().nodes[..1].to_vec(), ..lab() }));
    assert_eq!(view.line(Pane::Nodes), Some(0));
}
