"""The ClientApp: fine-tunes on this node's instructions, and sends the adapters."""

import math
from functools import lru_cache
from pathlib import Path

import numpy as np
from flwr.app import Context, Message
from flwr.clientapp import ClientApp

from . import data
from .federated import client
from .tuners import PeftTuner, SmallTuner

# A loss beyond it says no more than that the model is lost, and its exponential is no number.
LARGEST_LOSS = 50.0

app = ClientApp()


@app.query()
def query(message: Message, context: Context) -> Message:
    training, _ = _texts(context)
    facts = {"examples": len(training), "model": "peft" if _model_directory(context) else "small"}
    return client.about(message, facts, _tuner(context).fresh())


@app.train()
def train(message: Message, context: Context) -> Message:
    training, testing = _texts(context)
    tuner, config, settings = _tuner(context), message.content["config"], context.run_config
    adapters = client.arrays_of(message)
    before = tuner.loss(adapters, testing)
    batch_size = int(settings["batch-size"])
    whole = math.ceil(len(training) / batch_size) * int(settings["local-epochs"])
    learned, loss = tuner.train(
        adapters,
        training,
        lr=float(config["client-lr"]),
        steps=min(whole, int(settings["max-steps"])),
        batch_size=batch_size,
        mu=float(config.get("proximal-mu", 0.0)),
        rng=np.random.default_rng(client.seed_of(context, message)),
    )
    return client.trained(message, learned, len(training), train_loss=loss, perplexity_before=_perplexity(before))


@app.evaluate()
def evaluate(message: Message, context: Context) -> Message:
    _, testing = _texts(context)
    loss = _tuner(context).loss(client.arrays_of(message), testing)
    return client.evaluated(message, len(testing), eval_loss=loss, perplexity=_perplexity(loss))


def _perplexity(loss: float) -> float:
    return math.exp(min(loss, LARGEST_LOSS))


def _texts(context: Context) -> tuple[list[str], list[str]]:
    seed = int(context.run_config["seed"])
    if own := client.own_directory(context):
        return data.divided(data.part(_read(own), 0, 1, seed))
    number, count = client.partition(context)
    shared = client.shared_directory(context)
    return data.divided(data.part(_read(shared) if shared else data.built_in(count, seed), number, count, seed))


@lru_cache(maxsize=1)
def _read(directory: Path) -> list[str]:
    return data.read(directory)


def _model_directory(context: Context) -> str:
    """The node's own word counts before that of the run."""
    return str(context.node_config.get("model-dir", "") or context.run_config["model-dir"]).strip()


def _tuner(context: Context) -> SmallTuner | PeftTuner:
    settings = context.run_config
    rank, alpha, length = int(settings["lora-rank"]), float(settings["lora-alpha"]), int(settings["seq-length"])
    return _made(_model_directory(context), rank, alpha, length, int(settings["seed"]))


@lru_cache(maxsize=1)
def _made(directory: str, rank: int, alpha: float, length: int, seed: int) -> SmallTuner | PeftTuner:
    return PeftTuner(Path(directory), rank, alpha, length) if directory else SmallTuner(rank, alpha, length, seed)
