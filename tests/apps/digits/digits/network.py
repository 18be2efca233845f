"""A network of dense layers with ReLU between them, trained by plain SGD: pure functions on numpy arrays."""

import numpy as np

from digits.data import PIXELS, Examples

WIDTH, CLASSES = 24, 10


def fresh(hidden_layers: int, seed: int) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    sizes = [PIXELS, *[WIDTH] * hidden_layers, CLASSES]
    arrays = []
    for before, after in zip(sizes, sizes[1:]):
        arrays.append(rng.normal(0, np.sqrt(2 / before), (before, after)).astype(np.float32))
        arrays.append(np.zeros(after, np.float32))
    return arrays


def train(
    arrays: list[np.ndarray], examples: Examples, *, lr: float, epochs: int, batch_size: int, mu: float, rng
) -> tuple[list[np.ndarray], float]:
    """Return what was learned and the mean loss on the way; `mu` pulls towards where it began (FedProx)."""
    weights, losses = [array.copy() for array in arrays], []
    for _ in range(epochs):
        order = rng.permutation(len(examples))
        for start in range(0, len(order), batch_size):
            chosen = order[start : start + batch_size]
            loss, gradients = _gradients(weights, examples.pixels[chosen], examples.labels[chosen])
            losses.append(loss)
            for weight, gradient, origin in zip(weights, gradients, arrays):
                weight -= np.float32(lr) * (gradient + np.float32(mu) * (weight - origin))
    return weights, float(np.mean(losses))


def evaluate(arrays: list[np.ndarray], examples: Examples) -> tuple[float, float]:
    """Loss and accuracy."""
    chances = _forward(arrays, examples.pixels)[-1]
    right = chances[np.arange(len(examples)), examples.labels]
    return float(-np.log(np.maximum(right, 1e-12)).mean()), float((chances.argmax(1) == examples.labels).mean())


def _forward(arrays: list[np.ndarray], pixels: np.ndarray) -> list[np.ndarray]:
    layers, last = [pixels], len(arrays) // 2 - 1
    # Noise from a liar may be too large for float32; what comes out is nonsense then, and may be.
    with np.errstate(all="ignore"):
        for index in range(last + 1):
            summed = layers[-1] @ arrays[2 * index] + arrays[2 * index + 1]
            layers.append(np.maximum(summed, 0) if index < last else _softmax(summed))
    return layers


def _softmax(summed: np.ndarray) -> np.ndarray:
    raised = np.exp(summed - summed.max(axis=1, keepdims=True))
    return raised / raised.sum(axis=1, keepdims=True)


def _gradients(arrays: list[np.ndarray], pixels: np.ndarray, labels: np.ndarray) -> tuple[float, list[np.ndarray]]:
    layers = _forward(arrays, pixels)
    rows = np.arange(len(labels))
    loss = float(-np.log(np.maximum(layers[-1][rows, labels], 1e-12)).mean())
    error = layers[-1].copy()
    error[rows, labels] -= 1
    error /= np.float32(len(labels))
    gradients: list[np.ndarray] = []
    for index in reversed(range(len(arrays) // 2)):
        gradients[:0] = [layers[index].T @ error, error.sum(axis=0)]
        if index:
            error = (error @ arrays[2 * index].T) * (layers[index] > 0)
    return loss, gradients
