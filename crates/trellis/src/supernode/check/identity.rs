//! Checks of the node's identity, and of its settings and trusted signers.

use super::{Checker, Machine};
use crate::settings::kind;
use crate::supernode::node_config;
use crate::supernode::trusted_entities;

/// As the SuperLink has it.
const MAX_NAME_CHARS: usize = 64;

impl Checker<'_> {
    pub(in crate::supernode) fn state_dir(&mut self) {
        let given = self.text("state-dir").map(|path| self.resolve("state-dir", path));
        match given.or_else(|| self.system.default_state_dir("supernode")) {
            Some(directory) => self.checked.config.state_dir = directory,
            None => {
                let what = "there is no directory for the state: neither HOME nor XDG_STATE_HOME is set";
                self.refuse(&["state-dir"], what, "give a directory with --state-dir");
            }
        }
    }

    pub(super) fn key(&mut self, machine: &Machine<'_>) {
        let name = "auth-supernode-private-key";
        let Some(path) = self.read(name, &kind::Path) else { return };
        if let Some(why) = (machine.unusable_key)(&path) {
            let advice = "give the registered private key; `trellis node join` or `ssh-keygen -t ecdsa` creates one";
            self.refuse(&[name], format!("--{name}: {why}"), advice);
        }
        self.checked.config.key = Some(path);
    }

    /// The settings of the bundle are part of the given ones.
    pub(super) fn join(&mut self) {
        if self.is_given("node") && !self.is_given("join") {
            let advice = "give the Secret of the site with --join, or leave it out";
            self.refuse(&["node"], "--node selects a node of a site, and requires --join", advice);
        }
    }

    pub(in crate::supernode) fn name(&mut self) {
        let Some(name) = self.text("name").map(str::trim) else { return };
        if name.is_empty() || name.chars().count() > MAX_NAME_CHARS || name.chars().any(char::is_control) {
            let what = format!("--name: {name:?} is not a valid name");
            self.refuse(&["name"], what, format!("use 1 to {MAX_NAME_CHARS} characters in one line"));
        }
        self.checked.config.name = Some(name.to_owned());
    }

    /// The settings, and the text that prints them.
    pub(super) fn node_config(&mut self, machine: &Machine<'_>) {
        let name = "node-config";
        let Some(text) = self.text(name) else { return };
        let (settings, again) = if text.ends_with(".toml") {
            let path = self.resolve(name, text);
            let settings = match (machine.read)(&path) {
                Ok(text) => node_config::parse_file(&text),
                Err(error) => {
                    let what = format!("{} cannot be read: {error}", path.display());
                    Err(vec![(what, "give the path of a readable TOML file, or the settings themselves".to_owned())])
                }
            };
            (settings, path.to_string_lossy().into_owned())
        } else {
            let (settings, strays) = node_config::parse(text);
            for word in strays {
                self.warn(format!("--{name}: {word:?} is ignored, as in Flower: it is no key=value"));
            }
            (settings, text.to_owned())
        };
        match settings {
            Ok(settings) => self.checked.config.node_config = settings,
            Err(mistakes) => {
                for (what, advice) in mistakes {
                    self.refuse(&[name], format!("--{name}: {what}"), advice);
                }
            }
        }
        self.checked.node_config = Some(again);
    }

    /// The keys by name, and their file.
    pub(super) fn trusted_entities(&mut self, machine: &Machine<'_>) {
        let name = "trusted-entities";
        let Some(path) = self.read(name, &kind::Path) else { return };
        let keys = match (machine.read)(&path) {
            Ok(text) => trusted_entities::parse(&text),
            Err(error) => Err(vec![format!("it cannot be read: {error}")]),
        };
        match keys {
            Ok(keys) => self.checked.config.trusted_entities = keys,
            Err(faults) => {
                for why in faults {
                    let what = format!("--{name}: {}: {why}", path.display());
                    self.refuse(&[name], what, "write lines of the form: name: 'ssh-ed25519 AAAA...'");
                }
            }
        }
        self.checked.trusted_entities = Some(path);
    }
}
