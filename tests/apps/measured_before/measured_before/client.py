"""The ClientApp. After round r partition p has the loss p + 1/r and the accuracy 0.5 + p/4, on 1 + 2p examples."""

from flwr.client import ClientApp, NumPyClient
from flwr.common import Context


class Measured(NumPyClient):
    """Learns nothing; what it measures is known beforehand."""

    def __init__(self, partition: int):
        self._partition = partition

    def fit(self, parameters, config):
        metrics = {"train_loss": self._loss(config), "note": "a text has no mean"}
        return parameters, self._examples(), metrics

    def evaluate(self, parameters, config):
        return self._loss(config), self._examples(), {"accuracy": 0.5 + self._partition / 4}

    def _loss(self, config) -> float:
        return self._partition + 1 / int(config["server_round"])

    def _examples(self) -> int:
        return 1 + 2 * self._partition


def client_fn(context: Context):
    return Measured(int(context.node_config["partition-id"])).to_client()


app = ClientApp(client_fn=client_fn)
