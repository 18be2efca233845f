//! The runtime field: `trellis`, `flower`, `flower:1.39`, `flower:1.39.0`.

use std::fmt;

use serde_json::json;
use trellis_flower::Release;

use crate::federation::Runtime;
use crate::kind::{Fault, Scalar};

impl fmt::Display for Runtime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Runtime::Trellis => f.write_str("trellis"),
            Runtime::Flower(version) => write!(f, "flower:{version}"),
        }
    }
}

pub(crate) fn runtime() -> Scalar<Runtime> {
    let parse = |text: &str, _: bool| match text.split_once(':') {
        None if text == "trellis" => Ok(Runtime::Trellis),
        None if text == "flower" => Ok(Runtime::Flower(Release::NEWEST)),
        Some(("flower", version)) => match Release::parse(version) {
            Some(version) => Ok(Runtime::Flower(version)),
            None => {
                let (oldest, newest) = (Release::OLDEST.series(), Release::NEWEST.series());
                let what = format!("{version:?} is not a supported release of Flower");
                Err(Fault::because(what, format!("write flower:{oldest} to flower:{newest}, also with a patch")))
            }
        },
        _ => Err(Fault::Unfit),
    };
    let words = "trellis, flower, or flower with a release like flower:1.39.0";
    let schema = json!({ "type": "string", "pattern": r"^(trellis|flower(:1\.[0-9]+(\.[0-9]+)?)?)$" });
    Scalar::new(words, "flower:1.39.0", schema, parse)
}
