"""A ServerApp killed at any moment goes on by itself: the last model is the same, byte for byte."""

import contextlib
import os
import random
import signal
import time
from pathlib import Path

import pytest

from harness.waiting import wait_for

NODES, ROUNDS = 3, 8
# Five hidden layers: twelve arrays.
MODEL = {"hidden_layers": 5, "strategy": "FedAdam", "checkpoint_interval": 2}
KILLS = 30
QUICK_KILLS = 2
RUN_LIMIT_S = 120.0

pytestmark = pytest.mark.trellis_only


def serverapp_pid(run_id: int) -> int | None:
    for entry in os.scandir("/proc"):
        with contextlib.suppress(OSError, ValueError):
            pid = int(entry.name)
            environment = open(f"/proc/{pid}/environ", "rb").read().split(b"\0")
            if f"TRELLIS_RUN_ID={run_id}".encode() in environment and os.getpgid(pid) == pid:
                return pid
    return None


def go_on_after_kills(fed, kills: int, seed: int) -> None:
    begin = time.monotonic()
    expected = fed.train(rounds=ROUNDS, **MODEL).saved_bytes()
    took_s = time.monotonic() - begin
    chance, restarted = random.Random(seed), 0
    for number in range(kills):
        moment_s = chance.uniform(0, took_s)
        run = fed.begin(rounds=ROUNDS, **MODEL)
        run_id = run.wait_started()
        pid = wait_for("the ServerApp", lambda run_id=run_id: serverapp_pid(run_id), 10.0)
        time.sleep(moment_s)  # The moment is the test.
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        run.process.wait_exit(RUN_LIMIT_S)
        ended = run.events("ended")[-1]
        if ended["status"] != "completed":
            # It had kept nothing yet, so there was nothing to go on from by itself.
            last = fed.train("--resume", str(run_id), rounds=ROUNDS, **MODEL).saved_bytes()
        else:
            restarted += "continues from its last checkpoint" in fed.federation.cli.log(run_id).stdout
            last = (Path(ended["model"]) / "model.safetensors").read_bytes()
        assert last == expected, f"kill {number} after {moment_s:.2f} s of {took_s:.2f} s"
    assert restarted > kills // 3, f"only {restarted} of {kills} kills hit a run at work"


def test_killed_at_thirty_moments(digits, pytestconfig):
    go_on_after_kills(digits(NODES), KILLS, pytestconfig.getoption("--seed"))


@pytest.mark.quick
def test_killed_and_going_on(digits, pytestconfig):
    go_on_after_kills(digits(NODES), QUICK_KILLS, pytestconfig.getoption("--seed"))
