#!/usr/bin/env python3
"""Measures aggregation: FedAvg of K clients x 10 M float32, Flower's own and ours, and one round with 1,000 clients.

`bench/run.sh --part aggregate [--quick] [--write FILE]`. One after the other on the same machine, each in a process of
its own; the best of three tries counts, for both.
"""

import argparse
import hashlib
import json
import os
import random
import resource
import statistics
import struct
import subprocess
import sys
import tempfile
import time
from array import array
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(REPOSITORY / "tests"))

from provision import CannotBeHad, provision  # noqa: E402
from report import circumstances, write  # noqa: E402

PART = "aggregate"
ELEMENTS = 10_000_000
FLOAT_BYTES = 4
CLIENTS = (10, 100, 1000)
VERSIONS = ("1.25", "1.42")
# Flower holds all replies at once: 1,000 of them need 40 GB.
OFFICIAL_CLIENTS = (10, 100)
TRIES = 3
# The round with many clients: nodes of this program in one process, whose replies all differ.
FLEET, FLEET_ROUNDS = 1000, 4
FLEET_ELEMENTS = 250_000
PROBE_BYTES = 1 << 30
BLOCK_BYTES = 512
READ_SHARE, MOST_MODELS, TIMES_FASTER = 0.6, 3.0, 10.0


def official(version: str, clients: int, elements: int) -> dict:
    python = provision(version) / "bin" / "python"
    script = REPOSITORY / "bench" / "official_fedavg.py"
    environment = os.environ | {"FLWR_TELEMETRY_ENABLED": "0"}
    argv = [str(python), str(script), *map(str, (clients, elements, TRIES))]
    done = subprocess.run(argv, env=environment, capture_output=True, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])


def ours(elements: int, clients: tuple[int, ...]) -> dict[tuple[str, int], dict]:
    """Cases by kind (`read`, `mean`, `fold`) and count (threads or clients)."""
    command = ["cargo", "run", "--release", "--quiet", "-p", "trellis-strategy", "--example", "aggregate", "--"]
    argv = [*command, "--json", "--elements", str(elements), "--clients", ",".join(map(str, clients))]
    done = subprocess.run(argv, cwd=REPOSITORY, capture_output=True, text=True, check=True)
    cases = json.loads(done.stdout)["cases"]
    return {(case["case"], case.get("threads", case.get("clients"))): case for case in cases}


def table(own: dict, theirs: dict[tuple[str, int], dict], clients: tuple[int, ...], elements: int) -> str:
    limit, model = own["read", 2]["gb_per_s"], elements * FLOAT_BYTES
    rows = [
        "| K clients | official 1.25 s | official 1.42 s | ours s | faster than 1.25 | than 1.42 | GB/s | of the read "
        "bandwidth | official 1.25 peak MB | ours, streaming: peak MB | in models |",
        "| --- " * 11 + "|",
    ]
    for count in clients:
        mean, fold = own["mean", count], own["fold", count]
        cells = [str(count)]
        official_s = [min(theirs[version, count]["seconds"]) if (version, count) in theirs else None for version in VERSIONS]
        cells += [f"{seconds:.3g}" if seconds else "-" for seconds in official_s]
        cells.append(f"{mean['seconds']:.3g}")
        cells += [f"{seconds / mean['seconds']:.1f}x" if seconds else "-" for seconds in official_s]
        cells += [f"{mean['gb_per_s']:.1f}", f"{mean['gb_per_s'] / limit:.0%}"]
        peak = theirs.get(("1.25", count))
        cells.append(f"{peak['peak_bytes'] / 1e6:.0f}" if peak else "-")
        cells += [f"{fold['peak_rss_bytes'] / 1e6:.0f}", f"{fold['peak_rss_bytes'] / model:.2f}"]
        rows.append(f"| {' | '.join(cells)} |")
    return "\n".join(rows)


def verdicts(own: dict, theirs: dict[tuple[str, int], dict], clients: tuple[int, ...], elements: int) -> str:
    limit, model = own["read", 2]["gb_per_s"], elements * FLOAT_BYTES
    shares = [own["mean", count]["gb_per_s"] / limit for count in clients]
    peaks = [own["fold", count]["peak_rss_bytes"] / model for count in clients]
    lines = [
        f"- read bandwidth of this machine: {own['read', 1]['gb_per_s']:.1f} GB/s with one thread, {limit:.1f} with two",
        f"- at least {READ_SHARE:.0%} of it: {min(shares):.0%} to {max(shares):.0%}; {_met(min(shares) >= READ_SHARE)}",
        f"- at most {MOST_MODELS:.0f} models of memory: {max(peaks):.2f}; {_met(max(peaks) <= MOST_MODELS)}",
    ]
    for version in VERSIONS:
        if (version, 100) in theirs:
            times = min(theirs[version, 100]["seconds"]) / own["mean", 100]["seconds"]
            met = _met(times >= TIMES_FASTER)
            lines.append(f"- {TIMES_FASTER:.0f} times faster than {version} at K=100: {times:.1f}x; {met}")
    return "\n".join(lines)


def fleet_round(nodes: int, elements: int, directory: Path) -> tuple[float, float]:
    """Seconds of a round, and bytes that it writes to the disk, everybody together."""
    model = directory / f"{elements}.safetensors"
    header = json.dumps({"w": {"dtype": "F32", "shape": [elements], "data_offsets": [0, elements * FLOAT_BYTES]}}).encode()
    chance = random.Random(elements)
    numbers = array("f", (chance.random() for _ in range(elements)))
    model.write_bytes(struct.pack("<Q", len(header)) + header + numbers.tobytes())
    settings = ["vary=true", "checkpoint-enabled=false", "fraction-evaluate=0.0", f"min-available-nodes={nodes}"]
    words = ["run", "native:echo", "--nodes", str(nodes), "--rounds", str(FLEET_ROUNDS), "--initial-model", str(model)]
    for setting in settings:
        words += ["--set", setting]
    before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_oublock
    argv = [os.environ["TRELLIS_BIN"], *words, "-o", "json"]
    environment = os.environ | {"TMPDIR": str(directory)}
    done = subprocess.run(argv, cwd=directory, env=environment, capture_output=True, text=True, check=True)
    written = (resource.getrusage(resource.RUSAGE_CHILDREN).ru_oublock - before) * BLOCK_BYTES
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    phases = [line["train"] for line in lines if line.get("kind") == "round"]
    answered = [phase["answered"] for phase in phases]
    assert answered == [nodes] * FLEET_ROUNDS, f"of {nodes} nodes answered {answered}"
    return statistics.median(phase["seconds"] for phase in phases[1:]), written / FLEET_ROUNDS


def disk_bytes_per_s(directory: Path) -> float:
    block, path = os.urandom(1 << 20), directory / "probe"
    begin = time.perf_counter()
    with path.open("wb") as file:
        for _ in range(PROBE_BYTES >> 20):
            file.write(block)
        file.flush()
        os.fsync(file.fileno())
    seconds = time.perf_counter() - begin
    path.unlink()
    return PROBE_BYTES / seconds


def hashed_bytes_per_s() -> float:
    block = os.urandom(64 << 20)
    begin = time.perf_counter()
    hashlib.sha256(block).digest()
    return len(block) / (time.perf_counter() - begin)


def fleet(nodes: int) -> str:
    """The round with many clients, and what it cannot be faster than."""
    with tempfile.TemporaryDirectory(prefix="trellis-bench-") as name:
        directory = Path(name)
        disk, hashing = disk_bytes_per_s(directory), hashed_bytes_per_s()
        empty_s, _ = fleet_round(nodes, 250, directory)
        seconds, written = fleet_round(nodes, FLEET_ELEMENTS, directory)
    model = FLEET_ELEMENTS * FLOAT_BYTES
    # The node checks what it gets and names what it sends, the SuperLink and the ServerApp check what they get.
    limit_disk, limit_hash = written / disk, 4 * nodes * model / hashing / (os.cpu_count() or 1)
    limit = max(limit_disk, limit_hash)
    return (
        f"A round with {nodes:,} native clients x {model / 1e6:.0f} MB, all on this machine, every reply different: "
        f"{seconds:.1f} s; with a model of 1 KB: {empty_s:.1f} s.\n"
        f"It moves {3 * nodes * model / 1e9:.1f} GB (to the nodes, back, to the ServerApp), writes {written / 1e9:.1f} GB "
        f"and hashes {4 * nodes * model / 1e9:.1f} GB. The disk takes {disk / 1e9:.2f} GB/s: {limit_disk:.1f} s; "
        f"SHA-256 on all cores: {limit_hash:.1f} s. Times the limit: {seconds / limit:.1f}; "
        f"what the bytes alone add: {max(seconds - empty_s, 0) / limit:.1f}.\n"
    )


def _met(yes: bool) -> str:
    return "met" if yes else "not met"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="fewer clients and smaller models")
    parser.add_argument("--write", type=Path, metavar="FILE", help="put the table between the markers of this file")
    arguments = parser.parse_args()
    elements, clients = (1_000_000, (10, 100)) if arguments.quick else (ELEMENTS, CLIENTS)
    own, theirs = ours(elements, clients), {}
    for version in VERSIONS:
        for count in OFFICIAL_CLIENTS:
            try:
                theirs[version, count] = official(version, count, elements)
            except CannotBeHad as why:
                print(f"SKIP: official Flower {version}: {why}", file=sys.stderr)
    report = (
        f"{circumstances(PART)}\n{table(own, theirs, clients, elements)}\n\n{verdicts(own, theirs, clients, elements)}\n\n"
        f"{fleet(100 if arguments.quick else FLEET)}"
    )
    print(report)
    if arguments.write:
        write(arguments.write, PART, report)
    return 0


if __name__ == "__main__":
    sys.exit(main())
