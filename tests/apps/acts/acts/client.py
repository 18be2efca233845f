"""The ClientApp: counts in its Context, then does what the message says.

A reply tells the count, the process that made it, how many messages that process has seen, and what it runs on.
"""

import ctypes
import os
import sys
import threading
import time
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path

from flwr.app import ConfigRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp

from acts.edition import EDITION

MEET_LIMIT_S = 60.0
HOARD_LIMIT_S = 60.0
CHECK_S = 0.05
PAGE = 4096

app = ClientApp()
# What this process has seen and kept; a process per message always begins anew.
seen = 0
kept: list[bytearray] = []


@app.train()
def train(message: Message, context: Context) -> Message | None:
    global seen
    seen += 1
    count = 1 + int(context.state["acts"]["count"]) if "acts" in context.state else 1
    context.state["acts"] = ConfigRecord({"count": count})
    act, _, argument = str(message.content["config"]["act"]).partition(":")
    if act == "mute":
        return None  # Against the rules, and easily forgotten.
    ACTS[act](argument, context)
    told = {
        "count": count,
        "pid": os.getpid(),
        "seen": seen,
        "edition": EDITION,
        "flwr": version("flwr"),
        "run-config": str(context.run_config["script"]),
        "node-config": int(context.node_config["partition-id"]),
    }
    return Message(RecordDict({"told": ConfigRecord(told)}), reply_to=message)


def nothing(_argument: str, _context: Context) -> None:
    pass


def fail(_argument: str, _context: Context) -> None:
    raise ValueError("the app raised on purpose")


def leave(argument: str, _context: Context) -> None:
    print("acts: leaving by sys.exit", flush=True)
    sys.exit(int(argument))


def vanish(argument: str, _context: Context) -> None:
    print("acts: leaving by os._exit", flush=True)
    os._exit(int(argument))


def crash(_argument: str, _context: Context) -> None:
    """Read what is nowhere, as a broken extension module does."""
    print("acts: about to crash", flush=True)
    ctypes.string_at(0)


def hang(_argument: str, context: Context) -> None:
    _sign(context, str(os.getpid()))
    threading.Event().wait()


def leak(argument: str, _context: Context) -> None:
    """Keep so many MiB for good, and touch all of them."""
    block = bytearray(int(argument) << 20)
    for offset in range(0, len(block), PAGE):
        block[offset] = 1
    kept.append(block)


def hoard(argument: str, context: Context) -> None:
    """Take so many MiB, and go on."""
    leak(argument, context)
    threading.Event().wait(HOARD_LIMIT_S)


def chatter(argument: str, _context: Context) -> None:
    for number in range(1, int(argument) + 1):
        print(f"chatter line {number}")
        print(f"chatter line {number} to stderr", file=sys.stderr)


def meet(argument: str, context: Context) -> None:
    """Wait until the client of another run is here, too: `meet:me/other`."""
    mine, _, other = argument.partition("/")
    here = Path(str(context.run_config["sign-path"]))
    here.with_suffix(f".{mine}").touch()
    deadline = time.monotonic() + MEET_LIMIT_S
    while not here.with_suffix(f".{other}").exists():
        if time.monotonic() > deadline:
            raise TimeoutError(f"{other} did not come within {MEET_LIMIT_S} s")
        time.sleep(CHECK_S)


def _sign(context: Context, text: str) -> None:
    path = str(context.run_config["sign-path"])
    if path:
        draft = Path(path + ".draft")
        draft.write_text(text + "\n")
        draft.replace(path)


ACTS: dict[str, Callable[[str, Context], None]] = {
    "count": nothing,
    "raise": fail,
    "sys-exit": leave,
    "os-exit": vanish,
    "segfault": crash,
    "hang": hang,
    "leak": leak,
    "hoard": hoard,
    "chatter": chatter,
    "meet": meet,
}
