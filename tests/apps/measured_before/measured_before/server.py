"""The ServerApp: FedAvg as Flower had it before its Message API, which prints what it makes of the clients' metrics."""

import json

import numpy as np
from flwr.common import Context, ndarrays_to_parameters
from flwr.server import ServerApp, ServerAppComponents, ServerConfig
from flwr.server.strategy import FedAvg


class Told(FedAvg):
    """Prints the means of each phase."""

    def aggregate_fit(self, server_round, results, failures):
        aggregated = super().aggregate_fit(server_round, results, failures)
        _tell("train", aggregated[1])
        return aggregated

    def aggregate_evaluate(self, server_round, results, failures):
        loss, metrics = super().aggregate_evaluate(server_round, results, failures)
        _tell("evaluate", metrics | {"loss": loss})
        return loss, metrics


def _tell(phase: str, means: dict) -> None:
    print(f"means of {phase}: {json.dumps(means)}")


def _weighted(results: list[tuple[int, dict]]) -> dict:
    total = sum(examples for examples, _ in results)
    numbers = {name for _, metrics in results for name, value in metrics.items() if not isinstance(value, str)}
    return {name: sum(examples * metrics[name] for examples, metrics in results) / total for name in numbers}


def server_fn(context: Context) -> ServerAppComponents:
    nodes = int(context.run_config["min-clients"])
    strategy = Told(
        min_fit_clients=nodes,
        min_evaluate_clients=nodes,
        min_available_clients=nodes,
        initial_parameters=ndarrays_to_parameters([np.zeros(4, dtype=np.float32)]),
        on_fit_config_fn=lambda server_round: {"server_round": server_round},
        on_evaluate_config_fn=lambda server_round: {"server_round": server_round},
        fit_metrics_aggregation_fn=_weighted,
        evaluate_metrics_aggregation_fn=_weighted,
    )
    return ServerAppComponents(strategy=strategy, config=ServerConfig(int(context.run_config["num-server-rounds"])))


app = ServerApp(server_fn=server_fn)
