"""The ClientApp of one office: its letters are those of its partition."""

from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from .letters import of_office
from .sorter import judge
from .sorter import train as train_sorter

app = ClientApp()


def office(context: Context) -> int:
    return int(context.node_config["partition-id"])


@app.train()
def train(message: Message, context: Context) -> Message:
    letters, _ = of_office(office(context))
    config = context.run_config
    model = message.content["arrays"].to_numpy_ndarrays()
    model = train_sorter(model, letters, float(config["lr"]), int(config["local-epochs"]))
    loss, _ = judge(model, letters)
    metrics = MetricRecord({"train_loss": loss, "num-examples": len(letters)})
    return Message(RecordDict({"arrays": ArrayRecord(model), "metrics": metrics}), reply_to=message)


@app.evaluate()
def evaluate(message: Message, context: Context) -> Message:
    _, letters = of_office(office(context))
    loss, accuracy = judge(message.content["arrays"].to_numpy_ndarrays(), letters)
    metrics = MetricRecord({"eval_loss": loss, "eval_acc": accuracy, "num-examples": len(letters)})
    return Message(RecordDict({"metrics": metrics}), reply_to=message)
