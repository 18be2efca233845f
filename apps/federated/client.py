"""What every ClientApp of the catalogue does with a message: where its data is, what it answers."""

from pathlib import Path

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict


def own_directory(context: Context) -> Path | None:
    """Where the data of this node alone is, as whoever started the node says."""
    named = str(context.node_config.get("data-dir", "")).strip()
    return Path(named) if named else None


def shared_directory(context: Context) -> Path | None:
    """Where data is that every node sees, and of which each takes its part, as the run says."""
    named = str(context.run_config.get("data-dir", "")).strip()
    return Path(named) if named else None


def partition(context: Context) -> tuple[int, int]:
    """Which part of the data is this node's, and of how many."""
    try:
        number, count = int(context.node_config["partition-id"]), int(context.node_config["num-partitions"])
    except (KeyError, ValueError, TypeError) as error:
        advice = 'start the node with --node-config "partition-id=0 num-partitions=2", or with a data-dir of its own'
        raise ValueError(f"this node does not know its part of the data ({error}): {advice}") from None
    if not 0 <= number < count:
        raise ValueError(f"partition-id is {number}, and must be from 0 to below num-partitions, which is {count}")
    return number, count


def arrays_of(message: Message) -> dict[str, np.ndarray]:
    return {name: array.numpy() for name, array in message.content["arrays"].items()}


def trained(message: Message, arrays: dict[str, np.ndarray], examples: int, **metrics: float) -> Message:
    record = ArrayRecord({name: Array(array) for name, array in arrays.items()})
    return Message(RecordDict({"arrays": record, "metrics": _metrics(examples, metrics)}), reply_to=message)


def evaluated(message: Message, examples: int, **metrics: float) -> Message:
    return Message(RecordDict({"metrics": _metrics(examples, metrics)}), reply_to=message)


def about(message: Message, facts: dict, arrays: dict[str, np.ndarray] | None = None) -> Message:
    """The answer to the question of what this node has."""
    content = RecordDict({"about": ConfigRecord(facts)})
    if arrays is not None:
        content["arrays"] = ArrayRecord({name: Array(array) for name, array in arrays.items()})
    return Message(content, reply_to=message)


def seed_of(context: Context, message: Message) -> list[int]:
    """The same for the same node and round; another for every other."""
    number = int(context.node_config.get("partition-id", context.node_id % (1 << 31)))
    return [int(context.run_config["seed"]), number, int(message.content["config"]["server-round"])]


def _metrics(examples: int, metrics: dict[str, float]) -> MetricRecord:
    return MetricRecord({"num-examples": examples, **{name: float(value) for name, value in metrics.items()}})
