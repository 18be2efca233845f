"""What the ServerApp got in each round, and when: one line of JSON for each thing, on the disk before the next.

`end` of round 0 is the moment before the first round.
"""

import json
import time
from collections.abc import Iterable

from flwr.app import Message
from flwr.serverapp.strategy import FedAvg


class Journal:
    """Notes nothing where it has no path."""

    def __init__(self, path: str):
        self._path = path

    def note(self, what: str, server_round: int, **more: object) -> None:
        if not self._path:
            return
        with open(self._path, "a", encoding="utf-8") as file:
            file.write(json.dumps({"what": what, "round": server_round, "at": time.time()} | more) + "\n")


class JournalledFedAvg(FedAvg):
    """FedAvg that notes every reply it is given before it looks at it."""

    def __init__(self, journal: Journal, **settings: object):
        super().__init__(**settings)
        self._journal = journal

    def aggregate_train(self, server_round: int, replies: Iterable[Message]):
        return super().aggregate_train(server_round, self._noted("train", server_round, replies))

    def aggregate_evaluate(self, server_round: int, replies: Iterable[Message]):
        return super().aggregate_evaluate(server_round, self._noted("evaluate", server_round, replies))

    def _noted(self, what: str, server_round: int, replies: Iterable[Message]) -> list[Message]:
        kept = list(replies)
        self._journal.note(what, server_round, replies=[_told(reply) for reply in kept])
        return kept


def _told(reply: Message) -> dict:
    metadata = reply.metadata
    error = f"{reply.error.code}: {reply.error.reason}" if reply.has_error() else None
    # As text: readers of JSON in other languages lose digits of such numbers.
    return {"node": str(metadata.src_node_id), "to": metadata.reply_to_message_id, "error": error}
