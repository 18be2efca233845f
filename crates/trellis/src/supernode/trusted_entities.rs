//! Reads the file of `--trusted-entities`: a YAML mapping of names to Ed25519 public keys. Whether an app was signed by one
//! of them is not known here.

use std::collections::BTreeMap;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;
use trellis_spec::yaml;

const KIND: &str = "ssh-ed25519";
const KEY_BYTES: usize = 32;

/// OpenSSH lines by name, or everything that is wrong with the file.
pub fn parse(text: &str) -> Result<BTreeMap<String, String>, Vec<String>> {
    let documents = yaml::read(text, "trusted entities").map_err(|problems| {
        problems
            .0
            .iter()
            .map(|problem| format!("it is not valid YAML: {}, in line {}", problem.what, problem.place.line))
            .collect::<Vec<_>>()
    })?;
    let [Value::Object(entries)] = documents.as_slice() else {
        return Err(vec!["it is no mapping of names to keys".to_owned()]);
    };
    if entries.is_empty() {
        return Err(vec!["it has no keys, so no app could be executed".to_owned()]);
    }
    let (mut trusted, mut wrong) = (BTreeMap::new(), Vec::new());
    for (name, key) in entries {
        let Some(key) = key.as_str() else {
            wrong.push(format!("the key of {name:?} is no text"));
            continue;
        };
        match fault(key) {
            None => drop(trusted.insert(name.clone(), key.trim().to_owned())),
            Some(why) => wrong.push(format!("the key of {name:?} {why}")),
        }
    }
    if wrong.is_empty() { Ok(trusted) } else { Err(wrong) }
}

/// Why a line is no Ed25519 public key, if so.
fn fault(line: &str) -> Option<&'static str> {
    let mut words = line.split_whitespace();
    if words.next() != Some(KIND) {
        return Some("is not Ed25519: it does not begin with ssh-ed25519");
    }
    let blob = words.next().and_then(|word| STANDARD.decode(word).ok());
    // Both parts have their length before them.
    let part = |bytes: &[u8]| [&(bytes.len() as u32).to_be_bytes(), bytes].concat();
    let begins = [part(KIND.as_bytes()), (KEY_BYTES as u32).to_be_bytes().to_vec()].concat();
    match blob {
        Some(blob) if blob.starts_with(&begins) && blob.len() == begins.len() + KEY_BYTES => None,
        _ => Some("is damaged"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: &str = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8g";

    #[test]
    fn names_and_keys() {
        let both = |text: &str| parse(text).map(|found| found.into_iter().collect::<Vec<_>>());
        let (a, b) = (("fpk_1".to_owned(), KEY.to_owned()), ("fpk_2".to_owned(), format!("{KEY} me@there")));
        let expected = Ok(vec![a, b]);
        assert_eq!(both(&format!("fpk_1: {KEY}\n# theirs\nfpk_2: '{KEY} me@there'\n")), expected);
        assert_eq!(both(&format!("{{ fpk_1: '{KEY}', fpk_2: \"{KEY} me@there\" }}")), expected);
    }

    #[test]
    fn everything_wrong_is_told() {
        let short = KEY.len() - 4;
        for (text, expected) in [
            (String::new(), vec!["it is no mapping of names to keys"]),
            ("[a, b]".into(), vec!["it is no mapping of names to keys"]),
            ("{}".into(), vec!["it has no keys, so no app could be executed"]),
            (
                format!("a: ssh-rsa AAAA\nb: {}\nc: 7\n", &KEY[..short]),
                vec![
                    "the key of \"a\" is not Ed25519: it does not begin with ssh-ed25519",
                    "the key of \"b\" is damaged",
                    "the key of \"c\" is no text",
                ],
            ),
        ] {
            assert_eq!(parse(&text), Err(expected.into_iter().map(str::to_owned).collect()), "{text}");
        }
        assert!(parse("a: {").unwrap_err()[0].starts_with("it is not valid YAML: "));
        assert!(parse(&format!("a: {KEY}\na: {KEY}\n")).is_err(), "one name, two keys");
    }
}
