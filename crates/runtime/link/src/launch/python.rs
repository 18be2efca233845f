//! Finds the Python of ServerApps, and starts it without exposing the token to other users.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};

/// Why there is no interpreter.
#[derive(Debug, thiserror::Error)]
pub enum NoPython {
    #[error(
        "`{script}` is not on PATH, so apps could not be started; install flwr (`pip install flwr`), name its interpreter \
         with --python, or start apps yourself with --isolation process"
    )]
    NotOnPath { script: String },
    #[error("the interpreter {path} given by --python does not exist or is not executable")]
    Missing { path: PathBuf },
    /// The kernel cannot enforce what the operator requires.
    #[error(transparent)]
    Sandbox(#[from] trellis_sandbox::Unavailable),
    #[error("{script} names no interpreter in its first line; name one with --python")]
    NoInterpreter { script: PathBuf },
}

/// A Python interpreter with flwr.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Python(PathBuf);

impl Python {
    /// Returns the given interpreter, or that of the `flwr-serverapp` on PATH.
    pub fn find(given: Option<&Path>, path: Option<&OsStr>) -> Result<Python, NoPython> {
        let Some(given) = given else { return interpreter_of("flwr-serverapp", path).map(Python) };
        let bare = given.components().count() == 1;
        let found = if bare { on_path(given, path) } else { Some(given.to_owned()).filter(|file| runs(file)) };
        found.map(Python).ok_or_else(|| NoPython::Missing { path: given.to_owned() })
    }

    pub fn path(&self) -> &Path {
        &self.0
    }

    /// Returns the Python program: it takes the token from the environment, which only the owner of the process can
    /// read, and calls flwr's entry point like the script on PATH.
    pub fn program() -> &'static str {
        include_str!("serverapp.py")
    }
}

/// Returns the interpreter of a flwr script on PATH, which has flwr installed.
pub fn interpreter_of(script: &str, path: Option<&OsStr>) -> Result<PathBuf, NoPython> {
    let missing = || NoPython::NotOnPath { script: script.to_owned() };
    let script = on_path(Path::new(script), path).ok_or_else(missing)?;
    interpreter(&script).ok_or(NoPython::NoInterpreter { script })
}

/// The first executable file of this name on PATH.
pub fn on_path(name: &Path, path: Option<&OsStr>) -> Option<PathBuf> {
    std::env::split_paths(path?).map(|entry| entry.join(name)).find(|file| runs(file))
}

fn runs(file: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt;
    std::fs::metadata(file).is_ok_and(|file| file.is_file() && file.permissions().mode() & 0o111 != 0)
}

/// Reads the interpreter from a script's first line. Installers write `#!/bin/sh` and an `exec` for long paths.
fn interpreter(script: &Path) -> Option<PathBuf> {
    let mut lines = BufReader::new(File::open(script).ok()?).lines().take(3).map_while(Result::ok);
    let first = lines.next()?;
    let named = first.strip_prefix("#!")?.trim();
    if named == "/bin/sh" {
        let exec = lines.next()?;
        let quoted = exec.split_once("exec")?.1.trim().trim_start_matches('\'').trim_start();
        let end = if let Some(rest) = quoted.strip_prefix('"') { rest.find('"')? + 2 } else { quoted.find(' ')? };
        return Some(PathBuf::from(quoted[..end].trim_matches('"')));
    }
    let mut words = named.split_whitespace();
    let program = words.next()?;
    if program.ends_with("/env") {
        let name = words.next()?;
        let path = std::env::var_os("PATH")?;
        return std::env::split_paths(&path).map(|entry| entry.join(name)).find(|file| runs(file));
    }
    Some(PathBuf::from(program))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn script(directory: &Path, name: &str, text: &str) -> PathBuf {
        let path = directory.join(name);
        std::fs::write(&path, text).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
        path
    }

    #[test]
    fn the_interpreter_of_the_script_on_path_is_found() {
        let cases = [
            ("#!/opt/venv/bin/python\nimport x", Some("/opt/venv/bin/python")),
            ("#!/opt/venv/bin/python3 -I\n", Some("/opt/venv/bin/python3")),
            ("#!/bin/sh\n'''exec' \"/very long/bin/python\" \"$0\" \"$@\"\n' '''\n", Some("/very long/bin/python")),
            ("#!/bin/sh\n'''exec' /long/bin/python \"$0\" \"$@\"\n' '''\n", Some("/long/bin/python")),
            ("import x\n", None),
        ];
        for (text, want) in cases {
            let directory = tempfile::tempdir().unwrap();
            script(directory.path(), "flwr-serverapp", text);
            let found = Python::find(None, Some(directory.path().as_os_str())).ok();
            assert_eq!(found, want.map(|path| Python(path.into())), "{text}");
        }
        assert!(matches!(Python::find(None, Some("/nowhere".as_ref())), Err(NoPython::NotOnPath { .. })));
    }

    #[test]
    fn a_given_interpreter_must_run() {
        let directory = tempfile::tempdir().unwrap();
        let python = script(directory.path(), "mypython", "#!/bin/true\n");
        assert_eq!(Python::find(Some(&python), None).unwrap().path(), python);
        let bare = Python::find(Some(Path::new("mypython")), Some(directory.path().as_os_str()));
        assert_eq!(bare.unwrap().path(), python);
        assert!(matches!(Python::find(Some(Path::new("/no/python")), None), Err(NoPython::Missing { .. })));
    }
}
