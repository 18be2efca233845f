//! Table of the appliance variables: names, roles, kinds, effects. The parser, the one-apps script, the inputs of templates
//! and the reference are derived from it. It contains no values.

mod kind;
mod table;

pub use kind::{Bounds, Kind};
pub use table::VARIABLES;

use crate::problem::Place;
use crate::settings::Role;

/// Prefix of the alternative spelling of every variable.
pub const PREFIX: &str = "ONEAPP_";
/// Maximum number of peers of a gateway.
pub const MAX_PEERS: u32 = 64;
/// Placeholder for a number in [`Variable::name`].
const NUMBERED: &str = "WG_PEER_";
/// Variables with these prefixes belong to the appliance, so an unknown one is an error.
const OURS: [&str; 5] = ["FL_", "FLOWER_", "ML_", "WG_", "ONEAPP_"];

#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Variable {
    /// Without `ONEAPP_`.
    pub name: &'static str,
    /// Former names, without `ONEAPP_`.
    pub aliases: &'static [&'static str],
    pub roles: &'static [Role],
    pub kind: Kind,
    /// Default as a user would write it. Empty if there is none, or if it depends on other variables.
    pub default: &'static str,
    /// One line, for inputs of templates and for help.
    pub about: &'static str,
    /// Effect of the variable.
    pub effect: &'static str,
    pub stage: Stage,
    pub secret: bool,
    /// `WG_PEER_PUBLIC_KEY` is also `WG_PEER_2_PUBLIC_KEY`, for the second peer.
    pub numbered: bool,
    /// Templates have an input for it.
    pub asked: bool,
    pub status: Status,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Status {
    Effective,
    /// Rejected with an explanation.
    Refused {
        why: &'static str,
    },
    /// Belongs to a component of OpenNebula, which reads it. The agent ignores it.
    Elsewhere {
        owner: &'static str,
    },
}

/// Stage of one-apps that needs the variable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    Configure,
    Bootstrap,
}

impl Stage {
    pub fn name(self) -> &'static str {
        match self {
            Stage::Configure => "configure",
            Stage::Bootstrap => "bootstrap",
        }
    }
}

impl Variable {
    pub fn is_for(&self, role: Role) -> bool {
        self.roles.contains(&role)
    }

    /// Place of a diagnostic: the spelling, and the value unless it is a secret.
    pub fn place(&self, spelling: &str, value: &str) -> Place {
        if self.secret { Place::from(spelling) } else { Place::showing(spelling, value) }
    }

    /// All spellings; those without a prefix come first.
    pub fn spellings(&self, number: Option<u32>) -> Vec<String> {
        let plain = std::iter::once(&self.name).chain(self.aliases).map(|name| numbered(name, number));
        let plain: Vec<String> = plain.collect();
        let prefixed: Vec<String> = plain.iter().map(|name| format!("{PREFIX}{name}")).collect();
        plain.into_iter().chain(prefixed).collect()
    }
}

/// `WG_PEER_2_PUBLIC_KEY`; the first peer has no number.
fn numbered(name: &str, number: Option<u32>) -> String {
    match (number, name.strip_prefix(NUMBERED)) {
        (Some(number), Some(rest)) => format!("{NUMBERED}{number}_{rest}"),
        _ => name.to_owned(),
    }
}

/// Finds a variable by any spelling, and its number if it has one.
pub fn find(name: &str) -> Option<(&'static Variable, Option<u32>)> {
    let upper = name.to_ascii_uppercase();
    let plain = upper.strip_prefix(PREFIX).unwrap_or(&upper);
    let known = |name: &str| VARIABLES.iter().find(|known| known.name == name || known.aliases.contains(&name));
    if let Some(variable) = known(plain) {
        return Some((variable, None));
    }
    let (number, rest) = plain.strip_prefix(NUMBERED)?.split_once('_')?;
    // Each number has one spelling.
    let number =
        number.parse().ok().filter(|parsed: &u32| parsed.to_string() == number && (1..=MAX_PEERS).contains(parsed))?;
    known(&format!("{NUMBERED}{rest}")).filter(|variable| variable.numbered).map(|variable| (variable, Some(number)))
}

/// Whether the name has a prefix of the appliance.
pub(crate) fn is_ours(name: &str) -> bool {
    OURS.iter().any(|start| name.len() > start.len() && name.to_ascii_uppercase().starts_with(start))
}

/// Advice for an unknown name that is close to a known one.
pub(crate) fn did_you_mean(name: &str) -> Option<String> {
    let upper = name.to_ascii_uppercase();
    let plain = upper.strip_prefix(PREFIX).unwrap_or(&upper);
    trellis_diagnostic::did_you_mean(plain, VARIABLES.iter().map(|variable| variable.name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_is_declared_once_and_found_under_all_spellings() {
        for variable in VARIABLES {
            for spelling in variable.spellings(None) {
                let found = find(&spelling).map(|(found, number)| (found.name, number));
                assert_eq!(found, Some((variable.name, None)), "{spelling}");
                assert_eq!(find(&spelling.to_lowercase()).map(|(found, _)| found.name), Some(variable.name));
            }
            let names = VARIABLES.iter().flat_map(|other| std::iter::once(&other.name).chain(other.aliases));
            assert_eq!(names.filter(|name| **name == variable.name).count(), 1, "{}", variable.name);
        }
    }

    #[test]
    fn peers_have_numbers() {
        for (name, expected) in [
            ("WG_PEER_PUBLIC_KEY", Some(None)),
            ("WG_PEER_1_PUBLIC_KEY", Some(Some(1))),
            ("ONEAPP_WG_PEER_12_ALLOWED_IPS", Some(Some(12))),
            ("WG_PEER_0_PUBLIC_KEY", None),
            ("WG_PEER_01_PUBLIC_KEY", None),
            ("WG_PEER_65_PUBLIC_KEY", None),
            ("WG_PEER_1_MTU", None),
            ("WG_1_LISTEN_PORT", None),
        ] {
            assert_eq!(find(name).map(|(_, number)| number), expected, "{name}");
        }
    }

    #[test]
    fn the_most_similar_name_is_suggested() {
        for (typed, meant) in [
            ("FL_NUM_ROUND", Some("FL_NUM_ROUNDS")),
            ("ONEAPP_FL_STRATGEY", Some("FL_STRATEGY")),
            ("fl_tls_enable", Some("FL_TLS_ENABLED")),
            ("FL_SOMETHING_QUITE_DIFFERENT", None),
        ] {
            assert_eq!(did_you_mean(typed), meant.map(|name| format!("did you mean {name}?")), "{typed}");
            assert!(is_ours(typed));
        }
        assert!(!is_ours("PATH") && !is_ours("FL_") && !is_ours("ETH0_IP"));
    }

    /// `|` separates the fields of a template's input, and a line break ends a list.
    #[test]
    fn texts_of_the_table_fit_their_outputs() {
        for variable in VARIABLES {
            for text in [variable.about, variable.effect, variable.default] {
                assert!(!text.contains(['|', '\n', '\'', '"', '`', '$']), "{}: {text}", variable.name);
            }
            assert!(!variable.about.is_empty() && variable.about.len() <= 120, "{}", variable.name);
            assert!(!variable.effect.is_empty() && !variable.roles.is_empty(), "{}", variable.name);
            assert!(!variable.secret || variable.default.is_empty(), "{}", variable.name);
        }
    }
}
