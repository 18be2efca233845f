"""Not used: the nodes of the demo bring their own app, and need no Python."""

from flwr.app import Context, Message
from flwr.clientapp import ClientApp

app = ClientApp()


@app.train()
def train(message: Message, context: Context) -> Message:
    raise RuntimeError("start the nodes with --client-app native:mlp")
