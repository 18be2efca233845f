//! TensorBoard's events, as far as they are used: scalars, the settings as a text, and a session for the HParams page. Pure.
//!
//! Field numbers are those of TensorFlow's `event.proto`, `summary.proto` and `tensor.proto`, and of TensorBoard's
//! `plugins/hparams/plugin_data.proto`.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use prost::{Message, Oneof};
use serde_json::Value as Json;

use crate::point::Point;
use crate::run::{Ended, RunFacts};

const FILE_VERSION: &str = "brain.Event:2";
/// `DT_STRING`
const STRINGS: i32 = 7;
/// `DATA_CLASS_TENSOR`
const TENSOR: i32 = 2;

#[derive(Clone, PartialEq, Message)]
pub struct Event {
    #[prost(double, tag = "1")]
    wall_time: f64,
    #[prost(int64, tag = "2")]
    step: i64,
    #[prost(oneof = "What", tags = "3, 5")]
    what: Option<What>,
}

#[derive(Clone, PartialEq, Oneof)]
enum What {
    #[prost(string, tag = "3")]
    FileVersion(String),
    #[prost(message, tag = "5")]
    Summary(Summary),
}

#[derive(Clone, PartialEq, Message)]
struct Summary {
    #[prost(message, repeated, tag = "1")]
    values: Vec<Value>,
}

#[derive(Clone, PartialEq, Message)]
struct Value {
    #[prost(string, tag = "1")]
    tag: String,
    #[prost(oneof = "Content", tags = "2, 8")]
    content: Option<Content>,
    #[prost(message, optional, tag = "9")]
    metadata: Option<Metadata>,
}

#[derive(Clone, PartialEq, Oneof)]
enum Content {
    #[prost(float, tag = "2")]
    Number(f32),
    #[prost(message, tag = "8")]
    Tensor(Tensor),
}

#[derive(Clone, PartialEq, Message)]
struct Tensor {
    #[prost(int32, tag = "1")]
    dtype: i32,
    #[prost(message, optional, tag = "2")]
    shape: Option<Shape>,
    #[prost(bytes = "vec", repeated, tag = "8")]
    strings: Vec<Vec<u8>>,
}

/// Without dimensions: a scalar.
#[derive(Clone, PartialEq, Message)]
struct Shape {}

#[derive(Clone, PartialEq, Message)]
struct Metadata {
    #[prost(message, optional, tag = "1")]
    plugin: Option<Plugin>,
    #[prost(int32, tag = "4")]
    data_class: i32,
}

#[derive(Clone, PartialEq, Message)]
struct Plugin {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(bytes = "vec", tag = "2")]
    content: Vec<u8>,
}

#[derive(Clone, PartialEq, Message)]
struct HParams {
    #[prost(message, optional, tag = "3")]
    start: Option<SessionStart>,
    #[prost(message, optional, tag = "4")]
    end: Option<SessionEnd>,
}

#[derive(Clone, PartialEq, Message)]
struct SessionStart {
    #[prost(btree_map = "string, message", tag = "1")]
    hparams: BTreeMap<String, Parameter>,
    #[prost(double, tag = "5")]
    started_at: f64,
}

#[derive(Clone, PartialEq, Message)]
struct SessionEnd {
    /// 1: success, 2: failure.
    #[prost(int32, tag = "1")]
    status: i32,
    #[prost(double, tag = "2")]
    ended_at: f64,
}

/// `google.protobuf.Value`
#[derive(Clone, PartialEq, Message)]
struct Parameter {
    #[prost(oneof = "ParameterKind", tags = "2, 3, 4")]
    kind: Option<ParameterKind>,
}

#[derive(Clone, PartialEq, Oneof)]
enum ParameterKind {
    #[prost(double, tag = "2")]
    Number(f64),
    #[prost(string, tag = "3")]
    Text(String),
    #[prost(bool, tag = "4")]
    Truth(bool),
}

/// What a file begins with: its version.
pub fn begin(run: &RunFacts) -> Event {
    let version = What::FileVersion(FILE_VERSION.to_owned());
    Event { wall_time: run.submitted_at, step: 0, what: Some(version) }
}

/// What a file ends with: the settings, which are all known by then, and the session of a run that has ended.
pub fn end(run: &RunFacts) -> Vec<Event> {
    let text = text("run", &described(run), run.submitted_at);
    [text].into_iter().chain(run.ended.iter().flat_map(|ended| session(run, ended))).collect()
}

fn session(run: &RunFacts, ended: &Ended) -> [Event; 2] {
    let parameters = run.parameters.iter();
    let hparams = parameters.map(|(name, value)| (name.clone(), parameter(value))).collect();
    let start = HParams { start: Some(SessionStart { hparams, started_at: run.submitted_at }), end: None };
    let status = if ended.status == "completed" { 1 } else { 2 };
    let end = HParams { start: None, end: Some(SessionEnd { status, ended_at: ended.at }) };
    let event = |tag: &str, data: &HParams| {
        let plugin = Plugin { name: "hparams".to_owned(), content: data.encode_to_vec() };
        // The plugin reads its content only; TensorBoard keeps no value without a tensor.
        tensor(&format!("_hparams_/{tag}"), Vec::new(), plugin, ended.at)
    };
    [event("session_start_info", &start), event("session_end_info", &end)]
}

pub fn scalar(point: &Point) -> Event {
    let value = Value { tag: point.name.clone(), content: Some(Content::Number(point.value as f32)), metadata: None };
    summary(value, point.at, i64::try_from(point.step).unwrap_or(i64::MAX))
}

fn text(tag: &str, text: &str, at: f64) -> Event {
    tensor(tag, vec![text.as_bytes().to_vec()], Plugin { name: "text".to_owned(), content: Vec::new() }, at)
}

fn tensor(tag: &str, strings: Vec<Vec<u8>>, plugin: Plugin, at: f64) -> Event {
    let strings = if strings.is_empty() { vec![Vec::new()] } else { strings };
    let content = Content::Tensor(Tensor { dtype: STRINGS, shape: Some(Shape {}), strings });
    let metadata = Metadata { plugin: Some(plugin), data_class: TENSOR };
    summary(Value { tag: tag.to_owned(), content: Some(content), metadata: Some(metadata) }, at, 0)
}

fn summary(value: Value, wall_time: f64, step: i64) -> Event {
    Event { wall_time, step, what: Some(What::Summary(Summary { values: vec![value] })) }
}

fn parameter(value: &Json) -> Parameter {
    let kind = match value {
        Json::Bool(truth) => ParameterKind::Truth(*truth),
        Json::Number(number) => ParameterKind::Number(number.as_f64().unwrap_or(f64::NAN)),
        Json::String(text) => ParameterKind::Text(text.clone()),
        other => ParameterKind::Text(other.to_string()),
    };
    Parameter { kind: Some(kind) }
}

/// A table in Markdown.
fn described(run: &RunFacts) -> String {
    let mut table = format!("| setting | value |\n|---|---|\n| app | {} {} |\n", run.app, run.version);
    for (name, value) in &run.parameters {
        let value = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        // Writing to a String cannot fail.
        let _ = writeln!(table, "| {name} | {} |", value.replace(['|', '\n'], " "));
    }
    table
}

#[cfg(test)]
mod tests {
    use trellis_digest::hex;

    use super::*;
    use crate::tensorboard::record::framed;

    #[test]
    fn a_scalar_is_the_record_that_tensorboard_writes() {
        let point = Point { name: "train/loss".to_owned(), step: 3, value: 0.5, at: 1.0 };
        let expected =
            "200000000000000029eda95009000000000000f03f10032a130a110a0a747261696e2f6c6f7373150000003f87a9e1ea";
        assert_eq!(hex(&framed(&scalar(&point))), expected);
    }

    #[test]
    fn the_first_record_names_the_version_of_the_file() {
        let version = begin(&RunFacts { submitted_at: 1.0, ..Default::default() });
        let expected = "1800000000000000a37f4b2209000000000000f03f1a0d627261696e2e4576656e743a3286bf577a";
        assert_eq!(hex(&framed(&version)), expected);
    }
}
