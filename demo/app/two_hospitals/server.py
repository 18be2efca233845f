"""The ServerApp: FedAvg over the hospitals, judged each round on patients that nobody has seen."""

import json
from pathlib import Path

from flwr.app import ArrayRecord, Context, MetricRecord
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg

from two_hospitals import task

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    rounds = int(context.run_config["num-server-rounds"])
    unseen = task.unseen_patients()
    curve = []

    def judge(server_round: int, arrays: ArrayRecord) -> MetricRecord:
        loss, accuracy = task.evaluate(tuple(arrays.to_numpy_ndarrays()), unseen)
        curve.append({"round": server_round, "loss": loss, "accuracy": accuracy})
        print(f"round {server_round}/{rounds}  loss {loss:.4f}  accuracy {accuracy:.1%}")
        return MetricRecord({"loss": loss, "accuracy": accuracy})

    strategy = FedAvg(min_train_nodes=2, min_evaluate_nodes=2, min_available_nodes=2)
    result = strategy.start(grid, ArrayRecord(list(task.empty_model())), num_rounds=rounds, evaluate_fn=judge)

    weights, _ = result.arrays.to_numpy_ndarrays()
    if path := str(context.run_config["result-path"]):
        learned = dict(zip(task.FEATURES, weights.tolist(), strict=True))
        Path(path).write_text(json.dumps({"curve": curve, "weights": learned}))
