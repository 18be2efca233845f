"""A small file system for a state directory, which a test fills completely. Needs root."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from provision import CannotBeHad

SMALL_DISK_BYTES = 16 << 20


@contextmanager
def small_disk(place: Path, size_bytes: int = SMALL_DISK_BYTES) -> Iterator[Path]:
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={size_bytes}", "none", str(place)]
    if subprocess.run(mount, capture_output=True, check=False).returncode != 0:
        raise CannotBeHad("a small file system cannot be mounted here")
    try:
        yield place
    finally:
        subprocess.run(["umount", "--lazy", str(place)], check=True)


def fill(place: Path) -> Path:
    """Uses all free space."""
    filler = place / "filler"
    with filler.open("wb", buffering=0) as file:
        for piece in (1 << 16, 1 << 12, 1):
            try:
                while True:
                    file.write(b"\0" * piece)
            except OSError:
                continue
    return filler
