//! Reads the join bundle of a site outside of a cluster (the Secret `<federation>-join-<site>`): an exported file, or a mounted
//! directory. It becomes a file of settings with the lowest precedence. Does not know what settings mean.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;
use trellis_spec::yaml;

use crate::private_dir;

/// Subdirectory of the state directory for the entries of an exported bundle.
pub const DIRECTORY: &str = "join";
/// The API server limits Secrets to 1 MiB; base64 adds a third, and kubectl adds metadata.
const MAX_EXPORT_BYTES: u64 = 4 << 20;
/// Maximum total size of the entries of a mounted Secret.
const MAX_MOUNTED_BYTES: u64 = 1 << 20;
/// A Secret of 1 MiB cannot hold the settings of more nodes.
const MAX_ENTRIES: usize = 20_000;
/// Kubernetes' limit for the key of a Secret.
const MAX_NAME_BYTES: usize = 253;
/// Settings that name another entry.
const FILES: [&str; 2] = ["root-certificates", "auth-supernode-private-key"];
/// A bundle says how to connect. The site itself decides what runs on its machines.
const MAY_BE_SET: [&str; 5] = ["superlink", "name", "insecure", FILES[0], FILES[1]];
const EXPORT: &str = "export it again: kubectl get secret FEDERATION-join-SITE -o yaml > FILE";

type Entries = BTreeMap<String, Vec<u8>>;

/// A problem and its advice.
type JoinProblem = (String, String);

/// The file with the settings of this machine's node. Entries of an exported Secret are written to `directory`,
/// readable by its user only; a mounted Secret is used in place.
pub fn settings(path: &Path, node: Option<&str>, directory: &Path) -> Result<PathBuf, Vec<JoinProblem>> {
    let unreadable = |error: io::Error| vec![problem(format!("{} cannot be read: {error}", path.display()), EXPORT)];
    let is_directory = fs::metadata(path).map_err(unreadable)?.is_dir();
    let entries = match is_directory {
        true => mounted(path).map_err(unreadable)?,
        false => {
            exported(&small(path, MAX_EXPORT_BYTES).map_err(unreadable)?).map_err(|problems| placed(path, problems))?
        }
    };
    let required = required(&entries, node).map_err(|problems| placed(path, problems))?;
    let directory = match is_directory {
        true => path.to_owned(),
        false => {
            write_entries(directory, &entries, &required.files).map_err(|error| {
                let what =
                    format!("the entries of {} cannot be written to {}: {error}", path.display(), directory.display());
                vec![problem(what, "give a writable directory with --state-dir")]
            })?;
            directory.to_owned()
        }
    };
    Ok(directory.join(required.settings))
}

fn problem(what: impl Into<String>, to_do: impl Into<String>) -> JoinProblem {
    (what.into(), to_do.into())
}

fn placed(path: &Path, problems: Vec<JoinProblem>) -> Vec<JoinProblem> {
    problems.into_iter().map(|(what, to_do)| (format!("{}: {what}", path.display()), to_do)).collect()
}

/// Reads a regular file of limited size. Counts the bytes read, because the size that the file system reports may be
/// wrong.
fn small(path: &Path, max_bytes: u64) -> io::Result<Vec<u8>> {
    let too_large = || io::Error::other(format!("it is not a file of at most {max_bytes} bytes"));
    if !path.metadata()?.is_file() {
        return Err(too_large());
    }
    let mut bytes = Vec::new();
    File::open(path)?.take(max_bytes + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > max_bytes { Err(too_large()) } else { Ok(bytes) }
}

/// The entries of a mounted Secret. Names of the kubelet begin with a dot.
fn mounted(directory: &Path) -> io::Result<Entries> {
    let (mut entries, mut bytes_left) = (Entries::new(), MAX_MOUNTED_BYTES);
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        if name.starts_with('.') || !entry.path().is_file() {
            continue;
        }
        let bytes = match small(&entry.path(), bytes_left) {
            // Keys of other nodes need not be readable here: only that they are there counts.
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => Vec::new(),
            other => other.map_err(|error| io::Error::new(error.kind(), format!("{name}: {error}")))?,
        };
        bytes_left -= bytes.len() as u64;
        entries.insert(name, bytes);
        if entries.len() > MAX_ENTRIES {
            return Err(io::Error::other(format!("it has more than {MAX_ENTRIES} entries")));
        }
    }
    Ok(entries)
}

/// A Secret as `kubectl get -o yaml` or `-o json` prints it.
fn exported(text: &[u8]) -> Result<Entries, Vec<JoinProblem>> {
    let text = std::str::from_utf8(text).map_err(|_| vec![problem("it is no text in UTF-8", EXPORT)])?;
    let documents = yaml::read(text, "Secret").map_err(|problems| {
        problems.0.iter().map(|it| problem(format!("line {}: {}", it.place.line, it.what), EXPORT)).collect::<Vec<_>>()
    })?;
    let [secret] = documents.as_slice() else {
        return Err(vec![problem(format!("it has {} documents, not one", documents.len()), EXPORT)]);
    };
    match secret["kind"].as_str() {
        Some("Secret") => {}
        Some(kind) => return Err(vec![problem(format!("it is a {kind}, not a Secret"), EXPORT)]),
        None => return Err(vec![problem("it is not a Secret of Kubernetes", EXPORT)]),
    }
    let Value::Object(data) = &secret["data"] else { return Err(vec![problem("the Secret has no entries", EXPORT)]) };
    if data.len() > MAX_ENTRIES {
        return Err(vec![problem(format!("the Secret has more than {MAX_ENTRIES} entries"), EXPORT)]);
    }
    let (mut entries, mut problems) = (Entries::new(), Vec::new());
    for (name, value) in data {
        if !is_entry_name(name) {
            problems.push(problem(format!("its entry {name:?} has no name that a Secret can have"), EXPORT));
            continue;
        }
        match value.as_str().and_then(|text| STANDARD.decode(text.trim()).ok()) {
            Some(bytes) => drop(entries.insert(name.clone(), bytes)),
            None => problems.push(problem(format!("its entry {name} is damaged: it is not base64"), EXPORT)),
        }
    }
    if problems.is_empty() { Ok(entries) } else { Err(problems) }
}

/// Whether the name is a valid key of a Secret and not a hidden file: it is used as a file name.
fn is_entry_name(name: &str) -> bool {
    (1..=MAX_NAME_BYTES).contains(&name.len())
        && name.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c))
        && !name.starts_with('.')
}

/// The entries that one node needs.
#[derive(Debug, PartialEq, Eq)]
struct Required {
    settings: String,
    /// All files to write, the settings last, because they refer to the others.
    files: Vec<String>,
}

fn required(entries: &Entries, node: Option<&str>) -> Result<Required, Vec<JoinProblem>> {
    let settings = format!("node-{}.toml", index(entries, node).map_err(|problem| vec![problem])?);
    let text = String::from_utf8_lossy(&entries[&settings]).into_owned();
    let table: toml::Table = text.parse().map_err(|error: toml::de::Error| {
        vec![problem(format!("{settings} is damaged: {}", error.message()), EXPORT)]
    })?;
    let (mut files, mut problems) = (Vec::new(), Vec::new());
    for (name, value) in &table {
        if !MAY_BE_SET.contains(&name.as_str()) {
            let to_do = format!("remove it there, or set it here: --{name}");
            problems.push(problem(format!("{settings} sets {name}, which only this machine may set"), to_do));
        }
        if !FILES.contains(&name.as_str()) {
            continue;
        }
        // A name of another place is no entry either.
        let file = value.as_str().unwrap_or_default();
        match entries.get(file).is_some_and(|bytes| !bytes.is_empty()) {
            true => files.push(file.to_owned()),
            false => problems.push(problem(format!("there is no entry {file:?}, which {settings} names"), EXPORT)),
        }
    }
    files.push(settings.clone());
    if problems.is_empty() { Ok(Required { settings, files }) } else { Err(problems) }
}

/// Which node this machine is.
fn index(entries: &Entries, node: Option<&str>) -> Result<u32, JoinProblem> {
    let number = |name: &str| name.strip_prefix("node-")?.strip_suffix(".toml")?.parse().ok();
    let there: BTreeSet<u32> = entries.keys().filter_map(|name| number(name)).collect();
    let listed = there.iter().map(u32::to_string).collect::<Vec<_>>().join(", ");
    let given = match node {
        Some(text) => Some(text.parse().map_err(|_| problem(format!("--node {text:?} is no number"), "count from 0"))?),
        None => None,
    };
    match (given, there.first()) {
        (_, None) => Err(problem("there is no entry node-0.toml: it has no settings of a node", EXPORT)),
        (Some(index), _) if there.contains(&index) => Ok(index),
        (Some(index), _) => {
            let to_do =
                format!("give one of these with --node: {listed}; or raise `nodes` of the site, and export again");
            Err(problem(format!("there is no entry node-{index}.toml"), to_do))
        }
        (None, Some(only)) if there.len() == 1 => Ok(*only),
        (None, _) => {
            let to_do = "select one with --node; each is for one machine";
            Err(problem(format!("it has settings of several nodes: {listed}"), to_do))
        }
    }
}

/// Each file appears whole, and is its user's alone.
fn write_entries(directory: &Path, entries: &Entries, files: &[String]) -> io::Result<()> {
    private_dir::claim(directory).map_err(io::Error::other)?;
    for name in files {
        trellis_files::replace(&directory.join(name), &entries[name], trellis_files::PRIVATE_FILE)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    const SETTINGS: &str =
        "superlink = \"h:1\"\nroot-certificates = \"ca.crt\"\nauth-supernode-private-key = \"node-1.key\"\n";

    fn secret(entries: &[(&str, &str)]) -> String {
        let lines: String =
            entries.iter().map(|(name, text)| format!("  {name}: {}\n", STANDARD.encode(text))).collect();
        format!("apiVersion: v1\ndata:\n{lines}kind: Secret\nmetadata:\n  name: demo-join-lab\n")
    }

    fn whole() -> Vec<(&'static str, &'static str)> {
        let first = ("node-0.toml", "superlink = \"h:1\"\ninsecure = true\n");
        vec![("address", "h:1"), ("ca.crt", "CA"), first, ("node-1.key", "KEY"), ("node-1.toml", SETTINGS)]
    }

    fn joined(text: &str, node: Option<&str>) -> Result<(tempfile::TempDir, PathBuf), Vec<JoinProblem>> {
        let directory = tempfile::tempdir().expect("a directory");
        let file = directory.path().join("lab.yaml");
        fs::write(&file, text).expect("written");
        let place = settings(&file, node, &directory.path().join("state/join"))?;
        Ok((directory, place))
    }

    #[test]
    fn what_one_node_needs_is_kept_for_its_user_alone() {
        let as_json = r#"{"kind":"Secret","data":{"node-1.toml":"aW5zZWN1cmUgPSB0cnVlCg=="}}"#;
        let (home, place) = joined(&secret(&whole()), Some("1")).expect("good");
        assert_eq!(place, home.path().join("state/join/node-1.toml"));
        let mut kept: Vec<_> = fs::read_dir(home.path().join("state/join"))
            .expect("there")
            .map(|entry| entry.expect("an entry"))
            .map(|entry| (entry.file_name().into_string().expect("text"), entry.metadata().expect("there")))
            .map(|(name, about)| (name, about.permissions().mode() & 0o777))
            .collect();
        kept.sort();
        let expected = [("ca.crt", 0o600), ("node-1.key", 0o600), ("node-1.toml", 0o600)];
        assert_eq!(kept, expected.map(|(name, mode)| (name.to_owned(), mode)));
        assert_eq!(fs::read_to_string(place.with_file_name("node-1.key")).expect("there"), "KEY");
        // The only one there is need not be named.
        let (_home, place) = joined(as_json, None).expect("good");
        assert_eq!(fs::read_to_string(place).expect("there"), "insecure = true\n");
    }

    #[test]
    fn a_mounted_secret_is_used_where_it_is() {
        let directory = tempfile::tempdir().expect("a directory");
        let data = directory.path().join("..data");
        fs::create_dir(&data).expect("made");
        for (name, text) in whole() {
            fs::write(data.join(name), text).expect("written");
            std::os::unix::fs::symlink(Path::new("..data").join(name), directory.path().join(name)).expect("linked");
        }
        let place = settings(directory.path(), Some("1"), Path::new("/nowhere")).expect("good");
        assert_eq!(place, directory.path().join("node-1.toml"));
    }

    #[test]
    fn no_entry_becomes_a_file_elsewhere() {
        for name in ["../../escaped", "/tmp/escaped", "..", ".", ".hidden", "a/b", "a\\b", ""] {
            let toml = format!("insecure = true\nauth-supernode-private-key = {}\n", Value::from(name));
            let data = serde_json::json!({"node-0.toml": STANDARD.encode(toml), name: STANDARD.encode("KEY")});
            let text = serde_json::json!({"kind": "Secret", "data": data}).to_string();
            let home = tempfile::tempdir().expect("a directory");
            let file = home.path().join("lab.json");
            fs::write(&file, text).expect("written");
            let problems = settings(&file, None, &home.path().join("state/join")).expect_err(name);
            assert_eq!(problems.len(), 1, "{problems:?}");
            assert!(problems[0].0.contains("has no name that a Secret can have"), "{problems:?}");
            assert_eq!(fs::read_dir(home.path()).expect("there").count(), 1, "{name}: only the file itself is there");
        }
    }

    #[test]
    fn a_mounted_secret_is_read_within_limits() {
        let directory = tempfile::tempdir().expect("a directory");
        fs::write(directory.path().join("node-0.toml"), "insecure = true\n").expect("written");
        let large = File::create(directory.path().join("large")).expect("made");
        large.set_len(MAX_MOUNTED_BYTES + 1).expect("long");
        let problems = settings(directory.path(), None, Path::new("/nowhere")).expect_err("too large");
        assert!(problems[0].0.contains("large: it is not a file of at most"), "{problems:?}");
    }

    #[test]
    fn what_is_missing_is_told() {
        let without = |name: &str| whole().into_iter().filter(|(entry, _)| *entry != name).collect::<Vec<_>>();
        for (text, node, expected) in [
            (secret(&whole()), None, vec!["it has settings of several nodes: 0, 1"]),
            (secret(&whole()), Some("7"), vec!["there is no entry node-7.toml"]),
            (secret(&whole()), Some("first"), vec!["--node \"first\" is no number"]),
            (secret(&without("ca.crt")), Some("1"), vec!["there is no entry \"ca.crt\", which node-1.toml names"]),
            (secret(&[("address", "h:1")]), None, vec!["there is no entry node-0.toml: it has no settings of a node"]),
            (
                secret(&[("node-0.toml", "python = \"/tmp/x\"\nroot-certificates = \"../../etc/passwd\"\n")]),
                None,
                vec![
                    "node-0.toml sets python, which only this machine may set",
                    "there is no entry \"../../etc/passwd\", which node-0.toml names",
                ],
            ),
            ("kind: ConfigMap\n".to_owned(), None, vec!["it is a ConfigMap, not a Secret"]),
            ("kind: Secret\n".to_owned(), None, vec!["the Secret has no entries"]),
            (
                "kind: Secret\ndata: {a: '%', b: '!'}\n".to_owned(),
                None,
                vec!["its entry a is damaged: it is not base64", "its entry b is damaged: it is not base64"],
            ),
            ("hello".to_owned(), None, vec!["it is not a Secret of Kubernetes"]),
            (String::new(), None, vec!["it has 0 documents, not one"]),
        ] {
            let problems = joined(&text, node).expect_err("bad");
            let found: Vec<&str> =
                problems.iter().map(|(what, _)| what.split_once("lab.yaml: ").expect("the file").1).collect();
            assert_eq!(found, expected, "{text}");
        }
        let problems = settings(Path::new("/no/such/file"), None, Path::new("/")).expect_err("bad");
        assert!(problems[0].0.starts_with("/no/such/file cannot be read: "), "{problems:?}");
    }
}
