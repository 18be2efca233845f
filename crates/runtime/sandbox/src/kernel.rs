//! Detects which restrictions the running kernel can enforce.

use std::path::Path;

use landlock::{ABI, Access, AccessFs, AccessNet, CompatLevel, Compatible, Ruleset, RulesetAttr, RulesetError, Scope};

/// Exists if the kernel has seccomp filters (4.14 and later).
const SECCOMP_ACTIONS: &str = "/proc/sys/kernel/seccomp/actions_avail";

/// A restriction that the kernel enforces.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Feature {
    /// Rules about files (Landlock ABI 1, Linux 5.13).
    Files,
    /// Rules about truncating files (Landlock ABI 3, Linux 6.2). Before that the system call filter refuses `truncate`.
    Truncate,
    /// Rules about TCP ports (Landlock ABI 4, Linux 6.7).
    Ports,
    /// No signals to processes outside, and no connections to their abstract sockets (Landlock ABI 6, Linux 6.12).
    Signals,
    /// No connections to unix sockets outside (Landlock ABI 9).
    Sockets,
    /// The system call filter (seccomp).
    SystemCalls,
}

impl Feature {
    pub const ALL: [Feature; 6] =
        [Feature::Files, Feature::Truncate, Feature::Ports, Feature::Signals, Feature::Sockets, Feature::SystemCalls];

    /// The kernel feature, with the version that introduced it.
    pub fn description(self) -> &'static str {
        match self {
            Feature::Files => "Landlock (Linux 5.13 or later, with `landlock` among the security modules at boot)",
            Feature::Truncate => "Landlock ABI 3 (Linux 6.2)",
            Feature::Ports => "Landlock ABI 4 (Linux 6.7), which restricts TCP ports",
            Feature::Signals => "Landlock ABI 6 (Linux 6.12), which restricts signals",
            Feature::Sockets => "Landlock ABI 9, which restricts connections to unix sockets",
            Feature::SystemCalls => "seccomp filters (CONFIG_SECCOMP_FILTER)",
        }
    }
}

/// The features of a kernel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Kernel {
    features: Vec<Feature>,
}

impl Kernel {
    /// Queries the running kernel without side effects.
    pub fn detect() -> Kernel {
        let has = |feature: &Feature| match feature {
            Feature::Files => handles_files(ABI::V1).is_ok(),
            Feature::Truncate => handles_files(ABI::V3).is_ok(),
            Feature::Ports => strict().handle_access(AccessNet::from_all(ABI::V4)).is_ok(),
            Feature::Signals => strict().scope(Scope::from_all(ABI::V6)).is_ok(),
            Feature::Sockets => handles_files(ABI::V9).is_ok(),
            Feature::SystemCalls => Path::new(SECCOMP_ACTIONS).exists(),
        };
        Kernel { features: Feature::ALL.into_iter().filter(has).collect() }
    }

    pub fn with(features: &[Feature]) -> Kernel {
        Kernel { features: features.to_vec() }
    }

    pub fn has(&self, feature: Feature) -> bool {
        self.features.contains(&feature)
    }
}

fn strict() -> Ruleset {
    Ruleset::default().set_compatibility(CompatLevel::HardRequirement)
}

fn handles_files(abi: ABI) -> Result<Ruleset, RulesetError> {
    strict().handle_access(AccessFs::from_all(abi))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn newer_features_imply_older_ones() {
        let kernel = Kernel::detect();
        let landlock = [Feature::Files, Feature::Truncate, Feature::Ports, Feature::Signals, Feature::Sockets];
        let found: Vec<bool> = landlock.iter().map(|feature| kernel.has(*feature)).collect();
        assert!(found.is_sorted_by(|older, newer| older >= newer), "{kernel:?}");
    }
}
