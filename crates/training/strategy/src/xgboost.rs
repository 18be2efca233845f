//! Joins XGBoost models in their JSON format: the trees of each reply are added to the global model.
//!
//! Only the changed parts are parsed: counts, ids and the lists of trees. Everything else keeps its exact text. The content of
//! trees is not interpreted.

use std::fmt;

use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde::ser::{Serialize, SerializeMap, Serializer};
use serde_json::value::{RawValue, to_raw_value};

/// Adds the trees of the replies, in their order, to the global model. If that is empty, the first reply takes its place.
///
/// Flower's FedXgbBagging adds the trees of one boosting round of one class from each reply and silently drops the others. Here
/// all trees are added with their class and round. Both agree if each reply has one round of one class, as in Flower's
/// examples; otherwise see [`bagging_compat`].
pub fn bagging(global: &[u8], replies: &[Vec<u8>]) -> Result<Vec<u8>, String> {
    join(global, replies, Ensemble::add_all)
}

/// Like Flower's FedXgbBagging: adds the first `num_parallel_tree` trees of each reply as one round of class 0.
pub fn bagging_compat(global: &[u8], replies: &[Vec<u8>]) -> Result<Vec<u8>, String> {
    join(global, replies, Ensemble::add_first_round)
}

type Add<'a> = fn(&mut Ensemble<'a>, Ensemble<'a>) -> Result<(), String>;

fn join<'a>(global: &'a [u8], replies: &'a [Vec<u8>], add: Add<'a>) -> Result<Vec<u8>, String> {
    let (base, sender, rest) = match (global.is_empty(), replies) {
        (false, _) => (global, "the global model".to_string(), replies),
        (true, [first, rest @ ..]) => (first.as_slice(), name_of(0, replies), rest),
        (true, []) => return Ok(Vec::new()),
    };
    if rest.is_empty() {
        return Ok(base.to_vec());
    }
    let mut file = File::read(base).map_err(|error| format!("{sender}: {error}"))?;
    for (index, reply) in rest.iter().enumerate() {
        File::read(reply)
            .and_then(|other| add(&mut file.ensemble, other.ensemble))
            .map_err(|error| format!("{}: {error}", name_of(replies.len() - rest.len() + index, replies)))?;
    }
    file.write().map_err(|error| format!("the joined model cannot be written: {error}"))
}

fn name_of(index: usize, replies: &[Vec<u8>]) -> String {
    format!("reply {} of {}", index + 1, replies.len())
}

/// A JSON object with ordered members.
struct Object<'a>(Vec<(String, Member<'a>)>);

/// A part of a model: the text that was read, or a new text.
enum Member<'a> {
    Read(&'a RawValue),
    Written(Box<RawValue>),
}

impl Member<'_> {
    fn raw(&self) -> &RawValue {
        match self {
            Self::Read(raw) => raw,
            Self::Written(raw) => raw,
        }
    }
}

impl Serialize for Member<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.raw().serialize(serializer)
    }
}

impl<'a> Object<'a> {
    fn read(raw: &'a RawValue, place: &str) -> Result<Self, String> {
        serde_json::from_str(raw.get()).map_err(|error| format!("{place} is not as XGBoost writes it: {error}"))
    }

    fn get(&self, name: &str, place: &str) -> Result<&'a RawValue, String> {
        match self.0.iter().find(|(member, _)| member == name) {
            Some((_, Member::Read(raw))) => Ok(raw),
            _ => Err(format!("{place} has no {name:?}: only models of the tree booster (gbtree) can be joined")),
        }
    }

    fn set(&mut self, name: &str, value: &impl Serialize) -> serde_json::Result<()> {
        let written = Member::Written(to_raw_value(value)?);
        match self.0.iter_mut().find(|(member, _)| member == name) {
            Some((_, member)) => *member = written,
            None => self.0.push((name.into(), written)),
        }
        Ok(())
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Object<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Members;
        impl<'de> Visitor<'de> for Members {
            type Value = Object<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> Result<Object<'de>, M::Error> {
                let mut members = Vec::new();
                while let Some((name, raw)) = map.next_entry::<String, &RawValue>()? {
                    members.push((name, Member::Read(raw)));
                }
                Ok(Object(members))
            }
        }
        deserializer.deserialize_map(Members)
    }
}

impl Serialize for Object<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.0.len()))?;
        for (name, member) in &self.0 {
            map.serialize_entry(name, member)?;
        }
        map.end()
    }
}

/// The nested objects from the whole file to the tree model, each with its name in the enclosing one.
struct File<'a> {
    around: Vec<(&'static str, Object<'a>)>,
    model: Object<'a>,
    ensemble: Ensemble<'a>,
}

const PATH: [&str; 3] = ["learner", "gradient_booster", "model"];

impl<'a> File<'a> {
    fn read(json: &'a [u8]) -> Result<Self, String> {
        let raw: &RawValue = serde_json::from_slice(json).map_err(|error| format!("it is not JSON: {error}"))?;
        let mut place = "the model".to_string();
        let mut object = Object::read(raw, &place)?;
        let mut around = Vec::new();
        for name in PATH {
            let inner = object.get(name, &place)?;
            place = if around.is_empty() { name.into() } else { format!("{place}.{name}") };
            around.push((name, std::mem::replace(&mut object, Object::read(inner, &place)?)));
        }
        let ensemble = Ensemble::read(&object, &place)?;
        Ok(Self { around, model: object, ensemble })
    }

    fn write(mut self) -> serde_json::Result<Vec<u8>> {
        self.ensemble.write(&mut self.model)?;
        let mut inner = self.model;
        while let Some((name, mut outer)) = self.around.pop() {
            outer.set(name, &inner)?;
            inner = outer;
        }
        serde_json::to_vec(&inner)
    }
}

/// The trees of a model, and their counts.
struct Ensemble<'a> {
    counts: Object<'a>,
    /// Trees per boosting round and class.
    parallel: usize,
    /// The index of the first tree of each boosting round; the last entry is the number of trees.
    rounds: Vec<usize>,
    /// The class of each tree.
    classes: Vec<u64>,
    trees: Vec<Member<'a>>,
}

impl<'a> Ensemble<'a> {
    fn read(model: &Object<'a>, place: &str) -> Result<Self, String> {
        let counts_place = format!("{place}.gbtree_model_param");
        let counts = Object::read(model.get("gbtree_model_param", place)?, &counts_place)?;
        let ensemble = Self {
            parallel: count(&counts, "num_parallel_tree", &counts_place)?,
            rounds: list(model, "iteration_indptr", place)?,
            classes: list(model, "tree_info", place)?,
            trees: list(model, "trees", place)?.into_iter().map(Member::Read).collect(),
            counts,
        };
        let declared = count(&ensemble.counts, "num_trees", &counts_place)?;
        let (trees, classes) = (ensemble.trees.len(), ensemble.classes.len());
        if declared != trees || classes != trees || ensemble.rounds.last() != Some(&trees) {
            return Err(format!(
                "{place} holds {trees} trees, but num_trees says {declared}, tree_info {classes} and iteration_indptr {}",
                ensemble.rounds.last().map_or("nothing".into(), usize::to_string)
            ));
        }
        Ok(ensemble)
    }

    fn add_all(&mut self, other: Ensemble<'a>) -> Result<(), String> {
        let before = self.trees.len();
        self.rounds.extend(other.rounds.iter().skip(1).map(|round| before + round));
        self.classes.extend(other.classes);
        self.append(other.trees.iter())
    }

    fn add_first_round(&mut self, other: Ensemble<'a>) -> Result<(), String> {
        let (has, wanted) = (other.trees.len(), other.parallel);
        if has < wanted {
            return Err(format!("it has {has} trees, fewer than its num_parallel_tree ({wanted})"));
        }
        self.rounds.push(self.trees.len() + wanted);
        self.classes.extend(std::iter::repeat_n(0, wanted));
        self.append(other.trees.iter().take(wanted))
    }

    /// Renumbers the trees, which are counted from 0.
    fn append<'t>(&mut self, trees: impl Iterator<Item = &'t Member<'a>>) -> Result<(), String>
    where
        'a: 't,
    {
        for (index, tree) in trees.enumerate() {
            let place = format!("tree {index}");
            let mut tree = Object::read(tree.raw(), &place)?;
            let id = tree.set("id", &self.trees.len());
            let renumbered = id.and_then(|()| to_raw_value(&tree)).map_err(|error| format!("{place}: {error}"))?;
            self.trees.push(Member::Written(renumbered));
        }
        Ok(())
    }

    fn write(mut self, model: &mut Object<'a>) -> serde_json::Result<()> {
        // XGBoost writes its parameters as strings.
        self.counts.set("num_trees", &self.trees.len().to_string())?;
        model.set("gbtree_model_param", &self.counts)?;
        model.set("iteration_indptr", &self.rounds)?;
        model.set("tree_info", &self.classes)?;
        model.set("trees", &self.trees)
    }
}

/// A number in a string parameter.
fn count(object: &Object<'_>, name: &str, place: &str) -> Result<usize, String> {
    let raw = object.get(name, place)?.get();
    let digits = raw.trim_matches('"');
    digits.parse().map_err(|_| format!("{place}.{name} is {raw} instead of a number of trees"))
}

fn list<'a, T: Deserialize<'a>>(object: &Object<'a>, name: &str, place: &str) -> Result<Vec<T>, String> {
    let raw = object.get(name, place)?;
    serde_json::from_str(raw.get()).map_err(|error| format!("{place}.{name} is not as XGBoost writes it: {error}"))
}

#[cfg(test)]
mod tests;
