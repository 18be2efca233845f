"""A small language model over bytes in numpy: one layer of causal attention. Pure functions.

Its own weights are drawn from a fixed seed, the same on every node, and never change; what is learned are the adapters (LoRA): to
each adapted matrix W comes `scale * A @ B`, with A of few columns and B zero at first.
"""

import numpy as np

BYTES, WIDTH, BASE_SEED = 256, 48, 20_241_001
ADAPTED = {"query": (WIDTH, WIDTH), "value": (WIDTH, WIDTH), "output": (WIDTH, WIDTH), "head": (WIDTH, BYTES)}
HIDDEN = np.float32(-1e9)


def base(seq_length: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(BASE_SEED)
    draw = lambda *shape: (rng.normal(0, 1, shape) / np.sqrt(shape[0])).astype(np.float32)  # noqa: E731
    model = {name: draw(*shape) for name, shape in (*ADAPTED.items(), ("key", (WIDTH, WIDTH)))}
    # Small, so that at first every byte is about as likely as any other.
    model["head"] *= np.float32(0.1)
    model["bytes"] = rng.normal(0, 1, (BYTES, WIDTH)).astype(np.float32)
    angles = np.arange(seq_length)[:, None] / 100 ** (np.arange(WIDTH // 2) / (WIDTH // 2))
    model["places"] = np.concatenate([np.sin(angles), np.cos(angles)], axis=1).astype(np.float32)
    return model


def fresh_adapters(rank: int, seed: int) -> dict[str, np.ndarray]:
    rng, adapters = np.random.default_rng(seed), {}
    for name, (before, after) in ADAPTED.items():
        adapters[f"{name}.lora_A"] = (rng.normal(0, 1, (before, rank)) / np.sqrt(before)).astype(np.float32)
        adapters[f"{name}.lora_B"] = np.zeros((rank, after), np.float32)
    return adapters


def encoded(texts: list[str], seq_length: int) -> np.ndarray:
    """Rows of bytes, one more than a row is long: what comes next is what is learned. Filled up with zeros."""
    rows = np.zeros((len(texts), seq_length + 1), np.int64)
    for index, text in enumerate(texts):
        content = text.encode()[: seq_length + 1]
        rows[index, : len(content)] = list(content)
    return rows


def loss(model: dict, adapters: dict, scale: float, rows: np.ndarray) -> float:
    """Mean of the negative logarithm of the chance that each next byte had."""
    return _forward(model, adapters, scale, rows)["loss"]


def train(model: dict, adapters: dict, scale: float, rows: np.ndarray, *, lr, steps, batch_size, mu, rng) -> tuple[dict, float]:
    """What was learned, and the mean loss on the way; `mu` pulls towards where it began (FedProx). By Adam: the layers differ
    too much for one rate."""
    learned = {name: array.copy() for name, array in adapters.items()}
    first, second, losses = {}, {}, []
    for step in range(1, steps + 1):
        chosen = rows[rng.choice(len(rows), min(batch_size, len(rows)), replace=False)]
        found, gradients = gradients_of(model, learned, scale, chosen)
        losses.append(found)
        for name, array in learned.items():
            slope = gradients[name] + np.float32(mu) * (array - adapters[name])
            first[name] = 0.9 * first.get(name, 0) + 0.1 * slope
            second[name] = 0.99 * second.get(name, 0) + 0.01 * slope**2
            pace = (first[name] / (1 - 0.9**step)) / (np.sqrt(second[name] / (1 - 0.99**step)) + 1e-8)
            array -= (lr * pace).astype(np.float32)
    return learned, float(np.mean(losses))


def _adapted(model: dict, adapters: dict, scale: float, name: str) -> np.ndarray:
    return model[name] + np.float32(scale) * (adapters[f"{name}.lora_A"] @ adapters[f"{name}.lora_B"])


def _forward(model: dict, adapters: dict, scale: float, rows: np.ndarray) -> dict:
    given, wanted = rows[:, :-1], rows[:, 1:]
    length = given.shape[1]
    weights = {name: _adapted(model, adapters, scale, name) for name in ADAPTED}
    stream = model["bytes"][given] + model["places"][:length]
    query, key, value = stream @ weights["query"], stream @ model["key"], stream @ weights["value"]
    scores = query @ key.transpose(0, 2, 1) / np.float32(np.sqrt(WIDTH))
    attention = _softmax(scores + np.triu(np.full((length, length), HIDDEN), 1))
    mixed = attention @ value
    outcome = stream + mixed @ weights["output"]
    chances = _softmax(outcome @ weights["head"])
    counted = (wanted != 0).astype(np.float32)
    counted /= max(1.0, float(counted.sum()))
    right = np.take_along_axis(chances, wanted[..., None], axis=2)[..., 0]
    found = float(-(np.log(np.maximum(right, 1e-12)) * counted).sum())
    return locals() | {"loss": found}


def gradients_of(model: dict, adapters: dict, scale: float, rows: np.ndarray) -> tuple[float, dict]:
    """The loss, and how it changes with each adapter."""
    seen = _forward(model, adapters, scale, rows)
    weights, attention, stream = seen["weights"], seen["attention"], seen["stream"]
    error = seen["chances"].copy()
    np.put_along_axis(error, seen["wanted"][..., None], np.take_along_axis(error, seen["wanted"][..., None], 2) - 1, 2)
    error *= seen["counted"][..., None]
    back = {"head": _summed(seen["outcome"], error)}
    outcome = error @ weights["head"].T
    back["output"] = _summed(seen["mixed"], outcome)
    mixed = outcome @ weights["output"].T
    back["value"] = _summed(stream, attention.transpose(0, 2, 1) @ mixed)
    chosen = mixed @ seen["value"].transpose(0, 2, 1)
    scores = attention * (chosen - (chosen * attention).sum(axis=2, keepdims=True)) / np.float32(np.sqrt(WIDTH))
    back["query"] = _summed(stream, scores @ seen["key"])
    gradients = {}
    for name in ADAPTED:
        left, right = adapters[f"{name}.lora_A"], adapters[f"{name}.lora_B"]
        gradients[f"{name}.lora_A"] = np.float32(scale) * back[name] @ right.T
        gradients[f"{name}.lora_B"] = np.float32(scale) * left.T @ back[name]
    return seen["loss"], gradients


def _summed(before: np.ndarray, after: np.ndarray) -> np.ndarray:
    """The gradient of a matrix between the two."""
    return before.reshape(-1, before.shape[-1]).T @ after.reshape(-1, after.shape[-1])


def _softmax(summed: np.ndarray) -> np.ndarray:
    raised = np.exp(summed - summed.max(axis=-1, keepdims=True))
    return raised / raised.sum(axis=-1, keepdims=True)
