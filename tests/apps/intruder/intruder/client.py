"""The ClientApp: tries what the run's configuration says, and replies with what came of it."""

import json

from flwr.app import ConfigRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp

from intruder.attempts import carry_out

app = ClientApp()


@app.train()
def train(message: Message, context: Context) -> Message:
    outcomes = carry_out(str(context.run_config["client-attempts"]))
    return Message(RecordDict({"outcomes": ConfigRecord({"json": json.dumps(outcomes)})}), reply_to=message)
