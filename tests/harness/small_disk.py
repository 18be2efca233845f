"""A small file system of its own, which can be filled to the last byte. Needs root; without it `CannotBeHad`."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from provision import CannotBeHad


class SmallDisk:
    """What is at `place` is gone when the disk is."""

    def __init__(self, place: Path):
        self.place = place

    @property
    def _filler(self) -> Path:
        return self.place / "filler"

    def fill(self) -> None:
        """Take all space away."""
        with self._filler.open("wb", buffering=0) as file:
            for piece in (1 << 16, 1 << 12, 1):
                try:
                    while True:
                        file.write(b"\0" * piece)
                except OSError:
                    continue

    def free(self) -> None:
        self._filler.unlink()


@contextmanager
def small_disk(place: Path, size_bytes: int) -> Iterator[SmallDisk]:
    place.mkdir(parents=True, exist_ok=True)
    mount = ["mount", "-t", "tmpfs", "-o", f"size={size_bytes}", "none", str(place)]
    done = subprocess.run(mount, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise CannotBeHad(f"no right to mount a small file system here: {done.stderr.strip()}")
    try:
        yield SmallDisk(place)
    finally:
        # Lazily: those who use it may end later.
        subprocess.run(["umount", "--lazy", str(place)], check=True)
