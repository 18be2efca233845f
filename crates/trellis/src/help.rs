//! Formats `--help`: commands in groups, and text wrapped once, to the width of the terminal.

use std::fmt::Write as _;
use std::process::ExitCode;

use clap::Command;
use clap::builder::StyledStr;

/// Lines longer than this are hard to read, however wide the terminal.
const MAX_WIDTH: usize = 110;
/// The width if there is no terminal.
const DEFAULT_WIDTH: usize = 100;
/// An explanation that does not fit beside its example is printed below it.
const BELOW: &str = "      ";
/// A line with this indent continues the explanation of the line above.
const EXPLANATION_INDENT: usize = 20;
const BESIDE: usize = 2;

const GROUPS: [(&str, &[&str]); 5] = [
    ("Federations", &["up", "down", "plan", "apply", "delete", "status", "top", "scale", "nodes", "node", "connect"]),
    ("Trainings", &["run", "runs", "logs", "stop", "track", "model", "app"]),
    ("Accounts and certificates", &["account", "token", "login", "whoami", "audit", "pki"]),
    ("Programs", &["server", "superlink", "supernode", "operator", "appliance", "image"]),
    ("This machine", &["doctor", "schema", "version", "completions"]),
];

/// Prints clap's help, version or refusal.
pub fn show(message: &clap::Error) -> ExitCode {
    let _ = message.print();
    ExitCode::from(u8::try_from(message.exit_code()).unwrap_or(1))
}

/// The command with its help, as wide as the terminal.
pub fn arranged(command: Command) -> Command {
    arranged_for(command, width())
}

fn arranged_for(command: Command, width: usize) -> Command {
    let command = fitted(command, width).term_width(width);
    let groups = groups(&command, width);
    command.help_template(format!(
        "{{about-with-newline}}\n{{usage-heading}} {{usage}}\n\n{groups}Options:\n{{options}}{{after-help}}"
    ))
}

/// A command with its own page, as `trellis superlink`, whose help has no groups.
pub fn fitted_to_terminal(command: Command) -> Command {
    let width = width();
    fitted(command, width).term_width(width)
}

fn width() -> usize {
    let terminal = terminal_size::terminal_size().map(|(width, _)| usize::from(width.0));
    let columns = || std::env::var("COLUMNS").ok().and_then(|columns| columns.parse().ok());
    terminal.or_else(columns).filter(|width| *width > 0).unwrap_or(DEFAULT_WIDTH).min(MAX_WIDTH)
}

fn fitted(command: Command, width: usize) -> Command {
    let fit = |text: Option<&StyledStr>| text.map(|text| fit(&text.to_string(), width));
    let (short, long) = (fit(command.get_after_help()), fit(command.get_after_long_help()));
    let command = if let Some(text) = short { command.after_help(text) } else { command };
    let command = if let Some(text) = long { command.after_long_help(text) } else { command };
    command.mut_subcommands(|command| fitted(command, width))
}

fn groups(command: &Command, width: usize) -> String {
    let known = |name: &str| command.get_subcommands().find(|known| known.get_name() == name);
    let longest = GROUPS.iter().flat_map(|(_, names)| *names).map(|name| name.len()).max().unwrap_or(0);
    let mut text = String::new();
    for (title, names) in GROUPS {
        let _ = writeln!(text, "{title}:");
        for command in names.iter().filter_map(|name| known(name)) {
            let about = command.get_about().map(ToString::to_string).unwrap_or_default();
            let indent = " ".repeat(2 + longest + BESIDE);
            let lines = wrapped(&about, width.saturating_sub(indent.len())).join(&format!("\n{indent}"));
            let _ = writeln!(text, "  {:<longest$}  {lines}", command.get_name());
        }
        text.push('\n');
    }
    text
}

/// Wraps paragraphs to this width. Indented lines are examples and are not wrapped.
fn fit(text: &str, width: usize) -> String {
    let (mut fitted, mut paragraph) = (String::new(), String::new());
    let end = |paragraph: &mut String, fitted: &mut String| {
        for line in wrapped(&std::mem::take(paragraph), width) {
            let _ = writeln!(fitted, "{line}");
        }
    };
    for line in text.lines() {
        let is_prose = !line.is_empty() && !line.starts_with(' ');
        if !is_prose || paragraph.ends_with(':') {
            end(&mut paragraph, &mut fitted);
        }
        match is_prose {
            true => paragraph += &if paragraph.is_empty() { line.to_owned() } else { format!(" {line}") },
            false => fitted += &example(line, width),
        }
    }
    end(&mut paragraph, &mut fitted);
    fitted
}

/// A line as it is, or with its explanation below.
fn example(line: &str, width: usize) -> String {
    let start = line.len() - line.trim_start().len();
    if line.chars().count() <= width {
        return format!("{line}\n");
    }
    if start >= EXPLANATION_INDENT {
        return below(line.trim_start(), width);
    }
    match line[start..].split_once(&" ".repeat(BESIDE)) {
        Some((shown, explained)) => {
            format!("{}{shown}\n{}", &line[..start], below(explained.trim_start(), width))
        }
        None => format!("{line}\n"),
    }
}

fn below(text: &str, width: usize) -> String {
    wrapped(text, width.saturating_sub(BELOW.len())).iter().map(|line| format!("{BELOW}{line}\n")).collect()
}

/// Wraps to at most this many characters; a longer word gets its own line.
fn wrapped(text: &str, width: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        match lines.last_mut() {
            Some(line) if line.chars().count() + 1 + word.chars().count() <= width => *line += &format!(" {word}"),
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::declared;

    #[test]
    fn a_text_is_wrapped_once() {
        let text = "\
Examples:
  trellis up                the only one
  trellis up --nodes 8      more of them, and
                            a second line
  trellis run ./my-app

Nothing is sent unless all documents
are good.
Exit codes: 0 it is so.
";
        let once = text.replace("documents\nare good.\nExit codes: 0 it", "documents are good. Exit codes: 0\nit");
        assert_eq!(fit(text, 60), once);
        let narrow = "\
Examples:
  trellis up
      the only one
  trellis up --nodes 8
      more of them, and
      a second line
  trellis run ./my-app

Nothing is sent unless all
documents are good. Exit
codes: 0 it is so.
";
        assert_eq!(fit(text, 26), narrow);
    }

    /// Every text of every command: its words, and no line that a terminal would break.
    fn check(command: &Command, width: usize, path: &str) {
        let path = format!("{path} {}", command.get_name());
        if let Some(text) = command.get_after_help() {
            for line in text.to_string().lines().filter(|line| !line.starts_with("  ")) {
                assert!(line.chars().count() <= width, "{path} at {width}: {line}");
            }
        }
        command.get_subcommands().for_each(|command| check(command, width, &path));
    }

    #[test]
    fn no_text_is_broken_again_by_the_terminal() {
        for width in [60, 80, 110] {
            let written = declared();
            let command = fitted(declared(), width);
            check(&command, width, "");
            let words = |text: Option<&StyledStr>| {
                text.map(|text| text.to_string().split_whitespace().map(str::to_owned).collect::<Vec<_>>())
            };
            assert_eq!(words(written.get_after_help()), words(command.get_after_help()));
        }
    }

    #[test]
    fn every_command_is_in_one_group_of_the_help() {
        let mut command = arranged_for(declared(), 80);
        let grouped: Vec<&str> = GROUPS.iter().flat_map(|(_, names)| names.iter().copied()).collect();
        for known in command.get_subcommands().filter(|known| !known.is_hide_set()) {
            let name = known.get_name();
            assert_eq!(grouped.iter().filter(|grouped| **grouped == name).count(), 1, "{name}");
        }
        let text = command.render_help().to_string();
        for part in ["\nFederations:\n  up ", "\nTrainings:\n  run ", "\nOptions:\n", "Examples:\n"] {
            assert!(text.contains(part), "{part} is not in\n{text}");
        }
        assert!(!text.contains("Commands:"));
    }

    #[test]
    fn every_result_can_be_had_by_programs() {
        /// Commands that serve until they are stopped, write their own format, or pass their output on.
        const OTHERS: [&str; 9] =
            ["superlink", "supernode", "server", "operator", "appliance", "image", "pki", "completions", "schema"];
        fn leaves(command: &Command, path: &str, missing: &mut Vec<String>) {
            let mut subcommands = command.get_subcommands().filter(|known| !known.is_hide_set()).peekable();
            let path = format!("{path} {}", command.get_name());
            if subcommands.peek().is_none() && !command.get_arguments().any(|arg| arg.get_long() == Some("output")) {
                missing.push(path.clone());
            }
            subcommands.for_each(|command| leaves(command, &path, missing));
        }
        let mut missing = Vec::new();
        let command = declared();
        let known =
            command.get_subcommands().filter(|known| !known.is_hide_set() && !OTHERS.contains(&known.get_name()));
        known.for_each(|command| leaves(command, "trellis", &mut missing));
        assert_eq!(missing, [""; 0]);
    }

    #[test]
    fn programs_are_described_by_their_own_words() {
        let command = declared();
        for (name, about) in [
            ("superlink", "Serve a federation; also when called as flower-superlink"),
            ("supernode", "Take part in a federation; also when called as flower-supernode"),
            ("server", "Keep federations in the state that their documents describe; serve the API and the page"),
        ] {
            let found = command.find_subcommand(name).and_then(Command::get_about).map(ToString::to_string);
            assert_eq!(found.as_deref(), Some(about));
        }
    }

    #[test]
    fn every_command_about_a_federation_takes_its_name_by_a_flag() {
        for name in [
            "up", "down", "delete", "status", "top", "scale", "nodes", "connect", "run", "runs", "logs", "stop",
            "whoami", "audit",
        ] {
            let command = declared();
            let found = command.find_subcommand(name).expect(name);
            let flag = found.get_arguments().find(|arg| arg.get_long() == Some("federation")).expect(name);
            assert_eq!(flag.get_env(), Some("TRELLIS_FEDERATION".as_ref()), "{name}");
        }
    }
}
