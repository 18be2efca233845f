"""What the ServerApp asks its nodes before the first round: their data and packages decide about the model."""

import time

from flwr.app import ConfigRecord, Message, MessageType, RecordDict
from flwr.serverapp import Grid

WAIT_S = 1.0
WAIT_LIMIT_S = 3600.0
ANSWER_LIMIT_S = 600.0


def ask(grid: Grid, fewest: int) -> list[RecordDict]:
    """What the nodes say of themselves, in the order of their ids. Waits until enough of them are there."""
    deadline = time.monotonic() + WAIT_LIMIT_S
    while len(nodes := sorted(grid.get_node_ids())) < fewest:
        if time.monotonic() > deadline:
            raise TimeoutError(f"{len(nodes)} of {fewest} nodes came within {WAIT_LIMIT_S:.0f} s")
        time.sleep(WAIT_S)
    question = RecordDict({"config": ConfigRecord({})})
    messages = [Message(question, dst_node_id=node, message_type=MessageType.QUERY) for node in nodes]
    replies = list(grid.send_and_receive(messages, timeout=ANSWER_LIMIT_S))
    wrong = [reply.error.reason for reply in replies if reply.has_error()]
    for reason in wrong:
        print(f"a node cannot take part: {reason}")
    sound = sorted((reply for reply in replies if not reply.has_error()), key=lambda reply: reply.metadata.src_node_id)
    if not sound:
        raise RuntimeError(f"none of {len(nodes)} nodes can take part" + (f": {wrong[0]}" if wrong else ""))
    return [reply.content for reply in sound]


def same(answers: list[RecordDict], key: str) -> object:
    """The value that all nodes give; that they differ is told."""
    values = {answer["about"][key] for answer in answers}
    if len(values) > 1:
        raise ValueError(f"the nodes do not fit together: their {key} are {sorted(map(str, values))}")
    return values.pop()
