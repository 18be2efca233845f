//! Kinds of mappings and lists whose content users choose: node config, run config, environment, arguments.

use serde_json::json;

use super::{Fault, ListOf, MapOf, Scalar, text};
use crate::amount::plain_number;
use crate::federation::ConfigTemplate;
use crate::node_config::placeholder_fault;

pub(super) const CONFIG_KEYS: &str = r"^[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*$";
const ENVIRONMENT_KEYS: &str = "^[A-Za-z_][A-Za-z0-9_]*$";
const LABEL_KEYS: &str = r"^([A-Za-z0-9][A-Za-z0-9_.-]{0,252}/)?[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?$";

/// Values may contain placeholders.
pub(crate) fn node_config() -> MapOf<ConfigTemplate> {
    let parse = |text: &str, plain: bool| match config_value(text, plain)? {
        ConfigTemplate::Text(text) => match placeholder_fault(&text) {
            Some((what, advice)) => Err(Fault::because(what, advice)),
            None => Ok(ConfigTemplate::Text(text)),
        },
        value => Ok(value),
    };
    let words = "true, false, a number, or text that may contain placeholders";
    config_map(words, "\"ward-{index}\"", parse)
}

pub(crate) fn config_values() -> MapOf<ConfigTemplate> {
    config_map("true, false, a number or text", "0.05", config_value)
}

fn config_map(
    words: &str,
    example: &'static str,
    parse: impl Fn(&str, bool) -> Result<ConfigTemplate, Fault> + 'static,
) -> MapOf<ConfigTemplate> {
    let schema = json!({ "type": ["string", "number", "boolean"] });
    MapOf::of_config(Scalar::new(words, example, schema, parse))
}

pub(super) fn config_keys() -> Scalar<String> {
    keys("a key: letters, digits, - and _, with dots between parts", "learning-rate", config_key)
}

pub(crate) fn environment() -> MapOf<String> {
    let sound = |key: &str| {
        let rest = |c: char| c.is_ascii_alphanumeric() || c == '_';
        key.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_') && key.chars().all(rest)
    };
    MapOf {
        keys: keys("a variable: letters, digits and _, not beginning with a digit", "HTTPS_PROXY", sound),
        values: text("text", "\"http://proxy:3128\""),
        key_pattern: ENVIRONMENT_KEYS,
    }
}

/// Labels or annotations of Kubernetes.
pub fn labels(example: &'static str, value: &'static str) -> MapOf<String> {
    let sound = |key: &str| {
        let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
        let part = |part: &str| {
            let ends = |c: char| c.is_ascii_alphanumeric();
            part.starts_with(ends) && part.ends_with(ends) && part.chars().all(plain)
        };
        let (prefix, name) = key.split_once('/').map_or((None, key), |(prefix, name)| (Some(prefix), name));
        name.len() <= 63 && part(name) && prefix.is_none_or(|prefix| prefix.len() <= 253 && part(prefix))
    };
    MapOf {
        keys: keys("a key of Kubernetes: a name, or a domain, / and a name", example, sound),
        values: text("text", value),
        key_pattern: LABEL_KEYS,
    }
}

pub(crate) fn arguments() -> ListOf<String> {
    ListOf(text("text", "\"--log-level=debug\""))
}

fn keys(words: &str, example: &'static str, sound: fn(&str) -> bool) -> Scalar<String> {
    let parse = move |text: &str, _: bool| sound(text).then(|| text.to_owned()).ok_or(Fault::Unfit);
    Scalar::new(words, example, json!({ "type": "string" }), parse)
}

fn config_key(key: &str) -> bool {
    let part = |part: &str| !part.is_empty() && part.chars().all(|c| c.is_ascii_alphanumeric() || c == '-' || c == '_');
    key.split('.').all(part)
}

/// A value without quotes that looks like true, false or a number is parsed as such.
fn config_value(text: &str, plain: bool) -> Result<ConfigTemplate, Fault> {
    match (text, plain) {
        (_, true) => match text {
            "true" => Ok(ConfigTemplate::Bool(true)),
            "false" => Ok(ConfigTemplate::Bool(false)),
            _ => match number_as_written(text) {
                Some(number) => number,
                None => Ok(ConfigTemplate::Text(text.to_owned())),
            },
        },
        (_, false) if text.contains('\0') => {
            Err(Fault::because("it contains a NUL character, which programs cannot receive", "leave it out"))
        }
        (_, false) => Ok(ConfigTemplate::Text(text.to_owned())),
    }
}

/// `None` if the text does not look like a number.
fn number_as_written(text: &str) -> Option<Result<ConfigTemplate, Fault>> {
    let digits = text.trim_start_matches(['-', '+']);
    if [".inf", ".Inf", ".INF", ".nan", ".NaN", ".NAN"].contains(&digits) {
        let what = format!("{text} is not a finite decimal number");
        return Some(Err(Fault::because(what, "write a number, or quotes around it if it is text")));
    }
    if !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return Some(match text.parse() {
            Ok(_) if digits.len() > 1 && digits.starts_with('0') => Err(Fault::because(
                format!("{text} begins with 0, which may mean a number or text"),
                "put quotes around it if it is text, or leave out the zeros",
            )),
            Ok(number) => Ok(ConfigTemplate::Int(number)),
            Err(_) => Err(Fault::because(
                format!("{text} is too large for a whole number of 64 bits"),
                "put quotes around it if it is text",
            )),
        });
    }
    plain_number(text).map(|number| Ok(ConfigTemplate::Float(number)))
}
