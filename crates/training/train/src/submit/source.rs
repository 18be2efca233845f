//! Where an app comes from: this program, a directory, or a bundle that somebody else made.

use std::path::Path;

use trellis_native::{Description, builtins, nearest};
use trellis_wire::fab::{App, BUILT_IN_CLIENT_APP, BadFab, Bundle, NATIVE_SERVER_APP};

use super::Given;
use crate::settings::{Problem, SETTINGS, Setting, find};

/// What the name of an app begins with that is part of this program.
pub const NATIVE: &str = "native:";

/// What trains on the nodes.
#[derive(Debug)]
pub struct Source {
    pub(super) app: App,
    pub(super) built_in: Option<&'static Description>,
    /// Trained by this program, not by a ServerApp in Python.
    pub(super) native: bool,
    /// As it came. Sent as it is unless keys must be added: who made it may have signed it.
    original: Option<Bundle>,
    /// Another app than it came as: signatures of it do not match.
    pub(super) changed: bool,
}

/// Which ServerApp trains the app of a directory.
#[derive(Debug, Clone, Copy)]
pub enum ServerAppChoice<'a> {
    /// The app's own, in Python.
    Own,
    /// That of this program.
    Native,
    /// The app's own, which makes the first model as a rule; the native one if a value is a setting of the native training
    /// that the app lacks.
    ByValues(&'a [Given]),
}

impl Source {
    /// An app of this program, by its name without `native:`.
    pub fn built_in(name: &str) -> Result<Source, Problem> {
        let Some(built_in) = builtins().iter().find(|app| app.name == name) else {
            let names: Vec<String> = builtins().iter().map(|app| format!("{NATIVE}{}", app.name)).collect();
            let what = format!("there is no app {NATIVE}{name}");
            return Err(Problem::new("", what, format!("there are {}", names.join(", "))));
        };
        let client_app = format!("{BUILT_IN_CLIENT_APP}{name}");
        let app = App::without_files(name, env!("CARGO_PKG_VERSION"), &client_app);
        Ok(Source { app, built_in: Some(built_in), native: true, original: None, changed: false })
    }

    /// The app in a directory.
    pub fn directory(path: &Path, server_app: ServerAppChoice<'_>) -> Result<Source, Problem> {
        let mut app = App::read(path).map_err(|problem| {
            let advice = "name the directory of a Flower app, with its pyproject.toml; or native:mlp";
            Problem::new("", problem.to_string(), advice)
        })?;
        let lacks = |setting: &'static Setting| {
            let config = app.config();
            !names(setting).any(|name| config.contains_key(name))
        };
        let native = match server_app {
            ServerAppChoice::Own => false,
            ServerAppChoice::Native => true,
            ServerAppChoice::ByValues(given) => given.iter().any(|given| find(&given.key).is_some_and(lacks)),
        };
        // An app that names ours itself has no other.
        let changed = native && !app.trains_natively();
        if changed {
            app.set_server_app(NATIVE_SERVER_APP);
        }
        let native = app.trains_natively();
        Ok(Source { app, built_in: None, native, original: None, changed })
    }

    /// An app as `flwr build` packs it.
    pub fn bundle(content: &[u8]) -> Result<Source, Problem> {
        let unusable =
            |problem: BadFab| Problem::new("", problem.to_string(), "send a bundle as `flwr build` makes it");
        let app = App::open(content).map_err(unusable)?;
        let original = Bundle::of(content).map_err(unusable)?;
        let native = app.trains_natively();
        Ok(Source { app, built_in: None, native, original: Some(original), changed: false })
    }

    /// With one more key in its configuration, where it has none of that name: only then can a run give it a value.
    pub fn with_key(mut self, key: &str) -> Source {
        if !self.app.config().contains_key(key) {
            self.app.add_key(key, toml::Value::String(String::new()));
            self.original = None;
            self.changed = true;
        }
        self
    }

    /// All of it, with the keys that were added.
    pub(super) fn into_bundle(self, keys_added: bool) -> Result<Bundle, BadFab> {
        match self.original.filter(|_| !keys_added) {
            Some(original) => Ok(original),
            None => self.app.bundle(),
        }
    }

    /// The key that somebody may have meant.
    pub(super) fn nearest_key(&self, key: &str) -> Option<String> {
        let mut keys: Vec<String> = self.app.config().into_keys().collect();
        if self.native {
            keys.extend(SETTINGS.iter().flat_map(names).map(str::to_owned));
        }
        keys.extend(self.built_in.iter().flat_map(|app| &app.settings).map(|setting| setting.name.to_owned()));
        nearest(key, keys.iter().map(String::as_str)).map(str::to_owned)
    }
}

/// All names of a setting; the first is its own.
pub(super) fn names(setting: &'static Setting) -> impl Iterator<Item = &'static str> {
    [setting.name].into_iter().chain(setting.aliases.iter().copied())
}
