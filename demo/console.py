"""What the demo prints: lines of several processes as they come, each with its component's name, and the result."""

import re
import sys
import threading
from pathlib import Path

FOLLOW_INTERVAL_S = 0.1
NAME_WIDTH = 11
COLOURS = {"superlink": 36, "run": 32}
NODE_COLOUR = 33
BAR_WIDTH = 40
ESCAPES = re.compile(r"\x1b\[[0-9;]*m")
# Flower's level, or our time and level; warnings keep theirs.
LEVEL = re.compile(r"^(INFO *:\s*|\d{4}-\d\d-\d\dT[0-9:.]+Z +(INFO )?)")
LONG_HASH = re.compile(r"\b([0-9a-f]{8})[0-9a-f]{56}\b")
# Repeated by Flower for every message, or said better by the table at the end.
NOISE = re.compile(
    r"[├└│]|^\[RUN |^\[flwr-clientapp|^Loading project|^Success$|^(Received|Sent) successfully|^Creating a new"
    r"|MetricRecord|^Initial global|^Global (evaluation|Arrays)|^Final results|^ArrayRecord|Metrics:$|^({|\d+: {)"
    r"|--insecure"
)


class Console:
    """Follows log files and prints what is added to them until it is closed."""

    def __init__(self, coloured: bool):
        self._coloured = coloured
        self._closing = threading.Event()
        self._printing = threading.Lock()
        self._threads: list[threading.Thread] = []

    def say(self, text: str = "") -> None:
        with self._printing:
            print(text, flush=True)

    def follow(self, name: str, log: Path) -> None:
        thread = threading.Thread(target=self._follow, args=(name, log), daemon=True)
        self._threads.append(thread)
        thread.start()

    def close(self) -> None:
        """Print what is still unread, then return."""
        self._closing.set()
        for thread in self._threads:
            thread.join()

    def _follow(self, name: str, log: Path) -> None:
        while not log.exists() and not self._closing.wait(FOLLOW_INTERVAL_S):
            pass
        if not log.exists():
            return
        with log.open(errors="replace") as lines:
            unfinished = ""
            while True:
                last_look = self._closing.is_set()
                *complete, unfinished = (unfinished + lines.read()).split("\n")
                for line in complete:
                    self._print_line(name, line)
                if last_look:
                    return
                self._closing.wait(FOLLOW_INTERVAL_S)

    def _print_line(self, name: str, line: str) -> None:
        text = LONG_HASH.sub(r"\1", LEVEL.sub("", ESCAPES.sub("", line).rstrip()))
        if text and not NOISE.search(text):
            self.say(f"{self._paint(name)} | {text}")

    def _paint(self, name: str) -> str:
        padded = name.ljust(NAME_WIDTH)
        return f"\x1b[{COLOURS.get(name, NODE_COLOUR)}m{padded}\x1b[0m" if self._coloured else padded


def result_table(curve: list[dict]) -> str:
    """The learning curve, one row per round, with a bar for the accuracy."""
    rows = ["  round     loss  accuracy"]
    for point in curve:
        bar = "#" * round(point["accuracy"] * BAR_WIDTH)
        rows.append(f"  {point['round']:>5}  {point['loss']:>7.4f}  {point['accuracy']:>8.1%}  {bar}")
    return "\n".join(rows)


def complain(what: str, why: str, remedy: str) -> None:
    print(f"\ndemo: {what}\n  why: {why}\n  do:  {remedy}", file=sys.stderr, flush=True)
