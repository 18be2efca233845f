"""The ClientApp: does what `config.do` says. `count` keeps a count in the context and sends it back, with the arrays."""

import os
import signal
import sys

from flwr.app import Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

app = ClientApp()


@app.train()
def train(message: Message, context: Context) -> Message:
    wish = str(message.content["config"]["do"])
    print(f"the app is asked to {wish}")
    if wish == "raise":
        raise ValueError("raised on purpose")
    if wish == "exit":
        sys.exit(3)
    if wish == "die":
        os.kill(os.getpid(), signal.SIGKILL)
    count = int(context.state["seen"]["count"]) + 1 if "seen" in context.state else 1
    context.state["seen"] = MetricRecord({"count": count})
    content = RecordDict({"arrays": message.content["arrays"], "metrics": MetricRecord({"count": count})})
    return Message(content=content, reply_to=message)
