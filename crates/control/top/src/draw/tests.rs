//! Frames as golden files; `UPDATE_GOLDEN=1 cargo test -p trellis-top` writes them.

use std::path::Path;

use super::*;
use crate::scene::{node, view};
use crate::view::{Details, Key, Update};

fn check(name: &str, view: &View, width: u16, height: u16) {
    compare(name, &text(view, width, height));
}

fn compare(name: &str, found: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(format!("{name}.txt"));
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, found).unwrap();
    }
    let expected = std::fs::read_to_string(&path).unwrap_or_default();
    assert_eq!(found, expected, "{} differs from this frame:\n{found}", path.display());
}

#[test]
fn a_small_terminal() {
    check("80x24", &view(), 80, 24);
}

#[test]
fn a_wide_terminal() {
    check("140x30", &view(), 140, 30);
}

#[test]
fn without_a_server() {
    let mut view = View::new("127.0.0.1:7766".to_owned());
    check("connecting", &view, 80, 24);
    view.apply(Update::Connection(Connection::Lost("127.0.0.1:7766 is not there".to_owned())));
    check("lost", &view, 80, 24);
}

#[test]
fn details() {
    let mut view = view();
    view.press(Key::Enter);
    check("federation", &view, 80, 24);
    view.press(Key::Next);
    check("node", &view, 80, 24);
    view.press(Key::Next);
    check("run", &view, 80, 24);
}

/// The selected line stays visible.
#[test]
fn more_nodes_than_lines() {
    let mut view = view();
    let nodes = (0..100).map(|index| node(&format!("clinic-{index}"), "ready", Some(false), None)).collect();
    view.apply(Update::Details(Details { federation: "lab".to_owned(), nodes, ..Default::default() }));
    view.press(Key::Next);
    for _ in 0..40 {
        view.press(Key::Down);
    }
    check("many-nodes", &view, 80, 24);
    let plain = plain(&view);
    assert!((0..100).all(|index| plain.contains(&format!("clinic-{index} "))), "{plain}");
}

#[test]
fn in_a_pipe() {
    compare("plain", &plain(&view()));
}

/// Rendering never panics, whatever the size.
#[test]
fn terminals_that_are_too_small() {
    let mut view = view();
    for detail in [false, true] {
        view.detail = detail;
        for (width, height) in [(1, 1), (5, 3), (20, 8), (80, 10), (300, 5)] {
            assert_eq!(text(&view, width, height).lines().count(), usize::from(height));
        }
    }
}

#[test]
fn names_cannot_control_the_terminal() {
    let mut view = view();
    view.federations[0].message = "bad\u{1b}[2J\u{202e}".to_owned();
    let text = text(&view, 140, 30);
    assert!(!text.contains('\u{1b}') && !text.contains('\u{202e}') && text.contains("bad"), "{text}");
}
