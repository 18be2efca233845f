"""Fixtures of the suite for models on disk: a checkpoint, `trellis model`, and who else reads what it exports."""

import ast
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from harness.workspace import trellis_binary
from models.checkpoint import Tensor, every_dtype, write_checkpoint

COMMAND_LIMIT_S = 60.0
# Importing torch from a cold disk takes long.
READER_LIMIT_S = 300.0
RUN = "4711"


@pytest.fixture(scope="session")
def tensors() -> list[Tensor]:
    return every_dtype()


@pytest.fixture
def model(tmp_path: Path, tensors: list[Tensor]) -> Callable[..., subprocess.CompletedProcess]:
    """Calls `trellis model`; there is one checkpoint, of run 4711."""
    write_checkpoint(tmp_path / "models", RUN, 10, tensors)

    def call(*words: str) -> subprocess.CompletedProcess:
        argv = [str(trellis_binary()), "model", *words, "--models", str(tmp_path / "models")]
        done = subprocess.run(
            argv, cwd=tmp_path, capture_output=True, text=True, timeout=COMMAND_LIMIT_S, check=False
        )
        assert done.returncode == 0, f"{' '.join(argv)} ended with {done.returncode}\n{done.stderr}"
        return done

    return call


@pytest.fixture
def read_with_torch(torch_python: str, tmp_path: Path) -> Callable[[str], list[tuple]]:
    """What an expression over `torch` and `load_file` makes of a file: name, type, shape and bytes of each array."""

    def read(expression: str) -> list[tuple]:
        script = READ_WITH_TORCH.replace("EXPRESSION", expression)
        done = subprocess.run(
            [torch_python, "-c", script],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=READER_LIMIT_S,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return ast.literal_eval(done.stdout)

    return read


READ_WITH_TORCH = """
import torch
from safetensors.torch import load_file
read = EXPRESSION
elements = lambda tensor: bytes(tensor.contiguous().reshape(-1).view(torch.uint8).tolist())
print([(name, str(t.dtype).removeprefix("torch."), tuple(t.shape), elements(t)) for name, t in read.items()])
"""
