"""The ClientApp of one hospital: trains on its own patients, sends back only the model."""

from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from two_hospitals import task

app = ClientApp()


@app.train()
def train(message: Message, context: Context) -> Message:
    data = task.hospital(int(context.node_config["partition-id"]))
    model = tuple(message.content["arrays"].to_numpy_ndarrays())
    config = context.run_config
    model = task.train(model, data, float(config["learning-rate"]), int(config["local-epochs"]))
    loss, _ = task.evaluate(model, data)
    metrics = MetricRecord({"num-examples": len(data[1]), "loss": loss})
    return Message(content=RecordDict({"arrays": ArrayRecord(list(model)), "metrics": metrics}), reply_to=message)


@app.evaluate()
def evaluate(message: Message, context: Context) -> Message:
    data = task.hospital(int(context.node_config["partition-id"]))
    loss, accuracy = task.evaluate(tuple(message.content["arrays"].to_numpy_ndarrays()), data)
    metrics = MetricRecord({"num-examples": len(data[1]), "loss": loss, "accuracy": accuracy})
    return Message(content=RecordDict({"metrics": metrics}), reply_to=message)
