//! Kinds of single values: flags, numbers, words, names, paths, choices.

use std::num::NonZeroU16;
use std::ops::RangeInclusive;
use std::path::PathBuf;

use serde_json::json;

use super::{Fault, Scalar};
use crate::federation::Name;
use crate::problem::suggest;

/// A word of a document, and its value.
pub type Choice<T> = (&'static str, T);

pub fn flag() -> Scalar<bool> {
    let parse = |text: &str, plain: bool| match (text, plain) {
        ("true", true) => Ok(true),
        ("false", true) => Ok(false),
        ("yes" | "on" | "True" | "Yes" | "YES" | "TRUE" | "On", true) => Err(not_so(text, "true")),
        ("no" | "off" | "False" | "No" | "NO" | "FALSE" | "Off", true) => Err(not_so(text, "false")),
        _ => Err(Fault::Unfit),
    };
    let schema = json!({ "type": "boolean" });
    Scalar::new("true or false", "true", schema, parse)
}

fn not_so(text: &str, meant: &str) -> Fault {
    Fault::because(format!("{text} is not true or false"), format!("write {meant}"))
}

pub fn whole(range: RangeInclusive<u32>) -> Scalar<u32> {
    let (least, most) = range.into_inner();
    let words = format!("a whole number from {least} to {most}");
    let parse = move |text: &str, plain: bool| match digits(text, plain).and_then(|text| text.parse().ok()) {
        Some(number) if (least..=most).contains(&number) => Ok(number),
        _ => Err(Fault::Unfit),
    };
    let schema = json!({ "type": "integer", "minimum": least, "maximum": most });
    Scalar::new(words, "4", schema, parse)
}

pub fn port() -> Scalar<NonZeroU16> {
    let parse = |text: &str, plain: bool| digits(text, plain).and_then(|text| text.parse().ok()).ok_or(Fault::Unfit);
    let schema = json!({ "type": "integer", "minimum": 1, "maximum": u16::MAX });
    Scalar::new("a port from 1 to 65535", "9092", schema, parse)
}

/// A number must not begin with 0, because some programs would read it as octal.
fn digits(text: &str, plain: bool) -> Option<&str> {
    let sound = plain && text.bytes().all(|byte| byte.is_ascii_digit()) && (text == "0" || !text.starts_with('0'));
    sound.then_some(text)
}

/// Text without blanks that `fits` accepts.
pub fn word(words: &str, example: &'static str, pattern: &'static str, fits: fn(&str) -> bool) -> Scalar<String> {
    let parse = move |text: &str, _: bool| {
        let sound = !text.is_empty() && !text.contains(|c: char| c.is_whitespace() || c.is_control()) && fits(text);
        sound.then(|| text.to_owned()).ok_or(Fault::Unfit)
    };
    let schema = json!({ "type": "string", "pattern": pattern });
    Scalar::new(words, example, schema, parse)
}

/// Any text, including text that looks like a number.
pub fn text(words: &str, example: &'static str) -> Scalar<String> {
    let parse = |text: &str, _: bool| match text.contains('\0') {
        true => Err(Fault::because("it contains a NUL character, which programs cannot receive", "leave it out")),
        false => Ok(text.to_owned()),
    };
    let schema = json!({ "type": ["string", "number", "boolean"] });
    Scalar::new(words, example, schema, parse)
}

/// Text or a number.
pub fn id(words: &str, example: &'static str) -> Scalar<String> {
    Scalar::new(words, example, json!({ "type": ["string", "integer"] }), |text, _| {
        let sound = !text.is_empty() && !text.contains(char::is_control);
        sound.then(|| text.to_owned()).ok_or(Fault::Unfit)
    })
}

pub fn name(example: &'static str) -> Scalar<Name> {
    let words =
        format!("a name: 1 to {} of a-z, 0-9 and -, beginning with a letter, not ending with -", Name::MAX_CHARS);
    let parse = |text: &str, _: bool| Name::new(text).ok_or(Fault::Unfit);
    let pattern = format!("^[a-z]([a-z0-9-]{{0,{}}}[a-z0-9])?$", Name::MAX_CHARS - 2);
    let schema = json!({ "type": "string", "pattern": pattern });
    Scalar::new(words, example, schema, parse)
}

pub fn path(example: &'static str) -> Scalar<PathBuf> {
    let parse = |text: &str, _: bool| {
        let sound = !text.is_empty() && !text.contains(char::is_control);
        sound.then(|| PathBuf::from(text)).ok_or(Fault::Unfit)
    };
    let schema = json!({ "type": "string", "minLength": 1 });
    Scalar::new("a path", example, schema, parse)
}

pub fn choice<T: Copy + 'static>(choices: &'static [Choice<T>]) -> Scalar<T> {
    among(choices.iter().map(|(name, _)| *name).collect(), |index| choices[index].1)
}

pub fn one_of(names: &'static [&'static str]) -> Scalar<&'static str> {
    among(names.to_vec(), |index| names[index])
}

fn among<T>(names: Vec<&'static str>, value: impl Fn(usize) -> T + 'static) -> Scalar<T> {
    let (words, example) = (either(&names), names[0]);
    let schema = json!({ "type": "string", "enum": names });
    let parse = move |text: &str, _: bool| match names.iter().position(|name| *name == text) {
        Some(index) => Ok(value(index)),
        None => {
            let what = format!("{text:?} is not {}", either(&names));
            Err(Fault::because(what, suggest(text, names.iter().copied())))
        }
    };
    Scalar::new(words, example, schema, parse)
}

fn either(names: &[&str]) -> String {
    match names {
        [] => String::new(),
        [one] => (*one).to_owned(),
        [most @ .., last] => format!("{} or {last}", most.join(", ")),
    }
}

/// The word of a value in documents.
pub fn choice_name<T: PartialEq>(choices: &[Choice<T>], value: &T) -> &'static str {
    choices.iter().find(|(_, known)| known == value).map(|(name, _)| *name).expect("every value has a word")
}
