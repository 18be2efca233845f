"""How well anomalies are found: in numpy, or by scikit-learn where it is there."""

import importlib.util

import numpy as np


def has_sklearn() -> bool:
    return importlib.util.find_spec("sklearn") is not None


def auc(scores: np.ndarray, anomalies: np.ndarray, backend: str) -> float:
    """The chance that an anomaly has a higher score than a normal row; of ties half counts."""
    if _uses_sklearn(backend):
        from sklearn.metrics import roc_auc_score

        return float(roc_auc_score(anomalies, scores))
    bad, good = scores[anomalies], np.sort(scores[~anomalies])
    below = np.searchsorted(good, bad, side="left") + np.searchsorted(good, bad, side="right")
    return float(below.mean() / 2 / len(good))


def at_threshold(scores: np.ndarray, anomalies: np.ndarray, threshold: float) -> tuple[float, float]:
    """Precision and recall of calling everything above the threshold an anomaly."""
    told = scores > threshold
    right = float((told & anomalies).sum())
    return right / max(1.0, float(told.sum())), right / max(1.0, float(anomalies.sum()))


def _uses_sklearn(backend: str) -> bool:
    if backend not in ("auto", "numpy", "sklearn"):
        raise ValueError(f"backend is {backend!r}, and must be auto, numpy or sklearn")
    if backend == "sklearn" and not has_sklearn():
        raise ValueError("backend is sklearn, and this node has no scikit-learn: install it, or use backend=auto")
    return backend != "numpy" and has_sklearn()
