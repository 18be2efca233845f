"""The ClientApp, for nodes that have none built in: sends back what it got."""

from flwr.app import Context, Message
from flwr.clientapp import ClientApp

app = ClientApp()


@app.train()
def train(message: Message, context: Context) -> Message:
    return Message(content=message.content, reply_to=message)
