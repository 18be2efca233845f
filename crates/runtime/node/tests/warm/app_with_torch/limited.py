"""Reports its limits of GPU memory."""

import torch
from flwr.app import Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

app = ClientApp()


@app.train()
def train(message, context):
    limits = MetricRecord({f"gpu-{device}": fraction for device, fraction in torch.limits.items()})
    return Message(RecordDict({"metrics": limits}), reply_to=message)
