"""Images with their classes, and each node's part of them. Knows nothing of Flower."""

import base64
import zlib
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from .digits import ROWS

ROW_BYTES, SIDE, PIXEL_BITS, BLACK = 41, 8, 5, 16.0
# Of five examples four are trained on.
TEST_EVERY = 5
IMAGE_KINDS = (".png", ".jpg", ".jpeg", ".bmp")


@dataclass(frozen=True)
class Images:
    """Pixels from 0 to 1, as examples x channels x height x width; classes as numbers from 0."""

    pixels: np.ndarray
    labels: np.ndarray

    def __len__(self) -> int:
        return len(self.labels)

    def chosen(self, which: np.ndarray) -> "Images":
        return Images(self.pixels[which], self.labels[which])

    @property
    def shape(self) -> tuple[int, ...]:
        return self.pixels.shape[1:]


def digits() -> Images:
    """Those that come with the app."""
    rows = np.frombuffer(zlib.decompress(base64.b64decode(ROWS)), np.uint8).reshape(-1, ROW_BYTES)
    bits = np.unpackbits(rows[:, 1:], axis=1, bitorder="little").reshape(len(rows), 1, SIDE, SIDE, PIXEL_BITS)
    pixels = (bits @ (1 << np.arange(PIXEL_BITS))).astype(np.float32) / np.float32(BLACK)
    return Images(pixels, rows[:, 0].astype(np.int64))


def read(directory: Path) -> Images:
    """A directory with .npz files (`images`, `labels`), or with a directory of pictures for each class."""
    archives = sorted(directory.glob("*.npz"))
    if archives:
        parts = [_archive(path) for path in archives]
    else:
        classes = sorted(path for path in directory.iterdir() if path.is_dir())
        parts = [_pictures(path, label) for label, path in enumerate(classes)]
        parts = [part for part in parts if len(part)]
    if not parts:
        raise ValueError(f"{directory} has neither .npz files nor directories with pictures")
    if len({part.shape for part in parts}) > 1:
        raise ValueError(f"the images in {directory} are not all of one size")
    return Images(np.concatenate([part.pixels for part in parts]), np.concatenate([part.labels for part in parts]))


def _archive(path: Path) -> Images:
    with np.load(path) as kept:
        names = set(kept.files)
        pixels = kept["images"] if "images" in names else kept["x"] if "x" in names else None
        labels = kept["labels"] if "labels" in names else kept["y"] if "y" in names else None
    if pixels is None or labels is None or len(pixels) != len(labels):
        raise ValueError(f"{path} must have `images` and as many `labels`, and has {sorted(names)}")
    return Images(_in_order(pixels), labels.astype(np.int64).reshape(-1))


def _pictures(directory: Path, label: int) -> Images:
    paths = sorted(path for path in directory.iterdir() if path.suffix.lower() in IMAGE_KINDS)
    try:
        from PIL import Image
    except ImportError:
        raise ValueError(f"{directory} has pictures, and reading them needs Pillow: pip install pillow") from None
    arrays = []
    for path in paths:
        with Image.open(path) as picture:
            arrays.append(np.asarray(picture.convert("L" if picture.mode in ("1", "L", "I;16") else "RGB")))
    if not arrays:
        return Images(np.zeros((0, 1, 1, 1), np.float32), np.zeros(0, np.int64))
    if len({array.shape for array in arrays}) > 1:
        raise ValueError(f"the images in {directory} are not all of one size")
    return Images(_in_order(np.stack(arrays)), np.full(len(arrays), label, np.int64))


def _in_order(pixels: np.ndarray) -> np.ndarray:
    """Channels first, from 0 to 1."""
    if pixels.dtype == np.uint8:
        pixels = pixels.astype(np.float32) / np.float32(255)
    pixels = pixels.astype(np.float32)
    if pixels.ndim == 3:
        return pixels[:, None]
    # Pictures have few channels and many pixels.
    return pixels.transpose(0, 3, 1, 2) if pixels.shape[3] <= 4 < pixels.shape[1] else pixels


def part(images: Images, number: int, count: int, alpha: float, seed: int) -> Images:
    """One of `count` parts that together are all images. All nodes divide in the same way."""
    rng = np.random.default_rng(seed)
    order = rng.permutation(len(images))
    if alpha <= 0:
        return images.chosen(order[number::count])
    chosen = []
    for label in np.unique(images.labels):
        of_class = order[images.labels[order] == label]
        bounds = (np.cumsum(rng.dirichlet([alpha] * count)) * len(of_class)).round().astype(int)
        chosen.append(of_class[bounds[number - 1] if number else 0 : bounds[number]])
    # Nobody is left with nothing: who would be gets as many as make a round possible.
    found = np.concatenate(chosen)
    return images.chosen(found if len(found) >= 2 * TEST_EVERY else order[number::count][: 2 * TEST_EVERY])


def divided(images: Images) -> tuple[Images, Images]:
    """To train on, and to be tested with."""
    is_test = np.arange(len(images)) % TEST_EVERY == 0
    return images.chosen(np.flatnonzero(~is_test)), images.chosen(np.flatnonzero(is_test))
