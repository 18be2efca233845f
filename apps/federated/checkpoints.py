"""Models on disk, each there whole or not at all. Knows nothing of Flower.

`checkpoint_round_N.npz` has the arrays by their position (`arr_0`, `arr_1`, ...); `checkpoint_latest.npz` is the newest of them,
and `checkpoint_latest.json` says which round that is and what the arrays are called.
"""

import json
import os
from collections.abc import Mapping
from datetime import datetime, timezone
from pathlib import Path

import numpy as np

LATEST = "checkpoint_latest"
FINAL = "model"


class Checkpoints:
    """A directory of them. `every` rounds one is saved, and after the last round."""

    def __init__(self, directory: str, every: int, last_round: int):
        self._directory = Path(directory)
        self._every = every
        self._last_round = last_round

    def offer(self, number: int, arrays: Mapping[str, np.ndarray]) -> Path | None:
        """Save the model after a round if it is time."""
        if number < 1 or (number % self._every and number != self._last_round):
            return None
        path = self._directory / f"checkpoint_round_{number}.npz"
        save(path, list(arrays.values()))
        # The same file under a second name: no reader sees half of it.
        draft = path.with_suffix(".latest")
        draft.unlink(missing_ok=True)
        os.link(path, draft)
        draft.replace(self._directory / f"{LATEST}.npz")
        about = {
            "round": number,
            "timestamp": datetime.now(timezone.utc).isoformat(),
            "num_arrays": len(arrays),
            "names": list(arrays),
        }
        _write(self._directory / f"{LATEST}.json", json.dumps(about).encode())
        return path


def save(path: Path, arrays: list[np.ndarray]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_suffix(".draft")
    with draft.open("wb") as file:
        np.savez(file, *arrays)
        file.flush()
        os.fsync(file.fileno())
    draft.replace(path)


def latest(directory: str) -> tuple[int, list[np.ndarray]] | None:
    """The round of the newest checkpoint and its arrays in their order; None: there is none."""
    about = Path(directory) / f"{LATEST}.json"
    if not about.exists():
        return None
    number = int(json.loads(about.read_text())["round"])
    with np.load(about.with_name(f"checkpoint_round_{number}.npz")) as kept:
        return number, [kept[f"arr_{index}"] for index in range(len(kept.files))]


def _write(path: Path, content: bytes) -> None:
    draft = path.with_suffix(".draft")
    draft.write_bytes(content)
    draft.replace(path)
