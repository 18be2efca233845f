//! Every variable of the appliances, declared once: its names, who reads it, what it may be, what it does. What is read, the script
//! for one-apps, the inputs of templates and the reference all come from this table. It knows no value.

mod kind;
mod table;

pub use kind::{Bounds, Kind};
pub use table::VARIABLES;

use crate::settings::Role;

/// The other spelling of every variable begins so.
pub const PREFIX: &str = "ONEAPP_";
/// A gateway has no more peers than this.
pub const MAX_PEERS: u32 = 64;
/// Stands in [`Variable::name`] where a number may.
const NUMBERED: &str = "WG_PEER_";
/// Names that begin so are meant for us, so one that is not in the table is a mistake.
const OURS: [&str; 5] = ["FL_", "FLOWER_", "ML_", "WG_", "ONEAPP_"];

#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Variable {
    /// Without `ONEAPP_`.
    pub name: &'static str,
    /// Other names that it had, without `ONEAPP_`.
    pub aliases: &'static [&'static str],
    pub roles: &'static [Role],
    pub kind: Kind,
    /// As it would be written; empty: none, or decided by others.
    pub default: &'static str,
    /// One line, for inputs of templates and for help.
    pub about: &'static str,
    /// What happens because of it.
    pub effect: &'static str,
    pub stage: Stage,
    pub secret: bool,
    /// `WG_PEER_PUBLIC_KEY` is also `WG_PEER_2_PUBLIC_KEY`, of the second peer.
    pub numbered: bool,
    /// Templates ask for it.
    pub asked: bool,
    pub status: Status,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Status {
    Effective,
    /// Whoever says it hears why not.
    Refused {
        why: &'static str,
    },
    /// It belongs to this part of OpenNebula, which obeys it; it is left alone here.
    Elsewhere {
        owner: &'static str,
    },
}

/// When one-apps needs it.
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

    /// All names under which it may be said, those without prefix first.
    pub fn spellings(&self, number: Option<u32>) -> Vec<String> {
        let plain = std::iter::once(&self.name).chain(self.aliases).map(|name| numbered(name, number));
        let plain: Vec<String> = plain.collect();
        let prefixed: Vec<String> = plain.iter().map(|name| format!("{PREFIX}{name}")).collect();
        plain.into_iter().chain(prefixed).collect()
    }
}

/// `WG_PEER_2_PUBLIC_KEY`; the first peer's have no number.
fn numbered(name: &str, number: Option<u32>) -> String {
    match (number, name.strip_prefix(NUMBERED)) {
        (Some(number), Some(rest)) => format!("{NUMBERED}{number}_{rest}"),
        _ => name.to_owned(),
    }
}

/// The variable of that name, under any spelling, and its number where it has one.
pub fn find(name: &str) -> Option<(&'static Variable, Option<u32>)> {
    let upper = name.to_ascii_uppercase();
    let plain = upper.strip_prefix(PREFIX).unwrap_or(&upper);
    let known = |name: &str| VARIABLES.iter().find(|known| known.name == name || known.aliases.contains(&name));
    if let Some(variable) = known(plain) {
        return Some((variable, None));
    }
    let (number, rest) = plain.strip_prefix(NUMBERED)?.split_once('_')?;
    // One number has one spelling.
    let number =
        number.parse().ok().filter(|parsed: &u32| parsed.to_string() == number && (1..=MAX_PEERS).contains(parsed))?;
    known(&format!("{NUMBERED}{rest}")).filter(|variable| variable.numbered).map(|variable| (variable, Some(number)))
}

/// Whether somebody who wrote this name meant a variable of ours.
pub(crate) fn is_ours(name: &str) -> bool {
    OURS.iter().any(|start| name.len() > start.len() && name.to_ascii_uppercase().starts_with(start))
}

/// The variable that was perhaps meant by a name that is none.
pub(crate) fn nearest(name: &str) -> Option<&'static str> {
    let upper = name.to_ascii_uppercase();
    let plain = upper.strip_prefix(PREFIX).unwrap_or(&upper);
    let names = VARIABLES.iter().map(|variable| (strsim::damerau_levenshtein(plain, variable.name), variable.name));
    // A third of the letters may be wrong.
    names.min().filter(|(edits, _)| edits * 3 <= plain.len()).map(|(_, name)| name)
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
    fn the_nearest_name_is_the_one_that_was_meant() {
        for (typed, meant) in [
            ("FL_NUM_ROUND", Some("FL_NUM_ROUNDS")),
            ("ONEAPP_FL_STRATGEY", Some("FL_STRATEGY")),
            ("fl_tls_enable", Some("FL_TLS_ENABLED")),
            ("FL_SOMETHING_QUITE_DIFFERENT", None),
        ] {
            assert_eq!(nearest(typed), meant, "{typed}");
            assert!(is_ours(typed));
        }
        assert!(!is_ours("PATH") && !is_ours("FL_") && !is_ours("ETH0_IP"));
    }

    /// `|` ends a field of a template's input, and a list ends with its line.
    #[test]
    fn words_of_the_table_fit_where_they_are_shown() {
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
