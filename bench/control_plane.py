#!/usr/bin/env python3
"""Measures the control plane: how soon a node is connected after `trellis up`, what it takes at rest, and how long reads of
its API take with many federations.

`bench/run.sh --part platform [--quick] [--write FILE]`. The many federations are at simulated sites: every part of the
server is at work but the processes that it would start.
"""

import argparse
import http.client
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from urllib.parse import urlsplit

REPOSITORY = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(REPOSITORY / "bench"))

from report import circumstances, write  # noqa: E402

PART = "platform"
NODES = 4
UP_TRIES = 5
REST_S = 15.0
FEDERATIONS, NODES_EACH = 100, 100
READERS = 2
FIRST_NODE_LIMIT_S, MEMORY_LIMIT_MB, READ_LIMIT_MS = 2.0, 120.0, 20.0
GLANCE_S = 0.005
PATIENCE_S = 300.0


def trellis() -> str:
    default = Path(os.environ.get("CARGO_TARGET_DIR", REPOSITORY / "target")) / "release" / "trellis"
    return os.environ.get("TRELLIS_BIN", str(default))


def environment(home: Path) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("TRELLIS_", "FLWR_"))}
    return kept | {"TRELLIS_HOME": str(home), "FLWR_HOME": str(home / "flwr"), "NO_COLOR": "1"}


class Api:
    """One connection to the server of a home, kept open."""

    def __init__(self, home: Path):
        self.token = (home / "admin.token").read_text().strip()
        self.server = urlsplit(json.loads((home / "server.json").read_text())["url"])
        self.connection = http.client.HTTPConnection(self.server.hostname, self.server.port, timeout=30)

    def call(self, method: str, path: str, body: str | None = None) -> tuple[int, bytes]:
        headers = {"Authorization": f"Bearer {self.token}"} | ({"Content-Type": "application/yaml"} if body else {})
        self.connection.request(method, f"/api/v1{path}", body, headers)
        answer = self.connection.getresponse()
        return answer.status, answer.read()

    def get(self, path: str) -> dict:
        status, content = self.call("GET", path)
        if status != 200:
            raise RuntimeError(f"{path}: {status} {content[:200]!r}")
        return json.loads(content)


def until(what: str, look, limit_s: float = PATIENCE_S, pause_s: float = GLANCE_S):
    end = time.monotonic() + limit_s
    while True:
        try:
            if found := look():
                return found
        except (OSError, KeyError, ValueError, RuntimeError, http.client.HTTPException):
            pass
        if time.monotonic() > end:
            raise SystemExit(f"waited {limit_s:g} s for {what}")
        time.sleep(pause_s)


def ready_nodes(api: Api, federation: str) -> int:
    return sum(node["phase"] == "ready" for node in api.get(f"/federations/{federation}/nodes")["items"])


def up(home: Path) -> tuple[float, float]:
    """Seconds from the command to the first node, and to all of them."""
    start = time.monotonic()
    argv = [trellis(), "up", "--detach", "--nodes", str(NODES)]
    with (home / "up.log").open("wb") as log:
        child = subprocess.Popen(argv, env=environment(home), cwd=home, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    api = until("the server", lambda: Api(home) if (home / "server.json").exists() else None)
    until("the first node", lambda: ready_nodes(api, "local") >= 1)
    first = time.monotonic() - start
    until("all nodes", lambda: ready_nodes(api, "local") == NODES)
    everyone = time.monotonic() - start
    if child.wait(60) != 0:
        raise SystemExit((home / "up.log").read_text())
    return first, everyone


def down(home: Path) -> None:
    subprocess.run([trellis(), "down"], env=environment(home), cwd=home, check=True, capture_output=True, timeout=120)


def memory(home: Path) -> dict[str, tuple[float, float]]:
    """Megabytes, resident and shared out fairly, by what the processes of a home are."""
    taken: dict[str, tuple[float, float]] = {}
    wanted = str(home).encode()
    for entry in Path("/proc").iterdir():
        try:
            words = (entry / "cmdline").read_bytes().split(b"\0") if entry.name.isdigit() else []
            # All that is at rest was told where the home is.
            if not any(wanted in word for word in words):
                continue
            rollup = dict(line.split(":", 1) for line in (entry / "smaps_rollup").read_text().splitlines()[1:])
        except (OSError, ValueError):
            continue
        rss, pss = (int(rollup[field].split()[0]) / 1000 for field in ("Rss", "Pss"))
        kind = words[1].decode() if len(words) > 1 else "?"
        before = taken.get(kind, (0.0, 0.0))
        taken[kind] = (before[0] + rss, before[1] + pss)
    return taken


def document(name: str, nodes: int) -> str:
    return f"apiVersion: trellis.dev/v1\nkind: Federation\nmetadata: {{name: {name}}}\nspec: {{nodes: {nodes}}}\n"


def reads(job: tuple[str, list[str], float]) -> dict[str, list[float]]:
    """Milliseconds of each read, by its kind, on one connection, for some seconds."""
    home, names, seconds = job
    api, taken = Api(Path(home)), {}
    end, index = time.monotonic() + seconds, 0
    while time.monotonic() < end:
        name = names[index % len(names)]
        index += 1
        for kind, path in (
            ("federations", "/federations"),
            ("one federation", f"/federations/{name}"),
            ("its nodes", f"/federations/{name}/nodes"),
            ("its runs", f"/federations/{name}/runs"),
            ("me", "/me"),
        ):
            start = time.perf_counter()
            status, _ = api.call("GET", path)
            taken.setdefault(kind, []).append((time.perf_counter() - start) * 1000)
            if status != 200:
                raise RuntimeError(f"{path}: {status}")
    return taken


def many(federations: int, nodes: int, seconds: float) -> dict[str, list[float]]:
    with tempfile.TemporaryDirectory(prefix="trellis-bench-") as directory:
        home = Path(directory)
        argv = [trellis(), "server", "--listen", "127.0.0.1:0", "--simulated-sites"]
        with (home / "out.log").open("wb") as log:
            server = subprocess.Popen(argv, env=environment(home), stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        try:
            api = until("the server", lambda: Api(home) if (home / "server.json").exists() else None)
            names = [f"fed-{index}" for index in range(federations)]
            for name in names:
                status, content = api.call("PUT", f"/federations/{name}", document(name, nodes))
                if status not in (200, 201):
                    raise SystemExit(f"{name}: {status} {content!r}")
            look = lambda: all(item["nodes"]["ready"] == nodes for item in api.get("/federations?limit=1000")["items"])  # noqa: E731
            until(f"{federations * nodes} nodes", look, pause_s=0.5)
            with ProcessPoolExecutor(READERS) as pool:
                parts = list(pool.map(reads, [(directory, names, seconds)] * READERS))
        finally:
            server.terminate()
            server.wait(30)
    return {kind: sorted(ms for part in parts for ms in part[kind]) for kind in parts[0]}


def percentile(ordered: list[float], share: float) -> float:
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def measure(quick: bool) -> str:
    firsts, alls, resident, fair = [], [], 0.0, 0.0
    for attempt in range(2 if quick else UP_TRIES):
        with tempfile.TemporaryDirectory(prefix="trellis-bench-") as directory:
            home = Path(directory)
            first, everyone = up(home)
            firsts.append(first)
            alls.append(everyone)
            if attempt == 0:
                time.sleep(REST_S)
                taken = memory(home)
                resident, fair = (sum(pair[index] for pair in taken.values()) for index in (0, 1))
            down(home)
    federations = 10 if quick else FEDERATIONS
    latencies = many(federations, NODES_EACH, 5 if quick else 20)
    worst = max(percentile(ordered, 0.99) for ordered in latencies.values())
    first = statistics.median(firsts)
    verdict = lambda met: "met" if met else "missed"  # noqa: E731
    parts = ", ".join(f"{kind} {rss:.1f}" for kind, (rss, _) in sorted(taken.items()))
    lines = [
        "| what | measured | target | |",
        "|---|---|---|---|",
        f"| `trellis up --nodes {NODES}` to the first node, TLS, median of {len(firsts)} | {first:.2f} s | "
        f"{FIRST_NODE_LIMIT_S:g} s | {verdict(first < FIRST_NODE_LIMIT_S)} |",
        f"| to all nodes | {statistics.median(alls):.2f} s | | |",
        f"| at rest, all processes with {NODES} nodes: sum of resident memory | {resident:.1f} MB ({parts}) | "
        f"{MEMORY_LIMIT_MB:g} MB | {verdict(resident < MEMORY_LIMIT_MB)} |",
        f"| the same, shared pages counted once | {fair:.1f} MB | | |",
        f"| p99 of reads, {federations} federations with {federations * NODES_EACH} nodes | {worst:.2f} ms | "
        f"{READ_LIMIT_MS:g} ms | {verdict(worst < READ_LIMIT_MS)} |",
        "",
        f"Reads, {READERS} connections at once:",
        "",
        "| read | calls | p50 ms | p99 ms | max ms |",
        "|---|---|---|---|---|",
    ]
    for kind, ordered in latencies.items():
        cells = (percentile(ordered, 0.5), percentile(ordered, 0.99), ordered[-1])
        lines.append(f"| {kind} | {len(ordered)} | " + " | ".join(f"{cell:.2f}" for cell in cells) + " |")
    return f"{circumstances(PART)}\n" + "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="fewer tries and federations")
    parser.add_argument("--write", type=Path, help="put the tables between the markers of this part in a document")
    arguments = parser.parse_args()
    report = measure(arguments.quick)
    print(report)
    if arguments.write:
        write(arguments.write, PART, report)


if __name__ == "__main__":
    main()
