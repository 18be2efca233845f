//! Kinds of values: parsing, limits, printing.

use std::path::PathBuf;
use std::time::Duration;

use toml::Value;
use trellis_client::Host;
use trellis_terminal::{duration, size};

use super::Checker;

pub const MIN_DURATION: Duration = Duration::from_secs(1);

/// A kind of values.
pub trait Kind {
    type Value;

    /// Parses a text; returns `None` after a refusal. Checks continue with the default then.
    fn read<C>(&self, checker: &mut Checker<'_, C>, name: &'static str, text: &str) -> Option<Self::Value>;

    /// The default value; `None` if the config has it.
    fn default(&self) -> Option<Self::Value> {
        None
    }

    /// The value in a configuration file; `None` for "not set".
    fn show(&self, value: &Self::Value) -> Option<Value>;
}

/// A field of a config that takes values of type `T`.
pub trait Slot<T> {
    fn put(&mut self, value: T);
    fn get(&self) -> Option<T>;
}

impl<T: Clone> Slot<T> for T {
    fn put(&mut self, value: T) {
        *self = value;
    }
    fn get(&self) -> Option<T> {
        Some(self.clone())
    }
}

impl<T: Clone> Slot<T> for Option<T> {
    fn put(&mut self, value: T) {
        *self = Some(value);
    }
    fn get(&self) -> Option<T> {
        self.clone()
    }
}

impl Slot<u64> for usize {
    fn put(&mut self, value: u64) {
        *self = usize::try_from(value).unwrap_or(usize::MAX);
    }
    fn get(&self) -> Option<u64> {
        Some(*self as u64)
    }
}

impl Slot<u64> for Option<usize> {
    fn put(&mut self, value: u64) {
        self.insert(0).put(value);
    }
    fn get(&self) -> Option<u64> {
        self.map(|value| value as u64)
    }
}

/// The value in a field, as a configuration file has it.
pub fn show<K: Kind>(kind: &K, field: &impl Slot<K::Value>) -> Option<Value> {
    field.get().and_then(|value| kind.show(&value))
}

pub struct Switch;

impl Kind for Switch {
    type Value = bool;
    fn read<C>(&self, _: &mut Checker<'_, C>, _: &'static str, text: &str) -> Option<bool> {
        Some(text == super::given::ON)
    }
    fn default(&self) -> Option<bool> {
        Some(false)
    }
    fn show(&self, value: &bool) -> Option<Value> {
        Some((*value).into())
    }
}

/// A number of bytes.
pub struct Size {
    pub min: u64,
    /// `u64::MAX` for no limit.
    pub max: u64,
}

impl Kind for Size {
    type Value = u64;
    fn read<C>(&self, checker: &mut Checker<'_, C>, name: &'static str, text: &str) -> Option<u64> {
        let Some(bytes) = size::parse(text) else {
            checker.refuse(&[name], format!("--{name}: {text:?} is not a size"), "write it like 64MiB, 2GiB or 500MB");
            return None;
        };
        if bytes < self.min || bytes > self.max {
            let advice = match self.max {
                u64::MAX => format!("use at least {}", size::show(self.min)),
                max => format!("use {} to {}", size::show(self.min), size::show(max)),
            };
            let side = if bytes < self.min { "small" } else { "large" };
            checker.refuse(&[name], format!("--{name}: {text} is too {side}"), advice);
            return None;
        }
        Some(bytes)
    }
    fn show(&self, value: &u64) -> Option<Value> {
        Some(size::show(*value).into())
    }
}

/// A duration from a second up.
pub struct Time {
    pub max: Duration,
}

impl Kind for Time {
    type Value = Duration;
    fn read<C>(&self, checker: &mut Checker<'_, C>, name: &'static str, text: &str) -> Option<Duration> {
        let Some(found) = duration::parse(text) else {
            checker.refuse(&[name], format!("--{name}: {text:?} is not a duration"), "write it like 30s, 2m or 1h");
            return None;
        };
        if found < MIN_DURATION || found > self.max {
            let side = if found < MIN_DURATION { "short" } else { "long" };
            let advice = format!("use {} to {}", duration::show(MIN_DURATION), duration::show(self.max));
            checker.refuse(&[name], format!("--{name}: {text} is too {side}"), advice);
            return None;
        }
        Some(found)
    }
    fn show(&self, value: &Duration) -> Option<Value> {
        Some(duration::show(*value).into())
    }
}

/// A whole number from 1 up.
pub struct Count {
    /// `None` if there is no default, or it is computed later.
    pub default: Option<u64>,
    pub max: u64,
}

impl Kind for Count {
    type Value = u64;
    fn read<C>(&self, checker: &mut Checker<'_, C>, name: &'static str, text: &str) -> Option<u64> {
        let number = text.parse().ok().filter(|number| (1..=self.max).contains(number));
        if number.is_none() {
            let what = format!("--{name}: {text:?} is not a number from 1 to {}", self.max);
            let default = self.default.map_or("the default".to_owned(), |default| default.to_string());
            checker.refuse(&[name], what, format!("leave it out for {default}"));
        }
        number
    }
    fn default(&self) -> Option<u64> {
        self.default
    }
    fn show(&self, value: &u64) -> Option<Value> {
        Some(i64::try_from(*value).ok()?.into())
    }
}

/// A number with a fraction.
pub struct Number {
    pub allows: fn(f64) -> bool,
    /// A description of the allowed numbers, as in "is not a number of CPUs".
    pub expected: &'static str,
    pub example: &'static str,
}

impl Kind for Number {
    type Value = f64;
    fn read<C>(&self, checker: &mut Checker<'_, C>, name: &'static str, text: &str) -> Option<f64> {
        let number = text.parse().ok().filter(|number| (self.allows)(*number));
        if number.is_none() {
            let what = format!("--{name}: {text:?} is not {}", self.expected);
            checker.refuse(&[name], what, format!("write it like {}", self.example));
        }
        number
    }
    fn show(&self, value: &f64) -> Option<Value> {
        Some((*value).into())
    }
}

/// A word out of a list; the first one is the default.
pub struct Choice<T: 'static>(pub &'static [(&'static str, T)]);

impl<T: Copy + PartialEq> Kind for Choice<T> {
    type Value = T;
    fn read<C>(&self, checker: &mut Checker<'_, C>, name: &'static str, text: &str) -> Option<T> {
        let found = self.0.iter().find(|(word, _)| *word == text);
        if found.is_none() {
            let words: Vec<&str> = self.0.iter().map(|(word, _)| *word).collect();
            let advice = match words.split_last() {
                Some((last, others)) if !others.is_empty() => format!("use {} or {last}", others.join(", ")),
                _ => String::new(),
            };
            checker.refuse(&[name], format!("--{name} cannot be {text:?}"), advice);
        }
        found.map(|(_, meant)| *meant)
    }
    fn default(&self) -> Option<T> {
        self.0.first().map(|(_, meant)| *meant)
    }
    fn show(&self, value: &T) -> Option<Value> {
        self.0.iter().find(|(_, meant)| meant == value).map(|(word, _)| (*word).into())
    }
}

/// A path, made absolute. It need not exist.
pub struct Path;

impl Kind for Path {
    type Value = PathBuf;
    fn read<C>(&self, checker: &mut Checker<'_, C>, name: &'static str, text: &str) -> Option<PathBuf> {
        Some(checker.resolve(name, text))
    }
    fn show(&self, value: &PathBuf) -> Option<Value> {
        Some(value.to_string_lossy().into_owned().into())
    }
}

/// A program: a readable file, or a name to be found on PATH. The text is the advice if the file is not readable.
pub struct Executable(pub &'static str);

impl Kind for Executable {
    type Value = PathBuf;
    fn read<C>(&self, checker: &mut Checker<'_, C>, name: &'static str, text: &str) -> Option<PathBuf> {
        if text.contains('/') { checker.file(name, self.0) } else { Some(text.into()) }
    }
    fn show(&self, value: &PathBuf) -> Option<Value> {
        Path.show(value)
    }
}

/// Names and addresses that clients connect to. Ports are dropped.
pub struct Hosts;

impl Kind for Hosts {
    type Value = Vec<String>;
    fn read<C>(&self, checker: &mut Checker<'_, C>, name: &'static str, _: &str) -> Option<Vec<String>> {
        let mut hosts = Vec::new();
        for text in checker.given.list(name) {
            match Host::parse_endpoint(text) {
                Ok(host) => hosts.push(host.to_string()),
                Err(why) => {
                    let what = format!("--{name}: {text:?} is not what a client connects to: {why}");
                    let advice = "write it like link.example.org, 10.0.0.7:9092 or [2001:db8::7]:9092";
                    checker.refuse(&[name], what, advice);
                }
            }
        }
        Some(hosts)
    }
    fn show(&self, value: &Vec<String>) -> Option<Value> {
        list(value)
    }
}

pub fn text(text: &str) -> Option<Value> {
    Some(text.into())
}

pub fn path(path: &std::path::Path) -> Option<Value> {
    Some(path.to_string_lossy().into_owned().into())
}

pub fn time(time: Duration) -> Option<Value> {
    Some(duration::show(time).into())
}

pub fn list(values: &[String]) -> Option<Value> {
    (!values.is_empty()).then(|| Value::from(values.to_vec()))
}
