//! Text and JSON lines, also of the real events of a SuperLink.

use std::io;
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};
use tracing_subscriber::fmt::MakeWriter;
use trellis_link::watch::{Departure, Facts, Watch};

use super::*;

#[test]
fn levels_and_filters() {
    for (level, expected) in [
        ("info", Some("trellis=info,warn")),
        ("DEBUG", Some("trellis=debug,warn")),
        ("WARNING", Some("warn")),
        ("critical", Some("error")),
        ("info,trellis_link=trace", Some("trellis_link=trace,info")),
        ("loud", None),
        ("trellis=loud", None),
        ("", None),
    ] {
        assert_eq!(filter(level).map(|filter| filter.to_string()).as_deref(), expected, "{level}");
    }
}

#[test]
fn the_file_has_what_the_terminal_has_but_no_colours() {
    let (file, terminal) = (Buffer::default(), Buffer::default());
    let log = tracing_subscriber::registry()
        .with(layer("superlink", LogFormat::Text, file.clone(), false))
        .with(layer("superlink", LogFormat::Text, terminal.clone(), true));
    tracing::subscriber::with_default(log, || {
        let _span = tracing::info_span!("run", run_id = 7).entered();
        tracing::info!(node_id = 8, "message sent");
    });
    let text = |buffer: &Buffer| String::from_utf8(buffer.0.lock().unwrap().clone()).expect("UTF-8");
    for page in [&file, &terminal] {
        let text = text(page);
        assert!(["INFO", "run_id", "node_id", "message sent"].iter().all(|part| text.contains(part)), "{text}");
    }
    assert!(text(&terminal).contains('\x1b') && !text(&file).contains('\x1b'), "{}", text(&file));
}

/// Log lines in memory.
#[derive(Clone, Default)]
struct Buffer(Arc<Mutex<Vec<u8>>>);

impl io::Write for Buffer {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for Buffer {
    type Writer = Buffer;

    fn make_writer(&'a self) -> Buffer {
        self.clone()
    }
}

fn logged(format: LogFormat, level: &str, emit: impl FnOnce()) -> Vec<String> {
    let buffer = Buffer::default();
    let log = tracing_subscriber::registry().with(filter(level).unwrap_or_default()).with(layer(
        "superlink",
        format,
        buffer.clone(),
        false,
    ));
    tracing::subscriber::with_default(log, emit);
    let text = String::from_utf8(buffer.0.lock().unwrap().clone()).expect("UTF-8");
    text.lines().map(str::to_owned).collect()
}

fn a_training() {
    let (watch, run) = (Watch::new("0"), trellis_core::id::RunId(u64::MAX));
    let facts = Facts { strategy: Some("FedAvg".into()), num_rounds: Some(3), min_clients: None, reports: false };
    watch.run_started(run, facts, 0.0);
    watch.node_joined(trellis_core::id::NodeId(7), None);
    watch.node_left(trellis_core::id::NodeId(7), Departure::NoHeartbeat);
}

#[test]
fn events_for_programs() {
    let lines = logged(LogFormat::Json, "info", a_training);
    let mut started: Value = serde_json::from_str(&lines[0]).expect("JSON");
    assert!(lines[0].starts_with("{\"timestamp\":\"20"), "the timestamp is the first field: {}", lines[0]);
    let timestamp = started["timestamp"].take();
    let timestamp = timestamp.as_str().expect("a text");
    assert!(timestamp.len() == "2026-01-01T00:00:00.000Z".len() && timestamp.ends_with('Z'), "{timestamp}");
    let source = started["source"].take();
    assert!(source.as_str().is_some_and(|source| source.starts_with("crates/runtime/link/src/watch.rs:")), "{source}");
    assert_eq!(
        started,
        json!({
            "timestamp": null,
            "level": "INFO",
            "logger": "trellis::event",
            "role": "superlink",
            "event": "training_start",
            "data": {"strategy": "FedAvg", "num_rounds": 3, "min_clients": null},
            "message": "training started: strategy FedAvg, 3 rounds",
            "source": null,
            "run": "18446744073709551615",
        })
    );
    let joined: Value = serde_json::from_str(&lines[1]).expect("JSON");
    assert_eq!((&joined["event"], &joined["data"]["node_id"]), (&json!("client_join"), &json!("7")));
    assert_eq!(joined.get("run"), None);
    assert_eq!(lines.len(), 3);
}

#[test]
fn events_for_people() {
    let lines = logged(LogFormat::Text, "info", a_training);
    let sentences: Vec<&str> = lines.iter().map(|line| line.split_once("Z ").expect("a timestamp").1.trim()).collect();
    assert_eq!(
        sentences,
        [
            "INFO training started: strategy FedAvg, 3 rounds run=18446744073709551615",
            "INFO node 7 joined",
            "INFO node 7 left: no heartbeat",
        ]
    );
}

#[test]
fn events_obey_the_level() {
    assert_eq!(logged(LogFormat::Json, "warn", a_training), Vec::<String>::new());
}

#[test]
fn any_field_of_any_line() {
    let error = io::Error::other("disk \"full\"\n");
    let lines = logged(LogFormat::Json, "info", || {
        tracing::warn!(
            node = 5u64, bytes = -3i64, share = 0.5, nan = f64::NAN, ok = true, %error, debugged = ?Some(1),
            level = "loud", source = "mine", "two\nlines"
        );
        tracing::warn!(data = "no JSON");
    });
    let line: Value = serde_json::from_str(&lines[0]).expect("one line of JSON");
    for (name, expected) in [
        ("message", json!("two\nlines")),
        ("level", json!("WARN")),
        ("node", json!("5")),
        ("bytes", json!(-3)),
        ("share", json!(0.5)),
        ("nan", json!(null)),
        ("ok", json!(true)),
        ("error", json!("disk \"full\"\n")),
        ("debugged", json!("Some(1)")),
        ("level_", json!("loud")),
        ("source_", json!("mine")),
    ] {
        assert_eq!(line[name], expected, "{name}");
    }
    assert!(line.get("event").is_none() && line.get("data").is_none());
    let odd: Value = serde_json::from_str(&lines[1]).expect("one line of JSON");
    assert_eq!((&odd["data"], &odd["message"]), (&json!("no JSON"), &json!("")));
}

#[derive(Debug)]
struct NotStored(io::Error);

impl std::fmt::Display for NotStored {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("the state cannot be written")
    }
}

impl std::error::Error for NotStored {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.0)
    }
}

#[test]
fn errors_include_their_causes() {
    let error = NotStored(io::Error::other("no space left"));
    let lines = logged(LogFormat::Json, "info", || {
        tracing::error!(error = &error as &dyn std::error::Error, "trying again");
    });
    let line: Value = serde_json::from_str(&lines[0]).expect("one line of JSON");
    assert_eq!(line["error"], "the state cannot be written: no space left");
}
