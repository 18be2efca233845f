"""The ServerApp: FedAvg of the official package, on a model that nobody changes."""

import numpy as np
from flwr.app import ArrayRecord, Context
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    nodes = int(context.run_config["min-clients"])
    strategy = FedAvg(min_train_nodes=nodes, min_evaluate_nodes=nodes, min_available_nodes=nodes)
    arrays = ArrayRecord([np.zeros(4, dtype=np.float32)])
    strategy.start(grid, arrays, num_rounds=int(context.run_config["num-server-rounds"]))
