"""The ClientApp: learns what is normal on this node, and says how large errors of normal rows are."""

from functools import lru_cache
from pathlib import Path

import numpy as np
from flwr.app import Context, Message
from flwr.clientapp import ClientApp

from . import autoencoder, data, measure
from .federated import client

app = ClientApp()


@app.query()
def query(message: Message, context: Context) -> Message:
    training, _ = _rows(context)
    return client.about(message, {"features": training.values.shape[1]})


@app.train()
def train(message: Message, context: Context) -> Message:
    training, _ = _rows(context)
    config = message.content["config"]
    learned, loss = autoencoder.train(
        client.arrays_of(message),
        training.values,
        lr=float(config["client-lr"]),
        epochs=int(context.run_config["local-epochs"]),
        batch_size=int(context.run_config["batch-size"]),
        mu=float(config.get("proximal-mu", 0.0)),
        rng=np.random.default_rng(client.seed_of(context, message)),
    )
    usual = autoencoder.errors(learned, training.values)
    threshold = float(np.quantile(usual, 1 - float(context.run_config["false-alarms"])))
    return client.trained(message, learned, len(training), train_loss=loss, threshold=threshold)


@app.evaluate()
def evaluate(message: Message, context: Context) -> Message:
    _, testing = _rows(context)
    scores = autoencoder.errors(client.arrays_of(message), testing.values)
    threshold = float(message.content["config"]["threshold"])
    metrics = {"alarms": float((scores > threshold).mean())}
    known = testing.anomalies
    # All nodes answer with the same metrics. Where nothing is known, or all is of one kind, nothing was measured.
    measured = known is not None and known.any() and not known.all()
    if measured:
        precision, recall = measure.at_threshold(scores, known, threshold)
        area = measure.auc(scores, known, str(context.run_config["backend"]).lower())
        metrics |= {"auc": area, "precision": precision, "recall": recall, "eval_loss": float(scores[~known].mean())}
    else:
        metrics |= {"auc": np.nan, "precision": np.nan, "recall": np.nan, "eval_loss": float(scores.mean())}
    return client.evaluated(message, len(testing), **metrics)


def _rows(context: Context) -> tuple[data.Rows, data.Rows]:
    seed = int(context.run_config["seed"])
    if own := client.own_directory(context):
        return data.divided(data.part(_read(own), 0, 1, seed))
    number, count = client.partition(context)
    shared = client.shared_directory(context)
    return data.divided(data.part(_read(shared) if shared else data.sensors(count, seed), number, count, seed))


@lru_cache(maxsize=1)
def _read(directory: Path) -> data.Rows:
    return data.read(directory)
