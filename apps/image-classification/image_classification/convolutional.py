"""The first arrays of the convolutional network. In numpy: the ServerApp needs no PyTorch."""

import numpy as np

FILTERS = (16, 32)
SIDE = 3
# Two layers of pooling halve an image twice.
POOLED = 4


def fresh(shape: tuple[int, ...], hidden: int, classes: int, seed: int) -> dict[str, np.ndarray]:
    channels, height, width = shape
    if min(height, width) < POOLED:
        raise ValueError(f"images of {height} x {width} are too small for a convolutional network: use model=mlp")
    rng = np.random.default_rng(seed)
    features = FILTERS[1] * (height // POOLED) * (width // POOLED)
    shapes = {
        "conv1": (FILTERS[0], channels, SIDE, SIDE),
        "conv2": (FILTERS[1], FILTERS[0], SIDE, SIDE),
        "dense1": (hidden, features),
        "dense2": (classes, hidden),
    }
    model = {}
    for name, shape in shapes.items():
        inputs = int(np.prod(shape[1:]))
        model[f"{name}.weight"] = rng.normal(0, np.sqrt(2 / inputs), shape).astype(np.float32)
        model[f"{name}.bias"] = np.zeros(shape[0], np.float32)
    return model
