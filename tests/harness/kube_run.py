"""`trellis run` on a federation in a cluster, as a user calls it."""

import json
from pathlib import Path

from harness.kube_federation import KubeFederation
from harness.process import Process
from harness.waiting import wait_for
from harness.workspace import trellis_binary

ROUND_LIMIT_S = 180.0
RUN_LIMIT_S = 600.0


def start_run(federation: KubeFederation, app: str | Path, rounds: int, **settings: object) -> Process:
    """Starts `trellis run` inside the cluster, with the name of the Service; its output is JSON lines."""
    values = {"num-server-rounds": rounds, "min-available-nodes": 2, "min-train-nodes": 2, "min-evaluate-nodes": 2}
    values |= {name.replace("_", "-"): value for name, value in settings.items()}
    argv = [str(trellis_binary()), "run", str(app), "-o", "json"]
    argv += ["--superlink", federation.cluster.service_address(federation.name, "http")]
    argv += credentials(federation)
    argv += [word for name, value in values.items() for word in ("--set", f"{name}={value}")]
    return federation.cluster.start(f"run-{len(federation.cluster.workspace.processes)}", argv)


def credentials(federation: KubeFederation) -> list[str]:
    if not federation.tls:
        return ["--insecure", "--allow-insecure-network"]
    token = federation.cluster.workspace.root / "token"
    token.write_bytes(federation.cluster.secret(f"{federation.name}-admin", "token"))
    return ["--root-certificates", str(federation.authority()), "--token-file", str(token)]


def rounds_of(run: Process) -> list[int]:
    lines = [json.loads(line) for line in run.output().splitlines() if line.startswith("{")]
    return [line["round"] for line in lines if line["event"] == "report" and line.get("kind") == "round"]


def finish(federation: KubeFederation, run: Process, rounds: int) -> None:
    code = run.wait_exit(RUN_LIMIT_S)
    assert code == 0, f"it exited with {code}\n{run.output()}\n{federation.cluster.diagnostics()}"
    assert rounds_of(run) == list(range(1, rounds + 1))


def goes_on(run: Process, rounds: int = 2) -> None:
    """Waits for this number of further rounds."""
    wanted = len(rounds_of(run)) + rounds

    def look() -> bool:
        assert run.alive, f"the run ended early\n{run.output()}"
        return len(rounds_of(run)) >= wanted

    wait_for(f"round {wanted}", look, ROUND_LIMIT_S)
