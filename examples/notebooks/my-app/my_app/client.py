
"""What a node does: it makes a first model when it is asked for one, trains, and evaluates."""

from flwr.app import ArrayRecord, Array, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import ServerApp

from . import model

app = ClientApp()
# The aggregation is native; an app has to name a ServerApp all the same.
server = ServerApp()


def arrays(message):
    return {name: array.numpy() for name, array in message.content["arrays"].items()}


def record(m):
    return ArrayRecord({name: Array(array) for name, array in m.items()})


@app.query("init")
def init(message: Message, context: Context) -> Message:
    return Message(RecordDict({"arrays": record(model.first())}), reply_to=message)


@app.train()
def train(message: Message, context: Context) -> Message:
    points, classes = model.data(context.node_config["partition-id"])
    config = context.run_config
    m, loss = model.train(arrays(message), points, classes, config["lr"], config["local-epochs"])
    metrics = MetricRecord({"num-examples": len(points), "train_loss": loss})
    return Message(RecordDict({"arrays": record(m), "metrics": metrics}), reply_to=message)


@app.evaluate()
def evaluate(message: Message, context: Context) -> Message:
    points, classes = model.data(100 + context.node_config["partition-id"])
    metrics = MetricRecord({"num-examples": len(points), "eval_acc": model.accuracy(arrays(message), points, classes)})
    return Message(RecordDict({"metrics": metrics}), reply_to=message)
