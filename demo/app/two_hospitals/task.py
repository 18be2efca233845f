"""The patients and the model: pure numpy, knows nothing of Flower.

A patient is four measurements; whether they are ill follows from a hidden rule, with noise. The hospitals see
different people: one the young, one the old. Either alone learns a skewed model.
"""

import numpy as np

FEATURES = ("age", "pressure", "sugar", "weight")
HIDDEN_WEIGHTS = np.array([1.6, 2.4, -1.8, 0.9])
HIDDEN_BIAS = -0.4
NOISE = 0.5
PATIENTS = (600, 400)
MEAN_AGE = (-1.2, 1.2)
UNSEEN_PATIENTS = 2000
SEED = 2026
# Sets the random stream of the unseen apart from those of the hospitals.
UNSEEN = 99

Model = tuple[np.ndarray, np.ndarray]


def empty_model() -> Model:
    return np.zeros(len(FEATURES)), np.zeros(1)


def hospital(index: int) -> tuple[np.ndarray, np.ndarray]:
    """The patients of one hospital: measurements and who is ill."""
    kind = index % len(PATIENTS)
    return _patients(np.random.default_rng([SEED, index]), PATIENTS[kind], MEAN_AGE[kind])


def unseen_patients() -> tuple[np.ndarray, np.ndarray]:
    """People of every age whom no hospital has seen."""
    young, old = (
        _patients(np.random.default_rng([SEED, UNSEEN, kind]), UNSEEN_PATIENTS // 2, age)
        for kind, age in enumerate(MEAN_AGE)
    )
    return np.concatenate([young[0], old[0]]), np.concatenate([young[1], old[1]])


def train(model: Model, data: tuple[np.ndarray, np.ndarray], learning_rate: float, epochs: int) -> Model:
    """Some epochs of plain gradient descent on the logistic loss."""
    weights, bias = model
    measured, ill = data
    for _ in range(epochs):
        error = _probability((weights, bias), measured) - ill
        weights = weights - learning_rate * measured.T @ error / len(ill)
        bias = bias - learning_rate * error.mean()
    return weights, bias


def evaluate(model: Model, data: tuple[np.ndarray, np.ndarray]) -> tuple[float, float]:
    """Logistic loss and accuracy."""
    measured, ill = data
    probability = np.clip(_probability(model, measured), 1e-9, 1 - 1e-9)
    loss = -(ill * np.log(probability) + (1 - ill) * np.log(1 - probability)).mean()
    return float(loss), float(((probability > 0.5) == (ill > 0.5)).mean())


def _probability(model: Model, measured: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-(measured @ model[0] + model[1])))


def _patients(rng: np.random.Generator, count: int, mean_age: float) -> tuple[np.ndarray, np.ndarray]:
    measured = rng.normal(size=(count, len(FEATURES)))
    measured[:, 0] += mean_age
    score = measured @ HIDDEN_WEIGHTS + HIDDEN_BIAS + NOISE * rng.normal(size=count)
    return measured, (score > 0).astype(float)
