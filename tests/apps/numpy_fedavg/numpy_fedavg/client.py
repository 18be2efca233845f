"""The ClientApp: one deterministic update per round, one number per evaluation."""

import time
from pathlib import Path

import numpy as np
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from numpy_fedavg import model

GATE_LIMIT_S = 120.0
ALL_PARTITIONS = -1
GATE_CHECK_S = 0.05

app = ClientApp()


@app.train()
def train(message: Message, context: Context) -> Message:
    partition = int(context.node_config["partition-id"])
    _pass_gate(context, partition)
    time.sleep(float(context.run_config["train-seconds"]))
    if context.run_config["empty"]:
        content = RecordDict({"arrays": message.content["arrays"], "metrics": _metrics(context, [])})
        return Message(content=content, reply_to=message)
    arrays = message.content["arrays"].to_numpy_ndarrays()
    server_round = int(message.content["config"]["server-round"])
    updated = model.local_update(arrays, int(context.run_config["seed"]), partition, server_round)
    content = RecordDict({"arrays": ArrayRecord(updated), "metrics": _metrics(context, updated)})
    return Message(content=content, reply_to=message)


@app.evaluate()
def evaluate(message: Message, context: Context) -> Message:
    arrays = [] if context.run_config["empty"] else message.content["arrays"].to_numpy_ndarrays()
    return Message(content=RecordDict({"metrics": _metrics(context, arrays)}), reply_to=message)


def _metrics(context: Context, arrays: list[np.ndarray]) -> MetricRecord:
    partition, partitions = int(context.node_config["partition-id"]), int(context.node_config["num-partitions"])
    examples = model.example_count(partition, partitions)
    return MetricRecord({"num-examples": examples, "mean-square": model.mean_square(arrays)})


def _pass_gate(context: Context, partition: int) -> None:
    """Let a test hold one client, or all, between receiving an instruction and answering it."""
    gate, gated = str(context.run_config["gate-path"]), int(context.run_config["gate-partition"])
    if not gate or gated not in (partition, ALL_PARTITIONS):
        return
    for name in (".started", f".started-{partition}"):
        Path(gate + name).touch()
    deadline = time.monotonic() + GATE_LIMIT_S
    while not Path(gate + ".open").exists():
        if time.monotonic() > deadline:
            raise TimeoutError(f"nobody opened {gate} within {GATE_LIMIT_S} s")
        time.sleep(GATE_CHECK_S)
