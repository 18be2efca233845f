//! Which official Flower there is on this machine: the interpreter of the `flwr` on PATH, and what it says of itself.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use serde::Deserialize;
use tokio::process::Command;
use trellis_flower::Release;

/// Scripts that come with the official packages; the first that is found tells where they are.
const SCRIPTS: [&str; 3] = ["flwr", "flwr-serverapp", "flwr-clientapp"];
/// A cold disk lets the import of flwr take many seconds.
const PATIENCE: Duration = Duration::from_secs(30);
/// Asks for the version first: an import that fails must not hide it.
const QUESTION: &str = "
import json, platform, sys
answer = {'python': platform.python_version()}
try:
    from importlib.metadata import version
    answer['flwr'] = version('flwr')
    if sys.argv[1:] == ['import']:
        import flwr
except Exception as error:
    answer['trouble'] = f'{type(error).__name__}: {error}'
print(json.dumps(answer))
";

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FlwrHere {
    pub interpreter: PathBuf,
    pub answer: Result<Answer, String>,
}

/// What the interpreter told.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Answer {
    pub python: String,
    pub flwr: Option<String>,
    /// Why flwr is not there, or cannot be imported.
    pub trouble: Option<String>,
}

impl FlwrHere {
    /// `None`: there is neither `flwr` nor a Python on PATH. With `import`, it is also found out whether that works.
    pub async fn look(import: bool) -> Option<FlwrHere> {
        let path = std::env::var_os("PATH");
        let interpreter = interpreter(path.as_deref())?;
        let answer = ask(&interpreter, import).await;
        Some(FlwrHere { interpreter, answer })
    }

    /// What is wrong with an interpreter that apps shall run with.
    pub async fn objection(python: &Path) -> Option<String> {
        let path = std::env::var_os("PATH");
        let alone = python.components().count() == 1;
        let found = if alone { on_path(&python.to_string_lossy(), path.as_deref()) } else { Some(python.to_owned()) };
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
    of_flwr.or_else(|| on_path("python3", path))
}

/// The first file of this name on PATH.
pub fn on_path(name: &str, path: Option<&OsStr>) -> Option<PathBuf> {
    use std::os::unix::fs::PermissionsExt;
    let runs = |file: &PathBuf| {
        std::fs::metadata(file).is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
    };
    std::env::split_paths(path?).map(|entry| entry.join(name)).find(runs)
}

async fn ask(interpreter: &Path, import: bool) -> Result<Answer, String> {
    let mut command = Command::new(interpreter);
    command.args(["-c", QUESTION]).args(import.then_some("import")).env("FLWR_TELEMETRY_ENABLED", "0");
    command.stdin(Stdio::null()).stderr(Stdio::null()).kill_on_drop(true);
    let output = match tokio::time::timeout(PATIENCE, command.output()).await {
        Err(_) => return Err(format!("no answer within {} s", PATIENCE.as_secs())),
        Ok(Err(error)) => return Err(format!("it cannot be started: {error}")),
        Ok(Ok(output)) => output,
    };
    let text = String::from_utf8_lossy(&output.stdout);
    // A package may print something of its own before.
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
    async fn what_an_interpreter_says() {
        let place = tempfile::tempdir().unwrap();
        let answer = Answer { python: "3.11.2".to_owned(), flwr: Some("1.42.0".to_owned()), trouble: None };
        let python =
            program(place.path(), "#!/bin/sh\necho noise\necho '{\"python\": \"3.11.2\", \"flwr\": \"1.42.0\"}'\n");
        let here = FlwrHere { interpreter: python.clone(), answer: ask(&python, true).await };
        assert_eq!(here.answer, Ok(answer));
        assert_eq!(here.release(), Some(Release::of(42)));
        assert_eq!(interpreter(Some(place.path().as_os_str())), Some(python));
        assert_eq!(interpreter(Some("/nowhere".as_ref())), None);
    }

    #[tokio::test]
    async fn one_that_does_not_help() {
        let place = tempfile::tempdir().unwrap();
        let python = program(place.path(), "#!/bin/sh\nexit 3\n");
        let why = ask(&python, false).await.unwrap_err();
        assert!(why.contains("exit status: 3"), "{why}");
        assert!(ask(Path::new("/no/python"), false).await.unwrap_err().starts_with("it cannot be started"));
        assert!(FlwrHere::objection(&python).await.is_some_and(|why| why.contains("exit status: 3")));
        assert_eq!(FlwrHere::objection(Path::new("no-such-python")).await.as_deref(), Some("it is not on PATH"));
        let bare = program(place.path(), "#!/bin/sh\necho '{\"python\": \"3.11.2\"}'\n");
        assert_eq!(FlwrHere::objection(&bare).await.as_deref(), Some("it has no flwr"));
        let good = program(place.path(), "#!/bin/sh\necho '{\"python\": \"3.11.2\", \"flwr\": \"1.42.0\"}'\n");
        assert_eq!(FlwrHere::objection(&good).await, None);
    }
}
