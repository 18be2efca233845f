//! Checks of the retry limits of the link.

use std::time::Duration;

use trellis_node::config::{Backoff, FIRST_BACKOFF, MAX_BACKOFF};
use trellis_terminal::duration;

use super::Checker;
use crate::settings::kind::{Choice, Time};

const PAUSE: Time = Time { max: Duration::from_secs(3600) };
/// Whether every pause is the same.
const FIXED: Choice<bool> = Choice(&[("exponential", false), ("fixed", true)]);

/// The meaning of a limit of 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Zero {
    /// No limit, as documented for appliances of Flower.
    Unlimited,
    /// Not one retry, as flower-supernode does.
    Never,
}

/// The number of retries, in words that have one meaning under each name of the program.
pub fn max_retries(limit: Option<u64>) -> String {
    match limit {
        None => "unlimited".to_owned(),
        Some(0) => "never".to_owned(),
        Some(retries) => retries.to_string(),
    }
}

/// How long without a link, in words.
pub fn max_wait(limit: Option<Duration>) -> String {
    match limit {
        None => "unlimited".to_owned(),
        Some(Duration::ZERO) => "never".to_owned(),
        Some(time) if time.subsec_nanos() == 0 => duration::show(time),
        Some(time) => time.as_secs_f64().to_string(),
    }
}

impl Checker<'_> {
    pub(super) fn limits_of_retry(&mut self, zero: Zero) {
        self.checked.config.retry.max_retries = self.limit("max-retries", zero, 0, |text| text.parse().ok());
        self.checked.config.retry.max_wait = self.limit("max-wait-time", zero, Duration::ZERO, |text| {
            // A number alone is seconds, as in Flower.
            let seconds = text.parse().ok().and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
            seconds.or_else(|| duration::parse(text))
        });
    }

    /// A number, or one of two words; `None` is no limit.
    fn limit<T: PartialEq>(&mut self, name: &str, zero: Zero, none: T, read: impl Fn(&str) -> Option<T>) -> Option<T> {
        match self.text(name)? {
            "unlimited" => None,
            "never" => Some(none),
            text => match read(text) {
                Some(limit) if limit != none => Some(limit),
                Some(_) if zero == Zero::Unlimited => None,
                Some(_) => {
                    self.warn(format!(
                        "--{name} 0 means here what it means in Flower: the node ends when the SuperLink cannot be reached; \
                         to try for ever, leave it out or write `unlimited`"
                    ));
                    Some(none)
                }
                None => {
                    let what = format!("--{name}: {text:?} is not a limit");
                    let example = if name == "max-retries" { "a number" } else { "seconds, a duration like 10m" };
                    self.refuse(&[name], what, format!("use {example}, `unlimited` or `never`"));
                    None
                }
            },
        }
    }

    pub(in crate::supernode) fn backoff(&mut self) {
        let fixed = self.read("backoff", &FIXED) == Some(true);
        let first = self.read("backoff-first", &PAUSE).unwrap_or(FIRST_BACKOFF);
        let cap = self.read("backoff-max", &PAUSE);
        if fixed {
            if cap.is_some() {
                self.warn("--backoff-max has no effect with --backoff fixed: every pause is --backoff-first");
            }
            self.checked.config.retry.backoff = Backoff::Fixed(first);
            return;
        }
        // A long first pause alone must not contradict the default maximum.
        let cap = cap.unwrap_or(MAX_BACKOFF.max(first));
        if cap < first {
            let pair = format!("--backoff-first {} and --backoff-max {}", duration::show(first), duration::show(cap));
            let what = format!("{pair} do not fit: the first pause would be the maximum");
            self.refuse(&["backoff-first", "backoff-max"], what, "give a shorter first pause, or a longer maximum");
        }
        self.checked.config.retry.backoff = Backoff::Exponential { first, cap };
    }
}
