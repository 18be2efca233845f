#!/usr/bin/env python3
"""Measures the Kubernetes operator on a real API server: from the creation of a Federation to its objects, a cold start with many
federations, its memory, and the writes it makes when nothing is to be done.

`bench/run.sh --part operator [--quick] [--write FILE] [--beside NAME=PROGRAM]`. There is no kubelet: what is measured is the
operator and the API server. `--beside` measures another operator for the same resource under the same load (its program, with
arguments, which gets KUBECONFIG); its definition of the resource must be in force with `--beside-crd FILE`.
"""

import argparse
import http.client
import json
import os
import re
import shlex
import signal
import ssl
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from pathlib import Path
from urllib.parse import urlsplit

REPOSITORY = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(REPOSITORY / "bench"))
sys.path.insert(0, str(REPOSITORY / "tests"))

from report import circumstances, write  # noqa: E402
from provision_kube import provision  # noqa: E402

PART = "operator"
SINGLES, SINGLES_QUICK = 200, 30
MANY, MANY_QUICK = 1000, 100
WRITERS = 4
QUIET_S, QUIET_QUICK_S = 60.0, 10.0
STEADY_GLANCE_S = 0.5
STEADY_LOOKS = 6
PATIENCE_S = 900.0
SERVED_LIMIT_S = 60.0
P50_LIMIT_MS, P99_LIMIT_MS, COLD_LIMIT_S, RSS_LIMIT_MB = 30.0, 100.0, 60.0, 60.0
WRITES = ("POST", "PUT", "PATCH", "APPLY", "DELETE", "DELETECOLLECTION")
# Of the operator's own liveness, not of federations.
NOT_COUNTED = ("leases", "events")
NAMESPACE = "default"
GROUP = "/apis/flwr.exalsius.ai/v1"
# What every operator of this resource makes for a federation: the kinds, and the ends of the names.
CHILDREN = {
    "statefulsets": ("/apis/apps/v1", ("superlink", "supernode-default")),
    "services": ("/api/v1", ("superlink",)),
}


def federation(name: str) -> dict:
    return {
        "apiVersion": "flwr.exalsius.ai/v1",
        "kind": "Federation",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {
            "mode": "StatefulSet",
            "isolationMode": "subprocess",
            "superlink": {"image": "flwr/superlink:1.25.0"},
            "supernodes": {
                "image": "flwr/supernode:1.25.0",
                "pools": [{"name": "default", "replicas": 2, "images": {}}],
            },
        },
    }


class ControlPlane:
    """An API server that nothing but the operator talks to (crates/testing/testing)."""

    def __init__(self, home: Path):
        program = Path(os.environ.get("CARGO_TARGET_DIR", REPOSITORY / "target")) / "debug" / "kube-control-plane"
        self.programs = provision()
        environment = os.environ | {"KUBEBUILDER_ASSETS": str(self.programs), "TMPDIR": str(home)}
        self.process = subprocess.Popen(
            [str(program), "api-server"], env=environment, stdout=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True
        )
        self.kubeconfig = Path(self.process.stdout.readline().strip())
        seen = json.loads(self.kubectl("config", "view", "--raw", "-o", "json"))
        self.url, self.token = seen["clusters"][0]["cluster"]["server"], seen["users"][0]["user"]["token"]

    def kubectl(self, *words: str) -> str:
        argv = [str(self.programs / "kubectl"), "--kubeconfig", str(self.kubeconfig), *words]
        return subprocess.run(argv, check=True, capture_output=True, text=True).stdout

    def until_served(self) -> None:
        """Until the API server knows the resource."""
        argv = [str(self.programs / "kubectl"), "--kubeconfig", str(self.kubeconfig), "get", "--raw", f"{GROUP}/federations"]
        deadline = time.monotonic() + SERVED_LIMIT_S
        while subprocess.run(argv, capture_output=True).returncode != 0:
            if time.monotonic() > deadline:
                raise RuntimeError(f"the definition is not in force after {SERVED_LIMIT_S} s")
            time.sleep(STEADY_GLANCE_S)

    def close(self) -> None:
        self.process.terminate()
        self.process.wait()


class Api:
    """One kept connection to the API server; not for several threads."""

    def __init__(self, plane: ControlPlane):
        self.server, self.token = urlsplit(plane.url), plane.token
        trusting = ssl.create_default_context()
        trusting.check_hostname, trusting.verify_mode = False, ssl.CERT_NONE
        self.connection = http.client.HTTPSConnection(
            self.server.hostname, self.server.port, timeout=PATIENCE_S, context=trusting
        )

    def open(self, method: str, path: str, body: dict | None = None) -> http.client.HTTPResponse:
        headers = {"Authorization": f"Bearer {self.token}", "Content-Type": "application/json"}
        self.connection.request(method, path, json.dumps(body) if body is not None else None, headers)
        return self.connection.getresponse()

    def call(self, method: str, path: str, body: dict | None = None) -> dict:
        answer = self.open(method, path, body)
        text = answer.read()
        if answer.status >= 400:
            raise RuntimeError(f"{method} {path}: {answer.status}: {text[:500]!r}")
        return json.loads(text)

    def writes(self) -> int:
        """Requests that could have written something, since the API server started; refused ones too."""
        text = self.open("GET", "/metrics").read().decode()
        total = 0
        for line in text.splitlines():
            if not line.startswith("apiserver_request_total{"):
                continue
            labels = dict(re.findall(r'(\w+)="([^"]*)"', line))
            if labels["verb"] in WRITES and labels["resource"] not in NOT_COUNTED:
                total += int(float(line.rsplit(" ", 1)[1]))
        return total


class Seen:
    """When each child was first seen, by watches that are open all the time."""

    def __init__(self, plane: ControlPlane):
        self.first: dict[tuple[str, str], float] = {}
        self.changed = threading.Condition()
        for plural, (group, _) in CHILDREN.items():
            version = Api(plane).call("GET", f"{group}/namespaces/{NAMESPACE}/{plural}")["metadata"]["resourceVersion"]
            path = f"{group}/namespaces/{NAMESPACE}/{plural}?watch=1&resourceVersion={version}"
            threading.Thread(target=self.follow, args=(Api(plane), plural, path), daemon=True).start()

    def follow(self, api: Api, plural: str, path: str) -> None:
        for line in api.open("GET", path):
            now = time.monotonic()
            event = json.loads(line)
            if event["type"] != "ADDED":
                continue
            with self.changed:
                self.first.setdefault((plural, event["object"]["metadata"]["name"]), now)
                self.changed.notify_all()

    def wait(self, name: str) -> float:
        """When the last child of a federation was there."""
        wanted = [(plural, f"{name}-{end}") for plural, (_, ends) in CHILDREN.items() for end in ends]
        with self.changed:
            if not self.changed.wait_for(lambda: all(key in self.first for key in wanted), PATIENCE_S):
                raise RuntimeError(f"{name} has not all its objects after {PATIENCE_S} s")
            return max(self.first[key] for key in wanted)


@contextmanager
def running(command: list[str], plane: ControlPlane, log: Path):
    with log.open("ab") as output:
        environment = os.environ | {"KUBECONFIG": str(plane.kubeconfig), "NO_COLOR": "1"}
        process = subprocess.Popen(command, env=environment, stdout=output, stderr=output)
    try:
        yield process
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def resident_mb(pid: int) -> float:
    status = Path(f"/proc/{pid}/status").read_text()
    return int(re.search(r"VmRSS:\s+(\d+)", status).group(1)) / 1000


def cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def steady(pid: int) -> float:
    """Waits until a process does nothing any more; says when that began."""
    last, looks, since = -1.0, 0, time.monotonic()
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        now, used = time.monotonic(), cpu_s(pid)
        if used - last < 0.02:
            looks += 1
            if looks >= STEADY_LOOKS:
                return since
        else:
            looks, since = 0, now
        last = used
        time.sleep(STEADY_GLANCE_S)
    raise RuntimeError(f"the operator is still busy after {PATIENCE_S} s")


def singles(plane: ControlPlane, count: int) -> list[float]:
    seen, api = Seen(plane), Api(plane)
    times = []
    for index in range(count):
        name = f"single-{index:04}"
        began = time.monotonic()
        api.call("POST", f"{GROUP}/namespaces/{NAMESPACE}/federations", federation(name))
        times.append((seen.wait(name) - began) * 1000)
    return times


def many(plane: ControlPlane, count: int) -> float:
    """Creates them as fast as the API server takes them; seconds until all have their objects."""
    seen, began = Seen(plane), time.monotonic()

    def create(part: int) -> None:
        api = Api(plane)
        for index in range(part, count, WRITERS):
            api.call("POST", f"{GROUP}/namespaces/{NAMESPACE}/federations", federation(f"many-{index:05}"))

    with ThreadPoolExecutor(WRITERS) as pool:
        list(pool.map(create, range(WRITERS)))
    return max(seen.wait(f"many-{index:05}") for index in range(count)) - began


def measure(command: list[str], crds: list[Path], quick: bool, home: Path) -> dict[str, float]:
    figures = {}
    with closing(ControlPlane(home)) as plane:
        for crd in crds:
            plane.kubectl("apply", "--server-side", "-f", str(crd))
        plane.until_served()
        api, log = Api(plane), home / "operator.log"
        with running(command, plane, log) as operator:
            warm = singles(plane, 3 + (SINGLES_QUICK if quick else SINGLES))[3:]
            figures["p50"] = statistics.median(warm)
            figures["p99"] = sorted(warm)[max(0, int(len(warm) * 0.99) - 1)]
            steady(operator.pid)
            before = api.writes()
            figures["many_s"] = many(plane, MANY_QUICK if quick else MANY)
            steady(operator.pid)
            figures["writes_each"] = (api.writes() - before) / (MANY_QUICK if quick else MANY) - 1
        before, began = api.writes(), time.monotonic()
        with running(command, plane, log) as operator:
            figures["cold_s"] = steady(operator.pid) - began
            figures["cold_cpu_s"] = cpu_s(operator.pid)
            figures["cold_writes"] = api.writes() - before
            before, began, used = api.writes(), time.monotonic(), cpu_s(operator.pid)
            time.sleep(QUIET_QUICK_S if quick else QUIET_S)
            past = time.monotonic() - began
            figures["writes_per_s"] = (api.writes() - before) / past
            figures["cpu_percent"] = (cpu_s(operator.pid) - used) / past * 100
            figures["rss"] = resident_mb(operator.pid)
    return figures


ROWS = (
    ("ms from a Federation's creation to its objects, median", "p50", f"< {P50_LIMIT_MS:.0f}", P50_LIMIT_MS),
    ("the same, 99th percentile", "p99", f"< {P99_LIMIT_MS:.0f}", P99_LIMIT_MS),
    ("s until {many} federations created at once have their objects", "many_s", "-", None),
    ("writes for each of them", "writes_each", "-", None),
    ("s from a cold start with all of them to rest", "cold_s", f"< {COLD_LIMIT_S:.0f}", COLD_LIMIT_S),
    ("writes of that start", "cold_writes", "-", None),
    ("writes per second at rest", "writes_per_s", "0", 0.0),
    ("CPU at rest, % of one core", "cpu_percent", "-", None),
    ("resident memory, MB", "rss", f"< {RSS_LIMIT_MB:.0f}", RSS_LIMIT_MB),
)


def table(measured: dict[str, dict[str, float]], quick: bool) -> str:
    names = list(measured)
    lines = [f"|  | {' | '.join(names)} | target | met |", f"| --- |{' --- |' * (len(names) + 2)}"]
    for text, key, target, limit in ROWS:
        ours = measured["ours"][key]
        met = "-" if limit is None else "yes" if ours < limit or ours == limit == 0 else "no"
        cells = " | ".join(f"{measured[name][key]:.3g}" for name in names)
        lines.append(f"| {text.format(many=MANY_QUICK if quick else MANY)} | {cells} | {target} | {met} |")
    return "\n".join(lines) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(prog="bench/run.sh --part operator")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--write", type=Path)
    parser.add_argument("--beside", metavar="NAME=PROGRAM")
    parser.add_argument("--beside-crd", type=Path, metavar="FILE")
    arguments = parser.parse_args()
    trellis = os.environ.get("TRELLIS_BIN", str(REPOSITORY / "target/release/trellis"))
    measured = {}
    with tempfile.TemporaryDirectory(prefix="trellis-bench-") as directory:
        home = Path(directory)
        definitions = home / "crd.yaml"
        definitions.write_bytes(subprocess.run([trellis, "operator", "crd"], check=True, capture_output=True).stdout)
        ours = [trellis, "operator", "run", "--metrics-address", "127.0.0.1:0", "--health-address", "127.0.0.1:0"]
        (home / "ours").mkdir()
        measured["ours"] = measure(ours, [definitions], arguments.quick, home / "ours")
        if arguments.beside:
            name, program = arguments.beside.split("=", 1)
            (home / "beside").mkdir()
            crds = [arguments.beside_crd or definitions]
            measured[name] = measure(shlex.split(program), crds, arguments.quick, home / "beside")
    report = f"{circumstances(PART)}\n{table(measured, arguments.quick)}"
    print(report)
    if arguments.write:
        write(arguments.write, PART, report)
    return 0


if __name__ == "__main__":
    sys.exit(main())
