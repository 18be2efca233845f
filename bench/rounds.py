#!/usr/bin/env python3
"""Measures whole federations side by side on this machine: rounds in which nothing is trained, and nodes that idle.

`bench/run.sh --part rounds [--quick] [--only TITLE]... [--write FILE]`. Each stack is two SuperNodes around a SuperLink
and an unmodified `flwr run` of tests/apps/numpy_fedavg; its ServerApp notes when rounds end. One stack after the other.
"""

import argparse
import os
import re
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(REPOSITORY / "tests"))

from harness.federation import OFFICIAL, Federation, Shape  # noqa: E402
from harness.journal import RoundJournal  # noqa: E402
from harness.own_supernode import PER_MESSAGE, WARM, OwnNode, descendants  # noqa: E402
from harness.release import flower  # noqa: E402
from harness.waiting import wait_for  # noqa: E402
from harness.workspace import Workspace  # noqa: E402
from provision import CannotBeHad  # noqa: E402
from report import circumstances, write  # noqa: E402

PART = "rounds"
IN_MEMORY = ("--database", ":flwr-in-memory:")
TICKS_PER_S = os.sysconf("SC_CLK_TCK")
ARRAYS = 20


def official(version: str) -> Shape:
    """As it comes: the SuperLink's state in memory."""
    versions = {"fleet": (version,), "cli": version, "runtime": version, "official": version}
    return Shape(kind=OFFICIAL, link_flags=IN_MEMORY, **versions)


def ours(version: str, lifecycle: str) -> Shape:
    """As it comes: state on the disk, at the SuperLink and at the nodes."""
    node = OwnNode(python=version, lifecycle=lifecycle, port=flower(version).fleet_transport)
    return Shape(fleet=(node,), cli=version, runtime=version)


OLD, NEW = "official 1.25", "official 1.42"
WARM_OLD, WARM_NEW = "ours, apps of 1.25", "ours, apps of 1.42"
STACKS: dict[str, Callable[[], Shape]] = {
    OLD: lambda: official("1.25"),
    NEW: lambda: official("1.42"),
    WARM_OLD: lambda: ours("1.25", WARM),
    WARM_NEW: lambda: ours("1.42", WARM),
    "ours, per-message": lambda: ours("1.25", PER_MESSAGE),
}


@dataclass(frozen=True)
class Sizes:
    rounds: int = 7
    large_rounds: int = 4
    # Of one array, in float32; there are 20 of them.
    large_length: int = 5_000_000 // 4
    settle_s: float = 10.0
    idle_s: float = 30.0
    # A run that has not ended by then gives a bound.
    limit_s: float = 420.0


QUICK = Sizes(rounds=3, large_rounds=3, large_length=1_000_000 // 4, settle_s=3.0, idle_s=5.0, limit_s=120.0)


@dataclass(frozen=True)
class Number:
    """`above`: it was not waited for longer."""

    value: float
    above: bool = False

    def __str__(self) -> str:
        return ("> " if self.above else "") + short(self.value)


@dataclass(frozen=True)
class Metric:
    name: str
    # At least this many times better than official 1.25, or below this at all.
    factor: float | None = None
    below: float | None = None

    @property
    def target(self) -> str:
        return f">= {short(self.factor)}x" if self.factor else f"< {short(self.below)}"

    def met(self, numbers: dict[str, Number]) -> bool | None:
        """None where it cannot be told."""
        warm = [numbers[stack] for stack in (WARM_OLD, WARM_NEW) if stack in numbers]
        if self.below is not None:
            return all(not number.above and number.value < self.below for number in warm) if warm else None
        ratio = times_better(numbers.get(OLD), numbers.get(WARM_OLD))
        if ratio is None or (ratio.above and ratio.value < self.factor):
            return None
        return ratio.value >= self.factor


def metrics(sizes: Sizes) -> dict[str, Metric]:
    model_mb = ARRAYS * sizes.large_length * 4 // 1_000_000
    return {
        "round": Metric("s per round, train and evaluate, nothing to do (median)", factor=50),
        "first": Metric("s from `flwr run` to the end of the first round", factor=3),
        "rss": Metric("idle node, RSS MB (without app)", below=15),
        "cpu": Metric("idle node, CPU % of one core", below=0.1),
        "large": Metric(f"s per round with {model_mb} MB in {ARRAYS} arrays (median)", factor=5),
    }


@dataclass
class Outcome:
    numbers: dict[str, Number] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


class Stack:
    """One federation, from its start to its end."""

    def __init__(self, workspace: Workspace, shape: Shape, sizes: Sizes):
        self._federation = Federation(workspace, shape)
        self._sizes = sizes
        self.outcome = Outcome()

    def measure(self) -> Outcome:
        self._federation.start()
        time.sleep(self._sizes.settle_s)
        self._idle()
        self._empty_rounds()
        self._large_rounds()
        return self.outcome

    def _idle(self) -> None:
        """Of one node, with everything that it keeps running while it has nothing to do.

        Below an official node that is its launcher of apps. Below ours it is an interpreter that waits for an app, and
        what apps take is not counted; it is in the notes.
        """
        nodes = self._federation.node_pids()
        below = [pid for node in nodes for pid in descendants(node)]
        before, began = sum(map(cpu_s, nodes + below)), time.monotonic()
        time.sleep(self._sizes.idle_s)
        used, seconds = sum(map(cpu_s, nodes + below)) - before, time.monotonic() - began
        own, waiting = (sum(map(rss_bytes, pids)) / 1e6 / len(nodes) for pids in (nodes, below))
        launches = self._federation.shape.kind == OFFICIAL
        self.outcome.numbers["cpu"] = Number(100 * used / seconds / len(nodes))
        self.outcome.numbers["rss"] = Number(own + waiting if launches else own)
        what = "its launcher" if launches else "an interpreter that waits"
        self.outcome.notes.append(f"idle: the node {short(own)} MB, {what} {short(waiting)} MB")

    def _empty_rounds(self) -> None:
        began, journal = self._run("empty", self._sizes.rounds)
        ends = journal.ends()
        self.outcome.numbers["first"] = Number(ends[1] - began) if len(ends) > 1 else self._limit()
        self._note_rounds("round", "empty rounds", ends)

    def _large_rounds(self) -> None:
        model = {"array_count": ARRAYS, "array_length": self._sizes.large_length}
        _, journal = self._run("large", self._sizes.large_rounds, **model)
        self._note_rounds("large", "large rounds", journal.ends())

    def _run(self, name: str, rounds: int, **settings: object) -> tuple[float, RoundJournal]:
        """When `flwr run` began, and what the ServerApp noted until the run's end or the limit."""
        journal = self._federation.journal(name)
        began = time.time()
        run = self._federation.cli.follow(num_server_rounds=rounds, empty=True, journal_path=journal.path, **settings)
        try:
            wait_for("the rounds", lambda: len(journal.ends()) > rounds or not run.alive, self._sizes.limit_s)
            run.wait_exit(self._sizes.limit_s)
        except AssertionError:
            run.kill()
            self.outcome.notes.append(f"{name}: no end within {self._sizes.limit_s:g} s")
        if faults := journal.faults(rounds, self._federation.shape.nodes):
            self.outcome.notes.append(f"{name}: {faults[0][:200]}")
        return began, journal

    def _note_rounds(self, key: str, label: str, ends: list[float]) -> None:
        """The first round has the start of the apps in it, and is a number of its own."""
        seconds = [later - earlier for earlier, later in zip(ends, ends[1:], strict=False)]
        self.outcome.numbers[key] = Number(statistics.median(seconds[1:])) if len(seconds) > 1 else self._limit()
        self.outcome.notes.append(f"{label}: {', '.join(map(short, seconds)) or 'none'} s")

    def _limit(self) -> Number:
        return Number(self._sizes.limit_s, above=True)


def cpu_s(pid: int) -> float:
    """User and system time until now, of threads that ended too; nothing of a process that is gone."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except FileNotFoundError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / TICKS_PER_S


def rss_bytes(pid: int) -> int:
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except FileNotFoundError:
        return 0
    found = re.search(r"^VmRSS:\s+(\d+) kB", status, re.MULTILINE)
    return 1024 * int(found.group(1)) if found else 0


def times_better(theirs: Number | None, own: Number | None) -> Number | None:
    if theirs is None or own is None or own.above or own.value <= 0:
        return None
    return Number(theirs.value / own.value, theirs.above)


def short(value: float) -> str:
    """Three digits that count."""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def table(outcomes: dict[str, Outcome], sizes: Sizes) -> str:
    heads = ["", *outcomes, "better than 1.25", "better than 1.42", "target", "met"]
    lines = [heads, ["---"] * len(heads)]
    for key, metric in metrics(sizes).items():
        numbers = {stack: outcome.numbers[key] for stack, outcome in outcomes.items() if key in outcome.numbers}
        cells = [str(numbers.get(stack, "failed")) for stack in outcomes]
        pairs = ((OLD, WARM_OLD), (NEW, WARM_NEW))
        ratios = [times_better(numbers.get(theirs), numbers.get(own)) for theirs, own in pairs]
        cells += [f"{ratio}x" if ratio else "-" for ratio in ratios]
        met = {True: "yes", False: "**no**", None: ""}[metric.met(numbers)]
        lines.append([metric.name, *cells, metric.target, met])
    notes = [f"- {stack}: {note}" for stack, outcome in outcomes.items() for note in outcome.notes]
    return "\n".join([*(f"| {' | '.join(line)} |" for line in lines), "", "Seen during the run:", *notes, ""])


def measure_all(stacks: list[str], sizes: Sizes) -> dict[str, Outcome]:
    outcomes = {}
    for title in stacks:
        print(title, file=sys.stderr, flush=True)
        with tempfile.TemporaryDirectory(prefix="trellis-rounds-", ignore_cleanup_errors=True) as directory:
            # Apps may write to its parent, which must not contain the state of a SuperLink.
            workspace = Workspace(Path(directory) / "workspace")
            stack = None
            try:
                stack = Stack(workspace, STACKS[title](), sizes)
                outcomes[title] = stack.measure()
            except (AssertionError, CannotBeHad, OSError) as why:
                outcomes[title] = stack.outcome if stack else Outcome()
                outcomes[title].notes.append(f"failed: {str(why).splitlines()[0]}")
                print(why, file=sys.stderr)
            finally:
                workspace.close()
        for note in outcomes[title].notes:
            print(f"  {note}", file=sys.stderr, flush=True)
    return outcomes


def main() -> int:
    parser = argparse.ArgumentParser(prog="bench/run.sh --part rounds", description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="smaller and shorter, to try things out, not for quoting")
    parser.add_argument("--only", action="append", choices=list(STACKS), help="only this stack; may be repeated")
    parser.add_argument("--write", type=Path, metavar="FILE", help="put the table between the markers of this file")
    arguments = parser.parse_args()
    # What was started must end with us.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("interrupted"))
    sizes = QUICK if arguments.quick else Sizes()
    report = f"{circumstances(PART)}\n{table(measure_all(arguments.only or list(STACKS), sizes), sizes)}"
    print(report)
    if arguments.write:
        write(arguments.write, PART, report)
    return 0


if __name__ == "__main__":
    sys.exit(main())
