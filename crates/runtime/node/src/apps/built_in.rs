//! Built-in apps that a run names: `trellis:mlp` instead of a Python ClientApp. They are available with every kind of apps that
//! the operator configures.
//!
//! Their settings come from the run's configuration, and so from its sender. Therefore they cannot name files or choose the
//! node's part of the data.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard};

use trellis_core::id::RunId;
use trellis_diagnostic::Diagnostic;
use trellis_native::{ClientApp, builtin, builtins};
use trellis_wire::error_reply::ErrorCode;
use trellis_wire::fab::BUILT_IN_CLIENT_APP;
use trellis_wire::proto::{self, scalar::Scalar};

use super::native;
use crate::app::{Job, Outcome};
use crate::objects::Objects;

/// The bundled data, which a run may name.
const BUNDLED: &str = "digits";
/// Settings that only the node's own configuration may contain.
const OF_THE_NODE: [&str; 2] = ["partition-id", "num-partitions"];

/// The apps of active runs.
pub struct BuiltInApps {
    objects: Objects,
    apps: Mutex<HashMap<RunId, Arc<dyn ClientApp>>>,
}

impl BuiltInApps {
    pub fn new(objects: Objects) -> BuiltInApps {
        BuiltInApps { objects, apps: Mutex::default() }
    }

    fn apps(&self) -> MutexGuard<'_, HashMap<RunId, Arc<dyn ClientApp>>> {
        self.apps.lock().expect("no holder panics")
    }

    pub async fn execute(&self, name: &str, job: Job) -> Outcome {
        let run = RunId(job.metadata().run_id);
        let kept = self.apps().get(&run).cloned();
        let app = match kept {
            Some(app) => app,
            None => match make(name, &job.context.run_config) {
                Ok(app) => Arc::clone(self.apps().entry(run).or_insert(app)),
                Err(problems) => {
                    let errors: Vec<String> = problems.iter().map(ToString::to_string).collect();
                    let reason = format!("{BUILT_IN_CLIENT_APP}{name} cannot be used: {}", errors.join("; "));
                    return Outcome::Failed { code: ErrorCode::LoadClientAppException, reason };
                }
            },
        };
        native::execute(app, self.objects.clone(), job).await
    }

    /// Drops the app of a finished run.
    pub fn end_run(&self, run: RunId) {
        self.apps().remove(&run);
    }
}

fn make(name: &str, config: &BTreeMap<String, proto::Scalar>) -> Result<Arc<dyn ClientApp>, Vec<Diagnostic>> {
    let (settings, mut problems) = settings(name, config);
    match builtin(name, &settings) {
        Ok(app) if problems.is_empty() => Ok(app.into()),
        Ok(_) => Err(problems),
        Err(others) => {
            problems.extend(others);
            Err(problems)
        }
    }
}

/// The settings of an app in the configuration of a run, and errors about those that a run must not set. Other keys are ignored.
fn settings(name: &str, config: &BTreeMap<String, proto::Scalar>) -> (BTreeMap<String, String>, Vec<Diagnostic>) {
    let known = builtins().iter().find(|app| app.name == name).map_or(&[][..], |app| &app.settings);
    let (mut settings, mut problems) = (BTreeMap::new(), Vec::new());
    for setting in known {
        let Some(value) = config.get(setting.name) else { continue };
        let refused = if OF_THE_NODE.contains(&setting.name) {
            Err(("each node has its own, and a run cannot give it", "give it to the nodes, with --node-config"))
        } else {
            text(value).ok_or(("it is not a number or a text", "write it as one"))
        };
        match refused {
            Ok(text) if setting.name == "dataset" && text != BUNDLED => {
                let advice =
                    format!("write {BUNDLED}, or start the nodes with --client-app native:{name} and their data");
                problems.push(Diagnostic::error(
                    setting.name,
                    format!("a run cannot name the data {text:?} of a node"),
                    advice,
                ));
            }
            // Empty values count as not set, as on a command line.
            Ok(text) if text.trim().is_empty() => {}
            Ok(text) => {
                settings.insert(setting.name.to_owned(), text);
            }
            Err((what, advice)) => problems.push(Diagnostic::error(setting.name, what, advice)),
        }
    }
    (settings, problems)
}

fn text(value: &proto::Scalar) -> Option<String> {
    match value.scalar.as_ref()? {
        Scalar::Double(number) => Some(number.to_string()),
        Scalar::Sint64(number) => Some(number.to_string()),
        Scalar::Uint64(number) => Some(number.to_string()),
        Scalar::String(text) => Some(text.clone()),
        Scalar::Bool(_) | Scalar::Bytes(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use trellis_wire::records::{Outgoing, Records, inflate, message};

    use super::*;
    use crate::app::InstalledApp;

    const RUN: u64 = 7;

    fn config(entries: &[(&str, Scalar)]) -> BTreeMap<String, proto::Scalar> {
        let scalar = |value: &Scalar| proto::Scalar { scalar: Some(value.clone()) };
        entries.iter().map(|(name, value)| ((*name).to_owned(), scalar(value))).collect()
    }

    fn job(objects: &Objects, kind: &str, records: &Records, run_config: BTreeMap<String, proto::Scalar>) -> Job {
        let metadata = proto::Metadata {
            run_id: RUN,
            src_node_id: 1,
            dst_node_id: 5,
            ttl: 60.0,
            message_type: kind.to_owned(),
            ..Default::default()
        };
        let Outgoing { message, tree, objects: parts } = message(metadata, records);
        for (id, bytes) in &parts {
            objects.put(*id, bytes).unwrap();
        }
        let node_config = config(&[("partition-id", Scalar::Sint64(1)), ("num-partitions", Scalar::Sint64(10))]);
        let app = InstalledApp {
            hash: "f".repeat(64),
            id: "me/app".to_owned(),
            version: "1".to_owned(),
            directory: PathBuf::new(),
            bundle: PathBuf::new(),
            client_app: "trellis:mlp".to_owned(),
        };
        let context = proto::Context { run_id: RUN, node_config, run_config, ..Default::default() };
        Job { run: proto::Run::default(), instruction: message, tree, context, app: Some(app) }
    }

    fn replied(outcome: Outcome, objects: &Objects) -> Records {
        let Outcome::Replied(reply) = outcome else { panic!("{outcome:?}") };
        let mut fetch = |id| objects.read(id)?.ok_or_else(|| "missing".into());
        inflate(reply.tree.object_id.parse().unwrap(), &mut fetch).unwrap()
    }

    #[tokio::test]
    async fn an_app_uses_the_settings_of_its_run() {
        let directory = tempfile::tempdir().unwrap();
        let objects = Objects::open(directory.path()).unwrap();
        let apps = BuiltInApps::new(objects.clone());
        // Includes a setting of the ServerApp.
        let settings =
            [("hidden", Scalar::Sint64(8)), ("lr", Scalar::Double(0.05)), ("num-server-rounds", Scalar::Sint64(3))];
        let settings = config(&settings);
        let init = job(&objects, "query.init", &Records::default(), settings.clone());
        let model = replied(apps.execute("mlp", init).await, &objects);
        let arrays = model.arrays("arrays").unwrap();
        let first = arrays.iter().next().unwrap().1.tensor().unwrap();
        assert!(first.shape().contains(&8), "the hidden layer: {:?}", first.shape());

        let train = job(&objects, "train", &model, settings);
        let learned = replied(apps.execute("mlp", train).await, &objects);
        assert_ne!(learned.arrays("arrays"), model.arrays("arrays"));
        assert!(learned.metrics("metrics").unwrap().0.get("train_loss").is_some());
        assert_eq!(apps.apps().len(), 1, "one app for all instructions of a run");
        apps.end_run(RunId(RUN));
        assert_eq!(apps.apps().len(), 0);
    }

    #[tokio::test]
    async fn a_run_cannot_set_files_or_partitions() {
        let directory = tempfile::tempdir().unwrap();
        let objects = Objects::open(directory.path()).unwrap();
        let apps = BuiltInApps::new(objects.clone());
        let text = |text: &str| Scalar::String(text.to_owned());
        let cases = [
            (
                "mlp",
                vec![("dataset", text("csv:/etc/passwd"))],
                "a run cannot name the data \"csv:/etc/passwd\" of a node",
            ),
            ("logistic", vec![("partition-id", Scalar::Sint64(0))], "partition-id: each node has its own"),
            ("mlp", vec![("hidden", Scalar::Bool(true))], "hidden: it is not a number or a text"),
            ("mlp", vec![("hidden", Scalar::Sint64(0)), ("classes", text("a,b"))], "classes: it has no effect"),
            ("gpt", vec![], "there is no native app \"gpt\""),
        ];
        for (name, settings, part) in cases {
            let job = job(&objects, "query.init", &Records::default(), config(&settings));
            let Outcome::Failed { code, reason } = apps.execute(name, job).await else { panic!("{name} {settings:?}") };
            assert_eq!(code, ErrorCode::LoadClientAppException);
            assert!(
                reason.starts_with(&format!("trellis:{name} cannot be used: ")) && reason.contains(part),
                "{reason}"
            );
        }
        let sanitized = config(&[("dataset", text("digits")), ("label", text("")), ("test-fraction", text("0.5"))]);
        assert!(make("logistic", &sanitized).is_ok());
    }
}
