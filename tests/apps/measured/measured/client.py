"""The ClientApp. After round r partition p has the loss p + 1/r and the accuracy 0.5 + p/4, on 1 + 2p examples."""

from flwr.app import Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

app = ClientApp()


def _measure(message: Message, context: Context, **names: str) -> MetricRecord:
    partition = int(context.node_config["partition-id"])
    server_round = int(message.content["config"]["server-round"])
    return MetricRecord(
        {
            "num-examples": 1 + 2 * partition,
            names["loss"]: partition + 1 / server_round,
            names["accuracy"]: 0.5 + partition / 4,
        }
    )


@app.train()
def train(message: Message, context: Context) -> Message:
    server_round = int(message.content["config"]["server-round"])
    if server_round == int(context.run_config["fail-round"]) and int(context.node_config["partition-id"]) == 0:
        raise RuntimeError("told to fail in this round")
    metrics = _measure(message, context, loss="train_loss", accuracy="train_acc")
    return Message(content=RecordDict({"arrays": message.content["arrays"], "metrics": metrics}), reply_to=message)


@app.evaluate()
def evaluate(message: Message, context: Context) -> Message:
    metrics = _measure(message, context, loss="loss", accuracy="accuracy")
    return Message(content=RecordDict({"metrics": metrics}), reply_to=message)
