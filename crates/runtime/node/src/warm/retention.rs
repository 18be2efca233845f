//! Decides whether a worker is kept, and if not, reason. Pure: knows nothing of processes and clocks.

use std::fmt;
use std::time::Duration;

use crate::config::WarmSettings;

/// The observed state of a worker. The default is that of a good one.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Condition {
    /// The process has exited.
    pub gone: bool,
    /// Its app could not be loaded. Some modules may be imported, so a second attempt would differ.
    pub not_loaded: bool,
    /// The run has another app than the loaded one.
    pub app_changed: bool,
    pub resident_bytes: Option<u64>,
    /// The time since its last instruction.
    pub idle: Duration,
    /// The number of idle workers that were used more recently.
    pub more_recent: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Retention {
    Keep,
    End(EndReason),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EndReason {
    Gone,
    NotLoaded,
    AppChanged,
    TooLarge { resident_bytes: u64, limit_bytes: u64 },
    Idle,
    TooMany,
    RunOver,
    Closing,
}

impl fmt::Display for EndReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            EndReason::Gone => f.write_str("it had exited"),
            EndReason::NotLoaded => f.write_str("its app could not be loaded"),
            EndReason::AppChanged => f.write_str("its run has another app now"),
            EndReason::TooLarge { resident_bytes, limit_bytes } => {
                write!(f, "it uses {} MiB of memory; the limit is {} MiB", resident_bytes >> 20, limit_bytes >> 20)
            }
            EndReason::Idle => f.write_str("it was idle for too long"),
            EndReason::TooMany => f.write_str("enough other workers were used more recently"),
            EndReason::RunOver => f.write_str("its run is over"),
            EndReason::Closing => f.write_str("the node is stopping"),
        }
    }
}

pub fn decide(seen: &Condition, settings: &WarmSettings) -> Retention {
    let too_large = settings.recycle_bytes.zip(seen.resident_bytes).filter(|(limit, resident)| resident > limit);
    let reasons = [
        (seen.gone, EndReason::Gone),
        (seen.not_loaded, EndReason::NotLoaded),
        (seen.app_changed, EndReason::AppChanged),
        (seen.idle >= settings.idle, EndReason::Idle),
        (seen.more_recent >= settings.max_idle, EndReason::TooMany),
    ];
    if let Some((_, reason)) = reasons.into_iter().find(|(holds, _)| *holds) {
        return Retention::End(reason);
    }
    match too_large {
        Some((limit_bytes, resident_bytes)) => Retention::End(EndReason::TooLarge { resident_bytes, limit_bytes }),
        None => Retention::Keep,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Spare;

    const MIB: u64 = 1 << 20;

    #[test]
    fn every_condition_has_its_decision() {
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
        let large = EndReason::TooLarge { resident_bytes: 501 * MIB, limit_bytes: 500 * MIB };
        let cases = [
            ("good", good, &settings, Retention::Keep),
            ("ended", Condition { gone: true, ..good }, &settings, Retention::End(EndReason::Gone)),
            ("ended, and more", Condition { gone: true, ..sized(600) }, &settings, Retention::End(EndReason::Gone)),
            ("load failed", Condition { not_loaded: true, ..good }, &settings, Retention::End(EndReason::NotLoaded)),
            ("other app", Condition { app_changed: true, ..good }, &settings, Retention::End(EndReason::AppChanged)),
            ("at the limit", sized(500), &settings, Retention::Keep),
            ("above the limit", sized(501), &settings, Retention::End(large)),
            ("no limit", sized(5000), &unlimited, Retention::Keep),
            ("size unknown", good, &settings, Retention::Keep),
            ("not idle for long", waiting(59), &settings, Retention::Keep),
            ("idle for long", waiting(60), &settings, Retention::End(EndReason::Idle)),
            ("one is more_recent", Condition { more_recent: 1, ..good }, &settings, Retention::Keep),
            (
                "enough are more_recent",
                Condition { more_recent: 2, ..good },
                &settings,
                Retention::End(EndReason::TooMany),
            ),
        ];
        for (name, seen, settings, want) in cases {
            assert_eq!(decide(&seen, settings), want, "{name}");
        }
    }
}
