//! Where the official programs come from: the interpreter that the document names, a `flwr` on PATH, or a virtual environment
//! in the home. The looking and installing is done by a small program of Python (`packages.py`), run before each start, so
//! that minutes of installing are `Starting` and its reasons are in the part's log. Nothing is looked up here.

use std::path::{Path, PathBuf};

use trellis_spec::FlowerVersion;

use crate::recipe::{Place, Program};

const SCRIPT: &str = include_str!("packages.py");
/// In the part's directory: where the programs are.
const LINK: &str = "flower";
/// Says what is missing where there is no Python at all.
const WITH_PYTHON: &str = r#"if ! command -v python3 >/dev/null; then
  echo "Flower $1 needs Python 3.10 or newer, and there is no python3 on PATH: install it" >&2
  exit 1
fi
exec python3 -c "$0" "$@""#;

/// The directory with the programs, once [`provide`] has run.
pub fn programs(place: &Place) -> PathBuf {
    place.directory.join(LINK)
}

/// What makes them be there.
pub fn provide(version: FlowerVersion, python: Option<&Path>, place: &Place) -> Program {
    let program = Program::new("/bin/sh")
        .flag("-c", WITH_PYTHON)
        .arg(SCRIPT)
        .arg(version.to_string())
        .arg(programs(place))
        .arg(&place.shared);
    match python {
        Some(python) => program.arg(python),
        None => program,
    }
}
