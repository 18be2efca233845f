//! The built-in apps by name: their descriptions, and how each is built from its settings.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::LazyLock;

use trellis_diagnostic::{Diagnostic, suggest};

use crate::app::ClientApp;
use crate::classifier::Classifier;
use crate::data::Dataset;
use crate::data::digits::digits;
use crate::data::partition::Scheme;
use crate::data::shard::Division;
use crate::data::table::{self, TableSettings};
use crate::echo::{self, Echo};
use crate::network::Network;
use crate::number::Number;
use crate::settings::{Reader, Setting};
use crate::training::{self, Training};

/// The description of an app, for help texts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Description {
    pub name: &'static str,
    pub summary: &'static str,
    pub settings: Vec<Setting>,
}

const MAX_HIDDEN: usize = 65_536;

const HIDDEN: Setting = Setting { name: "hidden", default: "64", help: "units of the hidden layer" };

const DATA: &[Setting] = &[
    Setting { name: "dataset", default: "digits", help: "digits (bundled), or csv:PATH" },
    Setting { name: "label", default: "", help: "column of the class in the CSV file; the last one by default" },
    Setting {
        name: "classes",
        default: "",
        help: "all classes, with commas between them; those of the file by default",
    },
    Setting {
        name: "scale",
        default: "own",
        help: "of CSV features: own (mean 0, deviation 1 by the node's own training examples) or none",
    },
    Setting { name: "partition", default: "iid", help: "iid, dirichlet:ALPHA, or by-label:K (K classes on each node)" },
    Setting { name: "partition-id", default: "", help: "if the node config has none" },
    Setting { name: "num-partitions", default: "", help: "if the node config has none" },
    Setting { name: "data-seed", default: "0", help: "seed of the partition; the same on all nodes" },
    Setting { name: "test-fraction", default: "0.2", help: "share of a node's examples for testing" },
];

/// Settings about the data of one node. A run cannot set them: each node has its own data and partition.
pub const NODE_SETTINGS: &[&str] = &["dataset", "label", "classes", "scale", "partition-id", "num-partitions"];

/// All apps.
pub fn builtins() -> &'static [Description] {
    &BUILTINS
}

static BUILTINS: LazyLock<Vec<Description>> = LazyLock::new(|| {
    vec![
        Description {
            name: "logistic",
            summary: "softmax regression on digits or a CSV file",
            settings: [DATA, training::SETTINGS].concat(),
        },
        Description {
            name: "mlp",
            summary: "a network with one hidden layer, on digits or a CSV file",
            settings: [&[HIDDEN], DATA, training::SETTINGS].concat(),
        },
        Description {
            name: "echo",
            summary: "gives back the model it gets, without learning: for load tests",
            settings: echo::SETTINGS.to_vec(),
        },
    ]
});

/// Builds an app and reads the data that its settings name. Returns all errors at once.
pub fn builtin(name: &str, settings: &BTreeMap<String, String>) -> Result<Box<dyn ClientApp>, Vec<Diagnostic>> {
    let apps = builtins();
    let Some(described) = apps.iter().find(|app| app.name == name) else {
        let advice = suggest(name, apps.iter().map(|app| app.name), "there are");
        return Err(vec![Diagnostic::error("app", format!("there is no native app {name:?}"), advice)]);
    };
    let mut reader = Reader::new(described.settings.clone(), training::ALIASES, settings);
    let app: Option<Box<dyn ClientApp>> = match name {
        "echo" => {
            let num_examples = reader.value("num-examples", |text| count(text, 1));
            let vary = reader.value("vary", |text| text.parse().map_err(|_| "true or false".to_owned()));
            num_examples.zip(vary).map(|(num_examples, vary)| Box::new(Echo { num_examples, vary }) as _)
        }
        "mlp" => {
            let hidden = reader.value("hidden", hidden);
            let classifier = Parts::read(&mut reader);
            hidden
                .zip(classifier)
                .map(|(hidden, parts)| parts.assemble(|inputs, outputs| Network::mlp(inputs, hidden, outputs)))
        }
        _ => Parts::read(&mut reader).map(|parts| parts.assemble(Network::logistic)),
    };
    match app {
        Some(app) if reader.problems.is_empty() => Ok(app),
        _ => Err(reader.problems),
    }
}

/// The settings that all classifiers share.
struct Parts {
    dataset: Dataset,
    division: Division,
    partition_id: Option<usize>,
    num_partitions: Option<usize>,
    training: Training,
}

impl Parts {
    /// `None` if a setting is invalid; the reader collects the errors.
    fn read(reader: &mut Reader) -> Option<Self> {
        let mut training = Training::default();
        for setting in training::SETTINGS {
            reader.value(setting.name, |text| {
                let number = Number::parse(text).ok_or_else(|| "a number".to_owned())?;
                training.set(setting.name, number)
            });
        }
        let dataset = read_dataset(reader);
        let standardise = reader.value("scale", |text| match text {
            "own" => Ok(true),
            "none" => Ok(false),
            _ => Err("own or none".to_owned()),
        });
        let scheme: Option<Scheme> = reader.value("partition", str::parse);
        let seed = reader
            .value("data-seed", |text| text.parse().map_err(|_| "a whole number that is not negative".to_owned()));
        let test_fraction = reader.value("test-fraction", |text| {
            let fraction = text.parse().ok().filter(|fraction| *fraction > 0.0 && *fraction < 1.0);
            fraction.ok_or_else(|| "a number between 0 and 1".to_owned())
        });
        let partition_id = reader.value("partition-id", |text| count(text, 0));
        let num_partitions = reader.value("num-partitions", |text| count(text, 1));
        let (dataset, is_table) = dataset?;
        let division = Division {
            scheme: scheme?,
            seed: seed?,
            test_fraction: test_fraction?,
            standardise: standardise? && is_table,
        };
        Some(Self { dataset, division, partition_id, num_partitions, training })
    }

    fn assemble(self, network: impl FnOnce(usize, usize) -> Network) -> Box<dyn ClientApp> {
        let network = network(self.dataset.features, self.dataset.classes.len());
        let partition = (self.partition_id, self.num_partitions);
        Box::new(Classifier::new(network, self.dataset, self.division, partition, self.training))
    }
}

/// The data, and whether it is a table.
fn read_dataset(reader: &mut Reader) -> Option<(Dataset, bool)> {
    let label = reader.value("label", |text| Ok(text.to_owned()));
    let classes = reader.value("classes", classes);
    let source = reader.value("dataset", |text| match text.split_once(':') {
        None if text == "digits" => Ok(None),
        Some(("csv", path)) if !path.is_empty() => Ok(Some(path.to_owned())),
        _ => Err("digits or csv:PATH".to_owned()),
    })?;
    match source {
        None => {
            reader.refuse(&["label", "classes", "scale"], "with dataset=digits");
            Some((digits(), false))
        }
        Some(path) => match table::read(Path::new(&path), &TableSettings { label, classes }) {
            Ok(table) => Some((table, true)),
            Err(problems) => {
                reader.problems.extend(problems);
                None
            }
        },
    }
}

fn classes(text: &str) -> Result<Vec<String>, String> {
    let classes: Vec<String> = text.split(',').map(|class| class.trim().to_owned()).collect();
    let mut sorted = classes.clone();
    sorted.sort();
    sorted.dedup();
    if classes.len() < 2 || sorted.len() < classes.len() || classes.iter().any(String::is_empty) {
        return Err("two or more different names with commas between them".to_owned());
    }
    Ok(classes)
}

fn hidden(text: &str) -> Result<usize, String> {
    let hidden = text.parse().ok().filter(|hidden| (1..=MAX_HIDDEN).contains(hidden));
    hidden.ok_or_else(|| format!("a whole number from 1 to {MAX_HIDDEN}"))
}

fn count(text: &str, min: usize) -> Result<usize, String> {
    text.parse().ok().filter(|count| *count >= min).ok_or_else(|| format!("a whole number, at least {min}"))
}
