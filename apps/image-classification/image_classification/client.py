"""The ClientApp: trains on this node's images."""

import importlib.util
from functools import lru_cache
from pathlib import Path

import numpy as np
from flwr.app import Context, Message
from flwr.clientapp import ClientApp

from . import data, dense
from .federated import client

app = ClientApp()


@app.query()
def query(message: Message, context: Context) -> Message:
    training, testing = _images(context)
    facts = {
        "channels": training.shape[0],
        "height": training.shape[1],
        "width": training.shape[2],
        "classes": int(max(training.labels.max(), testing.labels.max())) + 1,
        "pytorch": _has_torch(),
    }
    return client.about(message, facts)


@app.train()
def train(message: Message, context: Context) -> Message:
    images, _ = _images(context)
    config, model = message.content["config"], client.arrays_of(message)
    learned, loss = _backend(context, model).train(
        model,
        images,
        lr=float(config["client-lr"]),
        epochs=int(context.run_config["local-epochs"]),
        batch_size=int(context.run_config["batch-size"]),
        mu=float(config.get("proximal-mu", 0.0)),
        rng=np.random.default_rng(client.seed_of(context, message)),
    )
    return client.trained(message, learned, len(images), train_loss=loss)


@app.evaluate()
def evaluate(message: Message, context: Context) -> Message:
    _, images = _images(context)
    model = client.arrays_of(message)
    loss, accuracy = _backend(context, model).evaluate(model, images)
    return client.evaluated(message, len(images), eval_loss=loss, eval_acc=accuracy)


def _images(context: Context) -> tuple[data.Images, data.Images]:
    alpha, seed = float(context.run_config["dirichlet-alpha"]), int(context.run_config["seed"])
    if own := client.own_directory(context):
        return data.divided(data.part(_read(own), 0, 1, 0.0, seed))
    number, count = client.partition(context)
    return data.divided(data.part(_read(client.shared_directory(context)), number, count, alpha, seed))


@lru_cache(maxsize=1)
def _read(directory: Path | None) -> data.Images:
    return data.read(directory) if directory else data.digits()


def _has_torch() -> bool:
    return importlib.util.find_spec("torch") is not None


def _backend(context: Context, model: dict):
    wanted = str(context.run_config["backend"]).lower()
    if wanted not in ("auto", "numpy", "pytorch"):
        raise ValueError(f"backend is {wanted!r}, and must be auto, numpy or pytorch")
    if wanted == "numpy" or (wanted == "auto" and not _has_torch()):
        if "conv1.weight" in model:
            raise ValueError("a convolutional network needs PyTorch on this node: install torch, or run with model=mlp")
        return dense
    from . import torch_network

    return torch_network
