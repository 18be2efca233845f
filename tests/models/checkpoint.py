"""A checkpoint as docs/models.md describes it, written without any of our code: the description must be enough."""

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np

# numpy's names and those of safetensors. numpy has no bfloat16: its two bytes are made of a float32.
NAMES = {
    "bool": "BOOL",
    "int8": "I8",
    "int16": "I16",
    "int32": "I32",
    "int64": "I64",
    "uint8": "U8",
    "uint16": "U16",
    "uint32": "U32",
    "uint64": "U64",
    "float16": "F16",
    "bfloat16": "BF16",
    "float32": "F32",
    "float64": "F64",
}
SHAPES = ((2, 3), (), (0,), (4,), (2, 0, 3), (1, 1, 5))


@dataclass(frozen=True)
class Tensor:
    """An array as a model has it. Of bfloat16 the values are those of a float32, cut to what the type can hold."""

    name: str
    dtype: str
    values: np.ndarray

    @property
    def data(self) -> bytes:
        if self.dtype == "bfloat16":
            return (self.values.view(np.uint32) >> 16).astype("<u2").tobytes()
        return self.values.astype(self.values.dtype.newbyteorder("<")).tobytes()


def every_dtype() -> list[Tensor]:
    """Two arrays of each type, in an order that no sorting gives, with shapes that people forget."""
    random = np.random.default_rng(5)
    made = []
    for index, dtype in enumerate(reversed(NAMES)):
        for name in (f"z{index}.weight", f"a{index}/bias é"):
            shape = SHAPES[len(made) % len(SHAPES)]
            made.append(Tensor(name, dtype, values(random, dtype, shape)))
    return made


def values(random: np.random.Generator, dtype: str, shape: tuple[int, ...]) -> np.ndarray:
    if dtype == "bool":
        return random.integers(0, 2, shape).astype(bool) if shape else np.array(True)
    if dtype == "bfloat16":
        wide = np.asarray(random.normal(size=shape), dtype=np.float32)
        return np.asarray(wide.view(np.uint32) & 0xFFFF0000, dtype=np.uint32).view(np.float32)
    if dtype.startswith("float"):
        return np.asarray(random.normal(size=shape), dtype=dtype)
    limits = np.iinfo(dtype)
    return np.asarray(random.integers(limits.min, limits.max, shape, dtype=dtype, endpoint=True))


def safetensors_file(tensors: list[Tensor], **metadata: str) -> bytes:
    """As the authors of the format write it: by size of elements, then by name; our order is in the metadata."""
    placed = sorted(tensors, key=lambda tensor: (-element_bytes(tensor), tensor.name))
    order = json.dumps([tensor.name for tensor in tensors])
    header: dict[str, object] = {"__metadata__": {"order": order} | metadata}
    at = 0
    for tensor in placed:
        end = at + len(tensor.data)
        shape = list(tensor.values.shape)
        header[tensor.name] = {"dtype": NAMES[tensor.dtype], "shape": shape, "data_offsets": [at, end]}
        at = end
    text = json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + b"".join(tensor.data for tensor in placed)


def element_bytes(tensor: Tensor) -> int:
    """Bytes of one element."""
    return 2 if tensor.dtype == "bfloat16" else tensor.values.dtype.itemsize


def write_checkpoint(models: Path, run: str, round_number: int, tensors: list[Tensor]) -> Path:
    directory = models / run / f"round-{round_number:06}"
    directory.mkdir(parents=True)
    files = {
        "model.safetensors": safetensors_file(tensors),
        "state.safetensors": safetensors_file([], models="[]"),
    }
    measured = {"round": round_number, "train": {"loss": 0.5}, "evaluate": {"accuracy": 0.75}}
    manifest = {
        "format": 1,
        "run_id": run,
        "round": round_number,
        "rounds_planned": round_number,
        "final": True,
        "strategy": "FedAvg",
        "seed": 7,
        "run_config": {},
        "metrics": measured,
        "history": [measured],
        "state_numbers": {},
        "app": {"fab_id": "", "fab_version": "", "fab_hash": ""},
        "resumed_from": None,
        "saved_at": 1763197200.0,
        "trellis_version": "0.0.0",
        "files": {
            name: {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
            for name, content in files.items()
        },
    }
    for name, content in files.items():
        (directory / name).write_bytes(content)
    (directory / "manifest.json").write_text(json.dumps(manifest))
    return directory
