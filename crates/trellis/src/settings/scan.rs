//! Reads the command line into flags and their values, going on after each mistake. clap would stop at the first one.

use std::ffi::OsString;

use trellis_diagnostic::Diagnostic;

use super::flags::Flags;
use super::given::ON;
use super::problem::Source;
use super::table::Shape;

/// The flags and values of a command line.
#[derive(Debug, Default)]
pub struct Scanned {
    /// In order. Of a repeated flag the last value counts, of a list all.
    pub values: Vec<(String, String)>,
    pub problems: Vec<Diagnostic>,
    /// `--help`, `-h`, `--version` or `-V`, if given.
    pub show: Option<String>,
}

/// Reads `arguments`, without the program's name.
pub fn scan(arguments: &[OsString], flags: &Flags) -> Scanned {
    let mut scanned = Scanned::default();
    let mut rest = arguments.iter().map(|argument| argument.to_string_lossy().into_owned()).peekable();
    for argument in arguments.iter().filter(|argument| argument.to_str().is_none()) {
        scanned.refuse(format!("{argument:?} is not valid UTF-8"), "rename the file, or use a link to it");
    }
    while let Some(argument) = rest.next() {
        match argument.as_str() {
            "-h" | "--help" | "-V" | "--version" => scanned.show = Some(argument),
            flag if flag.starts_with('-') && flag.len() > 1 => {
                let (name, value) = match flag.split_once('=') {
                    Some((name, value)) => (name, Some(value.to_owned())),
                    None => (flag, None),
                };
                let known = name.strip_prefix("--").and_then(|name| flags.shape(name).map(|shape| (name, shape)));
                let value = match known {
                    Some((_, Shape::Switch)) => value.or(Some(ON.to_owned())),
                    // The value of an unknown flag must not be reported as another mistake.
                    Some((_, Shape::Value | Shape::List)) => {
                        value.or_else(|| rest.next_if(|next| !next.starts_with("--")))
                    }
                    None => value.or_else(|| rest.next_if(|next| !next.starts_with('-'))),
                };
                match (known, value) {
                    (Some((name, _)), Some(value)) => scanned.values.push((name.to_owned(), value)),
                    (Some((name, _)), None) => scanned.refuse_missing_value(name),
                    (None, _) => scanned.refuse_unknown(name, flags),
                }
            }
            word => scanned.refuse_word(word, flags),
        }
    }
    scanned
}

impl Scanned {
    fn refuse(&mut self, what: String, advice: impl Into<String>) {
        self.problems.push(Diagnostic::error(Source::CommandLine.to_string(), what, advice));
    }

    fn refuse_missing_value(&mut self, name: &str) {
        self.refuse(format!("--{name} has no value"), format!("give one: --{name} VALUE"));
    }

    fn refuse_unknown(&mut self, flag: &str, flags: &Flags) {
        let advice = match flags.suggest(flag) {
            Some(meant) => format!("did you mean --{meant}?"),
            None => "remove it".to_owned(),
        };
        self.refuse(format!("unknown flag {flag}"), advice);
    }

    fn refuse_word(&mut self, word: &str, flags: &Flags) {
        let advice = match flags.exact(word) {
            Some(meant) => format!("did you mean --{meant}?"),
            None => "remove it, or write the flag it belongs to before it".to_owned(),
        };
        self.refuse(format!("unexpected argument {word:?}: there are only flags"), advice);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::sample;

    fn read(line: &str) -> Scanned {
        let arguments: Vec<OsString> = line.split_whitespace().map(OsString::from).collect();
        scan(&arguments, &sample::flags())
    }

    #[test]
    fn values() {
        for (line, expected) in [
            ("", vec![]),
            ("--insecure", vec![("insecure", "true")]),
            ("--insecure=false", vec![("insecure", "false")]),
            ("--database a=b", vec![("database", "a=b")]),
            ("--database=a=b", vec![("database", "a=b")]),
            ("--database x --insecure", vec![("database", "x"), ("insecure", "true")]),
            ("--database x --database=y", vec![("database", "x"), ("database", "y")]),
            ("--endpoint x --endpoint=y,z", vec![("endpoint", "x"), ("endpoint", "y,z")]),
            ("--fleet-api-num-workers -1", vec![("fleet-api-num-workers", "-1")]),
        ] {
            let scanned = read(line);
            let values: Vec<_> = scanned.values.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
            assert_eq!(values, expected, "{line}");
            assert!(scanned.problems.is_empty() && scanned.show.is_none(), "{line}");
        }
    }

    #[test]
    fn mistakes() {
        for (line, expected) in [
            ("--zzz", vec!["unknown flag --zzz"]),
            ("--zzz value --yyy=value", vec!["unknown flag --zzz", "unknown flag --yyy"]),
            ("-x", vec!["unknown flag -x"]),
            ("--database", vec!["--database has no value"]),
            ("--database --insecure", vec!["--database has no value"]),
            ("serve", vec!["unexpected argument \"serve\": there are only flags"]),
            (
                "--insecure yes -",
                vec![
                    "unexpected argument \"yes\": there are only flags",
                    "unexpected argument \"-\": there are only flags",
                ],
            ),
            ("--", vec!["unknown flag --"]),
        ] {
            let found: Vec<_> = read(line).problems.into_iter().map(|problem| problem.what).collect();
            assert_eq!(found, expected, "{line}");
        }
    }

    #[test]
    fn help_is_found_behind_mistakes_but_not_in_values() {
        assert_eq!(read("--zzz --help").show.as_deref(), Some("--help"));
        assert_eq!(read("--insecure -V").show.as_deref(), Some("-V"));
        assert_eq!(read("--database -h").show, None);
    }
}
