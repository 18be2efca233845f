"""An autoencoder of one inner layer, trained by SGD in numpy. Pure functions; the model is arrays by their names."""

import numpy as np


def fresh(features: int, hidden: int, seed: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    return {
        "encoder.weight": rng.normal(0, 1 / np.sqrt(features), (hidden, features)).astype(np.float32),
        "encoder.bias": np.zeros(hidden, np.float32),
        "decoder.weight": rng.normal(0, 1 / np.sqrt(hidden), (features, hidden)).astype(np.float32),
        "decoder.bias": np.zeros(features, np.float32),
    }


def errors(model: dict, values: np.ndarray) -> np.ndarray:
    """How badly each row is reproduced."""
    return ((_forward(model, values)[1] - values) ** 2).mean(axis=1)


def train(model: dict, values: np.ndarray, *, lr: float, epochs: int, batch_size: int, mu: float, rng) -> tuple[dict, float]:
    """What was learned, and the mean loss on the way; `mu` pulls towards where it began (FedProx)."""
    weights, losses = {name: array.copy() for name, array in model.items()}, []
    for _ in range(epochs):
        order = rng.permutation(len(values))
        for start in range(0, len(order), batch_size):
            loss, gradients = _gradients(weights, values[order[start : start + batch_size]])
            losses.append(loss)
            for name, weight in weights.items():
                weight -= np.float32(lr) * (gradients[name] + np.float32(mu) * (weight - model[name]))
    return weights, float(np.mean(losses))


def _forward(model: dict, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    inner = np.tanh(values @ model["encoder.weight"].T + model["encoder.bias"])
    return inner, inner @ model["decoder.weight"].T + model["decoder.bias"]


def _gradients(model: dict, values: np.ndarray) -> tuple[float, dict]:
    inner, made = _forward(model, values)
    error = made - values
    # Summed over a row, as is usual: a mean would make the learning rate depend on how many columns there are.
    back = 2 * error / np.float32(len(values))
    through = (back @ model["decoder.weight"]) * (1 - inner**2)
    gradients = {
        "encoder.weight": through.T @ values,
        "encoder.bias": through.sum(axis=0),
        "decoder.weight": back.T @ inner,
        "decoder.bias": back.sum(axis=0),
    }
    return float((error**2).mean()), gradients
