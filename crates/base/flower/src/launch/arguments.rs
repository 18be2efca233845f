//! Arguments of a program, and the values in arguments of the user.

use std::ffi::{OsStr, OsString};
use std::fmt::Display;
use std::path::Path;

use super::Listen;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Argument {
    /// With its dashes.
    pub name: &'static str,
    pub value: Option<OsString>,
}

impl Argument {
    pub(super) fn words(&self) -> impl Iterator<Item = OsString> {
        std::iter::once(OsString::from(self.name)).chain(self.value.clone())
    }

    /// `--name=value`.
    pub fn joined(&self) -> String {
        match &self.value {
            Some(value) => format!("{}={}", self.name, value.to_string_lossy()),
            None => self.name.to_owned(),
        }
    }
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Arguments {
    pub list: Vec<Argument>,
}

impl Arguments {
    pub fn flag(&mut self, name: &'static str) {
        self.list.push(Argument { name, value: None });
    }

    pub fn set(&mut self, name: &'static str, value: impl Display) {
        self.push(name, value.to_string().as_ref());
    }

    pub fn option(&mut self, name: &'static str, value: Option<impl Display>) {
        if let Some(value) = value {
            self.set(name, value);
        }
    }

    pub fn path<'p>(&mut self, name: &'static str, path: impl Into<Option<&'p Path>>) {
        if let Some(path) = path.into() {
            self.push(name, path.as_os_str());
        }
    }

    /// `--host`, and `--port` if one is chosen.
    pub fn host_and_port(&mut self, listen: Option<Listen>) {
        self.option("--host", listen.map(|listen| listen.ip));
        self.option("--port", listen.and_then(|listen| listen.port));
    }

    pub fn address(&mut self, name: &'static str, listen: Option<Listen>, usual: u16) {
        let address = |listen: Listen| std::net::SocketAddr::new(listen.ip, listen.port.unwrap_or(usual));
        self.option(name, listen.map(address));
    }

    fn push(&mut self, name: &'static str, value: &OsStr) {
        self.list.push(Argument { name, value: Some(value.to_owned()) });
    }
}

/// Whether one of the arguments is this flag, with or without a value.
pub fn gives(arguments: &[String], flag: &str) -> bool {
    arguments.iter().any(|argument| argument == flag || value_in(argument, flag).is_some())
}

/// The value of the last `--flag value` or `--flag=value`.
pub(super) fn value<'a>(arguments: &'a [String], flag: &str) -> Option<&'a str> {
    let apart =
        arguments.windows(2).enumerate().filter(|(_, pair)| pair[0] == flag).map(|(at, pair)| (at, pair[1].as_str()));
    let joined = arguments.iter().enumerate().filter_map(|(at, argument)| Some((at, value_in(argument, flag)?)));
    apart.chain(joined).max_by_key(|(at, _)| *at).map(|(_, value)| value)
}

fn value_in<'a>(argument: &'a str, flag: &str) -> Option<&'a str> {
    argument.strip_prefix(flag)?.strip_prefix('=')
}

/// The port of an address in the user's arguments, or the default.
pub fn port(arguments: &[String], flag: &str, usual: u16) -> u16 {
    let given = value(arguments, flag).and_then(|address| address.rsplit(':').next()?.parse().ok());
    given.unwrap_or(usual)
}
