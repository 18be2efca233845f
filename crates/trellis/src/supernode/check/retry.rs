//! Checks of how often and how long a link that does not work is tried again.

use std::time::Duration;

use trellis_node::config::{Backoff, Retry};

use super::Checker;
use crate::duration;

const FIRST_PAUSE: Duration = Duration::from_secs(1);
/// Below the 60 s after which a SuperLink counts a silent node as gone: one that comes back is found in time.
const LONGEST_PAUSE: Duration = Duration::from_secs(30);
const MOST_PAUSE: Duration = Duration::from_secs(3600);

/// What a limit of 0 means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Zero {
    /// No limit, as the documents of appliances for Flower say.
    Unlimited,
    /// Not one retry, as flower-supernode does.
    Never,
}

impl Checker<'_> {
    pub(super) fn retry(&mut self, zero: Zero) -> Retry {
        let args = &self.raw.args.retry;
        let max_retries = self.limit("max-retries", args.max_retries.as_deref(), zero, 0, |text| text.parse().ok());
        let max_wait = self.limit("max-wait-time", args.max_wait_time.as_deref(), zero, Duration::ZERO, |text| {
            // A number alone is seconds, as in Flower.
            let seconds = text.parse().ok().and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
            seconds.or_else(|| duration::parse(text))
        });
        Retry { max_retries, max_wait, backoff: self.backoff() }
    }

    /// A number, or one of two words; `None` is no limit.
    fn limit<T: PartialEq>(
        &mut self,
        name: &str,
        given: Option<&str>,
        zero: Zero,
        none: T,
        read: impl Fn(&str) -> Option<T>,
    ) -> Option<T> {
        match given? {
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
                    let what = format!("--{name}: {text:?} is no limit");
                    let example = if name == "max-retries" { "a number" } else { "seconds, a duration like 10m" };
                    self.refuse(&[name], what, format!("use {example}, `unlimited` or `never`"));
                    None
                }
            },
        }
    }

    fn backoff(&mut self) -> Backoff {
        let args = &self.raw.args.retry;
        let fixed = self.choice("backoff", args.backoff.as_deref(), &[("exponential", false), ("fixed", true)]);
        let first = self.duration("backoff-first", args.backoff_first.as_deref(), MOST_PAUSE).unwrap_or(FIRST_PAUSE);
        let cap = self.duration("backoff-max", args.backoff_max.as_deref(), MOST_PAUSE);
        if fixed {
            if cap.is_some() {
                self.warn("--backoff-max has no effect with --backoff fixed: every pause is --backoff-first");
            }
            return Backoff::Fixed(first);
        }
        // Who gives a long first pause alone wants no refusal because of the default.
        let cap = cap.unwrap_or(LONGEST_PAUSE.max(first));
        if cap < first {
            let pair = format!("--backoff-first {} and --backoff-max {}", duration::show(first), duration::show(cap));
            let what = format!("{pair} do not fit: the first pause would be the longest");
            self.refuse(&["backoff-first", "backoff-max"], what, "give a shorter first pause, or a longer longest one");
        }
        Backoff::Exponential { first, cap }
    }
}
