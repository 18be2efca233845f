//! Records inside of one protobuf message, as a Context holds them.

use bytes::Bytes;
use trellis_wire::object::{ConfigRecord, Entries, MetricRecord};
use trellis_wire::proto;
use trellis_wire::records::{Array, Arrays, InlineError, Records, Tensor, from_inline, to_inline};

fn records() -> Records {
    Records::default()
        .with("model", Arrays::default().with("w", Tensor::new(vec![2, 1], vec![1.0f64, 2.0]).unwrap()))
        .with("seen", MetricRecord(Entries::default().with("rounds", 3i64).with("losses", vec![0.5, 0.25])))
        .with("settings", ConfigRecord(Entries::default().with("name", "x".to_owned()).with("on", true)))
        .with("none", Arrays::default())
}

#[test]
fn records_come_back() {
    assert_eq!(from_inline(to_inline(&records()).unwrap()).unwrap(), records());
    assert_eq!(to_inline(&Records::default()).unwrap(), proto::RecordDict::default());
}

#[test]
fn what_has_no_value_is_refused() {
    let dict = proto::RecordDict { items: vec![proto::record_dict::Item { key: "x".into(), value: None }] };
    assert_eq!(from_inline(dict), Err(InlineError::NoValue("x".into())));
    let mut twice = to_inline(&records()).unwrap();
    twice.items.push(twice.items[0].clone());
    assert!(matches!(from_inline(twice), Err(InlineError::RepeatedName(_))));
}

#[test]
fn lengths_beyond_the_wire_are_refused() {
    let long = Array { dtype: "x".into(), shape: vec![1 << 31], stype: "y".into(), data: Bytes::new() };
    let records = Records::default().with("a", Arrays::default().with("long", long));
    assert_eq!(to_inline(&records), Err(InlineError::Shape("long".into())));
}
