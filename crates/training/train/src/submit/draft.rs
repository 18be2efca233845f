//! A submission in preparation: finds the key, type and place of each value.

use std::collections::{BTreeMap, HashMap};

use trellis_diagnostic::Diagnostic;
use trellis_wire::fab::{PATH_SETTINGS, check_path};
use trellis_wire::proto;

use super::source::{NATIVE, Source, names};
use super::value::{self, ValueError};
use super::{BuiltIn, Given, Location, Request, Submission};
use crate::settings::{Setting, Settings, find};

/// Settings of built-in apps that name files: only the node's own configuration may.
const DATASET: &str = "dataset";
const BUNDLED_DATASET: &str = "digits";
/// Settings that name a file or directory on the machine of the ServerApp. (`resume` may be a run id.)
const FILES: &[&str] = &["initial-model", "checkpoint-path"];

const SIGN_AGAIN: &str = "sign it again; or delete its app-signatures.toml";

pub(super) struct Draft {
    source: Source,
    location: Location,
    values: HashMap<String, proto::Scalar>,
    /// The settings of the built-in app.
    app_settings: BTreeMap<String, String>,
    keys_added: bool,
}

impl Draft {
    pub fn fill(request: Request, errors: &mut Vec<Diagnostic>) -> Draft {
        let Request { source, given, defaults, location } = request;
        let mut draft =
            Draft { source, location, values: HashMap::new(), app_settings: BTreeMap::new(), keys_added: false };
        for Given { written, key, text } in &given {
            if let Err((what, advice)) = draft.set(key, text) {
                errors.push(Diagnostic::error(written, what, advice));
            }
        }
        for (key, text) in defaults.iter().filter(|(key, _)| !given.iter().any(|given| given.key == **key)) {
            if let Err((what, advice)) = draft.set_default(key, text) {
                errors.push(Diagnostic::error(format!("training default {key}"), what, advice));
            }
        }
        match location {
            Location::InProcess { nodes } | Location::SuperLink { nodes: Some(nodes) } => draft.expect_nodes(nodes),
            Location::SuperLink { nodes: None } => {}
        }
        draft
    }

    /// Makes a round wait for all nodes, unless the user decided otherwise.
    fn expect_nodes(&mut self, nodes: usize) {
        let minimums = if nodes == 1 { &["min-train-nodes", "min-evaluate-nodes"][..] } else { &[] };
        let defaults = self.source.app.config();
        for key in minimums.iter().chain(&["min-available-nodes"]).filter(|_| nodes > 0) {
            let decided = |name: &str| self.values.contains_key(name) || defaults.contains_key(name);
            if self.source.native && !find(key).is_some_and(|setting| names(setting).any(decided)) {
                // These settings accept any number of nodes.
                let _ = self.set(key, &nodes.to_string());
            }
        }
    }

    /// Sets a key that was not given. Ignores keys that neither the app nor the training has.
    fn set_default(&mut self, key: &str, text: &str) -> Result<(), ValueError> {
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

    /// Sets a key of the app or the training.
    fn set(&mut self, key: &str, text: &str) -> Result<(), ValueError> {
        let setting = find(key).filter(|_| self.source.native);
        let of_app = self.source.built_in.and_then(|app| app.settings.iter().find(|setting| setting.name == key));
        let defaults = self.source.app.config();
        // An app may have the setting under an alias, with one value for both.
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
            // Adding the value itself would give a new bundle per value, which nodes would have to unpack and load again.
            let usual = setting.map_or_else(|| of_app.map_or("", |setting| setting.default), |setting| setting.default);
            self.source.app.add_key(key, value::to_toml(&value::plain(usual)));
            self.keys_added = true;
        }
        Ok(())
    }

    /// A value of the training. If the app has the key too, its ClientApp may read it and expects its type.
    fn of_training(
        &self,
        setting: &Setting,
        default: Option<&proto::Scalar>,
        text: &str,
    ) -> Result<proto::Scalar, ValueError> {
        let wrong = || (format!("{text:?} cannot be used"), format!("give {}", setting.kind.expected()));
        let value = setting.kind.parse(text).ok_or_else(wrong)?;
        if matches!(self.location, Location::SuperLink { .. }) && PATH_SETTINGS.contains(&setting.name) {
            check_path(setting.name, text).map_err(|_| outside_models(text))?;
        }
        match default {
            _ if FILES.contains(&setting.name) => whole_path(text, self.location).map(|path| value::text(&path)),
            Some(default) => value::like(default, text).or_else(|_| Ok(value.to_scalar())),
            None => Ok(value.to_scalar()),
        }
    }

    fn unknown(&self, key: &str) -> ValueError {
        let advice = self.source.did_you_mean(key).unwrap_or_else(|| match self.source.native {
            true => "trellis run --help lists the keys of the training".to_owned(),
            false => "give one of the keys in [tool.flwr.app.config] of the app".to_owned(),
        });
        ("there is no such key".to_owned(), advice)
    }

    /// `None` after an error.
    pub fn finish(self, errors: &mut Vec<Diagnostic>) -> Option<Submission> {
        let training = self.training(errors);
        let built_in = self.built_in(errors);
        if self.source.changed && self.source.app.is_signed() {
            let what = "the app is signed, and the run would change its ServerApp or its keys";
            let advice =
                format!("let the app's own ServerApp train (--app-server), or make the change in it and {SIGN_AGAIN}");
            errors.push(Diagnostic::error("", what, advice));
        }
        match self.source.into_bundle(self.keys_added) {
            Ok(bundle) => Some(Submission { bundle, values: self.values, training, built_in }),
            Err(problem) => {
                errors.push(Diagnostic::error("", problem.to_string(), "leave out files that the nodes do not need"));
                None
            }
        }
    }

    /// The settings of the training, from the app and the given values.
    fn training(&self, errors: &mut Vec<Diagnostic>) -> Option<Settings> {
        if !self.source.native {
            return None;
        }
        let mut config = self.source.app.config();
        config.extend(self.values.iter().map(|(key, value)| (key.clone(), value.clone())));
        let settings = Settings::read(&config).map_err(|wrong| errors.extend(wrong)).ok()?;
        if let Location::InProcess { nodes } = self.location {
            let needed = nodes_needed(&settings);
            if needed > nodes {
                let what = format!("the training waits for {needed} nodes, but there are {nodes}");
                let advice = format!("start {needed} nodes, or lower min-available-nodes and similar settings");
                errors.push(Diagnostic::error("", what, advice));
            }
        }
        Some(settings)
    }

    fn built_in(&self, errors: &mut Vec<Diagnostic>) -> Option<BuiltIn> {
        let name = self.source.built_in?.name;
        let elsewhere = matches!(self.location, Location::SuperLink { .. });
        if elsewhere && self.app_settings.get(DATASET).is_some_and(|dataset| dataset != BUNDLED_DATASET) {
            let advice = "start the nodes with --client-app native:mlp (clientApp of their pool) and their own data";
            errors.push(Diagnostic::error(DATASET, "a run cannot name files of the nodes", advice));
        } else if let Err(wrong) = trellis_native::builtin(name, &self.app_settings) {
            let in_app =
                |problem: Diagnostic| Diagnostic { place: format!("{NATIVE}{name}: {}", problem.place), ..problem };
            errors.extend(wrong.into_iter().map(in_app));
        }
        Some(BuiltIn { name: name.to_owned(), settings: self.app_settings.clone() })
    }
}

fn outside_models(text: &str) -> ValueError {
    let what =
        format!("{text:?} refers to the machine of the SuperLink, where only its directory of models is allowed");
    (what, "give a path relative to that directory, without \"..\"".to_owned())
}

/// A path that the ServerApp reads. In this process it is made absolute; on a SuperLink it is relative to the directory of
/// models.
fn whole_path(text: &str, location: Location) -> Result<String, ValueError> {
    if text.is_empty() || matches!(location, Location::SuperLink { .. }) {
        return Ok(text.to_owned());
    }
    match std::path::absolute(text) {
        Ok(path) => Ok(path.display().to_string()),
        Err(error) => Err((error.to_string(), "give an absolute path".to_owned())),
    }
}

/// The number of nodes that a round waits for.
fn nodes_needed(settings: &Settings) -> usize {
    let evaluating = settings.evaluate.min_nodes * usize::from(settings.evaluate.fraction > 0.0);
    settings.train.min_available.max(settings.train.min_nodes).max(evaluating)
}
