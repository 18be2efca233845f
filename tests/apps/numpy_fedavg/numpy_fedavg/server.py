"""The ServerApp: FedAvg of the official package, then the digest of the final weights."""

import json
import os
from pathlib import Path

from flwr.app import ArrayRecord, Context, MetricRecord
from flwr.serverapp import Grid, ServerApp

from numpy_fedavg import model
from numpy_fedavg.journal import Journal, JournalledFedAvg

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    config = context.run_config
    rounds = int(config["num-server-rounds"])
    # All nodes take part in every round, or the result would depend on who was there.
    nodes = int(config["nodes"])
    result_path = str(config["result-path"])
    if result_path:
        Path(result_path + ".pid").write_text(f"{os.getpid()}\n")
    journal = Journal(str(config["journal-path"]))
    arrays = model.initial_arrays(int(config["seed"]), int(config["array-count"]), int(config["array-length"]))

    def report(server_round: int, current: ArrayRecord) -> MetricRecord:
        journal.note("end", server_round)
        value = model.mean_square([] if config["empty"] else current.to_numpy_ndarrays())
        print(f"numpy-fedavg: round {server_round} of {rounds}: mean square {value:.6f}")
        return MetricRecord({"mean-square": value})

    strategy = JournalledFedAvg(
        journal,
        fraction_evaluate=1.0 if config["evaluate"] else 0.0,
        min_train_nodes=nodes,
        min_evaluate_nodes=nodes,
        min_available_nodes=nodes,
    )
    result = strategy.start(grid, ArrayRecord(arrays), num_rounds=rounds, evaluate_fn=report)

    answered_rounds = len(result.train_metrics_clientapp)
    final = model.digest(result.arrays.to_numpy_ndarrays())
    print(f"numpy-fedavg: {answered_rounds} rounds, weights sha256 {final}")
    if result_path:
        outcome = {
            "sha256": final,
            "rounds": answered_rounds,
            "bytes": sum(a.nbytes for a in result.arrays.to_numpy_ndarrays()),
        }
        # Written whole or not at all: a test may look at any moment.
        draft = Path(result_path + ".draft")
        draft.write_text(json.dumps(outcome))
        draft.replace(result_path)
