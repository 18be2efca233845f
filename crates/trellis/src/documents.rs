//! Reads Federation documents from files, directories and standard input, and reports all problems at once. Relative paths
//! in them become absolute, since the server has another working directory. Knows no server.

use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use clap::Args;
use trellis_spec::{Federation, read_with_warnings};
use trellis_terminal::remark;

use crate::remote::CommandError;

const STDIN: &str = "-";
const ENDINGS: [&str; 3] = ["yaml", "yml", "json"];
/// The limit of the server.
const MAX_FILE_BYTES: u64 = 1 << 20;
const MAX_FILES: usize = 1000;

#[derive(Debug, Args)]
pub struct DocumentArgs {
    /// File with Federation documents (YAML or JSON), a directory of such files, or - for standard input
    #[arg(short = 'f', long = "file", value_name = "FILE", required = true)]
    pub files: Vec<PathBuf>,
}

/// All documents of all files, in order. Prints warnings.
pub fn read(files: &[PathBuf]) -> Result<Vec<Federation>, CommandError> {
    let (mut federations, mut failures) = (Vec::<Federation>::new(), Vec::new());
    for file in files {
        match expand(file) {
            Err(failure) => failures.push(failure),
            Ok(found) => {
                for file in found {
                    match read_file(&file) {
                        Ok(more) => federations.extend(more),
                        Err(failure) => failures.push(failure),
                    }
                }
            }
        }
    }
    for (index, federation) in federations.iter().enumerate() {
        if federations[..index].iter().any(|known| known.name == federation.name) {
            let what = format!("there is more than one federation called {}", federation.name);
            failures.push(CommandError::usage(what, "give each its own name"));
        }
    }
    failures.into_iter().reduce(CommandError::and).map_or(Ok(federations), Err)
}

/// The files of a directory, or the file itself.
fn expand(path: &Path) -> Result<Vec<PathBuf>, CommandError> {
    if path.as_os_str() == STDIN || !path.is_dir() {
        return Ok(vec![path.to_owned()]);
    }
    let entries = fs::read_dir(path).map_err(|error| unreadable(path, &error))?;
    let ours = |path: &PathBuf| path.extension().is_some_and(|ending| ENDINGS.iter().any(|known| ending == *known));
    let mut files: Vec<PathBuf> = entries.filter_map(|entry| Some(entry.ok()?.path())).filter(ours).collect();
    files.sort();
    match files.len() {
        0 => {
            let what = format!("-f: {} has no documents in it", path.display());
            Err(CommandError::usage(what, "give a directory with files that end with .yaml, .yml or .json"))
        }
        1..=MAX_FILES => Ok(files),
        many => {
            let what = format!("-f: {} has {many} documents in it, more than {MAX_FILES}", path.display());
            Err(CommandError::usage(what, "name individual files"))
        }
    }
}

fn read_file(path: &Path) -> Result<Vec<Federation>, CommandError> {
    let mut text = String::new();
    let (outcome, name) = match path.as_os_str() == STDIN {
        true => (io::stdin().take(MAX_FILE_BYTES + 1).read_to_string(&mut text), "<stdin>".to_owned()),
        false => {
            let opened = fs::File::open(path);
            let read = opened.and_then(|file| file.take(MAX_FILE_BYTES + 1).read_to_string(&mut text));
            (read, path.display().to_string())
        }
    };
    outcome.map_err(|error| unreadable(path, &error))?;
    if text.len() as u64 > MAX_FILE_BYTES {
        let what = format!("-f: {name} is larger than {} MiB", MAX_FILE_BYTES >> 20);
        return Err(CommandError::usage(what, "give a file with Federation documents"));
    }
    let reading = read_with_warnings(&text, &name).map_err(|problems| CommandError::from(problems.0))?;
    for warning in &reading.warnings {
        remark(&format!("warning: {warning}"));
    }
    let base = std::path::absolute(path).ok().filter(|_| path.as_os_str() != STDIN);
    let base = base
        .as_deref()
        .and_then(Path::parent)
        .map_or_else(|| std::env::current_dir().unwrap_or_default(), Path::to_owned);
    Ok(reading.federations.into_iter().map(|federation| rooted(federation, &base)).collect())
}

fn unreadable(path: &Path, error: &io::Error) -> CommandError {
    let what = format!("-f: {} cannot be read: {error}", path.display());
    CommandError::usage(what, "give the path of a readable file with Federation documents, or - for standard input")
}

/// The same federation, with paths that do not depend on the working directory.
fn rooted(mut federation: Federation, base: &Path) -> Federation {
    federation.visit_paths(|field, path| {
        let is_looked_up = field.is_program && path.components().count() == 1;
        if !is_looked_up {
            *path = base.join(&path);
        }
    });
    federation
}

#[cfg(test)]
mod tests {
    use trellis_spec::Tls;

    use super::*;

    const VALID: &str = "\
apiVersion: trellis.dev/v1
kind: Federation
metadata: {name: digits}
spec:
  nodes: 4
  coordinator: {python: venv/bin/python}
  security: {tls: {mode: files, certificate: tls/server.pem, key: /etc/server.key, trust: ../ca.crt}}
";

    #[test]
    fn relative_paths_begin_at_the_file() {
        let directory = tempfile::tempdir().expect("a directory");
        fs::write(directory.path().join("a.yaml"), VALID).expect("written");
        let [federation] = &read(&[directory.path().to_owned()]).expect("a document")[..] else { panic!("one") };
        let base = directory.path();
        assert_eq!(federation.coordinator.python.as_deref(), Some(base.join("venv/bin/python").as_path()));
        let Tls::Files { certificate, key, trust } = &federation.security.tls else { panic!("files") };
        assert_eq!(certificate, &base.join("tls/server.pem"));
        assert_eq!(key, Path::new("/etc/server.key"));
        assert_eq!(trust, &base.join("../ca.crt"));
    }

    #[test]
    fn relative_paths_begin_at_the_file_for_every_driver() {
        let sites = r#"  sites:
  - {name: zone, opennebula: {endpoint: "https://one.example.org/RPC2", network: private, authFile: keys/one_auth}}
  - {name: lab, kubernetes: {kubeconfig: ../kubeconfig}}
  - {name: here, kubernetes: {kubeconfig: /etc/kubeconfig}}
"#;
        let directory = tempfile::tempdir().expect("a directory");
        let document = VALID.replace("  coordinator: {python: venv/bin/python}\n", sites);
        fs::write(directory.path().join("a.yaml"), document).expect("written");
        let mut found = Vec::new();
        for mut federation in read(&[directory.path().to_owned()]).expect("a document") {
            federation.visit_paths(|field, path| found.push((field.name, path.clone())));
        }
        let at = |field: &str| &found.iter().find(|(name, _)| name == field).expect("the field has a path").1;
        assert_eq!(at("spec.sites[0].opennebula.authFile"), &directory.path().join("keys/one_auth"));
        assert_eq!(at("spec.sites[1].kubernetes.kubeconfig"), &directory.path().join("../kubeconfig"));
        assert_eq!(at("spec.sites[2].kubernetes.kubeconfig"), Path::new("/etc/kubeconfig"));
    }

    #[test]
    fn everything_that_is_wrong_in_all_files_is_told_at_once() {
        let directory = tempfile::tempdir().expect("a directory");
        let write = |name: &str, text: &str| fs::write(directory.path().join(name), text).expect("written");
        write("a.yaml", &VALID.replace("nodes: 4", "nodse: 4"));
        write(
            "b.yaml",
            "apiVersion: trellis.dev/v1\nkind: Federation\nmetadata: {name: Digits}\nspec: {nodes: many}\n",
        );
        write("notes.txt", "not read");
        let files = [directory.path().to_owned(), directory.path().join("missing.yaml")];
        let text = format!("{:?}", read(&files).expect_err("nothing fits"));
        for part in ["a.yaml:5:3: spec.nodse", "b.yaml:3:18", "b.yaml:4:15", "missing.yaml cannot be read"] {
            assert!(text.contains(part), "{part} is missing in\n{text}");
        }
        assert!(!text.contains("notes.txt"));
    }
}
