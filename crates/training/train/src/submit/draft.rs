//! A submission that is being filled in: each value finds its key, its type and its place.

use std::collections::{BTreeMap, HashMap};

use trellis_wire::fab::{PATH_SETTINGS, check_path};
use trellis_wire::proto;

use super::source::{NATIVE, Source, names};
use super::value::{self, Wrong};
use super::{BuiltIn, Given, Place, Request, Submission};
use crate::settings::{Problem, Setting, Settings, find};

/// Settings of built-in apps that name files: only a node itself may.
const DATASET: &str = "dataset";
const BUNDLED_DATASET: &str = "digits";
/// Settings that name a file or directory on the machine of the ServerApp. (`resume` may be the id of a run.)
const FILES: &[&str] = &["initial-model", "checkpoint-path"];

const SIGN_AGAIN: &str = "sign it again; or delete its app-signatures.toml";

pub(super) struct Draft {
    source: Source,
    place: Place,
    values: HashMap<String, proto::Scalar>,
    /// Of the built-in app.
    app_settings: BTreeMap<String, String>,
    keys_added: bool,
}

impl Draft {
    pub fn fill(request: Request, problems: &mut Vec<Problem>) -> Draft {
        let Request { source, given, defaults, place } = request;
        let mut draft =
            Draft { source, place, values: HashMap::new(), app_settings: BTreeMap::new(), keys_added: false };
        for Given { written, key, text } in &given {
            if let Err((what, advice)) = draft.set(key, text) {
                problems.push(Problem::new(written, what, advice));
            }
        }
        for (key, text) in defaults.iter().filter(|(key, _)| !given.iter().any(|given| given.key == **key)) {
            if let Err((what, advice)) = draft.set_default(key, text) {
                problems.push(Problem::new(format!("training default {key}"), what, advice));
            }
        }
        match place {
            Place::Here { nodes } | Place::There { nodes: Some(nodes) } => draft.expect_nodes(nodes),
            Place::There { nodes: None } => {}
        }
        draft
    }

    /// A round waits for all who are to come, unless that was decided.
    fn expect_nodes(&mut self, nodes: usize) {
        let fewest = if nodes == 1 { &["min-train-nodes", "min-evaluate-nodes"][..] } else { &[] };
        let defaults = self.source.app.config();
        for key in fewest.iter().chain(&["min-available-nodes"]).filter(|_| nodes > 0) {
            let decided = |name: &str| self.values.contains_key(name) || defaults.contains_key(name);
            if self.source.native && !find(key).is_some_and(|setting| names(setting).any(decided)) {
                // The number is one that these settings take.
                let _ = self.set(key, &nodes.to_string());
            }
        }
    }

    /// Sets a key that was not given. One that neither the app nor the training has is for others.
    fn set_default(&mut self, key: &str, text: &str) -> Result<(), Wrong> {
        let setting = find(key).filter(|_| self.source.native);
        let is_set = setting.map_or_else(
            || self.values.contains_key(key),
            |setting| names(setting).any(|name| self.values.contains_key(name)),
        );
        let of_app = self.source.built_in.is_some_and(|app| app.settings.iter().any(|setting| setting.name == key));
        let addable = !self.source.app.is_signed() && (setting.is_some() || of_app);
        let is_known = addable || self.source.app.config().contains_key(key);
        if is_known && !is_set { self.set(key, text) } else { Ok(()) }
    }

    /// Sets a key, whoever's it is.
    fn set(&mut self, key: &str, text: &str) -> Result<(), Wrong> {
        let setting = find(key).filter(|_| self.source.native);
        let of_app = self.source.built_in.and_then(|app| app.settings.iter().find(|setting| setting.name == key));
        let defaults = self.source.app.config();
        // An app may know the setting by another of its names, and has one value for it.
        let names = setting.map_or_else(|| vec![key], |setting| names(setting).collect());
        let key = names.iter().copied().find(|name| defaults.contains_key(*name)).unwrap_or(names[0]);
        let scalar = match (setting, defaults.get(key), of_app) {
            (Some(setting), default, _) => self.of_training(setting, default, text)?,
            (None, Some(default), _) => value::like(default, text)?,
            (None, None, Some(_)) => value::plain(text),
            (None, None, None) => return Err(self.unknown(key)),
        };
        if !defaults.contains_key(key) && self.source.app.is_signed() {
            let what = format!("the app is signed, and lacks the key {key}");
            return Err((what, format!("add it to [tool.flwr.app.config] of the app and {SIGN_AGAIN}")));
        }
        if self.values.insert(key.to_owned(), scalar).is_some() {
            return Err((format!("{key} is set twice"), "keep one of them".to_owned()));
        }
        if of_app.is_some() {
            self.app_settings.insert(key.to_owned(), text.to_owned());
        }
        if !defaults.contains_key(key) {
            // Not the value itself: then each value would make another bundle, which nodes have to unpack and load anew.
            let usual = setting.map_or_else(|| of_app.map_or("", |setting| setting.default), |setting| setting.default);
            self.source.app.add_key(key, value::to_toml(&value::plain(usual)));
            self.keys_added = true;
        }
        Ok(())
    }

    /// A value of the training. Where the app has one, its ClientApp may read it too, and expects its type.
    fn of_training(
        &self,
        setting: &Setting,
        default: Option<&proto::Scalar>,
        text: &str,
    ) -> Result<proto::Scalar, Wrong> {
        let wrong = || (format!("{text:?} cannot be used"), format!("give {}", setting.kind.expected()));
        let value = setting.kind.parse(text).ok_or_else(wrong)?;
        if matches!(self.place, Place::There { .. }) && PATH_SETTINGS.contains(&setting.name) {
            check_path(setting.name, text).map_err(|_| outside_models(text))?;
        }
        match default {
            _ if FILES.contains(&setting.name) => whole_path(text, self.place).map(|path| value::text(&path)),
            Some(default) => value::like(default, text).or_else(|_| Ok(value.to_scalar())),
            None => Ok(value.to_scalar()),
        }
    }

    fn unknown(&self, key: &str) -> Wrong {
        let advice = match self.source.nearest_key(key) {
            Some(meant) => format!("did you mean {meant}?"),
            None if self.source.native => "trellis run --help lists the keys of the training".to_owned(),
            None => "give one of the keys in [tool.flwr.app.config] of the app".to_owned(),
        };
        ("there is no such key".to_owned(), advice)
    }

    /// `None`: something is wrong, and told.
    pub fn finish(self, problems: &mut Vec<Problem>) -> Option<Submission> {
        let training = self.training(problems);
        let built_in = self.built_in(problems);
        if self.source.changed && self.source.app.is_signed() {
            let what = "the app is signed, and the run would change its ServerApp or its keys";
            let advice =
                format!("let the app's own ServerApp train (--app-server), or make the change in it and {SIGN_AGAIN}");
            problems.push(Problem::new("", what, advice));
        }
        match self.source.into_bundle(self.keys_added) {
            Ok(bundle) => Some(Submission { bundle, values: self.values, training, built_in }),
            Err(problem) => {
                problems.push(Problem::new("", problem.to_string(), "leave out files that the nodes do not need"));
                None
            }
        }
    }

    /// How the run will be trained, by what the app says and what was given.
    fn training(&self, problems: &mut Vec<Problem>) -> Option<Settings> {
        if !self.source.native {
            return None;
        }
        let mut config = self.source.app.config();
        config.extend(self.values.iter().map(|(key, value)| (key.clone(), value.clone())));
        let settings = Settings::read(&config).map_err(|wrong| problems.extend(wrong)).ok()?;
        if let Place::Here { nodes } = self.place {
            let needed = nodes_needed(&settings);
            if needed > nodes {
                let what = format!("the training waits for {needed} nodes, and there will be {nodes}");
                let advice = format!("have {needed} nodes, or lower min-available-nodes and its like");
                problems.push(Problem::new("", what, advice));
            }
        }
        Some(settings)
    }

    fn built_in(&self, problems: &mut Vec<Problem>) -> Option<BuiltIn> {
        let name = self.source.built_in?.name;
        let elsewhere = matches!(self.place, Place::There { .. });
        if elsewhere && self.app_settings.get(DATASET).is_some_and(|dataset| dataset != BUNDLED_DATASET) {
            let advice = "start the nodes with --client-app native:mlp (clientApp of their pool) and their own data";
            problems.push(Problem::new(DATASET, "a run cannot name files of the nodes", advice));
        } else if let Err(wrong) = trellis_native::builtin(name, &self.app_settings) {
            let told = |problem: trellis_native::Problem| {
                Problem::new(format!("{NATIVE}{name}: {}", problem.place), problem.what, problem.advice)
            };
            problems.extend(wrong.into_iter().map(told));
        }
        Some(BuiltIn { name: name.to_owned(), settings: self.app_settings.clone() })
    }
}

fn outside_models(text: &str) -> Wrong {
    let what = format!("{text:?} is read where the SuperLink is, and there only below its directory of models");
    (what, "give a path relative to that directory, without \"..\"".to_owned())
}

/// The ServerApp reads the path. In this process the path is made absolute; on a SuperLink it is relative to the models
/// there.
fn whole_path(text: &str, place: Place) -> Result<String, Wrong> {
    if text.is_empty() || matches!(place, Place::There { .. }) {
        return Ok(text.to_owned());
    }
    match std::path::absolute(text) {
        Ok(path) => Ok(path.display().to_string()),
        Err(error) => Err((error.to_string(), "give an absolute path".to_owned())),
    }
}

/// Nodes without which no round begins.
fn nodes_needed(settings: &Settings) -> usize {
    let evaluating = settings.evaluate.min_nodes * usize::from(settings.evaluate.fraction > 0.0);
    settings.train.min_available.max(settings.train.min_nodes).max(evaluating)
}
