
"""Two interleaved half circles, and a network that tells them apart: in PyTorch, or in numpy where there is none."""

import numpy as np

try:
    import torch
except ImportError:
    torch = None

HIDDEN = 32


def data(partition, count=200):
    """Points and classes of a node. Each node has seen another part of the circles."""
    random = np.random.default_rng(partition)
    classes = random.integers(0, 2, count)
    angles = np.pi * random.beta(1 + partition % 3, 2, count)
    points = np.stack([np.cos(angles) + classes, np.sin(angles) * (1 - 2 * classes) + 0.4 * classes], axis=1)
    return (points + random.normal(0, 0.1, points.shape)).astype("float32"), classes


def first():
    """The arrays of a new model."""
    random = np.random.default_rng(1)
    shapes = {"w1": (2, HIDDEN), "b1": (HIDDEN,), "w2": (HIDDEN, 2), "b2": (2,)}
    return {name: random.normal(0, 0.5, shape).astype("float32") for name, shape in shapes.items()}


def forward(xp, m, points):
    return xp.tanh(points @ m["w1"] + m["b1"]) @ m["w2"] + m["b2"]


def train(m, points, classes, lr, epochs):
    """The trained arrays, and the last loss."""
    step = torch_step if torch else numpy_step
    for _ in range(epochs):
        m, loss = step(m, points, classes, lr)
    return m, loss


def torch_step(m, points, classes, lr):
    m = {name: torch.tensor(array, requires_grad=True) for name, array in m.items()}
    loss = torch.nn.functional.cross_entropy(forward(torch, m, torch.tensor(points)), torch.tensor(classes))
    loss.backward()
    return {name: (tensor - lr * tensor.grad).detach().numpy() for name, tensor in m.items()}, float(loss)


def numpy_step(m, points, classes, lr):
    hidden = np.tanh(points @ m["w1"] + m["b1"])
    odds = probabilities(hidden @ m["w2"] + m["b2"])
    loss = -np.log(odds[np.arange(len(classes)), classes]).mean()
    out = (odds - np.eye(2, dtype="float32")[classes]) / len(classes)
    back = (out @ m["w2"].T) * (1 - hidden**2)
    slopes = {"w1": points.T @ back, "b1": back.sum(0), "w2": hidden.T @ out, "b2": out.sum(0)}
    return {name: (m[name] - lr * slopes[name]).astype("float32") for name in m}, float(loss)


def probabilities(scores):
    scores = np.exp(scores - scores.max(1, keepdims=True))
    return scores / scores.sum(1, keepdims=True)


def accuracy(m, points, classes):
    return float((forward(np, m, points).argmax(1) == classes).mean())
