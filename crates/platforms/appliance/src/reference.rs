//! The reference of all variables, in Markdown; `docs/appliance-variables.md` is this text.

use crate::settings::Role;
use crate::variables::{MAX_PEERS, Status, VARIABLES, Variable};

/// Heading, what is said under it, and which variables belong there.
type Section = (&'static str, &'static str, fn(&Variable) -> bool);

const SECTIONS: [Section; 5] = [
    ("SuperLink and SuperNode", "Give them to the whole service, so that both sides agree.", |variable| {
        variable.is_for(Role::SuperLink) && variable.is_for(Role::SuperNode) && is_asked(variable)
    }),
    ("SuperLink", "", |variable| variable.roles == [Role::SuperLink]),
    ("SuperNode", "", |variable| variable.roles == [Role::SuperNode]),
    (
        "Gateway",
        "A gateway with several peers has their variables by number: WG_PEER_2_PUBLIC_KEY and so on.",
        |variable| variable.roles == [Role::Gateway],
    ),
    ("Of OpenNebula and of the image", "They are set by who writes the template, and are not asked for.", |variable| {
        variable.roles.len() == Role::ALL.len() && !is_asked(variable)
    }),
];

fn is_asked(variable: &Variable) -> bool {
    variable.asked
}

pub fn reference() -> String {
    let mut text = String::from(
        "# Variables of the appliances\n\n\
         Made by `trellis appliance vars -o markdown`; a test compares.\n\n\
         - Each is also understood as `ONEAPP_` and its name, and in any case of letters. Both said and different: refused.\n\
         - Empty is the same as not said. YES is also TRUE and 1, NO is also FALSE and 0.\n\
         - Everything that is wrong is told at once, in the log of the stage and in FL_ERROR; nothing is started then.\n\
         - A name that begins like ours and is none is warned of, with the name that was perhaps meant.\n\
         - What a controller assigns beats the environment, that beats the context CD, and that beats `one_env`.\n\
         - `trellis appliance check` says what would be used, and what is wrong.\n",
    );
    for (heading, intro, belongs) in SECTIONS {
        text.push_str(&format!("\n## {heading}\n"));
        if !intro.is_empty() {
            text.push_str(&format!("{intro}\n\n"));
        }
        text.push_str("| variable | may be | default | |\n|---|---|---|---|\n");
        for variable in VARIABLES.iter().filter(|variable| belongs(variable)) {
            text.push_str(&row(variable));
        }
    }
    text.push_str(&format!("\nThere are at most {MAX_PEERS} peers.\n"));
    text
}

fn row(variable: &Variable) -> String {
    let aliases: String = variable.aliases.iter().map(|alias| format!(", formerly `{alias}`")).collect();
    let secret = if variable.secret { " Never shown." } else { "" };
    let default = match variable.default {
        "" => String::new(),
        default => format!("`{default}`"),
    };
    let effect = match variable.status {
        Status::Effective => format!("{}. {}", variable.about, variable.effect),
        Status::Refused { why } => format!("{}. Refused: {why}.", variable.about),
        Status::Elsewhere { owner } => format!("{}. It belongs to {owner}. {}", variable.about, variable.effect),
    };
    format!("| `{}`{aliases} | {} | {default} | {effect}{secret} |\n", variable.name, variable.kind)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_variable_is_in_the_reference_once() {
        let text = reference();
        for variable in VARIABLES {
            assert_eq!(text.matches(&format!("| `{}`", variable.name)).count(), 1, "{}", variable.name);
        }
    }
}
