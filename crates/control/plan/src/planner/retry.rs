//! Retries and timeouts of actions.

use std::time::Duration;

use super::Step;
use crate::Millis;
use crate::action::Verb;
use crate::ledger::{Attempts, Ledger};
use crate::report::{Weight, Why};
use crate::resource::ResourceId;
pub(super) use crate::retry::MAX_RESTARTS;
use crate::retry::ORDER;
use crate::seed::Random;

/// How long an action without an outcome may still take effect. Longer than the timeout of any controller.
pub(crate) const UNSETTLED_MS: Millis = 120_000;
/// How long a start may take.
pub(super) const START_TIMEOUT_MS: Millis = 600_000;
/// After this time in phase ready, earlier failures are forgotten.
pub(super) const STABLE_AFTER_MS: Millis = 60_000;

pub(crate) fn millis(duration: Duration) -> Millis {
    Millis::try_from(duration.as_millis()).unwrap_or(Millis::MAX)
}

/// For messages: `1 min 30 s`.
pub(super) fn words(ms: Millis) -> String {
    let seconds = ms.div_ceil(1000);
    match (seconds / 60, seconds % 60) {
        (0, seconds) => format!("{seconds} s"),
        (minutes, 0) => format!("{minutes} min"),
        (minutes, seconds) => format!("{minutes} min {seconds} s"),
    }
}

/// Exponential backoff with 20 % jitter, so that resources that fail together do not retry together.
fn delay_ms(count: u32, id: &ResourceId, seed: u64) -> Millis {
    let plain = ORDER.delay_ms(count.max(1));
    let jitter = plain / 5;
    plain - jitter + Random::of(seed, &format!("{id} {count}")).between(0, 2 * jitter)
}

/// Admits the actions that are due, and records them. Reports the others.
pub(super) fn admit(step: Step, ledger: &mut Ledger, now_ms: Millis, seed: u64) -> Step {
    let mut admitted = Step { report: step.report, wake_ms: step.wake_ms, verbs: Vec::new() };
    for verb in step.verbs {
        let same = |tries: &&Attempts| tries.verb == verb.word() && tries.generation == verb.generation();
        let verdict = ledger.tries.get(verb.id()).filter(same).map(|tries| verdict(&verb, tries, now_ms, seed));
        match verdict {
            Some(Verdict::Refused(why)) => admitted.report.push(why),
            Some(Verdict::Wait(at_ms, why)) => {
                admitted.report.push(why);
                admitted.wake_at(at_ms);
            }
            Some(Verdict::Admitted) | None => {
                ledger.record_attempt(&verb, now_ms);
                admitted.act(verb);
            }
        }
    }
    admitted
}

enum Verdict {
    Admitted,
    Wait(Millis, Why),
    Refused(Why),
}

fn verdict(verb: &Verb, tries: &Attempts, now_ms: Millis, seed: u64) -> Verdict {
    let about = verb.id().part.name();
    let reason = tries.why.as_deref().map(|why| format!(": {why}")).unwrap_or_default();
    if tries.never {
        let text = format!("{verb} was refused{reason}; it is not retried until the document or the site changes");
        return Verdict::Refused(Why { weight: Weight::Stuck, about, text });
    }
    let due_ms = tries.last_ms + delay_ms(tries.count, verb.id(), seed);
    if now_ms >= due_ms {
        return Verdict::Admitted;
    }
    let times = if tries.count == 1 { "once".to_owned() } else { format!("{} times", tries.count) };
    let text = format!("{verb} was tried {times}{reason}; next try in {}", words(due_ms - now_ms));
    Verdict::Wait(due_ms, Why { weight: Weight::Waits, about, text })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_grow_to_a_limit_and_differ_by_resource() {
        let id = |text: &str| ResourceId::try_from(text.to_owned()).expect("an id");
        let first = delay_ms(1, &id("f/s/node/a-0"), 7);
        assert!((800..=1200).contains(&first), "{first}");
        let last = delay_ms(u32::MAX, &id("f/s/node/a-0"), 7);
        assert!((240_000..=360_000).contains(&last), "{last}");
        assert_ne!(delay_ms(5, &id("f/s/node/a-0"), 7), delay_ms(5, &id("f/s/node/a-1"), 7));
    }

    #[test]
    fn durations_in_words() {
        assert_eq!([words(400), words(59_000), words(60_000), words(61_500)], ["1 s", "59 s", "1 min", "1 min 2 s"]);
    }
}
