//! Properties of all federations and all texts.

mod federations;

use proptest::prelude::*;
use trellis_spec::{read, read_with_warnings, to_yaml};

/// Mappings with keys of the user.
const FREE: [&str; 5] = ["env", "nodeConfig", "runConfig", "annotations", "nodeSelector"];
const YAML_LIKE: &str =
    "([-:?&*!|>%@`#,\\[\\]{}'\"~<a1 \t\n]|: |- |--- |<<: |\\.\\.\\.\n|apiVersion: |spec:\n  ){0,60}";
const PIECE: &str = "[-:{}\\[\\]\"'a1 \n&*|]{0,6}";
const STRANGER: &str = "zzzzzzzz";

proptest! {
    #[test]
    fn what_is_written_reads_the_same(federation in federations::federation()) {
        let text = to_yaml(&federation);
        match read(&text, "canonical.yaml") {
            Ok(read) => prop_assert_eq!(read, vec![federation]),
            Err(problems) => prop_assert!(false, "{}\n{}", problems, text),
        }
    }

    #[test]
    fn a_field_that_does_not_exist_is_found_where_it_is(
        federation in federations::federation(),
        at in any::<prop::sample::Index>(),
    ) {
        let text = to_yaml(&federation);
        let lines: Vec<&str> = text.lines().collect();
        let places: Vec<usize> = (0..lines.len()).filter(|line| takes_a_stranger(&lines, *line)).collect();
        let line = places[at.index(places.len())];
        let column = indent(lines[line]);
        let mut changed: Vec<String> = lines.iter().map(|line| (*line).to_owned()).collect();
        changed.insert(line, format!("{}{STRANGER}: 1", " ".repeat(column)));

        let problems = read(&changed.join("\n"), "changed.yaml").unwrap_err().0;
        prop_assert_eq!(problems.len(), 1);
        let problem = &problems[0];
        prop_assert_eq!((problem.place.line, problem.place.column), (line + 1, column + 1));
        prop_assert_eq!(problem.what.as_str(), "there is no such field");
        prop_assert!(problem.place.field.ends_with(STRANGER));
    }

    #[test]
    fn no_text_is_too_strange(text in any::<String>()) {
        told_within(&text)?;
    }

    #[test]
    fn no_bytes_are_too_strange(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        told_within(&String::from_utf8_lossy(&bytes))?;
    }

    /// Random sequences of characters with a meaning in YAML.
    #[test]
    fn no_yaml_is_too_strange(text in YAML_LIKE) {
        told_within(&text)?;
    }

    /// A valid document in which a piece is removed, doubled or moved.
    #[test]
    fn no_damage_is_too_strange(
        federation in federations::federation(),
        (from, to, piece) in (any::<prop::sample::Index>(), any::<prop::sample::Index>(), PIECE),
    ) {
        let letters: Vec<char> = to_yaml(&federation).chars().collect();
        let (from, to) = (from.index(letters.len()), to.index(letters.len()));
        let (from, to) = (from.min(to), from.max(to).min(from.min(to) + 40));
        let kept = |letters: &[char]| letters.iter().collect::<String>();
        let damaged = format!("{}{piece}{}", kept(&letters[..from]), kept(&letters[to..]));
        told_within(&damaged)?;
    }
}

/// Diagnostics refer to a place in the text.
fn told_within(text: &str) -> Result<(), TestCaseError> {
    let said = match read_with_warnings(text, "strange.yaml") {
        Ok(reading) => reading.warnings,
        Err(problems) => {
            prop_assert!(!problems.0.is_empty());
            problems.0
        }
    };
    for problem in said {
        // If something is missing at the end, the place is one line after it.
        prop_assert!((1..=text.split(['\n', '\r']).count() + 1).contains(&problem.place.line), "{problem}");
        prop_assert!(problem.place.column >= 1);
    }
    Ok(())
}

fn indent(line: &str) -> usize {
    line.len() - line.trim_start().len()
}

/// Whether another field can be inserted before this line, in a mapping with known fields.
fn takes_a_stranger(lines: &[&str], line: usize) -> bool {
    let own = lines[line].trim_start();
    let within = lines[..line].iter().rev().find(|before| indent(before) < indent(lines[line]));
    let free = within.is_some_and(|parent| {
        let parent = parent.trim_start().trim_start_matches("- ");
        FREE.iter().any(|name| parent == format!("{name}:"))
    });
    !own.starts_with("- ") && !free
}
