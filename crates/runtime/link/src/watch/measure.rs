//! Extracts loss, accuracy, weight and round from the small records of messages. Large objects (models) are not read.

use bytes::Bytes;
use trellis_core::id::ObjectId;
use trellis_core::object::{Content, Tree};
use trellis_core::port::Read;
use trellis_wire::object::{ConfigValue, Entries, MetricValue, Object, RecordDict};

use super::facts::plain;
use super::round::Kind;

/// Maximum number of records read per message.
const MAX_RECORDS: usize = 16;
/// Maximum size of a record.
const MAX_RECORD_BYTES: usize = 32 << 10;
/// Maximum number of values per message.
const MAX_NUMBERS: usize = 256;

/// Config records in which older clients of Flower send metrics.
const CONFIG_METRICS: &[&str] = &["fitres.metrics", "evaluateres.metrics"];

const EXAMPLES: &[&str] = &["num-examples", "num-samples"];
const ROUND: &[&str] = &["server-round", "current-round", "round"];
const LOSS: &[&str] = &["loss"];
const ACCURACY: &[&str] = &["accuracy", "acc"];
/// Prefixes of `loss` and `accuracy`, in order of preference.
const OF_TRAIN: &[&str] = &["", "train-", "training-", "local-"];
const OF_EVALUATE: &[&str] = &["", "eval-", "evaluate-", "evaluation-", "val-", "validation-", "test-"];

/// Values by name.
pub type Numbers = Vec<(String, f64)>;

/// The values of a message.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ReplyValues {
    /// All values, by normalised names.
    pub numbers: Numbers,
    /// Metrics, by the client's names.
    pub metrics: Numbers,
}

/// Returns the values in the records of a complete message.
pub fn numbers(view: &dyn Read, tree: &Tree) -> Numbers {
    reply_values(view, tree).numbers
}

/// Returns the values, and which of them are metrics.
pub fn reply_values(view: &dyn Read, tree: &Tree) -> ReplyValues {
    values_in(tree, |id| match view.content(id) {
        Ok(Some(Content::Inline(bytes))) => Some(bytes),
        _ => None,
    })
}

/// Only records of plain values have no children.
fn values_in(message: &Tree, mut content: impl FnMut(ObjectId) -> Option<Bytes>) -> ReplyValues {
    let mut small = |id: ObjectId| content(id).filter(|bytes| bytes.len() <= MAX_RECORD_BYTES);
    let mut reply_values = ReplyValues::default();
    let mut left = MAX_RECORDS;
    for dict in &message.children {
        let names = small(dict.id).and_then(|bytes| RecordDict::decode(&bytes).ok()).unwrap_or_default();
        for record in dict.children.iter().filter(|record| record.children.is_empty()) {
            let Some(rest) = left.checked_sub(1) else { return reply_values };
            left = rest;
            match small(record.id).map(|bytes| Object::decode(&bytes)) {
                Some(Ok(Object::MetricRecord(record))) => reply_values.gather(&record.0, metric, true),
                Some(Ok(Object::ConfigRecord(entries))) => {
                    let is_metrics =
                        names.0.iter().any(|(name, id)| *id == record.id && CONFIG_METRICS.contains(&&name[..]));
                    reply_values.gather(&entries.0, setting, is_metrics);
                }
                _ => {}
            }
        }
    }
    reply_values
}

impl ReplyValues {
    fn gather<V>(&mut self, entries: &Entries<V>, number: fn(&V) -> Option<f64>, are_metrics: bool) {
        let found = entries.iter().filter_map(|(name, value)| Some((name, plain(name), number(value)?)));
        for (name, plain, value) in found.take(MAX_NUMBERS - self.numbers.len()) {
            if are_metrics && !EXAMPLES.contains(&&plain[..]) {
                self.metrics.push((name.clone(), value));
            }
            self.numbers.push((plain, value));
        }
    }
}

fn metric(value: &MetricValue) -> Option<f64> {
    Some(match value {
        MetricValue::Double(number) => *number,
        MetricValue::Sint64(number) => *number as f64,
        MetricValue::Uint64(number) => *number as f64,
        _ => return None,
    })
}

fn setting(value: &ConfigValue) -> Option<f64> {
    Some(match value {
        ConfigValue::Double(number) => *number,
        ConfigValue::Sint64(number) => *number as f64,
        ConfigValue::Uint64(number) => *number as f64,
        _ => return None,
    })
}

/// The measurements of a reply.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Measured {
    pub loss: Option<f64>,
    pub accuracy: Option<f64>,
    pub examples: Option<f64>,
}

impl Measured {
    pub fn of(kind: Kind, numbers: &[(String, f64)]) -> Measured {
        let prefixes = if kind == Kind::Train { OF_TRAIN } else { OF_EVALUATE };
        let find = |prefix: &str, names: &[&str]| {
            let is_it = |key: &str| names.iter().any(|name| key.strip_prefix(prefix) == Some(*name));
            numbers.iter().find(|(key, _)| is_it(key)).map(|(_, number)| *number)
        };
        Measured {
            loss: prefixes.iter().find_map(|prefix| find(prefix, LOSS)),
            accuracy: prefixes.iter().find_map(|prefix| find(prefix, ACCURACY)),
            examples: find("", EXAMPLES).filter(|number| number.is_finite() && *number > 0.0),
        }
    }
}

/// Returns the round of an instruction. Flower's strategies write it into the settings for clients.
pub fn round_of(numbers: &[(String, f64)]) -> Option<u64> {
    let found = ROUND.iter().find_map(|name| numbers.iter().find(|(key, _)| key == name));
    found.map(|(_, number)| *number).filter(|number| *number >= 0.0 && *number <= f64::from(u32::MAX)).map(|n| n as u64)
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use trellis_wire::object::{ArrayRecord, ConfigRecord, MetricRecord, object_id};

    use super::*;

    #[test]
    fn names_determine_the_meaning_of_values() {
        let cases = [
            (Kind::Evaluate, "loss=1 accuracy=2 num-examples=3", "1 2 3"),
            (Kind::Evaluate, "eval_loss=1 eval_acc=2 num_examples=3", "1 2 3"),
            (Kind::Evaluate, "test-loss=4 val-loss=1 Validation_Accuracy=2 num_samples=3", "1 2 3"),
            (Kind::Train, "train_loss=1 train_accuracy=2 num-examples=3", "1 2 3"),
            (Kind::Train, "train_loss=9 loss=1", "1 - -"),
            (Kind::Train, "eval_loss=1 val_acc=2", "- - -"),
            (Kind::Evaluate, "train_loss=1", "- - -"),
            (Kind::Evaluate, "kl-loss=1 mean-square=2", "- - -"),
            (Kind::Evaluate, "loss=NaN num-examples=-3", "NaN - -"),
            (Kind::Evaluate, "num-examples=0", "- - -"),
        ];
        for (kind, given, expected) in cases {
            let numbers: Numbers = given
                .split(' ')
                .map(|pair| pair.split_once('=').unwrap())
                .map(|(name, number)| (plain(name), number.parse().unwrap()))
                .collect();
            let found = Measured::of(kind, &numbers);
            let reported = [found.loss, found.accuracy, found.examples]
                .map(|number| number.map_or("-".to_owned(), |number| number.to_string()));
            assert_eq!(reported.join(" "), expected, "{kind:?} {given}");
        }
    }

    #[test]
    fn names_of_rounds() {
        let round = |name: &str, number: f64| round_of(&[("lr".into(), 0.1), (plain(name), number)]);
        assert_eq!(round("server-round", 3.0), Some(3));
        assert_eq!(round("server_round", 3.0), Some(3));
        assert_eq!(round("current_round", 0.0), Some(0));
        assert_eq!(round("epoch", 3.0), None);
        assert_eq!(round("round", -1.0), None);
        assert_eq!(round("round", f64::NAN), None);
    }

    /// A reply of Flower's older strategies: values in three records, next to a model.
    #[test]
    fn small_records_are_read_and_models_are_not() {
        let mut stored: HashMap<ObjectId, Bytes> = HashMap::new();
        let mut keep = |bytes: Bytes| {
            let id = object_id(&bytes);
            stored.insert(id, bytes);
            id
        };
        let metrics = |name: &str, value: MetricValue| {
            MetricRecord(Entries::new(vec![(name.to_owned(), value)]).unwrap()).encode()
        };
        let config = vec![
            ("accuracy".to_owned(), ConfigValue::Double(0.5)),
            ("note".to_owned(), ConfigValue::String("0.7".into())),
        ];
        let leaves = [
            keep(metrics("loss", MetricValue::Double(0.25))),
            keep(metrics("num_examples", MetricValue::Sint64(8))),
            keep(ConfigRecord(Entries::new(config).unwrap()).encode()),
            keep(Bytes::from_static(b"garbage")),
        ];
        let model = keep(ArrayRecord(Entries::new(vec![]).unwrap()).encode());
        let leaf = |id: ObjectId| Tree { id, children: vec![] };
        let array = leaf(ObjectId::new([7; 32]));
        let mut records: Vec<Tree> = leaves.map(leaf).into();
        records.push(Tree { id: model, children: vec![array] });
        records.push(leaf(ObjectId::new([8; 32])));
        let names = ["evaluateres.loss", "evaluateres.num_examples", "evaluateres.metrics", "x"].map(str::to_owned);
        let mut named: Vec<_> = names.into_iter().zip(leaves).collect();
        named.extend([("model".to_owned(), model), ("gone".to_owned(), ObjectId::new([8; 32]))]);
        let dict = keep(RecordDict(Entries::new(named).unwrap()).encode());
        let message = Tree { id: ObjectId::new([9; 32]), children: vec![Tree { id: dict, children: records }] };

        let mut opened = Vec::new();
        let reply_values = values_in(&message, |id| {
            opened.push(id);
            stored.get(&id).cloned()
        });
        let measured = Measured::of(Kind::Evaluate, &reply_values.numbers);
        assert_eq!(
            reply_values.metrics,
            [("loss".to_owned(), 0.25), ("accuracy".to_owned(), 0.5)],
            "without the weight"
        );
        assert_eq!(measured, Measured { loss: Some(0.25), accuracy: Some(0.5), examples: Some(8.0) });
        assert!(!opened.contains(&model) && !opened.contains(&ObjectId::new([7; 32])));
    }

    #[test]
    fn the_limits_hold() {
        let record: Vec<_> = (0..MAX_NUMBERS + 1).map(|n| (format!("m{n}"), MetricValue::Double(1.0))).collect();
        let bytes = MetricRecord(Entries::new(record).unwrap()).encode();
        let leaf = Tree { id: object_id(&bytes), children: vec![] };
        let dict = Tree { id: ObjectId::new([1; 32]), children: vec![leaf; MAX_RECORDS + 1] };
        let message = Tree { id: ObjectId::new([2; 32]), children: vec![dict] };
        let mut asked = 0;
        let reply_values = values_in(&message, |_| {
            asked += 1;
            Some(bytes.clone())
        });
        assert_eq!(
            (reply_values.numbers.len(), reply_values.metrics.len(), asked),
            (MAX_NUMBERS, MAX_NUMBERS, MAX_RECORDS + 1)
        );
        let too_large = Bytes::from(vec![0; MAX_RECORD_BYTES + 1]);
        assert_eq!(values_in(&message, |_| Some(too_large.clone())), ReplyValues::default());
    }
}
