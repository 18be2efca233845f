"""A ClientApp that behaves as the instruction says."""

import ctypes
import multiprocessing
import os
import subprocess
import sys
import time

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

app = ClientApp()
loaded = time.time_ns()
hoard = []


@app.train()
def train(message, context):
    config = message.content["config"]
    return globals()[config["do"]](message, context, config)


def reply(message, **metrics):
    return Message(RecordDict({"metrics": MetricRecord(metrics)}), reply_to=message)


def count(message, context, config):
    """Counts in the Context, and reports whether process and import are the same as before."""
    seen = context.state["seen"]["count"] + 1 if "seen" in context.state else 1
    context.state["seen"] = MetricRecord({"count": seen})
    return reply(message, count=seen, pid=os.getpid(), loaded=loaded)


def configured(message, context, config):
    content = {
        "run": ConfigRecord(dict(context.run_config)),
        "node": ConfigRecord({**context.node_config, "node-id": context.node_id, "run-id": context.run_id}),
        "directory": ConfigRecord({"now": os.getcwd(), "home": os.environ["TRELLIS_TEST_VARIABLE"]}),
    }
    return Message(RecordDict(content), reply_to=message)


def double(message, context, config):
    arrays = message.content["arrays"].to_numpy_ndarrays()
    content = {
        "arrays": ArrayRecord([array * 2 for array in arrays]),
        "metrics": MetricRecord({"sum": float(sum(array.sum() for array in arrays)), "sizes": [a.size for a in arrays]}),
        "config": ConfigRecord({"who": "ä", "flags": [True, False], "raw": b"\0\1"}),
    }
    return Message(RecordDict(content), reply_to=message)


def measures(message, context, config):
    return reply(message, size=sum(array.size for array in message.content["arrays"].to_numpy_ndarrays()))


def raises(message, context, config):
    context.state["seen"] = MetricRecord({"count": 41})
    raise ZeroDivisionError("nothing to divide by")


def leaves(message, context, config):
    print("leaving", flush=True)
    sys.exit(3)


def leaves_at_once(message, context, config):
    print("gone without a word")
    sys.stdout.flush()
    os._exit(4)


def crashes(message, context, config):
    ctypes.string_at(0)


def killed(message, context, config):
    os.kill(os.getpid(), 9)


def prints(message, context, config):
    print("from Python")
    os.write(1, b"from a library\n")
    subprocess.run(["echo", "from a program"], check=True)
    return reply(message, input=len(sys.stdin.read()))


def forks(message, context, config):
    """A child that outlives the call, and one that computes and prints."""
    with multiprocessing.get_context("fork").Pool(1) as pool:
        squared = pool.apply(square, (7,))
    left_behind = subprocess.Popen(["sleep", "600"])
    return reply(message, squared=squared, left_behind=left_behind.pid)


def square(number):
    print("in a child")
    return number * number


def hoards(message, context, config):
    hoard.append(np.ones(8_000_000))
    return reply(message, pid=os.getpid())


def hangs(message, context, config):
    child = subprocess.Popen(["sleep", "600"])
    with open(config["where"], "w", encoding="utf-8") as pids:
        pids.write(f"{os.getpid()} {child.pid}\n")
    time.sleep(600)


def answers_wrongly(message, context, config):
    return "hello"


def answers_another(message, context, config):
    other = Message(RecordDict(), reply_to=message)
    other.metadata.__dict__["_reply_to_message_id"] = "0" * 64
    return other


def cannot_be_encoded(message, context, config):
    class Odd(RecordDict):
        def deflate(self):
            raise RuntimeError("not today")

    return Message(Odd(), reply_to=message)
