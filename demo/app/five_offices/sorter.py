"""Who sorts letters: softmax regression, trained by gradient descent. Knows nothing of Flower."""

import numpy as np

from .letters import FEATURES, KINDS, Letters


def untrained() -> list[np.ndarray]:
    return [np.zeros((FEATURES, KINDS)), np.zeros(KINDS)]


def chances(model: list[np.ndarray], features: np.ndarray) -> np.ndarray:
    weights, offsets = model
    scores = features @ weights + offsets
    scores = np.exp(scores - scores.max(axis=1, keepdims=True))
    return scores / scores.sum(axis=1, keepdims=True)


def train(model: list[np.ndarray], letters: Letters, lr: float, epochs: int, batch: int = 32) -> list[np.ndarray]:
    weights, offsets = (array.copy() for array in model)
    wanted = np.eye(KINDS)[letters.kinds]
    for _ in range(epochs):
        for start in range(0, len(letters), batch):
            features = letters.features[start : start + batch]
            error = (chances([weights, offsets], features) - wanted[start : start + batch]) / len(features)
            weights -= lr * features.T @ error
            offsets -= lr * error.sum(axis=0)
    return [weights, offsets]


def judge(model: list[np.ndarray], letters: Letters) -> tuple[float, float]:
    """Loss and accuracy."""
    found = chances(model, letters.features)
    loss = -np.log(np.clip(found[np.arange(len(letters)), letters.kinds], 1e-12, None)).mean()
    return float(loss), float((found.argmax(axis=1) == letters.kinds).mean())
