"""Images of both roles, built once for a program and kept in the test cache."""

import hashlib
import os
import shutil
import subprocess
from pathlib import Path

from harness.workspace import REPOSITORY, trellis_binary
from provision import CannotBeHad, cache_dir, locked
from vm.tools import ensure

BUILD_LIMIT_S = 1800
ROLES = ("superlink", "supernode")


def program() -> Path:
    """What goes into the images: a static build if one is named, else the one under test."""
    return Path(os.environ.get("TRELLIS_IMAGE_PROGRAM", trellis_binary())).resolve()


def images() -> Path:
    """A directory with both images."""
    ensure()
    digest = hashlib.sha256(program().read_bytes() + _sources()).hexdigest()[:16]
    place = cache_dir() / "images"
    with locked(cache_dir() / "images.lock"):
        for role in ROLES:
            if not (place / digest / f"trellis-{role}.qcow2").is_file():
                _build(role, place / digest, place / "packages")
        _forget_others(place, digest)
    return place / digest


def _sources() -> bytes:
    """What decides about an image beside the program."""
    return b"".join(path.read_bytes() for path in sorted((REPOSITORY / "crates" / "platforms" / "image" / "src").rglob("*.rs")))


def _build(role: str, output: Path, packages: Path) -> None:
    argv = [str(trellis_binary()), "image", "build", role, "--program", str(program())]
    argv += ["--output", str(output), "--cache", str(packages)]
    try:
        done = subprocess.run(argv, capture_output=True, text=True, timeout=BUILD_LIMIT_S, check=False)
    except subprocess.TimeoutExpired as late:
        raise CannotBeHad(f"the image of a {role} was not built within {BUILD_LIMIT_S} s") from late
    assert done.returncode == 0, done.stderr


def _forget_others(place: Path, digest: str) -> None:
    for entry in place.iterdir():
        if entry.name not in (digest, "packages"):
            shutil.rmtree(entry)
