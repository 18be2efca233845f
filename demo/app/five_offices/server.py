"""The ServerApp: FedAvg over the offices, judged each round by letters that no office trained on."""

import json
from pathlib import Path

from flwr.app import ArrayRecord, Context
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg

from .sorter import untrained

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    config = context.run_config
    nodes, rounds = int(config["nodes"]), int(config["num-server-rounds"])
    strategy = FedAvg(min_train_nodes=nodes, min_evaluate_nodes=nodes, min_available_nodes=nodes)
    result = strategy.start(grid, ArrayRecord(untrained()), num_rounds=rounds)
    curve = [
        {"round": number, "loss": float(metrics["eval_loss"]), "accuracy": float(metrics["eval_acc"])}
        for number, metrics in sorted(result.evaluate_metrics_clientapp.items())
    ]
    if path := str(config["result-path"]):
        Path(path).write_text(json.dumps({"curve": curve}))
