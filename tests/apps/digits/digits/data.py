"""The digits of crates/training/native/data/digits.bin, divided among partitions. Knows nothing of Flower."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np

ROW_BYTES, PIXELS, PIXEL_BITS, BLACK = 41, 64, 5, 16.0
# Of five examples four are trained on.
TEST_EVERY = 5


@dataclass(frozen=True)
class Examples:
    pixels: np.ndarray
    labels: np.ndarray

    def __len__(self) -> int:
        return len(self.labels)


def shard(path: str, partition: int, partitions: int) -> tuple[Examples, Examples]:
    """What one partition trains on, and what it is tested on: every so many-th example of a fixed shuffle."""
    rows = np.frombuffer(Path(path).read_bytes(), np.uint8).reshape(-1, ROW_BYTES)
    rows = rows[np.random.default_rng(0).permutation(len(rows))][partition::partitions]
    bits = np.unpackbits(rows[:, 1:], axis=1, bitorder="little").reshape(len(rows), PIXELS, PIXEL_BITS)
    pixels = (bits @ (1 << np.arange(PIXEL_BITS))).astype(np.float32) / np.float32(BLACK)
    is_test = np.arange(len(rows)) % TEST_EVERY == 0
    labels = rows[:, 0].astype(np.int64)
    return Examples(pixels[~is_test], labels[~is_test]), Examples(pixels[is_test], labels[is_test])
