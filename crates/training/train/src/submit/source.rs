//! The source of an app: this program, a directory, or a bundle.

use std::path::Path;

use trellis_diagnostic::{Diagnostic, did_you_mean};
use trellis_native::{Description, builtins};
use trellis_wire::fab::{App, BUILT_IN_CLIENT_APP, BadFab, Bundle, NATIVE_SERVER_APP};

use super::Given;
use crate::settings::{SETTINGS, Setting, find};

/// The prefix of the names of built-in apps.
pub const NATIVE: &str = "native:";

/// The app of a submission.
#[derive(Debug)]
pub struct Source {
    pub(super) app: App,
    pub(super) built_in: Option<&'static Description>,
    /// Whether the native ServerApp trains instead of one in Python.
    pub(super) native: bool,
    /// The received bundle. It may be signed, so it is sent unchanged unless keys must be added.
    original: Option<Bundle>,
    /// Whether the app differs from its source, which invalidates signatures.
    pub(super) changed: bool,
}

/// The ServerApp that trains the app of a directory.
#[derive(Debug, Clone, Copy)]
pub enum ServerAppChoice<'a> {
    /// The app's own, in Python.
    Own,
    /// That of this program.
    Native,
    /// The app's own, which usually creates the initial model; the native one if a given value is a setting of the native
    /// training that the app lacks.
    ByValues(&'a [Given]),
}

impl Source {
    /// A built-in app, by its name without `native:`.
    pub fn built_in(name: &str) -> Result<Source, Diagnostic> {
        let Some(built_in) = builtins().iter().find(|app| app.name == name) else {
            let names: Vec<String> = builtins().iter().map(|app| format!("{NATIVE}{}", app.name)).collect();
            let what = format!("there is no built-in app {NATIVE}{name}");
            return Err(Diagnostic::error("", what, format!("the built-in apps are {}", names.join(", "))));
        };
        let client_app = format!("{BUILT_IN_CLIENT_APP}{name}");
        let app = App::without_files(name, env!("CARGO_PKG_VERSION"), &client_app);
        Ok(Source { app, built_in: Some(built_in), native: true, original: None, changed: false })
    }

    /// The app in a directory.
    pub fn directory(path: &Path, server_app: ServerAppChoice<'_>) -> Result<Source, Diagnostic> {
        let mut app = App::read(path).map_err(|problem| {
            let advice = "name the directory of a Flower app, with its pyproject.toml; or native:mlp";
            Diagnostic::error("", problem.to_string(), advice)
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
        // An app that names the native ServerApp has no other.
        let changed = native && !app.trains_natively();
        if changed {
            app.set_server_app(NATIVE_SERVER_APP);
        }
        let native = app.trains_natively();
        Ok(Source { app, built_in: None, native, original: None, changed })
    }

    /// An app as `flwr build` packs it.
    pub fn bundle(content: &[u8]) -> Result<Source, Diagnostic> {
        let unusable =
            |problem: BadFab| Diagnostic::error("", problem.to_string(), "send a bundle as `flwr build` makes it");
        let app = App::open(content).map_err(unusable)?;
        let original = Bundle::of(content).map_err(unusable)?;
        let native = app.trains_natively();
        Ok(Source { app, built_in: None, native, original: Some(original), changed: false })
    }

    /// Adds a key to the app's configuration, unless it exists: a run can only override existing keys.
    pub fn with_key(mut self, key: &str) -> Source {
        if !self.app.config().contains_key(key) {
            self.app.add_key(key, toml::Value::String(String::new()));
            self.original = None;
            self.changed = true;
        }
        self
    }

    /// The bundle, including added keys.
    pub(super) fn into_bundle(self, keys_added: bool) -> Result<Bundle, BadFab> {
        match self.original.filter(|_| !keys_added) {
            Some(original) => Ok(original),
            None => self.app.bundle(),
        }
    }

    /// Advice for an unknown key that is close to a known one.
    pub(super) fn did_you_mean(&self, key: &str) -> Option<String> {
        let mut keys: Vec<String> = self.app.config().into_keys().collect();
        if self.native {
            keys.extend(SETTINGS.iter().flat_map(names).map(str::to_owned));
        }
        keys.extend(self.built_in.iter().flat_map(|app| &app.settings).map(|setting| setting.name.to_owned()));
        did_you_mean(key, keys.iter().map(String::as_str))
    }
}

/// All names of a setting, its own first.
pub(super) fn names(setting: &'static Setting) -> impl Iterator<Item = &'static str> {
    [setting.name].into_iter().chain(setting.aliases.iter().copied())
}
