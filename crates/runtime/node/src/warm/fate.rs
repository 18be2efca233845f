//! What becomes of a worker: whether it serves on, and if not, why. Decides only; knows of no process and no clock.

use std::fmt;
use std::time::Duration;

use crate::config::WarmSettings;

/// What is known of a worker when somebody asks. What was not looked at is as for a good one.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Condition {
    /// The process has ended.
    pub gone: bool,
    /// Its app could not be loaded. Half of its modules may be there, so a second try would not be as the first.
    pub not_loaded: bool,
    /// The run has another app than the one it loaded.
    pub app_changed: bool,
    pub resident_bytes: Option<u64>,
    /// How long it has had nothing to do.
    pub idle: Duration,
    /// Workers with nothing to do that were needed later than this one.
    pub fresher: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    Keep,
    End(Why),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Why {
    Gone,
    NotLoaded,
    AppChanged,
    TooLarge { resident_bytes: u64, limit_bytes: u64 },
    Idle,
    TooMany,
    RunOver,
    Closing,
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Why::Gone => f.write_str("it had ended by itself"),
            Why::NotLoaded => f.write_str("its app could not be loaded"),
            Why::AppChanged => f.write_str("its run has another app now"),
            Why::TooLarge { resident_bytes, limit_bytes } => {
                write!(f, "it takes {} MiB of memory, more than {} MiB", resident_bytes >> 20, limit_bytes >> 20)
            }
            Why::Idle => f.write_str("it was not needed for long"),
            Why::TooMany => f.write_str("there are enough that were needed later"),
            Why::RunOver => f.write_str("its run is over"),
            Why::Closing => f.write_str("the node is stopping"),
        }
    }
}

pub fn fate(seen: &Condition, settings: &WarmSettings) -> Fate {
    let too_large = settings.recycle_bytes.zip(seen.resident_bytes).filter(|(limit, resident)| resident > limit);
    let reasons = [
        (seen.gone, Why::Gone),
        (seen.not_loaded, Why::NotLoaded),
        (seen.app_changed, Why::AppChanged),
        (seen.idle >= settings.idle, Why::Idle),
        (seen.fresher >= settings.max_idle, Why::TooMany),
    ];
    if let Some((_, why)) = reasons.into_iter().find(|(holds, _)| *holds) {
        return Fate::End(why);
    }
    match too_large {
        Some((limit_bytes, resident_bytes)) => Fate::End(Why::TooLarge { resident_bytes, limit_bytes }),
        None => Fate::Keep,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Spare;

    const MIB: u64 = 1 << 20;

    #[test]
    fn a_worker_is_kept_as_long_as_nothing_speaks_against_it() {
        let settings = WarmSettings {
            idle: Duration::from_secs(60),
            recycle_bytes: Some(500 * MIB),
            max_idle: 2,
            spare: Spare::None,
        };
        let unlimited = WarmSettings { recycle_bytes: None, ..settings.clone() };
        let good = Condition::default();
        let sized = |mib: u64| Condition { resident_bytes: Some(mib * MIB), ..good };
        let waiting = |seconds| Condition { idle: Duration::from_secs(seconds), ..good };
        let large = Why::TooLarge { resident_bytes: 501 * MIB, limit_bytes: 500 * MIB };
        let cases = [
            ("good", good, &settings, Fate::Keep),
            ("ended", Condition { gone: true, ..good }, &settings, Fate::End(Why::Gone)),
            ("ended, and more", Condition { gone: true, ..sized(600) }, &settings, Fate::End(Why::Gone)),
            ("load failed", Condition { not_loaded: true, ..good }, &settings, Fate::End(Why::NotLoaded)),
            ("other app", Condition { app_changed: true, ..good }, &settings, Fate::End(Why::AppChanged)),
            ("at the limit", sized(500), &settings, Fate::Keep),
            ("above the limit", sized(501), &settings, Fate::End(large)),
            ("no limit", sized(5000), &unlimited, Fate::Keep),
            ("size unknown", good, &settings, Fate::Keep),
            ("not idle for long", waiting(59), &settings, Fate::Keep),
            ("idle for long", waiting(60), &settings, Fate::End(Why::Idle)),
            ("one is fresher", Condition { fresher: 1, ..good }, &settings, Fate::Keep),
            ("enough are fresher", Condition { fresher: 2, ..good }, &settings, Fate::End(Why::TooMany)),
        ];
        for (name, seen, settings, want) in cases {
            assert_eq!(fate(&seen, settings), want, "{name}");
        }
    }
}
