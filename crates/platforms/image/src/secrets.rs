//! Finds secrets that must not be published: keys, tokens, machine identities, shell histories. Pure: checks paths and
//! contents.

use std::fmt;
use std::path::{Path, PathBuf};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    pub path: PathBuf,
    pub what: &'static str,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "/{}: {}", self.path.display(), self.what)
    }
}

/// Secrets are small; larger files are skipped.
pub const MAX_CHECKED_BYTES: u64 = 1 << 20;

/// Test keys in packages are no secrets.
const OF_PACKAGES: [&str; 3] = ["usr/lib", "usr/share", "opt/trellis/venv"];

/// Starts of private keys in all formats.
const KEY_MARKS: [&str; 6] = [
    "-----BEGIN PRIVATE KEY-----",
    "-----BEGIN ENCRYPTED PRIVATE KEY-----",
    "-----BEGIN RSA PRIVATE KEY-----",
    "-----BEGIN EC PRIVATE KEY-----",
    "-----BEGIN DSA PRIVATE KEY-----",
    "-----BEGIN OPENSSH PRIVATE KEY-----",
];

const HISTORIES: [&str; 5] = [".bash_history", ".python_history", ".lesshst", ".viminfo", ".mysql_history"];
const TOKENS: [&str; 7] =
    ["token.txt", ".netrc", ".pypirc", "credentials.json", "one_auth", "admin-token", ".git-credentials"];
const TOKEN_WORDS: [&str; 5] =
    ["TOKENTXT=", "ONEGATE_TOKEN=", "AWS_SECRET_ACCESS_KEY=", "FL_ADMIN_TOKEN=", "FL_JOIN_TOKEN="];

/// Findings by path.
pub fn by_name(path: &Path, bytes: u64) -> Option<Finding> {
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let what = if path == Path::new("etc/machine-id") && bytes > 0 || path == Path::new("var/lib/dbus/machine-id") {
        "the identity of a machine"
    } else if name.starts_with("ssh_host_") && path.starts_with("etc/ssh") {
        "a key of an SSH server"
    } else if name == "authorized_keys" && bytes > 0 {
        "SSH access of a user"
    } else if HISTORIES.contains(&name) {
        "a history of commands"
    } else if TOKENS.contains(&name) && !of_package(path) {
        "a token or a password"
    } else if path == Path::new("var/lib/systemd/random-seed") {
        "a random seed that every machine would share"
    } else {
        return None;
    };
    Some(Finding { path: path.to_owned(), what })
}

/// Findings by contents.
pub fn by_content(path: &Path, content: &[u8]) -> Option<Finding> {
    let found = |what| Some(Finding { path: path.to_owned(), what });
    if path == Path::new("etc/shadow") {
        return if has_password(content) { found("a password") } else { None };
    }
    if of_package(path) || content.contains(&0) {
        return None;
    }
    for line in content.split(|byte| *byte == b'\n') {
        if KEY_MARKS.iter().any(|mark| line.starts_with(mark.as_bytes())) {
            return found("a private key");
        }
        let line = line.strip_prefix(b"export ").unwrap_or(line);
        let said = |word: &&str| line.strip_prefix(word.as_bytes()).is_some_and(|value| value.len() > 2);
        if TOKEN_WORDS.iter().any(said) {
            return found("a token");
        }
    }
    None
}

fn of_package(path: &Path) -> bool {
    OF_PACKAGES.iter().any(|place| path.starts_with(place))
}

/// The second field of a line is `*` or starts with `!` if the account has no password.
fn has_password(shadow: &[u8]) -> bool {
    let fields = |line: &[u8]| line.split(|byte| *byte == b':').nth(1).map(<[u8]>::to_vec);
    let mut passwords = shadow.split(|byte| *byte == b'\n').filter_map(fields);
    passwords.any(|password| password != b"*" && !password.starts_with(b"!"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_found_by_path() {
        let cases = [
            ("etc/machine-id", 33, true),
            ("etc/machine-id", 0, false),
            ("etc/ssh/ssh_host_rsa_key", 9, true),
            ("root/.ssh/authorized_keys", 9, true),
            ("home/x/.bash_history", 0, true),
            ("run/one-context/token.txt", 9, true),
            ("usr/lib/python3/dist-packages/x/token.txt", 9, false),
            ("etc/passwd", 9, false),
        ];
        for (path, bytes, expected) in cases {
            assert_eq!(by_name(Path::new(path), bytes).is_some(), expected, "{path}");
        }
    }

    #[test]
    fn secrets_are_found_by_contents() {
        let key = "x\n-----BEGIN EC PRIVATE KEY-----\nabc\n";
        let cases = [
            ("etc/trellis/key.pem", key, Some("a private key")),
            ("usr/share/doc/example.pem", key, None),
            ("etc/notes", "see -----BEGIN EC PRIVATE KEY-----", None),
            ("opt/env", "export TOKENTXT=\"abc\"", Some("a token")),
            ("opt/env", "TOKENTXT=\"\"", None),
            ("etc/shadow", "root:*:1::\nx:!:1::\n", None),
            ("etc/shadow", "root:$y$abc:1::\n", Some("a password")),
            ("etc/shadow", "root::1::\n", Some("a password")),
        ];
        for (path, content, expected) in cases {
            let found = by_content(Path::new(path), content.as_bytes()).map(|finding| finding.what);
            assert_eq!(found, expected, "{path}: {content}");
        }
    }
}
