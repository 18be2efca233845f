//! The table of a program's settings. A row has everything about one setting: name, help, kind of values, field of the config,
//! printing. Command line, environment variables, configuration files, checks and `--print-config` all read the table.

use clap::{Arg, ArgAction, Command};
use toml::Value;

use super::Checker;

/// The prefix of environment variables. The rest is the name of the setting in capitals, with underscores.
const PREFIX: &str = "TRELLIS_";

/// A program that is set up by settings. `C` holds them after the checks.
pub struct Program<C: 'static> {
    /// Paragraphs with empty lines between them; the first one is the short description.
    pub about: &'static str,
    /// `{called}` is replaced by the name of the program as the user wrote it.
    pub after_help: &'static str,
    pub groups: &'static [Group<C>],
    pub subcommands: fn(Command) -> Command,
}

/// Settings below one heading of the help.
pub struct Group<C: 'static> {
    /// Empty for settings beside `--help`.
    pub heading: &'static str,
    pub settings: &'static [Setting<C>],
}

/// One row. Write rows with [`group!`](crate::settings::group).
pub struct Setting<C: 'static> {
    /// The flag without its dashes, and the key in a configuration file.
    pub name: &'static str,
    pub shape: Shape,
    /// The placeholder of the value in the help.
    pub value_name: &'static str,
    pub role: Role,
    /// Lines of a doc comment. The first paragraph is the short help.
    pub help: &'static [&'static str],
    /// Reads the value if that needs no other setting.
    pub check: fn(&mut Checker<'_, C>),
    /// The effective value, `None` if it is not set. Settings without this function are not printed.
    pub show: Option<fn(&C) -> Option<Value>>,
    /// The setting that is printed instead of this one, because both mean the same.
    pub printed_as: Option<&'static str>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shape {
    /// On or off: `--insecure`.
    Switch,
    /// `--database FILE`.
    Value,
    /// `--endpoint HOST`, which may be repeated. Its values are written with commas between them.
    List,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    Setting,
    /// A setting that this variable of Flower sets too, because users of Flower expect it.
    AlsoIn(&'static str),
    /// A flag of Flower with little or no effect here. Only the long help shows it, and no advice names it.
    OfFlower,
    /// A command instead of serving. Neither the environment nor a file sets it.
    Action,
    /// An action that the help does not show.
    HiddenAction,
}

impl<C> Program<C> {
    pub fn settings(&self) -> impl Iterator<Item = &'static Setting<C>> {
        self.groups.iter().flat_map(|group| group.settings)
    }

    /// Adds the arguments to a command of clap. Their values are not parsed by clap, which stops at the first mistake.
    pub fn arguments(&self, command: Command) -> Command {
        let command = command.after_help("Use --help for all flags, explanations and examples.");
        let rows = self.groups.iter().flat_map(|group| group.settings.iter().map(|setting| (group.heading, setting)));
        let arguments = rows.map(|(heading, setting)| match heading {
            "" => setting.argument(),
            heading => setting.argument().help_heading(heading),
        });
        (self.subcommands)(command.args(arguments))
    }
}

impl<C> Setting<C> {
    fn argument(&self) -> Arg {
        let paragraphs = paragraphs(self.help);
        let argument = Arg::new(self.name).long(self.name);
        let argument = match self.shape {
            Shape::Switch => argument.action(ArgAction::SetTrue),
            Shape::Value => argument.action(ArgAction::Set).value_name(self.value_name),
            Shape::List => argument.action(ArgAction::Append).value_name(self.value_name).value_delimiter(','),
        };
        let argument = match paragraphs.len() {
            0 => argument,
            1 => argument.help(paragraphs.concat()),
            _ => argument.long_help(paragraphs.join("\n\n")).help(paragraphs[0].clone()),
        };
        argument.hide(self.role == Role::HiddenAction).hide_short_help(self.role == Role::OfFlower)
    }
}

/// The environment variable of a setting.
pub fn variable_of(name: &str) -> String {
    format!("{PREFIX}{}", name.to_uppercase().replace('-', "_"))
}

/// The name of the setting that a variable with our prefix would set.
pub fn name_in(variable: &str) -> Option<&str> {
    variable.strip_prefix(PREFIX)
}

/// The paragraphs of a doc comment, each in one line.
fn paragraphs(lines: &[&str]) -> Vec<String> {
    let paragraphs = lines.split(|line| line.trim().is_empty());
    let joined = paragraphs.map(|lines| lines.iter().map(|line| line.trim()).collect::<Vec<_>>().join(" "));
    joined.filter(|paragraph| !paragraph.is_empty()).collect()
}

/// A [`Group`] from its heading and rows. A row is
///
/// ```text
/// /// The help.
/// "name" (Role) "VALUE": Kind => field.of.the.config;
/// ```
///
/// A switch has no `"VALUE"`, and a list has `["VALUE"]`. `Kind` reads and prints the value. Without a kind,
/// `, check FUNCTION` and `, show FUNCTION` do; settings that are checked together have no check of their own.
/// `, for "other"` names the setting that is printed instead of this one.
macro_rules! group {
    ($heading:expr; $(
        $(#[doc = $help:literal])*
        $name:literal $(($role:expr))? $([$list:literal])? $($value:literal)?
        $(: $kind:expr => $($field:ident).+)?
        $(, check $check:expr)?
        $(, show $show:expr)?
        $(, for $printed:literal)?
    ;)*) => {
        $crate::settings::table::Group {
            heading: $heading,
            settings: &[$($crate::settings::table::Setting {
                name: $name,
                shape: $crate::settings::group!(@shape [$($list)?] [$($value)?]),
                value_name: concat!($($list)? $($value)?),
                role: $crate::settings::group!(@role [$($role)?]),
                help: &[$($help),*],
                check: $crate::settings::group!(@check $name [$($kind => $($field).+)?] [$($check)?]),
                show: $crate::settings::group!(@show [$($kind => $($field).+)?] [$($show)?]),
                printed_as: $crate::settings::group!(@printed [$($printed)?]),
            }),*],
        }
    };
    (@shape [] []) => { $crate::settings::table::Shape::Switch };
    (@shape [] [$value:literal]) => { $crate::settings::table::Shape::Value };
    (@shape [$list:literal] []) => { $crate::settings::table::Shape::List };
    (@role []) => { $crate::settings::table::Role::Setting };
    (@role [$role:expr]) => { $role };
    (@check $name:literal [] []) => { |_| {} };
    (@check $name:literal [] [$check:expr]) => { $check };
    (@check $name:literal [$kind:expr => $($field:ident).+] []) => {
        |checker| {
            if let Some(value) = checker.read($name, &$kind) {
                $crate::settings::kind::Slot::put(&mut checker.checked.$($field).+, value);
            }
        }
    };
    (@show [] []) => { None };
    (@show [$($row:tt)*] [$show:expr]) => { Some($show) };
    (@show [$kind:expr => $($field:ident).+] []) => {
        Some(|checked| $crate::settings::kind::show(&$kind, &checked.$($field).+))
    };
    (@printed []) => { None };
    (@printed [$printed:literal]) => { Some($printed) };
}
pub(crate) use group;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paragraphs_of_a_doc_comment_are_lines() {
        assert_eq!(paragraphs(&[" One", " line.", "", " Another", " one."]), ["One line.", "Another one."]);
        assert_eq!(paragraphs(&[]), [""; 0]);
    }
}
