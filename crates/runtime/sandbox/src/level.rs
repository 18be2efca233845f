//! The enforcement level of the sandbox, for logs, status and metrics. Pure.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::kernel::{Feature, Kernel};
use crate::settings::{Mode, Network, Settings};

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Unavailable {
    /// The kernel lacks a feature that `--sandbox required` needs.
    #[error(
        "apps cannot be put into a sandbox: the kernel does not have {missing}; use a newer kernel, or --sandbox \
         best-effort"
    )]
    Kernel { missing: String },
    /// Apps could change keys and databases.
    #[error(
        "--app-data {}:rw contains the state directory, so apps could change its keys and databases; name directories \
         beside it, or use --sandbox off", path.display()
    )]
    Exposed { path: PathBuf },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Enforcement {
    Off,
    /// The kernel enforces no rule. The environment is still restricted.
    None,
    Partial,
    /// The kernel enforces everything that `required` needs.
    Full,
}

impl Enforcement {
    pub const ALL: [Enforcement; 4] = [Enforcement::Off, Enforcement::None, Enforcement::Partial, Enforcement::Full];

    pub fn word(self) -> &'static str {
        match self {
            Enforcement::Off => "off",
            Enforcement::None => "none",
            Enforcement::Partial => "partial",
            Enforcement::Full => "full",
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Level {
    pub mode: Mode,
    pub level: Enforcement,
    pub network: Network,
    /// Each app runs as its own user.
    pub separate_user: bool,
    /// Kernel features that `required` needs and the kernel lacks.
    pub missing: Vec<String>,
    /// Operations that apps should not but can perform, because the kernel has no rule for them.
    pub limits: Vec<String>,
}

impl Level {
    pub fn off() -> Level {
        Level {
            mode: Mode::Off,
            level: Enforcement::Off,
            network: Network::All,
            separate_user: false,
            missing: Vec::new(),
            limits: Vec::new(),
        }
    }

    /// The level of the settings on `kernel`. `over_tcp`: apps get their messages from a port of this machine.
    pub fn of(settings: &Settings, kernel: &Kernel, over_tcp: bool, separate_user: bool) -> Level {
        if settings.mode == Mode::Off {
            return Level::off();
        }
        let mut needed = vec![Feature::Files, Feature::SystemCalls];
        if settings.network == Network::None && over_tcp {
            needed.push(Feature::Ports);
        }
        let missing: Vec<Feature> = needed.iter().copied().filter(|feature| !kernel.has(*feature)).collect();
        let level = match missing.len() {
            0 => Enforcement::Full,
            count if count == needed.len() => Enforcement::None,
            _ => Enforcement::Partial,
        };
        Level {
            mode: settings.mode,
            level,
            network: settings.network,
            separate_user,
            missing: missing.into_iter().map(|feature| feature.description().to_owned()).collect(),
            limits: limits(settings, kernel, over_tcp, separate_user),
        }
    }

    /// Logs the level, and one message for each missing feature and each limit; `true` marks warnings.
    pub fn log(&self, tell: &impl Fn(bool, String)) {
        let user = if self.separate_user { ", each with a user of its own" } else { "" };
        match self.level {
            Enforcement::Off => tell(true, "apps run without a sandbox: they can read the keys of this process".into()),
            level => tell(
                false,
                format!("apps run in a sandbox (level {}, network {}{user})", level.word(), self.network.word()),
            ),
        }
        for missing in &self.missing {
            tell(true, format!("the sandbox of apps is not complete: the kernel does not have {missing}"));
        }
        for limit in &self.limits {
            tell(false, format!("a limit of the sandbox: {limit}"));
        }
    }

    /// Fails if the mode is `required` and a feature is missing.
    pub fn check(&self) -> Result<(), Unavailable> {
        match self.mode {
            Mode::Required if !self.missing.is_empty() => {
                Err(Unavailable::Kernel { missing: self.missing.join(" and ") })
            }
            _ => Ok(()),
        }
    }
}

fn limits(settings: &Settings, kernel: &Kernel, over_tcp: bool, separate_user: bool) -> Vec<String> {
    let mut limits = Vec::new();
    let mut weak = |applies: bool, text: &str| {
        if applies {
            limits.push(text.to_owned());
        }
    };
    weak(
        !separate_user && !kernel.has(Feature::Signals),
        "apps can send signals to processes of the same user: that needs Landlock ABI 6 (Linux 6.12), or root",
    );
    weak(
        !separate_user && !kernel.has(Feature::Sockets),
        "apps can connect to unix sockets of the same user: that needs Landlock ABI 9, or root",
    );
    weak(
        settings.network == Network::None && over_tcp && kernel.has(Feature::Ports),
        "apps can connect to the port of the node's app API on other machines too: use --app-lifecycle warm",
    );
    limits
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn required_needs_files_calls_and_the_network_rule_only() {
        let old = Kernel::with(&[Feature::Files, Feature::SystemCalls]);
        let new = Kernel::with(&Feature::ALL);
        let bare = Kernel::with(&[]);
        let calls = Kernel::with(&[Feature::SystemCalls]);
        let cases = [
            (&old, Network::All, true, Enforcement::Full),
            (&old, Network::None, false, Enforcement::Full),
            (&old, Network::None, true, Enforcement::Partial),
            (&new, Network::None, true, Enforcement::Full),
            (&calls, Network::All, false, Enforcement::Partial),
            (&bare, Network::All, false, Enforcement::None),
        ];
        for (kernel, network, over_tcp, expected) in cases {
            for mode in [Mode::Required, Mode::BestEffort] {
                let settings = Settings { mode, network, ..Settings::default() };
                let level = Level::of(&settings, kernel, over_tcp, false);
                assert_eq!(level.level, expected, "{kernel:?} {network:?}");
                let refused = mode == Mode::Required && expected != Enforcement::Full;
                assert_eq!(level.check().is_err(), refused, "{kernel:?} {network:?} {mode:?}");
            }
        }
        assert_eq!(Level::of(&Settings::off(), &bare, true, false).check(), Ok(()));
        let required = Settings { mode: Mode::Required, ..Settings::default() };
        let told = Level::of(&required, &bare, false, false).check().unwrap_err().to_string();
        assert!(told.contains("Landlock") && told.contains("seccomp"), "{told}");
    }
}
