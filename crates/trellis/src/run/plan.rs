//! From what was asked for to what is sent: a bundle and the values of its run; or everything that is wrong with it. Reads the
//! app, and calls nobody.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;

use trellis_native::{Description, builtins, nearest};
use trellis_train::settings::{SETTINGS, Setting, Settings, find};
use trellis_wire::fab::{App, BUILT_IN_CLIENT_APP, Bundle, NATIVE_SERVER_APP};
use trellis_wire::proto;

use super::args::RunArgs;
use super::federation::ClientApps;
use super::value::{self, Wrong};
use crate::remote::Trouble;

/// What the name of an app begins with that is part of this program.
const NATIVE: &str = "native:";
/// Settings of built-in apps that name files: only a node itself may.
const DATASET: &str = "dataset";
/// Settings that name files of the machine on which the ServerApp is.
const PATHS: &[&str] = &["initial-model", "checkpoint-path"];

#[derive(Debug)]
pub struct Plan {
    pub bundle: Bundle,
    /// Of the run, in place of those that the app has.
    pub values: HashMap<String, proto::Scalar>,
    /// How it is trained; `None`: the app's own ServerApp knows.
    pub training: Option<Settings>,
    pub client_apps: ClientApps,
}

impl Plan {
    /// In a few words.
    pub fn summary(&self) -> String {
        let metadata = &self.bundle.metadata;
        let app = format!("{} {}", metadata.id(), metadata.version);
        match &self.training {
            Some(training) => format!("{app}, {}, {}", training.strategy.name(), counted(training.rounds, "round")),
            None => format!("{app}, with its own ServerApp"),
        }
    }
}

/// Where the run will be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// In this process, with so many nodes.
    Here(usize),
    Remote,
}

/// One value that was given: how it was written, key, text.
type Given = (String, String, String);

pub fn plan(args: &RunArgs, place: Place) -> Result<Plan, Trouble> {
    let mut problems = Problems::default();
    let given = given(args, &mut problems);
    let source = Source::find(args.app_flag.as_ref().unwrap_or(&args.app), args.app_server)
        .map_err(|trouble| problems.with(trouble))?;
    let draft = Draft::fill(source, &given, place, &mut problems);
    draft.finish(place, problems)
}

/// What was given by flags, and what with `--set`.
fn given(args: &RunArgs, problems: &mut Problems) -> Vec<Given> {
    let flags = args.training.0.iter().map(|(flag, key, text)| (flag.clone(), (*key).to_owned(), text.clone()));
    let mut given: Vec<Given> = flags.collect();
    for text in &args.set {
        match text.split_once('=') {
            Some((key, value)) if !key.trim().is_empty() => {
                given.push((format!("--set {}", key.trim()), key.trim().to_owned(), value.trim().to_owned()));
            }
            _ => problems.add(format!("--set: {text:?} is no KEY=VALUE"), "write it like --set local-epochs=2"),
        }
    }
    given
}

/// What trains on the nodes.
struct Source {
    app: App,
    built_in: Option<&'static Description>,
    native: bool,
}

impl Source {
    fn find(name: &str, app_server: bool) -> Result<Source, Trouble> {
        if let Some(name) = name.strip_prefix(NATIVE) {
            if app_server {
                let what = "--app-server: an app of this program has no ServerApp of its own";
                return Err(Trouble::usage(what, "leave it out, or name the directory of a Flower app"));
            }
            let Some(built_in) = builtins().iter().find(|app| app.name == name) else {
                let names: Vec<String> = builtins().iter().map(|app| format!("{NATIVE}{}", app.name)).collect();
                let what = format!("there is no app {NATIVE}{name}");
                return Err(Trouble::usage(what, &format!("there are {}", names.join(", "))));
            };
            let client_app = format!("{BUILT_IN_CLIENT_APP}{name}");
            let app = App::without_files(name, env!("CARGO_PKG_VERSION"), &client_app);
            return Ok(Source { app, built_in: Some(built_in), native: true });
        }
        let mut app = App::read(Path::new(name)).map_err(|problem| {
            let advice = "name the directory of a Flower app, with its pyproject.toml; or native:mlp";
            Trouble::usage(problem.to_string(), advice)
        })?;
        if !app_server {
            app.set_server_app(NATIVE_SERVER_APP);
        }
        // An app that names ours itself has no other.
        let native = app.trains_natively();
        Ok(Source { app, built_in: None, native })
    }

    fn known_keys(&self) -> Vec<String> {
        let mut keys: Vec<String> = self.app.config().into_keys().collect();
        if self.native {
            keys.extend(SETTINGS.iter().flat_map(names).map(str::to_owned));
        }
        keys.extend(self.built_in.iter().flat_map(|app| &app.settings).map(|setting| setting.name.to_owned()));
        keys
    }
}

/// A plan that is being filled in.
struct Draft {
    source: Source,
    values: HashMap<String, proto::Scalar>,
    /// Of the built-in app.
    app_settings: BTreeMap<String, String>,
}

impl Draft {
    fn fill(source: Source, given: &[Given], place: Place, problems: &mut Problems) -> Draft {
        let mut draft = Draft { source, values: HashMap::new(), app_settings: BTreeMap::new() };
        for (written, key, text) in given {
            if let Err((what, advice)) = draft.set(key, text, place) {
                problems.add(format!("{written}: {what}"), &advice);
            }
        }
        if let Place::Here(nodes) = place {
            draft.expect_nodes(nodes);
        }
        draft
    }

    /// In this process it is known who will come, and nobody else does: a round waits for all, unless that was decided.
    fn expect_nodes(&mut self, nodes: usize) {
        let fewest = if nodes < 2 { &["min-train-nodes", "min-evaluate-nodes"][..] } else { &[] };
        let defaults = self.source.app.config();
        for key in fewest.iter().chain(&["min-available-nodes"]) {
            let decided = |name: &str| self.values.contains_key(name) || defaults.contains_key(name);
            if self.source.native && !find(key).is_some_and(|setting| names(setting).any(decided)) {
                // The number is one that these settings take.
                let _ = self.set(key, &nodes.to_string(), Place::Here(nodes));
            }
        }
    }

    /// Sets a key, whoever's it is.
    fn set(&mut self, key: &str, text: &str, place: Place) -> Result<(), Wrong> {
        let setting = find(key).filter(|_| self.source.native);
        let of_app = self.source.built_in.and_then(|app| app.settings.iter().find(|setting| setting.name == key));
        let defaults = self.source.app.config();
        // An app may know the setting by another of its names, and has one value for it.
        let names = setting.map_or_else(|| vec![key], |setting| names(setting).collect());
        let key = names.iter().copied().find(|name| defaults.contains_key(*name)).unwrap_or(names[0]);
        let scalar = match (setting, defaults.get(key), of_app) {
            (Some(setting), default, _) => of_training(setting, default, text, place)?,
            (None, Some(default), _) => value::like(default, text)?,
            (None, None, Some(_)) => value::plain(text),
            (None, None, None) => return Err(self.unknown(key)),
        };
        if self.values.insert(key.to_owned(), scalar.clone()).is_some() {
            return Err((format!("{key} is set twice"), "keep one of them".to_owned()));
        }
        if of_app.is_some() {
            self.app_settings.insert(key.to_owned(), text.to_owned());
        }
        if !defaults.contains_key(key) {
            // Not the value itself: then each value would make another bundle, which nodes have to unpack and load anew.
            let usual = setting.map_or_else(|| of_app.map_or("", |setting| setting.default), |setting| setting.default);
            self.source.app.add_key(key, value::to_toml(&value::plain(usual)));
        }
        Ok(())
    }

    fn unknown(&self, key: &str) -> Wrong {
        let keys = self.source.known_keys();
        let meant = nearest(key, keys.iter().map(String::as_str));
        let advice = match meant {
            Some(meant) => format!("did you mean {meant}?"),
            None if self.source.native => "trellis run --help lists the keys of the training".to_owned(),
            None => "give one of the keys in [tool.flwr.app.config] of the app".to_owned(),
        };
        ("there is no such key".to_owned(), advice)
    }

    fn finish(self, place: Place, mut problems: Problems) -> Result<Plan, Trouble> {
        let training = self.training(place, &mut problems);
        let client_apps = self.client_apps(place, &mut problems);
        let bundle = self.source.app.bundle();
        if let Err(problem) = &bundle {
            problems.add(problem.to_string(), "leave out files that the nodes do not need");
        }
        match (problems.trouble(), bundle) {
            (None, Ok(bundle)) => Ok(Plan { bundle, values: self.values, training, client_apps }),
            (trouble, _) => Err(trouble.expect("a bundle that is none was told")),
        }
    }

    /// How the run will be trained, by what the app says and what was given.
    fn training(&self, place: Place, problems: &mut Problems) -> Option<Settings> {
        if !self.source.native {
            return None;
        }
        let mut config = self.source.app.config();
        config.extend(self.values.iter().map(|(key, value)| (key.clone(), value.clone())));
        let settings = match Settings::read(&config) {
            Ok(settings) => settings,
            Err(wrong) => {
                for problem in wrong {
                    problems.add(format!("{}: {}", problem.place, problem.what), &problem.advice);
                }
                return None;
            }
        };
        if let Place::Here(nodes) = place {
            let needed = nodes_needed(&settings);
            if needed > nodes {
                let what = format!("the training waits for {needed} nodes, and there will be {nodes}");
                problems.add(what, &format!("give --nodes {needed}, or lower --min-available-nodes and its like"));
            }
        }
        Some(settings)
    }

    fn client_apps(&self, place: Place, problems: &mut Problems) -> ClientApps {
        let Some(built_in) = self.source.built_in else { return ClientApps::Python };
        if place == Place::Remote && self.app_settings.get(DATASET).is_some_and(|dataset| dataset != "digits") {
            let advice = "start the nodes with --client-app native:mlp and their own data; or leave out --superlink";
            problems.add("dataset: a run cannot name files of the nodes".to_owned(), advice);
        } else if let Err(wrong) = trellis_native::builtin(built_in.name, &self.app_settings) {
            for problem in wrong {
                problems
                    .add(format!("{NATIVE}{}: {}: {}", built_in.name, problem.place, problem.what), &problem.advice);
            }
        }
        ClientApps::BuiltIn { name: built_in.name.to_owned(), settings: self.app_settings.clone() }
    }
}

/// `1 round`, `2 rounds`
pub fn counted(number: u64, what: &str) -> String {
    format!("{number} {what}{}", if number == 1 { "" } else { "s" })
}

/// All names of a setting; the first is its own.
fn names(setting: &'static Setting) -> impl Iterator<Item = &'static str> {
    [setting.name].into_iter().chain(setting.aliases.iter().copied())
}

/// A value of the training. Where the app has one, its ClientApp may read it too, and expects its type.
fn of_training(
    setting: &Setting,
    default: Option<&proto::Scalar>,
    text: &str,
    place: Place,
) -> Result<proto::Scalar, Wrong> {
    let wrong = || (format!("{text:?} cannot be used"), format!("give {}", setting.kind.expected()));
    let value = setting.kind.parse(text).ok_or_else(wrong)?;
    match default {
        _ if PATHS.contains(&setting.name) => whole_path(text, place).map(|path| value::text(&path)),
        Some(default) => value::like(default, text).or_else(|_| Ok(value.to_scalar())),
        None => Ok(value.to_scalar()),
    }
}

/// A path is read where the ServerApp is: in this process it is made whole, for another machine it must be.
fn whole_path(text: &str, place: Place) -> Result<String, Wrong> {
    if text.is_empty() || Path::new(text).is_absolute() {
        return Ok(text.to_owned());
    }
    if place == Place::Remote {
        let what = format!("{text:?} is a path of this machine, and is read where the SuperLink is");
        return Err((what, "give an absolute path on the SuperLink's machine".to_owned()));
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

/// Everything that is wrong, so far.
#[derive(Default)]
struct Problems(Option<Trouble>);

impl Problems {
    fn add(&mut self, what: String, advice: &str) {
        let one = Trouble::usage(what, advice);
        self.0 = Some(match self.0.take() {
            Some(others) => others.and(one),
            None => one,
        });
    }

    fn with(&mut self, one: Trouble) -> Trouble {
        match self.0.take() {
            Some(others) => others.and(one),
            None => one,
        }
    }

    fn trouble(self) -> Option<Trouble> {
        self.0
    }
}
