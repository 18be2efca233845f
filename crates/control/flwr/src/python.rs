//! The official Flower on this machine: the interpreter of the `flwr` on PATH, and its versions of Python and flwr.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use serde::Deserialize;
use tokio::process::Command;
use trellis_flower::Release;
use trellis_link::on_path;

/// Scripts of the official packages; the first one on PATH names their interpreter.
const SCRIPTS: [&str; 3] = ["flwr", "flwr-serverapp", "flwr-clientapp"];
/// Importing flwr takes many seconds if the disk cache is cold.
const TIMEOUT: Duration = Duration::from_secs(30);
/// Reads the version first: a failing import must not hide it.
const SCRIPT: &str = "
import json, platform, sys
answer = {'python': platform.python_version()}
try:
    from importlib.metadata import version
    answer['flwr'] = version('flwr')
    if sys.argv[1:] == ['import']:
        import flwr
except Exception as error:
    answer['error'] = f'{type(error).__name__}: {error}'
print(json.dumps(answer))
";

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Installation {
    pub interpreter: PathBuf,
    pub answer: Result<Answer, String>,
}

/// The output of the interpreter.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Answer {
    pub python: String,
    pub flwr: Option<String>,
    /// Why flwr is not installed or cannot be imported.
    pub error: Option<String>,
}

impl Installation {
    /// Returns `None` if neither `flwr` nor Python is on PATH. `import` also checks that flwr can be imported.
    pub async fn detect(import: bool) -> Option<Installation> {
        let path = std::env::var_os("PATH");
        let interpreter = interpreter(path.as_deref())?;
        let answer = ask(&interpreter, import).await;
        Some(Installation { interpreter, answer })
    }

    /// Why an interpreter cannot run apps; `None` if it can.
    pub async fn problem_of(python: &Path) -> Option<String> {
        let path = std::env::var_os("PATH");
        let alone = python.components().count() == 1;
        let found = if alone { on_path(python, path.as_deref()) } else { Some(python.to_owned()) };
        let Some(interpreter) = found else { return Some("it is not on PATH".to_owned()) };
        match ask(&interpreter, false).await {
            Err(why) => Some(why),
            Ok(Answer { flwr: None, .. }) => Some("it has no flwr".to_owned()),
            Ok(_) => None,
        }
    }

    pub fn release(&self) -> Option<Release> {
        Release::read(self.answer.as_ref().ok()?.flwr.as_deref()?)
    }
}

fn interpreter(path: Option<&OsStr>) -> Option<PathBuf> {
    let of_flwr = SCRIPTS.iter().find_map(|script| trellis_link::interpreter_of(script, path).ok());
    of_flwr.or_else(|| on_path("python3".as_ref(), path))
}

async fn ask(interpreter: &Path, import: bool) -> Result<Answer, String> {
    let mut command = Command::new(interpreter);
    command.args(["-c", SCRIPT]).args(import.then_some("import")).env("FLWR_TELEMETRY_ENABLED", "0");
    command.stdin(Stdio::null()).stderr(Stdio::null()).kill_on_drop(true);
    let output = match tokio::time::timeout(TIMEOUT, command.output()).await {
        Err(_) => return Err(format!("no answer within {} s", TIMEOUT.as_secs())),
        Ok(Err(error)) => return Err(format!("it cannot be started: {error}")),
        Ok(Ok(output)) => output,
    };
    let text = String::from_utf8_lossy(&output.stdout);
    // Packages may print other lines first.
    let last = text.lines().last().unwrap_or_default();
    serde_json::from_str(last).map_err(|_| format!("it ended with {} and no answer", output.status))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn program(directory: &Path, text: &str) -> PathBuf {
        let path = directory.join("python3");
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        path
    }

    #[tokio::test]
    async fn the_answer_of_an_interpreter() {
        let place = tempfile::tempdir().unwrap();
        let answer = Answer { python: "3.11.2".to_owned(), flwr: Some("1.42.0".to_owned()), error: None };
        let python =
            program(place.path(), "#!/bin/sh\necho noise\necho '{\"python\": \"3.11.2\", \"flwr\": \"1.42.0\"}'\n");
        let installation = Installation { interpreter: python.clone(), answer: ask(&python, true).await };
        assert_eq!(installation.answer, Ok(answer));
        assert_eq!(installation.release(), Some(Release::of(42)));
        assert_eq!(interpreter(Some(place.path().as_os_str())), Some(python));
        assert_eq!(interpreter(Some("/nowhere".as_ref())), None);
    }

    #[tokio::test]
    async fn interpreters_without_flwr() {
        let place = tempfile::tempdir().unwrap();
        let python = program(place.path(), "#!/bin/sh\nexit 3\n");
        let why = ask(&python, false).await.unwrap_err();
        assert!(why.contains("exit status: 3"), "{why}");
        assert!(ask(Path::new("/no/python"), false).await.unwrap_err().starts_with("it cannot be started"));
        assert!(Installation::problem_of(&python).await.is_some_and(|why| why.contains("exit status: 3")));
        assert_eq!(Installation::problem_of(Path::new("no-such-python")).await.as_deref(), Some("it is not on PATH"));
        let bare = program(place.path(), "#!/bin/sh\necho '{\"python\": \"3.11.2\"}'\n");
        assert_eq!(Installation::problem_of(&bare).await.as_deref(), Some("it has no flwr"));
        let good = program(place.path(), "#!/bin/sh\necho '{\"python\": \"3.11.2\", \"flwr\": \"1.42.0\"}'\n");
        assert_eq!(Installation::problem_of(&good).await, None);
    }
}
