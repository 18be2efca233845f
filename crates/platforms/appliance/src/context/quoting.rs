//! Parsers for the two formats of OpenNebula: `one_env`, which has no escapes, and `context.sh`, with shell quoting. Neither
//! executes a shell: `$()` and backticks are plain text.

use crate::problem::{Diagnostic, problem};

/// Maximum length of a name.
const MAX_NAME_BYTES: usize = 128;

type Pair = (String, Vec<u8>);
type Pairs = Vec<Pair>;

/// `export NAME="` starts a value, which extends to the next such line. Its last `"` ends it.
pub fn one_env(bytes: &[u8]) -> (Pairs, Vec<Diagnostic>) {
    let (mut pairs, mut problems) = (Vec::new(), Vec::new());
    let mut open: Option<Pair> = None;
    for line in bytes.split_inclusive(|byte| *byte == b'\n') {
        match (exported(line), &mut open) {
            (Some((name, start)), open) => {
                close(open.replace((name, start.to_vec())), &mut pairs, &mut problems);
            }
            (None, Some((_, value))) => value.extend_from_slice(line),
            // Lines before the first variable are comments.
            (None, None) => {}
        }
    }
    close(open, &mut pairs, &mut problems);
    (pairs, problems)
}

fn exported(line: &[u8]) -> Option<(String, &[u8])> {
    let rest = line.strip_prefix(b"export ")?;
    let end = rest.iter().position(|byte| *byte == b'=')?;
    let value = rest[end + 1..].strip_prefix(b"\"")?;
    Some((name(&rest[..end])?, value))
}

fn close(open: Option<Pair>, pairs: &mut Pairs, problems: &mut Vec<Diagnostic>) {
    let Some((name, value)) = open else { return };
    match value.trim_ascii_end().strip_suffix(b"\"") {
        Some(value) => pairs.push((name, value.to_vec())),
        None => {
            let advice = "let OpenNebula write the context again: onevm updateconf, or a reboot";
            problems.push(problem(name, "its value in one_env is truncated: the closing quote is missing", advice));
        }
    }
}

/// `NAME='...'`, in which a quote is `'\''`. Other shell quoting is supported too.
pub fn context_sh(bytes: &[u8]) -> (Pairs, Vec<Diagnostic>) {
    let (mut pairs, mut problems) = (Vec::new(), Vec::new());
    let mut rest = bytes;
    let mut line = 1;
    while !rest.is_empty() {
        let text = rest.trim_ascii_start();
        line += lines(&rest[..rest.len() - text.len()]);
        let start = text;
        rest = text;
        match assignment(&mut rest) {
            Ok(Some(pair)) => pairs.push(pair),
            Ok(None) => {}
            Err((name, what)) => {
                let what = format!("line {line} of context.sh is invalid: {what}");
                problems.push(problem(name, what, "write NAME='VALUE', with '\\'' for a quote in the value"));
                rest = after_line(start);
            }
        }
        line += lines(&start[..start.len() - rest.len()]);
    }
    (pairs, problems)
}

fn lines(text: &[u8]) -> usize {
    text.iter().filter(|byte| **byte == b'\n').count()
}

/// A line with or without a variable. A value may have more lines.
fn assignment(rest: &mut &[u8]) -> Result<Option<Pair>, (String, &'static str)> {
    let text = *rest;
    if matches!(text, [] | [b'#', ..]) {
        *rest = after_line(text);
        return Ok(None);
    }
    let text = text.strip_prefix(b"export ").unwrap_or(text);
    let end = text.iter().position(|byte| matches!(byte, b'=' | b'\n')).filter(|end| text[*end] == b'=');
    let Some((end, name)) = end.and_then(|end| Some((end, name(&text[..end])?))) else {
        return Err((String::new(), "it is not NAME=VALUE"));
    };
    *rest = &text[end + 1..];
    let value = word(rest).map_err(|what| (name.clone(), what))?;
    let line = &rest[..rest.len() - after_line(rest).len()];
    if !line.trim_ascii().is_empty() && line.trim_ascii_start()[0] != b'#' {
        return Err((name, "text follows the value"));
    }
    *rest = after_line(rest);
    Ok(Some((name, value)))
}

/// Quoted and unquoted pieces, up to white space.
fn word(rest: &mut &[u8]) -> Result<Vec<u8>, &'static str> {
    let mut value = Vec::new();
    while let Some((&first, tail)) = rest.split_first() {
        match first {
            b'\'' => {
                let end = tail.iter().position(|byte| *byte == b'\'').ok_or("a quote is not closed")?;
                value.extend_from_slice(&tail[..end]);
                *rest = &tail[end + 1..];
            }
            b'"' => *rest = double_quoted(tail, &mut value)?,
            b'\\' => {
                let (&escaped, tail) = tail.split_first().ok_or("it ends with a backslash")?;
                value.push(escaped);
                *rest = tail;
            }
            byte if byte.is_ascii_whitespace() => break,
            byte => {
                value.push(byte);
                *rest = tail;
            }
        }
    }
    Ok(value)
}

/// Text after the closing quote. Only escapes that a shell supports are valid.
fn double_quoted<'a>(mut text: &'a [u8], value: &mut Vec<u8>) -> Result<&'a [u8], &'static str> {
    loop {
        match text {
            [b'"', tail @ ..] => return Ok(tail),
            [b'\\', escaped @ (b'"' | b'\\' | b'$' | b'`'), tail @ ..] => {
                value.push(*escaped);
                text = tail;
            }
            [byte, tail @ ..] => {
                value.push(*byte);
                text = tail;
            }
            [] => return Err("a quote is not closed"),
        }
    }
}

fn after_line(text: &[u8]) -> &[u8] {
    text.iter().position(|byte| *byte == b'\n').map_or(&[], |end| &text[end + 1..])
}

pub fn name(bytes: &[u8]) -> Option<String> {
    let (first, rest) = bytes.split_first()?;
    let good = bytes.len() <= MAX_NAME_BYTES
        && (first.is_ascii_alphabetic() || *first == b'_')
        && rest.iter().all(|byte| byte.is_ascii_alphanumeric() || *byte == b'_');
    good.then(|| String::from_utf8_lossy(bytes).into_owned())
}

/// Quotes a value like OpenNebula does in `context.sh`.
pub fn single_quoted(value: &str) -> String {
    format!("'{}'", value.replace('\'', "'\\''"))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn pair(name: &str, value: &[u8]) -> (String, Vec<u8>) {
        (name.to_owned(), value.to_vec())
    }

    #[test]
    fn one_env_is_read_as_it_is_written() {
        for (text, name, value) in [
            (&b"export A=\"1\"\n"[..], "A", &b"1"[..]),
            (b"export A=\"1\"", "A", b"1"),
            (b"# made by one-context\nexport A=\"\"\n", "A", b""),
            (b"export A=\"say \"yes\" now\"\n", "A", b"say \"yes\" now"),
            (b"export A=\"$(reboot) `reboot` ${HOME} \\ ; & |\"\n", "A", b"$(reboot) `reboot` ${HOME} \\ ; & |"),
            (
                b"export A=\"ssh-rsa one\nssh-rsa two\n\nexport\nexport B=no\"\n",
                "A",
                b"ssh-rsa one\nssh-rsa two\n\nexport\nexport B=no",
            ),
            (b"export A=\"\xff\xfe\"\n", "A", b"\xff\xfe"),
            (b"export A=\"1\"\r\n", "A", b"1"),
        ] {
            assert_eq!(one_env(text), (vec![pair(name, value)], Vec::new()), "{}", String::from_utf8_lossy(text));
        }
        let (pairs, problems) = one_env(b"export A=\"cut\nexport B=\"2\"\nexport 1C=\"3\"\n");
        assert_eq!(pairs, [pair("B", b"2\"\nexport 1C=\"3")]);
        assert_eq!(problems.iter().map(|problem| problem.place.variable.as_str()).collect::<Vec<_>>(), ["A"]);
    }

    #[test]
    fn context_sh_is_read_as_a_shell_would_without_being_one() {
        for (text, value) in [
            (&b"A='1'\n"[..], &b"1"[..]),
            (b"# Context variables generated by OpenNebula\n\nA='1'", b"1"),
            (b"A='it'\\''s $(reboot) `x` \"q\"'\n", b"it's $(reboot) `x` \"q\""),
            (b"A='two\nlines\n'\n", b"two\nlines\n"),
            (b"A=\"a \\\"b\\\" \\$c \\n\"\n", b"a \"b\" $c \\n"),
            (b"export A=bare # a comment\n", b"bare"),
            (b"A=''\n", b""),
            (b"A='\xff'\n", b"\xff"),
        ] {
            assert_eq!(context_sh(text), (vec![pair("A", value)], Vec::new()), "{}", String::from_utf8_lossy(text));
        }
    }

    #[test]
    fn a_bad_line_of_context_sh_costs_that_line_only() {
        let (pairs, problems) = context_sh(b"A='1'\n\nrm -rf /\nB='2' reboot\nC='3'\nD='open\n");
        assert_eq!(pairs, [pair("A", b"1"), pair("C", b"3")]);
        let told: Vec<_> =
            problems.iter().map(|problem| (problem.place.variable.as_str(), problem.what.as_str())).collect();
        assert_eq!(
            told,
            [
                ("", "line 3 of context.sh is invalid: it is not NAME=VALUE"),
                ("B", "line 4 of context.sh is invalid: text follows the value"),
                ("D", "line 6 of context.sh is invalid: a quote is not closed"),
            ]
        );
    }

    proptest! {
        #[test]
        fn any_value_survives_context_sh(values in prop::collection::vec(".{0,40}(['\"$`\\\\\n])?.{0,40}", 1..5)) {
            let text: String = values.iter().enumerate().map(|(n, value)| format!("V{n}={}\n", single_quoted(value))).collect();
            let (pairs, problems) = context_sh(text.as_bytes());
            prop_assert_eq!(problems, Vec::new());
            let expected: Vec<_> = values.iter().enumerate().map(|(n, value)| (format!("V{n}"), value.clone().into_bytes())).collect();
            prop_assert_eq!(pairs, expected);
        }

        #[test]
        fn any_value_without_the_mark_survives_one_env(value in prop::collection::vec(any::<u8>(), 0..200)) {
            prop_assume!(!value.windows(8).any(|window| window == b"\nexport "));
            let text = [b"export A=\"", &value[..], b"\"\nexport B=\"2\"\n"].concat();
            let (pairs, problems) = one_env(&text);
            prop_assert_eq!(problems, Vec::new());
            prop_assert_eq!(pairs, vec![pair("A", &value), pair("B", b"2")]);
        }

        #[test]
        fn no_bytes_break_either(bytes in prop::collection::vec(any::<u8>(), 0..2000)) {
            one_env(&bytes);
            context_sh(&bytes);
        }
    }
}
