"""The calls of ServerApps, valid and not, to an official SuperLink and to ours: the same answers.

A ServerApp of each release makes the same generated sequences of calls, with Flower's own grid, in both. Ids and times
are replaced by names before the answers are compared.
"""

import contextlib
import json
import random
import socket
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.federation import OFFICIAL, PROCESS, SUBPROCESS, TRELLIS, Federation, Shape
from harness.fleet_node import FAILURE, FleetNode
from harness.ports import HOST
from harness.workspace import Workspace
from provision import CannotBeHad

RELEASES = ["1.25", "1.38", "1.42"]
# The same in every run, so that a difference can be looked at again; `--seed` changes nothing here.
SEED = 20261118
SEQUENCES, QUICK_SEQUENCES = 200, 25
CONNECT_LIMIT_S = 90.0
CALL_LIMIT_S = 60.0

# Destinations: a node that answers, one that never does, one that is offline, one that was unregistered, one that never
# was, none, and the SuperLink itself.
NODES = ("answers", "silent", "offline", "unregistered", "unknown", "zero", "superlink")
BAD_IDS = ("", "abc", "é", "0a" * 32, "0A" * 32, "0a" * 33, "00" * 32, "x" * 64)
MALFORMED = {
    "no messages": {"change": {"messages": 0}, "trees": 0},
    "no tree": {"change": {}, "trees": 0},
    "two trees": {"change": {}, "trees": 2},
    "no content": {"change": {"content": 0}, "trees": 1},
    "another run": {"change": {"run_id": 5}, "trees": 1},
    "no source": {"change": {"src_node_id": 0}, "trees": 1},
    "another source": {"change": {"src_node_id": 7}, "trees": 1},
    "no destination": {"change": {"dst_node_id": 0}, "trees": 1},
    "a reply": {"change": {"reply_to_message_id": "0a" * 32}, "trees": 1},
    "no id": {"change": {"message_id": ""}, "trees": 1},
    "no lifetime": {"change": {"ttl": 0.0}, "trees": 1},
    "a negative lifetime": {"change": {"ttl": -1.0}, "trees": 1},
    "expired": {"change": {"created_at": 1740700801.0}, "trees": 1},
    "no date": {"change": {"created_at": 0.0}, "trees": 1},
    "no type": {"change": {"message_type": ""}, "trees": 1},
}
# How often each kind of step is taken.
STEPS = {"push": 30, "pull": 40, "nodes": 3, "rpc": 20, "malformed": 12, "send": 2, "sleep": 1}
NODE_1, NODE_7 = {"node": {"node_id": "1"}}, {"node": {"node_id": "7"}}
OBJECTS = ("0a" * 32, "", "abc", "0A" * 32)

OF_ANOTHER_RUN = "of another run"

# Every kind of difference that is intended: the step and the releases, and the reason. Anything else fails the test.
DIFFERENCES = {
    ("push to superlink", ("1.25",)): (
        "1.25 fails the call; here the id is empty, as for an unknown node. Later releases take such a message, for "
        "agents, and give it back to the next pull, whatever that asks for: there it is not tried."
    ),
    (f"rpc {OF_ANOTHER_RUN}", ("1.25",)): (
        "The run is that of the token, whatever the request names: no ServerApp acts for another run."
    ),
}
# Differences in fields of replies that official grids do not read: the field, the releases, and the reason.
FIELDS = {
    ("of_the_run", ("1.25",)): "1.25 names no run in error replies for unknown messages; here it is the one that asks.",
}


class Caller:
    """A SuperLink with nodes, and a ServerApp that makes calls for the test."""

    def __init__(self, federation: Federation):
        """A ServerApp of the federation, which is started."""
        self.federation = federation.start()
        self._ignored = {field for field, releases in FIELDS if federation.shape.cli in releases}
        address = federation.superlink.fleet_address
        self.answering, self.silent, offline, gone = (FleetNode(address) for _ in range(4))
        offline.leave()
        gone.leave()
        gone.unregister()
        unknown = self.answering.id ^ 1
        ids = (self.answering.id, self.silent.id, offline.id, gone.id, unknown, 0, 1)
        self.nodes = dict(zip(NODES, ids, strict=True))
        with socket.create_server((HOST, 0)) as server:
            server.settimeout(CONNECT_LIMIT_S)
            host, port = server.getsockname()
            self.run = federation.cli.submit(driver=f"{host}:{port}")
            self._connection, _ = server.accept()
        self._connection.settimeout(CALL_LIMIT_S)
        self._lines = self._connection.makefile("rw")
        self._names: dict[str, str] = {}
        self._pushed = 0

    def close(self) -> None:
        self._lines.close()
        self._connection.close()

    def play(self, sequence: list[dict]) -> list[object]:
        """The normalised result of each step."""
        self._names, self._pushed = {}, 0
        return [self._step(dict(step)) for step in sequence]

    def _step(self, step: dict) -> object:
        kind = step.pop("step").split()[0]
        if kind == "sleep":
            return time.sleep(step["seconds"])
        return getattr(self, f"_{kind}")(**step)

    def seconds_for_no_reply(self, timeout: float) -> float:
        """How long `send_and_receive` takes for a message that nobody answers."""
        messages = [self._message({"dst": "silent", "text": "t"})]
        began = time.monotonic()
        assert self._call(call="send_and_receive", messages=messages, timeout=timeout) == []
        return time.monotonic() - began

    def _nodes(self) -> object:
        return self._plain(self._call(call="nodes"))

    def _push(self, messages: list[dict]) -> object:
        ids = self._call(call="push", messages=[self._message(message) for message in messages])
        if isinstance(ids, dict):
            return ids
        for number, given in enumerate(ids):
            if given:
                self._names[given] = f"message {self._pushed}"
                self._pushed += 1
            if given and messages[number]["dst"] == "answers":
                self.answering.answer(1)
        return [self._names.get(given, given) for given in ids]

    def _pull(self, ids: list[str]) -> object:
        known = {name: given for given, name in self._names.items()}
        return self._replies(self._call(call="pull", ids=[known.get(name, name) for name in ids]))

    def _send(self, messages: list[dict]) -> object:
        messages = [self._message(message) for message in messages]
        return self._replies(self._call(call="send_and_receive", messages=messages, timeout=1.0))

    def _malformed(self, change: dict, trees: int) -> object:
        return self._call(call="push_malformed", dst=self.nodes["silent"], change=change, trees=trees)

    def _rpc(self, name: str, request: str, fields: dict) -> object:
        fields = fields | {key: str(self.run) for key, value in fields.items() if value == "own"}
        return self._plain(self._call(call="rpc", name=name, request=request, fields=fields))

    def _message(self, message: dict) -> dict:
        return message | {"dst": self.nodes[message["dst"]]}

    def _replies(self, replies: object) -> object:
        if isinstance(replies, dict):
            return replies
        known = set(BAD_IDS) | self._names.keys()
        self._names |= {reply["reply_to"]: "sent" for reply in replies if reply["reply_to"] not in known}
        told = [reply | {"reply_to": self._names.get(reply["reply_to"], reply["reply_to"])} for reply in replies]
        for reply in told:
            for field in self._ignored:
                del reply[field]
        return sorted((self._plain(reply) for reply in told), key=lambda reply: json.dumps(reply, sort_keys=True))

    def _plain(self, value: object) -> object:
        """Without what differs by nature: numbers of nodes and runs, dates, accounts."""
        names = {number: name for name, number in self.nodes.items() if number > 1} | {self.run: "the run"}
        if isinstance(value, dict):
            return {key: self._plain(inner) for key, inner in value.items() if key not in VOLATILE}
        if isinstance(value, list):
            return sorted((self._plain(inner) for inner in value), key=str)
        text = str(value)
        return names.get(int(text), value) if text.isdecimal() else value

    def _call(self, **call: object) -> object:
        self._lines.write(json.dumps(call) + "\n")
        self._lines.flush()
        return json.loads(self._lines.readline())


# Dates, accounts and counters, and fields of NodeInfo beside the id, which grids do not read.
VOLATILE = {
    *("pending_at", "starting_at", "running_at", "finished_at", "bytes_sent", "bytes_recv", "clientapp_runtime"),
    *("flwr_aid", "override_config", "account_name", "federation", "primary_task_id", "series_id", "client", "run_id"),
    *("owner_aid", "owner_name", "status", "registered_at", "last_activated_at", "last_deactivated_at"),
    *("online_until", "heartbeat_interval", "public_key"),
}


def sequences(release: str, count: int) -> list[list[dict]]:
    generator = random.Random(f"{SEED} {release}")
    return [sequence(generator, release) for _ in range(count)]


def sequence(generator: random.Random, release: str) -> list[dict]:
    """Pushes and pulls of the same messages, with other calls between them."""
    steps: list[dict] = []
    names: list[str] = []
    for _ in range(generator.randint(2, 5)):
        kind = generator.choices(list(STEPS), list(STEPS.values()))[0]
        if kind == "push":
            steps.append(push := a_push(generator, release))
            accepted = [message for message in push["messages"] if message["dst"] in ("answers", "silent", "offline")]
            if not {"zero", "superlink"} & {message["dst"] for message in push["messages"]}:
                names += [f"message {len(names) + number}" for number in range(len(accepted))]
        elif kind == "pull":
            ids = generator.sample(names, generator.randint(0, len(names)))
            ids += generator.choices(BAD_IDS, k=generator.choice([0, 1, 1, 2]))
            steps.append({"step": "pull", "ids": ids})
        elif kind == "nodes":
            steps.append({"step": "nodes"})
        elif kind == "rpc":
            steps.append(generator.choice(calls(release)))
        elif kind == "malformed":
            name = generator.choice(list(MALFORMED))
            steps.append({"step": f"malformed {name}"} | MALFORMED[name])
        elif kind == "send":
            where = generator.sample(["offline", "unregistered", "unknown"], 2)
            steps.append({"step": "send", "messages": [{"dst": dst, "text": "t"} for dst in where]})
        else:
            steps += [
                {"step": "push", "messages": [{"dst": "silent", "text": "short", "ttl": 0.5}]},
                {"step": "sleep", "seconds": 0.7},
            ]
            names.append(f"message {len(names)}")
            steps.append({"step": "pull", "ids": names[-1:]})
    return steps


def a_push(generator: random.Random, release: str) -> dict:
    weights = [8, 1, 3, 3, 3, 0.3, 0.3 if release == "1.25" else 0]
    where = generator.choices(NODES, weights, k=generator.randint(1, 4))
    # Alone: official SuperLinks keep the messages before the one that fails the call, and their objects never come.
    where = next(([dst] for dst in where if dst in ("zero", "superlink")), where)
    # Equal messages would have one id.
    texts = [generator.choice([f"{number} {generator.random()}", FAILURE]) for number in range(len(where))]
    messages = [{"dst": dst, "text": text} for dst, text in zip(where, texts, strict=True)]
    refused = [dst for dst in ("zero", "superlink") if dst in where]
    return {"step": " to ".join(["push", *refused[:1]]), "messages": messages}


def calls(release: str) -> list[dict]:
    """Calls beside messages, with good and bad arguments."""
    runs = ["own", "0", "5"] if release == "1.25" else ["own"]
    made = []

    def call(name: str, request: str, **fields: object) -> None:
        step = f"rpc {name}" if fields.get("run_id", "own") == "own" else f"rpc {OF_ANOTHER_RUN}"
        made.append({"step": step, "name": name, "request": request, "fields": fields})

    for run in runs:
        for object_id in OBJECTS:
            for node in (NODE_1, NODE_7, {}):
                call("PullObject", "PullObjectRequest", run_id=run, object_id=object_id, **node)
                call("PushObject", "PushObjectRequest", run_id=run, object_id=object_id, object_content="eA==", **node)
            confirm = {"run_id": run, "message_object_id": object_id} | NODE_1
            call("ConfirmMessageReceived", "ConfirmMessageReceivedRequest", **confirm)
        call("GetNodes", "GetNodesRequest", run_id=run)
        call("PullMessages", "PullAppMessagesRequest", run_id=run, message_ids=[])
    if release == "1.25":
        for run in runs:
            call("GetRun", "GetRunRequest", run_id=run)
            call("GetRunStatus", "GetRunStatusRequest", run_ids=["5"])
        call("GetFab", "GetFabRequest", hash_str="0a" * 32)
        call("SendAppHeartbeat", "SendAppHeartbeatRequest", token="no token")
        call("RequestToken", "RequestTokenRequest", run_id="5")
        call("PullAppInputs", "PullAppInputsRequest", token="no token")
        call("PushAppOutputs", "PushAppOutputsRequest", token="no token", run_id="own")
    else:
        call("SendTaskHeartbeat", "SendTaskHeartbeatRequest")
    call("PushLogs", "PushLogsRequest", run_id="own", logs=["a line\n"])
    return made


@contextlib.contextmanager
def callers(root: Path, release: str, isolation: str = SUBPROCESS) -> Iterator[tuple[Caller, Caller]]:
    """An official SuperLink of a release, and ours with ServerApps of that release."""
    with contextlib.ExitStack() as opened:

        def caller(kind: str) -> Caller:
            workspace = Workspace(root / kind)
            opened.callback(workspace.close)
            versions = {"cli": release, "runtime": release, "official": release}
            shape = Shape(kind=kind, nodes=0, app="caller", isolation=isolation, **versions)
            made = Caller(Federation(workspace, shape))
            opened.callback(made.close)
            return made

        try:
            yield caller(OFFICIAL), caller(TRELLIS)
        except CannotBeHad as why:
            pytest.skip(str(why))


def is_intended(step: str, release: str) -> bool:
    return any(step == known and release in releases for known, releases in DIFFERENCES)


QUICK = pytest.param(QUICK_SEQUENCES, marks=pytest.mark.quick, id="quick")


@pytest.mark.trellis_only
@pytest.mark.parametrize("count", [QUICK, pytest.param(SEQUENCES, id="all")])
@pytest.mark.parametrize("release", RELEASES)
def test_serverapps_get_the_same_answers_from_both_superlinks(tmp_path, release, count):
    differences: list[str] = []
    intended: Counter[str] = Counter()
    with callers(tmp_path, release) as (official, ours):
        for number, steps in enumerate(sequences(release, count)):
            for step, theirs, mine in zip(steps, official.play(steps), ours.play(steps), strict=True):
                if theirs == mine:
                    continue
                if is_intended(step["step"], release):
                    intended[step["step"]] += 1
                    if step["step"].startswith("push"):
                        break  # Later steps name its messages.
                    continue
                differences.append(f"sequence {number}: {step}\n  official: {theirs}\n  ours:     {mine}")
    print(f"{release}: {count} sequences; intended differences: {dict(intended)}")
    assert not differences, f"{len(differences)} differences\n" + "\n".join(differences[:40])


@pytest.mark.trellis_only
@pytest.mark.parametrize("release", ["1.25", "1.42"])
@pytest.mark.parametrize("isolation", [SUBPROCESS, PROCESS])
def test_a_timeout_is_exceeded_by_at_most_a_second_more_than_with_the_official_superlink(tmp_path, release, isolation):
    with callers(tmp_path, release, isolation) as (official, ours):
        theirs, mine = official.seconds_for_no_reply(5.0), ours.seconds_for_no_reply(5.0)
    print(f"{release} {isolation}: official {theirs:.1f} s, ours {mine:.1f} s")
    assert mine <= theirs + 1.0
