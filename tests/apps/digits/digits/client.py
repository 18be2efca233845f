"""The ClientApp: what it answers depends on what it got, its partition and the round, and on nothing else."""

import numpy as np
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from digits import network
from digits.data import Examples, shard

NOISE = 10.0

app = ClientApp()


@app.train()
def train(message: Message, context: Context) -> Message:
    partition, (examples, _) = _data(context)
    config, settings = message.content["config"], context.run_config
    rng = np.random.default_rng([int(settings["seed"]), partition, int(config["server-round"])])
    names = list(message.content["arrays"])
    arrays = message.content["arrays"].to_numpy_ndarrays()
    if partition < int(settings["liars"]):
        learned, loss = [rng.normal(0, NOISE, array.shape).astype(np.float32) for array in arrays], 0.0
    else:
        learned, loss = network.train(
            arrays,
            examples,
            lr=float(settings["lr"]),
            epochs=int(settings["local-epochs"]),
            batch_size=int(settings["batch-size"]),
            mu=float(config.get("proximal-mu", 0.0)),
            rng=rng,
        )
    record = ArrayRecord(dict(zip(names, (ArrayRecord([array])["0"] for array in learned))))
    metrics = MetricRecord({"num-examples": len(examples), "train_loss": loss})
    return Message(content=RecordDict({"arrays": record, "metrics": metrics}), reply_to=message)


@app.evaluate()
def evaluate(message: Message, context: Context) -> Message:
    _, (_, examples) = _data(context)
    loss, accuracy = network.evaluate(message.content["arrays"].to_numpy_ndarrays(), examples)
    metrics = MetricRecord({"num-examples": len(examples), "eval_loss": loss, "eval_acc": accuracy})
    return Message(content=RecordDict({"metrics": metrics}), reply_to=message)


def _data(context: Context) -> tuple[int, tuple[Examples, Examples]]:
    partition, partitions = int(context.node_config["partition-id"]), int(context.node_config["num-partitions"])
    return partition, shard(str(context.run_config["data-path"]), partition, partitions)
