//! Installation of the official programs: from the interpreter that the document names, from a `flwr` on PATH, or into a virtual
//! environment in the home. A Python script (`packages.py`) searches and installs. It runs before each start, so that the part is
//! `Starting` during an installation, and errors are in its log.

use std::path::{Path, PathBuf};

use trellis_spec::Release;

use crate::recipe::{PartContext, Program};

const SCRIPT: &str = include_str!("packages.py");
/// Link to the directory of the programs, in the part's directory.
const LINK: &str = "flower";
/// Reports an error if there is no Python.
const WITH_PYTHON: &str = r#"if ! command -v python3 >/dev/null; then
  echo "Flower $1 needs Python 3.10 or newer, and there is no python3 on PATH: install it" >&2
  exit 1
fi
exec python3 -c "$0" "$@""#;

/// The directory of the programs, once [`provide`] has run.
pub fn programs(context: &PartContext) -> PathBuf {
    context.directory.join(LINK)
}

/// The program that installs the official programs.
pub fn provide(version: Release, python: Option<&Path>, context: &PartContext) -> Program {
    let program = Program::new("/bin/sh")
        .flag("-c", WITH_PYTHON)
        .arg(SCRIPT)
        .arg(version.to_string())
        .arg(programs(context))
        .arg(&context.shared);
    match python {
        Some(python) => program.arg(python),
        None => program,
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;
    use std::process::{Command, Output};

    use super::*;
    use crate::recipe::testing::context;

    const VERSION: Release = Release { minor: 39, patch: 0 };

    /// A machine on which only these programs of Flower are found.
    struct Machine {
        directory: tempfile::TempDir,
        context: PartContext,
    }

    impl Machine {
        fn new() -> Machine {
            let directory = tempfile::tempdir().unwrap();
            let part = directory.path().join("part");
            std::fs::create_dir(&part).unwrap();
            let context =
                PartContext { directory: part, shared: directory.path().join("shared"), ..context("coordinator") };
            Machine { directory, context }
        }

        /// Programs in a directory, each of them a script.
        fn programs(&self, directory: &str, scripts: &[(&str, &str)]) -> PathBuf {
            let path = self.directory.path().join(directory);
            std::fs::create_dir_all(&path).unwrap();
            let official = ["flower-superlink", "flower-supernode", "flower-superexec"].map(|name| (name, "exit 0"));
            for (name, script) in scripts.iter().chain(&official) {
                let program = path.join(name);
                std::fs::write(&program, format!("#!/bin/sh\n{script}\n")).unwrap();
                std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
            }
            path
        }

        /// Runs the installation with these directories before the others on PATH.
        fn provide(&self, python: Option<&Path>, path: &[&Path]) -> Output {
            let program = provide(VERSION, python, &self.context);
            let system = ["/usr/local/bin", "/usr/bin", "/bin"].map(Path::new);
            let path = std::env::join_paths(path.iter().copied().chain(system)).unwrap();
            Command::new(&program.path).args(&program.args).env("PATH", path).output().unwrap()
        }

        fn link(&self) -> PathBuf {
            std::fs::read_link(programs(&self.context)).unwrap()
        }
    }

    fn said(output: &Output) -> String {
        format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
    }

    #[test]
    fn the_interpreter_of_the_document_comes_first_and_path_next() {
        let machine = Machine::new();
        let (beside, path) = (machine.directory.path().join("venv"), machine.directory.path().join("path"));
        let python = |version: &str| format!("echo {version}; echo {}", beside.display());
        machine.programs("venv", &[("python", &python("1.39.0")), ("python-old", &python("1.25.0"))]);
        machine.programs("path", &[("flwr", "echo Flower version: 1.39.0")]);

        let output = machine.provide(Some(&beside.join("python")), &[&path]);
        assert!(output.status.success(), "{}", said(&output));
        assert_eq!(machine.link(), beside);

        let output = machine.provide(Some(&beside.join("python-old")), &[&path]);
        assert!(output.status.success() && said(&output).contains("has flwr 1.25.0; searching elsewhere"));
        assert_eq!(machine.link(), path.canonicalize().unwrap(), "the link points elsewhere now");
    }

    #[test]
    fn what_is_not_there_is_installed_once() {
        let machine = Machine::new();
        let path = machine.programs("path", &[("flwr", "echo Flower version: 1.25.0")]);
        // Makes an "environment" whose pip puts the programs there and counts.
        let pip =
            r#"cd "$(dirname "$0")"; for n in superlink supernode superexec; do touch flower-$n; done; echo x >>pips"#;
        let venv = format!(
            "[ \"$1\" = -c ] && exit 1\nmkdir -p \"$3/bin\"; printf '#!/bin/sh\\n%s\\n' '{pip}' >\"$3/bin/python\"\nchmod +x \"$3/bin/python\""
        );
        let python = machine.programs("venv", &[("python", &venv)]).join("python");
        for _ in 0..2 {
            let output = machine.provide(Some(&python), &[&path]);
            assert!(output.status.success(), "{}", said(&output));
        }
        assert_eq!(machine.link(), machine.context.shared.join("flower/1.39.0/bin"));
        assert_eq!(std::fs::read_to_string(machine.link().join("pips")).unwrap(), "x\n");
    }

    #[test]
    fn a_failed_installation_says_what_to_do() {
        let machine = Machine::new();
        let path = machine.programs("path", &[("flwr", "echo Flower version: 1.25.0")]);
        let no_venv = machine.programs("a", &[("python", "[ \"$1\" = -c ] && exit 1\necho no ensurepip; exit 1")]);
        let output = machine.provide(Some(&no_venv.join("python")), &[&path]);
        assert!(!output.status.success());
        let output_text = said(&output);
        assert!(
            output_text.contains("Flower 1.39.0 is not available") && output_text.contains("apt install python3-venv"),
            "{output_text}"
        );
        assert!(output_text.contains("no ensurepip"), "{output_text}");

        let no_index = r#"[ "$1" = -c ] && exit 1
mkdir -p "$3/bin"; printf '#!/bin/sh\necho no matching distribution; exit 1\n' >"$3/bin/python"; chmod +x "$3/bin/python""#;
        let no_index = machine.programs("b", &[("python", no_index)]);
        let output_text = said(&machine.provide(Some(&no_index.join("python")), &[&path]));
        assert!(
            output_text.contains("PIP_INDEX_URL") && output_text.contains("no matching distribution"),
            "{output_text}"
        );

        let output_text = said(&machine.provide(Some(Path::new("/no/such/python")), &[&path]));
        assert!(output_text.contains("Correct `python`, or leave it out"), "{output_text}");
        assert!(!programs(&machine.context).exists());
    }
}
