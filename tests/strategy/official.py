"""Answers cases with the strategies of the Flower that is installed where this runs: a line in, a line out.

Runs in the environment of a release, in a process of its own, and so uses nothing of the suites. A case is as the
example `case` of the crate trellis-strategy reads it; around it stands how it is to be computed (`Official.answer`).
"""

import base64
import gc
import json
import logging
import sys

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.common import Code, FitRes, Status, ndarrays_to_parameters, parameters_to_ndarrays
from flwr.server.strategy import FaultTolerantFedAvg
from flwr.serverapp import strategy as strategies

WEIGHT = "num-examples"
OTHER_NAMES = {"num_malicious": "num_malicious_nodes"}
COUNTS = ("num_malicious", "num_nodes_to_select")


class Nodes:
    """As much of a Grid as strategies look at."""

    def __init__(self, ids):
        self.ids = ids

    def get_node_ids(self):
        return self.ids


def make(case):
    parameters = {
        OTHER_NAMES.get(name, name): int(value) if name in COUNTS else value
        for name, value in case.get("parameters", {}).items()
    }
    common = {"fraction_evaluate": 0.0}
    if case["strategy"] != "FedXgbCyclic":
        common |= {"min_train_nodes": 1}
    made = getattr(strategies, case["strategy"])(**common, min_available_nodes=1, **parameters)
    privacy = case.get("privacy")
    if not privacy:
        return made
    kind = {
        "server-fixed": strategies.DifferentialPrivacyServerSideFixedClipping,
        "client-fixed": strategies.DifferentialPrivacyClientSideFixedClipping,
        "server-adaptive": strategies.DifferentialPrivacyServerSideAdaptiveClipping,
        "client-adaptive": strategies.DifferentialPrivacyClientSideAdaptiveClipping,
    }[privacy["kind"]]
    norm = "clipping_norm" if privacy["kind"].endswith("fixed") else "initial_clipping_norm"
    return kind(
        made, noise_multiplier=0.0, num_sampled_clients=privacy["num_sampled"], **{norm: privacy["clipping_norm"]}
    )


def read(arrays, wide):
    def one(array):
        values = np.frombuffer(base64.b64decode(array["data"]), dtype=array["dtype"]).reshape(array["shape"])
        return values.astype(np.float64) if wide and values.dtype.kind == "f" else values.copy()

    return {array["name"]: one(array) for array in arrays}


def write(arrays):
    def one(name, values):
        data = base64.b64encode(np.ascontiguousarray(values).tobytes()).decode()
        return {"name": name, "dtype": values.dtype.name, "shape": list(values.shape), "data": data}

    return [one(name, values) for name, values in arrays.items()]


def record(arrays):
    return ArrayRecord({name: Array(values) for name, values in arrays.items()})


def train(case, wide, given):
    if case["strategy"] == "FaultTolerantFedAvg":
        return [legacy_round(replies, wide) for replies in case["rounds"]]
    strategy = make(case)
    arrays = record(read(case["model"], wide))
    told = []
    for number, replies in enumerate(case["rounds"], 1):
        if given:
            arrays = record(read(given[number - 1], wide))
        config = ConfigRecord()
        nodes = Nodes([reply["node"] for reply in replies])
        messages = {m.metadata.dst_node_id: m for m in strategy.configure_train(number, arrays, config, nodes)}
        norm = config.get("clipping_norm", getattr(strategy, "clipping_norm", None))
        answers = [answer(messages[reply["node"]], reply, wide) for reply in replies if reply["node"] in messages]
        aggregated, metrics = strategy.aggregate_train(number, answers)
        if aggregated is not None:
            arrays = aggregated
        told.append(
            {
                "arrays": write({name: array.numpy() for name, array in arrays.items()}),
                "metrics": list((metrics or {}).items()),
                "clipping_norm": norm,
                "asked": sorted(messages),
            }
        )
    return told


def answer(message, reply, wide):
    content = {"arrays": record(read(reply["arrays"], wide)), "metrics": MetricRecord(dict(reply["metrics"]))}
    return Message(RecordDict(content), reply_to=message)


def legacy_round(replies, wide):
    """This strategy never came to the newer interface."""
    results = []
    for reply in replies:
        arrays = read(reply["arrays"], wide)
        examples = dict(reply["metrics"])[WEIGHT]
        parameters = ndarrays_to_parameters(list(arrays.values()))
        results.append((None, FitRes(Status(Code.OK, ""), parameters, examples, {})))
    aggregated, _ = FaultTolerantFedAvg().aggregate_fit(1, results, [])
    named = dict(zip(arrays, parameters_to_ndarrays(aggregated), strict=True))
    return {"arrays": write(named), "metrics": None, "clipping_norm": None, "asked": None}


def asked(fraction, min_nodes, min_available, online):
    strategy = strategies.FedAvg(
        fraction_train=fraction, min_train_nodes=min_nodes, min_available_nodes=min_available, fraction_evaluate=0.0
    )
    nodes = Nodes(range(2, online + 2))
    return len(list(strategy.configure_train(1, record({"w": np.zeros(1)}), ConfigRecord(), nodes)))


def respond(wish):
    ((kind, case),) = wish["case"].items()
    try:
        if kind == "sampling":
            return {"asked": asked(**case)}
        return {"rounds": train(case, wish["wide"], wish["given"])}
    except Exception as error:  # An answer too: the suite decides whether it was expected.
        return {"error": f"{type(error).__name__}: {error}"}


def main():
    logging.getLogger("flwr").setLevel(logging.ERROR)
    try:
        # From some release on messages are made only by who knows its task.
        from flwr.supercore.task_identity import TaskIdentity

        TaskIdentity.run_id = TaskIdentity.node_id = TaskIdentity.task_id = 1
    except ImportError:
        pass
    # Strategies collect garbage in every round, and would each time look through all that was imported.
    gc.freeze()
    for line in sys.stdin:
        print(json.dumps(respond(json.loads(line))), flush=True)


if __name__ == "__main__":
    main()
