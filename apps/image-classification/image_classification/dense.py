"""Dense layers with ReLU between them, trained by SGD in numpy. Pure functions; the model is arrays by their names."""

import numpy as np

from .data import Images

SMALLEST_CHANCE = 1e-12


def fresh(features: int, hidden: int, classes: int, seed: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    model = {}
    for layer, (before, after) in enumerate([(features, hidden), (hidden, classes)], start=1):
        model[f"dense{layer}.weight"] = rng.normal(0, np.sqrt(2 / before), (after, before)).astype(np.float32)
        model[f"dense{layer}.bias"] = np.zeros(after, np.float32)
    return model


def train(model: dict, images: Images, *, lr: float, epochs: int, batch_size: int, mu: float, rng) -> tuple[dict, float]:
    """What was learned, and the mean loss on the way; `mu` pulls towards where it began (FedProx)."""
    weights, losses = {name: array.copy() for name, array in model.items()}, []
    pixels = images.pixels.reshape(len(images), -1)
    for _ in range(epochs):
        order = rng.permutation(len(images))
        for start in range(0, len(order), batch_size):
            chosen = order[start : start + batch_size]
            loss, gradients = _gradients(weights, pixels[chosen], images.labels[chosen])
            losses.append(loss)
            for name, weight in weights.items():
                weight -= np.float32(lr) * (gradients[name] + np.float32(mu) * (weight - model[name]))
    return weights, float(np.mean(losses))


def evaluate(model: dict, images: Images) -> tuple[float, float]:
    """Loss and accuracy."""
    _, chances = _forward(model, images.pixels.reshape(len(images), -1))
    right = chances[np.arange(len(images)), images.labels]
    loss = float(-np.log(np.maximum(right, SMALLEST_CHANCE)).mean())
    return loss, float((chances.argmax(1) == images.labels).mean())


def _forward(model: dict, pixels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    inner = np.maximum(pixels @ model["dense1.weight"].T + model["dense1.bias"], 0)
    summed = inner @ model["dense2.weight"].T + model["dense2.bias"]
    raised = np.exp(summed - summed.max(axis=1, keepdims=True))
    return inner, raised / raised.sum(axis=1, keepdims=True)


def _gradients(model: dict, pixels: np.ndarray, labels: np.ndarray) -> tuple[float, dict]:
    inner, chances = _forward(model, pixels)
    rows = np.arange(len(labels))
    loss = float(-np.log(np.maximum(chances[rows, labels], SMALLEST_CHANCE)).mean())
    error = chances.copy()
    error[rows, labels] -= 1
    error /= np.float32(len(labels))
    back = (error @ model["dense2.weight"]) * (inner > 0)
    gradients = {
        "dense1.weight": back.T @ pixels,
        "dense1.bias": back.sum(axis=0),
        "dense2.weight": error.T @ inner,
        "dense2.bias": error.sum(axis=0),
    }
    return loss, gradients
