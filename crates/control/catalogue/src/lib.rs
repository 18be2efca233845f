//! Flower apps that come with the program: what there is, what each is set up by, and their files. Knows nothing of SuperLinks: an
//! app of the catalogue is sent like any other, from a directory.

mod export;
mod read;

use std::collections::BTreeMap;
use std::sync::LazyLock;

use include_dir::{Dir, include_dir};
use serde::Serialize;

pub use export::ExportError;

static APPS: Dir<'_> = include_dir!("$CARGO_MANIFEST_DIR/../../../apps");
static CATALOGUE: LazyLock<Vec<App>> = LazyLock::new(|| read::apps(&APPS));

/// An app of the catalogue.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct App {
    /// `image-classification`; also the name of the use case.
    pub name: String,
    pub version: String,
    pub description: String,
    /// What may train on a node. The first is there wherever Flower is.
    pub frameworks: Vec<Framework>,
    /// A GPU makes it faster where a node has one.
    pub uses_gpu: bool,
    /// Nothing goes without a GPU.
    pub needs_gpu: bool,
    /// The keys of its run config, with the values that count where nobody gives others.
    pub config: BTreeMap<String, toml::Value>,
    #[serde(skip)]
    pub files: Vec<File>,
}

/// A file of an app, by its path in the app's directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct File {
    pub path: String,
    pub content: &'static [u8],
}

/// What trains.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Framework {
    Numpy,
    PyTorch,
    TensorFlow,
    Sklearn,
}

impl Framework {
    pub const ALL: [Framework; 4] = [Framework::Numpy, Framework::PyTorch, Framework::TensorFlow, Framework::Sklearn];

    pub fn name(self) -> &'static str {
        match self {
            Framework::Numpy => "numpy",
            Framework::PyTorch => "pytorch",
            Framework::TensorFlow => "tensorflow",
            Framework::Sklearn => "sklearn",
        }
    }
}

impl App {
    /// What trains on a node that has this framework: the framework itself, or what is there everywhere.
    pub fn backend(&self, installed: Framework) -> Framework {
        let fits = self.frameworks.contains(&installed);
        if fits { installed } else { self.frameworks.first().copied().unwrap_or(Framework::Numpy) }
    }
}

/// All apps, by name.
pub fn list() -> &'static [App] {
    &CATALOGUE
}

/// The app of this name.
pub fn find(name: &str) -> Option<&'static App> {
    list().iter().find(|app| app.name == name)
}

/// Which framework trains for which use case: by app and by what a node has installed.
pub fn matrix() -> Vec<(&'static str, [(Framework, Framework); 4])> {
    let row = |app: &'static App| Framework::ALL.map(|installed| (installed, app.backend(installed)));
    list().iter().map(|app| (app.name.as_str(), row(app))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_are_three() {
        let names: Vec<&str> = list().iter().map(|app| app.name.as_str()).collect();
        assert_eq!(names, ["anomaly-detection", "image-classification", "llm-fine-tuning"]);
        assert_eq!(find("digits"), None);
        assert!(list().iter().all(|app| !app.needs_gpu), "each has something that runs anywhere");
    }

    #[test]
    fn every_app_takes_the_settings_that_an_operator_gives_to_all() {
        let usual = [
            "strategy",
            "num-server-rounds",
            "min-fit-clients",
            "min-evaluate-clients",
            "min-available-clients",
            "proximal-mu",
            "server-lr",
            "client-lr",
            "num-malicious",
            "trim-beta",
            "checkpoint-enabled",
            "checkpoint-interval",
            "checkpoint-path",
            "local-epochs",
            "batch-size",
            "data-dir",
            "seed",
        ];
        for app in list() {
            let missing: Vec<_> = usual.iter().filter(|key| !app.config.contains_key(**key)).collect();
            assert!(missing.is_empty(), "{} lacks {missing:?}", app.name);
        }
    }

    #[test]
    fn files_are_those_of_the_app_and_what_all_apps_share() {
        let app = find("anomaly-detection").unwrap();
        let paths: Vec<&str> = app.files.iter().map(|file| file.path.as_str()).collect();
        for expected in ["pyproject.toml", "anomaly_detection/server.py", "anomaly_detection/federated/strategies.py"] {
            assert!(paths.contains(&expected), "{expected}: {paths:?}");
        }
        assert!(!paths.iter().any(|path| path.contains("__pycache__") || path.contains("digits.py")), "{paths:?}");
        assert!(paths.is_sorted(), "the same bundle everywhere");
    }

    #[test]
    fn what_trains_depends_on_what_is_installed() {
        use Framework::*;
        let expected = [
            ("anomaly-detection", [Numpy, Numpy, Numpy, Sklearn]),
            ("image-classification", [Numpy, PyTorch, Numpy, Numpy]),
            ("llm-fine-tuning", [Numpy, PyTorch, Numpy, Numpy]),
        ];
        let found: Vec<_> = matrix().into_iter().map(|(name, row)| (name, row.map(|(_, backend)| backend))).collect();
        assert_eq!(found, expected);
    }
}
