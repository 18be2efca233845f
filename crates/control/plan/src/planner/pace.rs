//! How often the same thing is tried, and how long things may take.

use std::time::Duration;

use super::Step;
use crate::Millis;
use crate::action::Verb;
use crate::ledger::{Ledger, Tries};
use crate::report::{Weight, Why};
use crate::resource::ResourceId;
use crate::seed::Chance;

/// So long after something was asked without an answer, it may still happen. Longer than any controller waits for an answer.
pub(crate) const UNSETTLED_MS: Millis = 120_000;
/// What starts has so long to become ready.
pub(super) const START_PATIENCE_MS: Millis = 600_000;
/// What was ready for so long is well: old failures are forgotten.
pub(super) const WELL_AFTER_MS: Millis = 60_000;
/// After so many attempts to start it again, a node is made anew.
pub(super) const MOST_RESTARTS: u32 = 3;
const FIRST_DELAY_MS: Millis = 1_000;
const LONGEST_DELAY_MS: Millis = 300_000;

pub(super) fn millis(duration: Duration) -> Millis {
    Millis::try_from(duration.as_millis()).unwrap_or(Millis::MAX)
}

/// `1 min 30 s`, as a person would say it.
pub(super) fn words(ms: Millis) -> String {
    let seconds = ms.div_ceil(1000);
    match (seconds / 60, seconds % 60) {
        (0, seconds) => format!("{seconds} s"),
        (minutes, 0) => format!("{minutes} min"),
        (minutes, seconds) => format!("{minutes} min {seconds} s"),
    }
}

/// Twice as long after each attempt, give or take a fifth: many that fail together do not come back together.
fn delay_ms(count: u32, id: &ResourceId, seed: u64) -> Millis {
    let doubled = FIRST_DELAY_MS.saturating_mul(1 << count.saturating_sub(1).min(20));
    let plain = doubled.min(LONGEST_DELAY_MS);
    let spread = plain / 5;
    plain - spread + Chance::of(seed, &format!("{id} {count}")).between(0, 2 * spread)
}

/// Lets through what may be asked now, and notes it; what must wait, or is in vain, becomes a reason.
pub(super) fn admit(step: Step, ledger: &mut Ledger, now_ms: Millis, seed: u64) -> Step {
    let mut admitted = Step { report: step.report, wake_ms: step.wake_ms, verbs: Vec::new() };
    for verb in step.verbs {
        let same = |tries: &&Tries| tries.verb == verb.word() && tries.generation == verb.generation();
        let hindrance = ledger.tries.get(verb.id()).filter(same).map(|tries| hindrance(&verb, tries, now_ms, seed));
        match hindrance {
            Some(Hindrance::Vain(why)) => admitted.report.push(why),
            Some(Hindrance::Until(at_ms, why)) => {
                admitted.report.push(why);
                admitted.wake_at(at_ms);
            }
            Some(Hindrance::None) | None => {
                ledger.asked(&verb, now_ms);
                admitted.ask(verb);
            }
        }
    }
    admitted
}

enum Hindrance {
    None,
    Until(Millis, Why),
    Vain(Why),
}

fn hindrance(verb: &Verb, tries: &Tries, now_ms: Millis, seed: u64) -> Hindrance {
    let about = verb.id().part.name();
    let said = tries.why.as_deref().map(|why| format!(": {why}")).unwrap_or_default();
    if tries.never {
        let text =
            format!("{verb} was refused{said}; asking again does not help, the document or the site must change");
        return Hindrance::Vain(Why { weight: Weight::Stuck, about, text });
    }
    let due_ms = tries.last_ms + delay_ms(tries.count, verb.id(), seed);
    if now_ms >= due_ms {
        return Hindrance::None;
    }
    let times = if tries.count == 1 { "once".to_owned() } else { format!("{} times", tries.count) };
    let text = format!("{verb} was tried {times}{said}; again in {}", words(due_ms - now_ms));
    Hindrance::Until(due_ms, Why { weight: Weight::Waits, about, text })
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
