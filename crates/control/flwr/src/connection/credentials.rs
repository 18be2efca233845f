//! The tokens of the official `flwr` command, where `flwr login` writes them: since 1.26 in one file of its home, by
//! address; in 1.25 in one file per federation in the app. Only the owner can read the files written here.

use std::fs;
use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use trellis_wire::token::Token;

use super::{Change, Outcome, file};

/// File in the home of the official command, with one line of YAML per value.
pub const FILE: &str = "credentials.yaml";
/// The authentication type of the official command for tokens.
const AUTHN_TYPE: &str = "oidc";
/// The directory of 1.25 within an app, and its content.
const IN_APP: &str = ".flwr";
const APP_CREDENTIALS: &str = ".credentials";
const GITIGNORE: &str = ".gitignore";

/// Removes the token of address `gone` and stores the token of address `kept`. Returns a change only on failure.
pub fn exchange(path: &Path, gone: Option<&str>, kept: Option<(&str, &Token)>) -> Option<Change> {
    let outcome = match file::read(path) {
        Ok(None) if kept.is_none() => Ok(()),
        Ok(text) => exchanged(&text.unwrap_or_default(), gone, kept).and_then(|(text, is_new)| match is_new {
            false if kept.is_none() => Ok(()),
            _ if text.is_empty() => file::remove(path),
            // Also if the text is unchanged: the old file may be readable by others.
            _ => file::write_private(path, &text),
        }),
        Err(why) => Err(why),
    };
    failed(path, outcome)
}

pub fn failed(path: &Path, outcome: Result<(), String>) -> Option<Change> {
    let unchanged = |why| Change { path: path.to_owned(), done: Outcome::LeftAlone { why, snippet: String::new() } };
    outcome.err().map(unchanged)
}

/// The new text, and whether it differs from the old one.
fn exchanged(text: &str, gone: Option<&str>, kept: Option<(&str, &Token)>) -> Result<(String, bool), String> {
    let is_plain = |line: &str| line.starts_with(|c: char| c.is_ascii_alphanumeric()) && line.contains(": ");
    if !text.lines().all(|line| line.is_empty() || is_plain(line)) {
        return Err("it does not have the format that `flwr` writes; run `flwr login` to store a token".to_owned());
    }
    let values = kept.map(|(address, token)| {
        // The token is valid until it is revoked, so the refresh token is the token itself.
        [("authn-type", AUTHN_TYPE), ("oidc-access-token", token.reveal()), ("oidc-refresh-token", token.reveal())]
            .map(|(name, value)| format!("{}{name}: {}", prefix(address), STANDARD.encode(value)))
    });
    let replaced: Vec<String> = gone.into_iter().chain(kept.map(|(address, _)| address)).map(prefix).collect();
    let stays = |line: &&str| !replaced.iter().any(|prefix| line.starts_with(prefix.as_str()));
    let mut lines: Vec<&str> = text.lines().filter(stays).collect();
    lines.extend(values.iter().flatten().map(String::as_str));
    let new: String = lines.iter().map(|line| format!("{line}\n")).collect();
    let is_new = new != text;
    Ok((new, is_new))
}

fn prefix(address: &str) -> String {
    format!("flower.account-auth.{address}.")
}

/// Writes the token where 1.25 reads it.
pub fn save_in_app(app: &Path, name: &str, token: &Token) -> Option<Change> {
    let path = in_app(app, name);
    let text = serde_json::json!({
        "authn-type": AUTHN_TYPE,
        "flwr-oidc-access-token": token.reveal(),
        "flwr-oidc-refresh-token": token.reveal(),
    });
    let outcome = file::write_private(&path, &text.to_string()).and_then(|()| {
        let ignored = app.join(IN_APP).join(GITIGNORE);
        match ignored.exists() {
            true => Ok(()),
            false => file::write(&ignored, &format!("{APP_CREDENTIALS}\n")),
        }
    });
    failed(&path, outcome)
}

/// Removes the token, and its directories if they are empty.
pub fn remove_from_app(app: &Path, name: &str) -> Option<Change> {
    let path = in_app(app, name);
    if !path.exists() {
        return None;
    }
    let outcome = file::remove(&path);
    let directory = app.join(IN_APP);
    // `remove_dir` keeps a directory that is not empty.
    if fs::remove_dir(directory.join(APP_CREDENTIALS)).is_ok() {
        let ignored = directory.join(GITIGNORE);
        if fs::read_to_string(&ignored).is_ok_and(|text| text == format!("{APP_CREDENTIALS}\n")) {
            let _ = fs::remove_file(&ignored);
            let _ = fs::remove_dir(&directory);
        }
    }
    failed(&path, outcome)
}

fn in_app(app: &Path, name: &str) -> PathBuf {
    app.join(IN_APP).join(APP_CREDENTIALS).join(format!("{name}.json"))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    const OTHERS: &str = "flower.account-auth.supergrid.flower.ai.authn-type: b2lkYw==\n";

    fn token(text: &str) -> Token {
        Token::parse(text).unwrap()
    }

    #[test]
    fn tokens_are_written_and_removed_and_other_lines_stay() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join(FILE);
        fs::write(&path, OTHERS).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
        assert_eq!(exchange(&path, None, Some(("127.0.0.1:8000", &token("hush")))), None);
        let expected = "flower.account-auth.127.0.0.1:8000.authn-type: b2lkYw==\n\
                        flower.account-auth.127.0.0.1:8000.oidc-access-token: aHVzaA==\n\
                        flower.account-auth.127.0.0.1:8000.oidc-refresh-token: aHVzaA==\n";
        assert_eq!(fs::read_to_string(&path).unwrap(), format!("{OTHERS}{expected}"));
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(exchange(&path, Some("127.0.0.1:8000"), Some(("127.0.0.1:80", &token("hush")))), None);
        let moved = expected.replace(":8000.", ":80.");
        assert_eq!(fs::read_to_string(&path).unwrap(), format!("{OTHERS}{moved}"));
        assert_eq!(exchange(&path, Some("127.0.0.1:80"), None), None);
        assert_eq!(fs::read_to_string(&path).unwrap(), OTHERS);
    }

    #[test]
    fn a_file_that_was_created_for_the_token_is_removed_with_it() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("flwr").join(FILE);
        assert_eq!(exchange(&path, Some("127.0.0.1:80"), None), None);
        assert!(!path.exists());
        assert_eq!(exchange(&path, None, Some(("127.0.0.1:80", &token("hush")))), None);
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(exchange(&path, Some("127.0.0.1:80"), None), None);
        assert!(!path.exists());
    }

    #[test]
    fn files_in_another_format_are_not_changed() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join(FILE);
        for text in ["{a: b}\n", "? a\n: b\n", "a:\n  b: c\n", "- a\n"] {
            fs::write(&path, text).unwrap();
            let change = exchange(&path, None, Some(("127.0.0.1:80", &token("hush")))).expect("a refusal");
            assert!(matches!(change.done, Outcome::LeftAlone { .. }), "{change:?}");
            assert_eq!(fs::read_to_string(&path).unwrap(), text);
        }
    }

    #[test]
    fn apps_of_1_25_have_one_file_per_federation() {
        let app = tempfile::tempdir().unwrap();
        assert_eq!(save_in_app(app.path(), "local", &token("hush")), None);
        let path = app.path().join(".flwr/.credentials/local.json");
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        let found: serde_json::Value = serde_json::from_str(&fs::read_to_string(&path).unwrap()).unwrap();
        assert_eq!((&found["authn-type"], &found["flwr-oidc-access-token"]), (&"oidc".into(), &"hush".into()));
        assert_eq!(remove_from_app(app.path(), "local"), None);
        assert_eq!(fs::read_dir(app.path()).unwrap().count(), 0);
        assert_eq!(remove_from_app(app.path(), "local"), None);
    }
}
