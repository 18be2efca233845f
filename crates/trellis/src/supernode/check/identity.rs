//! Checks of who the node is, and of what it is told about itself and others.

use std::collections::BTreeMap;
use std::path::PathBuf;

use super::{Checker, Machine};
use crate::supernode::node_config::{self, NodeConfig};
use crate::supernode::trusted_entities;

/// As the SuperLink has it.
const MAX_NAME_CHARS: usize = 64;

impl Checker<'_> {
    pub(super) fn state_dir(&mut self) -> PathBuf {
        if let Some(path) = self.raw.args.identity.state_dir.as_deref() {
            return self.resolve("state-dir", path);
        }
        self.default_state_dir("supernode").unwrap_or_else(|| {
            let what = "there is no place for the state: neither HOME nor XDG_STATE_HOME is set";
            self.refuse(&["state-dir"], what, "give a directory with --state-dir");
            PathBuf::new()
        })
    }

    pub(super) fn key(&mut self, machine: &Machine<'_>) -> Option<PathBuf> {
        let name = "auth-supernode-private-key";
        let path = self.resolve(name, self.raw.args.identity.auth_supernode_private_key.as_deref()?);
        if let Some(why) = (machine.unusable_key)(&path) {
            let advice =
                "give the private key that was registered; `trellis node join` or `ssh-keygen -t ecdsa` makes one";
            self.refuse(&[name], format!("--{name}: {why}"), advice);
        }
        Some(path)
    }

    /// What it brings is here already, as settings.
    pub(super) fn join(&mut self) {
        let args = &self.raw.args.identity;
        if args.node.is_some() && args.join.is_none() {
            let advice = "give the Secret of the site with --join, or leave it out";
            self.refuse(&["node"], "--node says which node of a site this is, and there is no --join", advice);
        }
    }

    pub(super) fn name(&mut self) -> Option<String> {
        let name = self.raw.args.identity.name.as_deref()?.trim();
        if name.is_empty() || name.chars().count() > MAX_NAME_CHARS || name.chars().any(char::is_control) {
            let what = format!("--name: {name:?} is no name for a node");
            self.refuse(&["name"], what, format!("use 1 to {MAX_NAME_CHARS} characters in one line"));
        }
        Some(name.to_owned())
    }

    /// The settings, and the text that says so again.
    pub(super) fn node_config(&mut self, machine: &Machine<'_>) -> (NodeConfig, Option<String>) {
        let name = "node-config";
        let Some(text) = self.raw.args.identity.node_config.as_deref() else { return Default::default() };
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
        let settings = settings.unwrap_or_else(|mistakes| {
            for (what, advice) in mistakes {
                self.refuse(&[name], format!("--{name}: {what}"), advice);
            }
            NodeConfig::new()
        });
        (settings, Some(again))
    }

    /// The keys by name, and the file they stand in.
    pub(super) fn trusted_entities(&mut self, machine: &Machine<'_>) -> (BTreeMap<String, String>, Option<PathBuf>) {
        let name = "trusted-entities";
        let Some(path) = self.raw.args.identity.trusted_entities.as_deref() else { return Default::default() };
        let path = self.resolve(name, path);
        let keys = match (machine.read)(&path) {
            Ok(text) => trusted_entities::parse(&text),
            Err(error) => Err(vec![format!("it cannot be read: {error}")]),
        };
        let keys = keys.unwrap_or_else(|faults| {
            for why in faults {
                let what = format!("--{name}: {}: {why}", path.display());
                self.refuse(&[name], what, "write lines of the form: name: 'ssh-ed25519 AAAA...'");
            }
            BTreeMap::new()
        });
        (keys, Some(path))
    }
}
