"""Arrays from the bytes of a safetensors file."""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Any, NamedTuple

from .errors import ConfigurationError, UnexpectedAnswer

if TYPE_CHECKING:
    import numpy

# As numpy and as torch call them, and their bytes. numpy has no bfloat16.
_TYPES = {
    "BOOL": ("?", "bool", 1),
    "I8": ("i1", "int8", 1),
    "I16": ("<i2", "int16", 2),
    "I32": ("<i4", "int32", 4),
    "I64": ("<i8", "int64", 8),
    "U8": ("u1", "uint8", 1),
    "U16": ("<u2", "uint16", 2),
    "U32": ("<u4", "uint32", 4),
    "U64": ("<u8", "uint64", 8),
    "F16": ("<f2", "float16", 2),
    "BF16": ("", "bfloat16", 2),
    "F32": ("<f4", "float32", 4),
    "F64": ("<f8", "float64", 8),
}
_LENGTH_BYTES = 8
# Where the data has another order than the model.
_ORDER = "order"


class _Tensor(NamedTuple):
    name: str
    dtype: str
    shape: list[int]
    data: bytes


def arrays(content: bytes) -> dict[str, numpy.ndarray[Any, Any]]:
    """The arrays by name, in the order of the model. numpy has no bfloat16: such arrays become float32."""
    numpy = _import("numpy", "model()")
    return {tensor.name: _array(numpy, tensor) for tensor in _tensors(content)}


def state_dict(content: bytes) -> dict[str, Any]:
    """The same as tensors of PyTorch, for `Module.load_state_dict`."""
    torch = _import("torch", "state_dict()")
    return {tensor.name: _torch_tensor(torch, tensor) for tensor in _tensors(content)}


def _tensors(content: bytes) -> list[_Tensor]:
    try:
        base = _LENGTH_BYTES + int.from_bytes(content[:_LENGTH_BYTES], "little")
        infos = json.loads(content[_LENGTH_BYTES:base])
        metadata = infos.pop("__metadata__", {})
        names = json.loads(metadata[_ORDER]) if _ORDER in metadata else list(infos)
        return [_tensor(name, infos[name], content, base) for name in names]
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise UnexpectedAnswer(f"the model is no safetensors file: {error}") from error


def _tensor(name: str, info: dict[str, Any], content: bytes, base: int) -> _Tensor:
    if info["dtype"] not in _TYPES:
        raise ValueError(f"the array {name} is of type {info['dtype']}")
    begin, end = info["data_offsets"]
    data = content[base + begin : base + end]
    if len(data) != math.prod(info["shape"]) * _TYPES[info["dtype"]][2]:
        raise ValueError(f"the array {name} does not have the bytes that its shape needs")
    return _Tensor(name, info["dtype"], info["shape"], data)


def _array(numpy: Any, tensor: _Tensor) -> Any:
    if tensor.dtype == "BF16":
        # The upper half of a float32.
        wide = numpy.frombuffer(tensor.data, "<u2").astype("<u4") << 16
        return wide.view("<f4").reshape(tensor.shape)
    return numpy.frombuffer(tensor.data, _TYPES[tensor.dtype][0]).reshape(tensor.shape).copy()


def _torch_tensor(torch: Any, tensor: _Tensor) -> Any:
    dtype = getattr(torch, _TYPES[tensor.dtype][1])
    if not tensor.data:
        return torch.empty(tensor.shape, dtype=dtype)
    # A copy: tensors can be written to.
    return torch.frombuffer(bytearray(tensor.data), dtype=dtype).reshape(tensor.shape)


def _import(name: str, what: str) -> Any:
    try:
        return __import__(name)
    except ImportError:
        raise ConfigurationError(f"{what} needs {name}: pip install {name}") from None
