"""Loads a model that was trained with Trellis, for `mlflow.pyfunc.load_model`. Needs numpy alone."""

import json
from pathlib import Path

import numpy as np


class TrellisModel:
    """The arrays of a model by name (`arrays`), and what it predicts where its network is known."""

    def __init__(self, arrays, layers):
        self.arrays = arrays
        self.layers = layers

    def predict(self, model_input=None, params=None):
        """Probabilities of the classes, a row for each row of features. Of an unknown network: its arrays by name."""
        if self.layers is None:
            return self.arrays
        output = np.asarray(model_input, dtype=np.float32)
        for index, (weight, bias) in enumerate(self.layers):
            if index > 0:
                output = np.maximum(output, 0)
            output = output @ self.arrays[weight].T + self.arrays[bias]
        exponents = np.exp(output - output.max(axis=1, keepdims=True))
        return exponents / exponents.sum(axis=1, keepdims=True)


def _load_pyfunc(path):
    directory = Path(path)
    with np.load(directory / "arrays.npz", allow_pickle=False) as content:
        arrays = {name: content[name] for name in content.files}
    network = directory / "network.json"
    return TrellisModel(arrays, json.loads(network.read_text()) if network.exists() else None)
