//! Golden tests of scenarios: each file lists messages of a SuperLink, and below each line the resulting events.
//! `TRELLIS_GOLDEN=write` rewrites the results.

use std::fmt::Write as _;
use std::path::Path;

use super::*;
use crate::watch::facts::plain;

/// Prefix of result lines.
const ANSWER: &str = "    ";

fn message(name: &str) -> MessageId {
    let mut id = [0; 32];
    id[..name.len()].copy_from_slice(name.as_bytes());
    MessageId::new(id)
}

/// `key=value` words.
struct Words<'a>(Vec<(&'a str, &'a str)>);

impl<'a> Words<'a> {
    fn of(words: &[&'a str]) -> Words<'a> {
        Words(words.iter().filter_map(|word| word.split_once('=')).collect())
    }

    fn text(&self, key: &str) -> Option<&'a str> {
        self.0.iter().find(|(name, _)| *name == key).map(|(_, value)| *value)
    }

    fn number<T: std::str::FromStr>(&self, key: &str) -> Option<T> {
        self.text(key).map(|text| text.parse().unwrap_or_else(|_| panic!("{key}={text}")))
    }
}

/// Parses `a>1 b>2`: message a to node 1, message b to node 2.
fn instructions(kind: &str, words: &[&str]) -> Vec<Instruction> {
    let group = Words::of(words).text("group").unwrap_or_default();
    let asked = words.iter().filter_map(|word| word.split_once('>'));
    asked
        .map(|(name, node)| Instruction {
            message: message(name),
            node: NodeId(node.parse().expect("a node")),
            group_id: group.to_owned(),
            kind: Kind::of(kind),
        })
        .collect()
}

fn facts(words: &Words<'_>) -> Facts {
    Facts {
        strategy: words.text("strategy").map(str::to_owned),
        num_rounds: words.number("rounds"),
        min_clients: words.number("min-clients"),
        reports: words.text("native").is_some(),
    }
}

/// Applies a line `time run event ...`.
fn happen(training: &mut Training, line: &str) -> Vec<RunEvent> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let (now, run, rest) = (words[0].parse().expect("a time"), words[1], &words[3..]);
    let run = RunId(run.trim_start_matches("run").parse().expect("a run"));
    let values = Words::of(rest);
    match words[2] {
        "starts" => training.run_started(run, facts(&values), now),
        "resumes" => {
            let awaited = instructions("train", rest);
            let resumed = Resumed {
                since: values.number("since").unwrap_or_default(),
                awaited: &awaited,
                round: values.number("round"),
                round_since: values.number("round-since").unwrap_or_default(),
            };
            training.run_resumed(run, facts(&values), &resumed, now);
            Vec::new()
        }
        "asks" => training.instructions_pushed(run, &instructions(rest[0], rest), now),
        "delivers" if training.wants_round_of(run, message(rest[0])) => {
            training.round_looked_up(run, values.number("round"), now)
        }
        "delivers" => Vec::new(),
        "sends" => {
            training.reply_arrived(run, message(rest[0]), now);
            Vec::new()
        }
        "gets" => {
            let numbers: Vec<(String, f64)> =
                values.0.iter().map(|(key, value)| ((*key).to_owned(), value.parse().unwrap())).collect();
            let failure = values.number("error").map(|code| Failure { code, reason: "no reason" });
            let reply_values = ReplyValues {
                metrics: numbers.iter().filter(|(key, _)| key != "num_examples").cloned().collect(),
                numbers: numbers.into_iter().map(|(key, value)| (plain(&key), value)).collect(),
            };
            training.reply_collected(run, message(rest[0]), failure, &reply_values, now)
        }
        "ends" => {
            let outcome = Outcome::from_name(rest[0]).expect("an outcome");
            training.run_finished(run, outcome, now)
        }
        "waits" => training.tick(values.number("connected").expect("connected"), now),
        other => panic!("what is {other}?"),
    }
}

fn show(gauges: &Gauges) -> String {
    let known = |value: Option<String>| value.unwrap_or_else(|| "?".to_owned());
    format!(
        "{:?}: {} round {} of {}, loss {}, accuracy {}, clients {} of {}, awaited {}",
        gauges.status,
        known(gauges.strategy.clone()),
        gauges.round_current,
        known(gauges.round_total.map(|total| total.to_string())),
        known(gauges.loss.map(|loss| loss.to_string())),
        known(gauges.accuracy.map(|accuracy| accuracy.to_string())),
        gauges.clients_responded,
        gauges.clients_selected,
        gauges.replies_awaited,
    )
}

/// Returns the scenario with the current results.
fn play(scenario: &str) -> String {
    let mut training = Training::default();
    let mut played = String::new();
    let mut shown = show(&training.gauges());
    for line in scenario.lines().filter(|line| !line.starts_with(ANSWER)) {
        writeln!(played, "{line}").unwrap();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        for reported in happen(&mut training, line) {
            writeln!(played, "{ANSWER}run{} {} {}", reported.run, reported.event.name(), reported.event.data())
                .unwrap();
        }
        for (run, observed) in training.take_reports() {
            let report = serde_json::to_string(&observed.report).unwrap();
            writeln!(played, "{ANSWER}run{run} report {report}").unwrap();
        }
        let now = show(&training.gauges());
        if now != shown {
            writeln!(played, "{ANSWER}= {now}").unwrap();
            shown = now;
        }
    }
    played
}

fn check(name: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/watch/training/scenarios").join(name);
    let golden = std::fs::read_to_string(&path).expect("the scenario");
    let played = play(&golden);
    if std::env::var_os("TRELLIS_GOLDEN").is_some_and(|wish| wish == "write") {
        std::fs::write(&path, &played).expect("a writable scenario");
        return;
    }
    for (number, (now, before)) in (1..).zip(played.lines().zip(golden.lines())) {
        assert_eq!(now, before, "{name} line {number}: TRELLIS_GOLDEN=write writes the new results");
    }
    assert_eq!(played.lines().count(), golden.lines().count(), "{name}: results are missing at the end");
}

macro_rules! scenarios {
    ($($name:ident),+ $(,)?) => {$(
        #[test]
        fn $name() {
            check(concat!(stringify!($name), ".txt"));
        }
    )+};
}
scenarios!(
    two_rounds_of_fedavg,
    rounds_named_by_group,
    training_without_evaluation,
    clients_fail,
    a_round_is_abandoned,
    nothing_moves,
    too_few_clients,
    after_a_restart,
    two_runs_at_once,
    questions_and_unknown_settings,
    what_is_reported,
);

#[test]
fn every_error_of_flower_has_a_name() {
    for code in trellis_wire::error_reply::ErrorCode::ALL {
        let name: String = format!("{code:?}")
            .chars()
            .flat_map(|letter| letter.is_uppercase().then_some('_').into_iter().chain(letter.to_lowercase()))
            .collect();
        assert_eq!(error_type(code.number()), name.trim_start_matches('_'));
    }
    assert_eq!(error_type(99), "unknown");
}

#[test]
fn a_limited_number_of_runs_is_tracked_and_finished_runs_are_removed() {
    let mut training = Training::default();
    for run in 0..MAX_RUNS as u64 + 1 {
        training.run_started(RunId(run), Facts::default(), 0.0);
    }
    assert_eq!(training.runs.len(), MAX_RUNS);
    for run in 0..MAX_RUNS as u64 + 1 {
        training.run_finished(RunId(run), Outcome::Completed, 1.0);
    }
    assert!(training.runs.is_empty());
}
