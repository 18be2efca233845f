//! Kinds of amounts: sizes, processors, durations, shares.

use std::time::Duration;

use serde_json::json;

use super::{Fault, Scalar};
use crate::amount;

const MAX_CPU_MILLIS: u32 = 1_000_000;
const LONGEST: Duration = Duration::from_secs(30 * 86400);

/// Number of nodes that may be unavailable at once, absolute or as a share of all.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Unavailable {
    Nodes(u32),
    Share(f64),
}

pub(crate) fn bytes() -> Scalar<u64> {
    let parse = |text: &str, _: bool| amount::bytes(text).filter(|bytes| *bytes > 0).ok_or(Fault::Unfit);
    let pattern = r"^[0-9]+(\.[0-9]+)? ?([KMGT]i?B|[KMGT]i|B)?$";
    let schema = json!({ "type": ["string", "integer"], "pattern": pattern, "minimum": 1 });
    Scalar::new("a size", "2GiB", schema, parse)
}

pub(crate) fn cpu() -> Scalar<u32> {
    let sound = |millis: &u32| (1..=MAX_CPU_MILLIS).contains(millis);
    let parse = move |text: &str, _: bool| amount::cpu_millis(text).filter(sound).ok_or(Fault::Unfit);
    let most = MAX_CPU_MILLIS / 1000;
    let pattern = r"^[0-9]+(\.[0-9]+)?m?$";
    let schema = json!({ "type": ["string", "number"], "pattern": pattern, "exclusiveMinimum": 0, "maximum": most });
    let words = format!("a number of processors from 1m to {most}");
    Scalar::new(words, "2 or 500m", schema, parse)
}

/// Up to 30 days.
pub(crate) fn duration() -> Scalar<Duration> {
    let parse = |text: &str, _: bool| amount::duration(text).filter(|found| *found <= LONGEST).ok_or(Fault::Unfit);
    let schema = json!({ "type": "string", "pattern": "^[0-9]+ ?[smhd]$" });
    Scalar::new("a duration, up to 30d", "30s, 5m or 1h", schema, parse)
}

/// Above 0, up to 1.
pub(crate) fn fraction() -> Scalar<f64> {
    shares("a share above 0 and up to 1".to_owned(), "exclusiveMinimum", |share| share > 0.0 && share <= 1.0)
}

/// From 0 to 1.
pub(crate) fn share() -> Scalar<f64> {
    shares("a share from 0 to 1".to_owned(), "minimum", |share| (0.0..=1.0).contains(&share))
}

fn shares(words: String, least: &str, sound: impl Fn(f64) -> bool + 'static) -> Scalar<f64> {
    let parse = move |text: &str, _: bool| amount::share(text).filter(|share| sound(*share)).ok_or(Fault::Unfit);
    let pattern = r"^[0-9]+(\.[0-9]+)? ?%?$";
    let schema = json!({ "type": ["string", "number"], "pattern": pattern, least: 0, "maximum": 1 });
    Scalar::new(words, "0.8 or 80%", schema, parse)
}

pub(crate) fn unavailable(most: u32) -> Scalar<Unavailable> {
    let parse = move |text: &str, plain: bool| {
        let share =
            text.strip_suffix('%').and_then(|_| amount::share(text)).filter(|share| *share > 0.0 && *share <= 1.0);
        let nodes = text.parse().ok().filter(|nodes| plain && (1..=most).contains(nodes) && !text.starts_with('+'));
        share.map(Unavailable::Share).or(nodes.map(Unavailable::Nodes)).ok_or(Fault::Unfit)
    };
    let pattern = r"^[0-9]+(\.[0-9]+)? ?%$";
    let schema = json!({ "type": ["string", "integer"], "pattern": pattern, "minimum": 1, "maximum": most });
    let words = format!("a number of nodes from 1 to {most}, or a share of all of them");
    Scalar::new(words, "2 or 25%", schema, parse)
}
