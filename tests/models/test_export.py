"""Exported models, read by those they are written for: numpy, PyTorch, safetensors."""

import json

import numpy as np
import pytest

pytestmark = [pytest.mark.quick, pytest.mark.trellis_only]


def in_bytes(tensors):
    """As the readers tell what they found: names in order, type, shape, bytes of the elements."""
    return [(tensor.name, tensor.dtype, tensor.values.shape, tensor.data) for tensor in tensors]


def test_a_checkpoint_written_by_others_is_shown(model, tensors):
    shown = json.loads(model("show", "4711", "-o", "json").stdout)

    assert shown["verified"]
    arrays = [(array["name"], array["dtype"], tuple(array["shape"])) for array in shown["arrays"]]
    assert arrays == [(tensor.name, tensor.dtype, tensor.values.shape) for tensor in tensors]


def test_yaml_says_the_same_as_json(model):
    yaml = pytest.importorskip("yaml")

    shown = yaml.safe_load(model("show", "4711", "-o", "yaml").stdout)

    assert shown == json.loads(model("show", "4711", "-o", "json").stdout)


def test_numpy_reads_an_npz_by_name(model, tensors, tmp_path):
    done = model("export", "4711", "--out", "model.npz")

    with np.load(tmp_path / "model.npz", allow_pickle=False) as found:
        assert found.files == [tensor.name for tensor in tensors]
        for tensor in tensors:
            # numpy has no bfloat16: the same values, as float32.
            dtype = "float32" if tensor.dtype == "bfloat16" else tensor.dtype
            assert found[tensor.name].dtype == np.dtype(dtype), tensor.name
            assert found[tensor.name].shape == tensor.values.shape, tensor.name
            np.testing.assert_array_equal(found[tensor.name], tensor.values, err_msg=tensor.name)
    assert "numpy has no bfloat16" in done.stderr


def test_numpy_reads_an_npz_by_position(model, tensors, tmp_path):
    model("export", "4711", "--out", "model.npz", "--positional")

    with np.load(tmp_path / "model.npz", allow_pickle=False) as found:
        assert found.files == [f"arr_{index}" for index in range(len(tensors))]
        for index, tensor in enumerate(tensors):
            np.testing.assert_array_equal(found[f"arr_{index}"], tensor.values)


@pytest.mark.parametrize("how", ["weights_only=True", "weights_only=False", "weights_only=True, mmap=True"])
def test_torch_reads_a_state_dict(model, tensors, read_with_torch, how):
    model("export", "4711", "--out", "model.pt")

    assert read_with_torch(f"torch.load('model.pt', {how})") == in_bytes(tensors)


def test_safetensors_reads_the_same(model, tensors, read_with_torch):
    model("export", "4711", "--out", "model.safetensors")

    found = read_with_torch("load_file('model.safetensors')")

    assert sorted(found) == sorted(in_bytes(tensors))
