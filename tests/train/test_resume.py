"""A ServerApp killed at any moment, and resumed: the last model is the same, byte for byte."""

import contextlib
import os
import random
import signal
import time

import pytest

from harness.waiting import wait_for

NODES, ROUNDS = 3, 8
# Five hidden layers: twelve arrays.
MODEL = {"hidden_layers": 5, "strategy": "FedAdam", "checkpoint_interval": 2}
KILLS = 30
QUICK_KILLS = 2

pytestmark = pytest.mark.trellis_only


def serverapp_pid(run_id: int) -> int | None:
    for entry in os.scandir("/proc"):
        with contextlib.suppress(OSError, ValueError):
            pid = int(entry.name)
            environment = open(f"/proc/{pid}/environ", "rb").read().split(b"\0")
            if f"TRELLIS_RUN_ID={run_id}".encode() in environment and os.getpgid(pid) == pid:
                return pid
    return None


def resume_after_kills(fed, kills: int, seed: int) -> None:
    begin = time.monotonic()
    whole = fed.run_native(rounds=ROUNDS, **MODEL)
    assert whole.code == 0, whole.stderr
    took_s = time.monotonic() - begin
    expected = fed.native.saved_bytes(whole.run_id)
    chance, broken_off = random.Random(seed), 0
    for number in range(kills):
        moment_s = chance.uniform(0, took_s)
        run_id = fed.submit_native(rounds=ROUNDS, **MODEL)
        pid = wait_for("the ServerApp", lambda run_id=run_id: serverapp_pid(run_id), 10.0)
        time.sleep(moment_s)  # The moment is the test.
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        state = fed.federation.wait_finished(run_id)
        if state.status != "finished:completed":
            broken_off += 1
            resumed = fed.run_native("--resume", str(run_id), rounds=ROUNDS, **MODEL)
            assert resumed.code == 0, f"kill {number} after {moment_s:.2f} s\n{resumed.stderr}"
            run_id = resumed.run_id
        assert fed.native.saved_bytes(run_id) == expected, f"kill {number} after {moment_s:.2f} s"
    assert broken_off > kills // 3, f"only {broken_off} of {kills} kills hit a run at work"


def test_killed_at_thirty_moments(digits, pytestconfig):
    resume_after_kills(digits(NODES), KILLS, pytestconfig.getoption("--seed"))


@pytest.mark.quick
def test_killed_and_resumed(digits, pytestconfig):
    resume_after_kills(digits(NODES), QUICK_KILLS, pytestconfig.getoption("--seed"))
