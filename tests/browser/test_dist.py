"""What is checked in as the built page is what its source builds: the same bytes."""

import shutil
import subprocess
from pathlib import Path

import pytest

from harness.npm import packages
from harness.workspace import REPOSITORY
from provision import CannotBeHad

pytestmark = [pytest.mark.quick, pytest.mark.trellis_only]

WEB = REPOSITORY / "web"
BUILD_LIMIT_S = 300
MOST_SCRIPT_BYTES = 250_000
NOT_SOURCE = shutil.ignore_patterns("node_modules", "dist")


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page's source elsewhere, with its packages."""
    try:
        installed = packages(WEB)
    except CannotBeHad as why:
        pytest.skip(f"the packages of the page cannot be had here: {why}")
    copy = tmp_path_factory.mktemp("page") / "web"
    shutil.copytree(WEB, copy, ignore=NOT_SOURCE)
    (copy / "node_modules").symlink_to(installed / "node_modules")
    return copy


def npm(source: Path, script: str) -> None:
    done = subprocess.run(
        ["npm", "run", script], cwd=source, capture_output=True, text=True, timeout=BUILD_LIMIT_S, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def contents(folder: Path) -> dict[str, bytes]:
    return {str(file.relative_to(folder)): file.read_bytes() for file in sorted(folder.rglob("*")) if file.is_file()}


def test_the_checked_in_page_is_built_from_its_source(source):
    npm(source, "build")
    built, kept = contents(source / "dist"), contents(WEB / "dist")
    assert sorted(built) == sorted(kept), "make web, and check in web/dist"
    assert [name for name in built if built[name] != kept[name]] == [], "make web, and check in web/dist"


def test_the_source_has_no_wrong_types(source):
    npm(source, "check")


def test_the_page_brings_everything_along_and_stays_small():
    kept = contents(WEB / "dist")
    index = kept["index.html"].decode()
    assert "<style" not in index and " style=" not in index, "the content security policy refuses inline styles"
    assert index.count("<script") == index.count('<script type="module" crossorigin src="/assets/'), "no inline scripts"
    scripts = sum(len(content) for name, content in kept.items() if name.endswith(".js"))
    assert 0 < scripts < MOST_SCRIPT_BYTES, f"{scripts} bytes of script"
