"""The ServerApp with Flower's own strategies; the native one is given the same settings."""

import json
from pathlib import Path

import numpy as np
from flwr.app import Array, ArrayRecord, Context
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import Bulyan, FedAdam, FedAvg, FedProx, FedTrimmedAvg, Krum

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    settings = context.run_config
    with np.load(str(settings["initial-model"])) as first:
        arrays = ArrayRecord({name: Array(first[name]) for name in first.files})
    result = _strategy(settings).start(grid=grid, initial_arrays=arrays, num_rounds=int(settings["num-server-rounds"]))
    curve = [
        {"round": number, "loss": float(metrics["eval_loss"]), "accuracy": float(metrics["eval_acc"])}
        for number, metrics in sorted(result.evaluate_metrics_clientapp.items())
    ]
    path = Path(str(settings["result-path"]))
    np.savez(path.with_suffix(".npz"), **{name: array.numpy() for name, array in result.arrays.items()})
    path.write_text(json.dumps(curve))


def _strategy(settings: dict):
    nodes, liars = int(settings["nodes"]), int(settings["num-malicious"])
    usual = {"min_train_nodes": nodes, "min_evaluate_nodes": nodes, "min_available_nodes": nodes}
    match str(settings["strategy"]):
        case "FedAvg":
            return FedAvg(**usual)
        case "FedProx":
            return FedProx(proximal_mu=float(settings["proximal-mu"]), **usual)
        case "FedAdam":
            return FedAdam(**usual)
        case "FedTrimmedAvg":
            return FedTrimmedAvg(beta=float(settings["trim-beta"]), **usual)
        case "Krum":
            return Krum(num_malicious_nodes=liars, **usual)
        case "Bulyan":
            return Bulyan(num_malicious_nodes=liars, **usual)
        case other:
            raise ValueError(f"no strategy {other}")
