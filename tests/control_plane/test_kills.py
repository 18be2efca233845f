"""Whichever process is killed, at whatever moment: the federation returns to its document, and runs complete."""

import os
import random
import signal
import time

import pytest
from harness.platform import Platform
from harness.process import pid_exists
from harness.waiting import wait_for

NODES = 4
# A run of about twenty seconds on two cores.
ROUNDS = 60
# Who may be killed, and how often within one run: a ServerApp that dies again and again is given up on purpose.
VICTIMS = {"keep": None, "server": None, "superlink": None, "supernode": None, "serverapp": 2}
RETURN_LIMIT_S = 60.0
RUN_LIMIT_S = 600.0
QUICK_KILLS = 6


def start_run(platform: Platform) -> str:
    def ask() -> str | None:
        started = platform.answer(
            "run", "native:mlp", "--federation", "local", "--detach", "--rounds", str(ROUNDS), "--set", "local-epochs=4"
        )
        return started and started["run_id"]

    return wait_for("a run to be taken", ask, RETURN_LIMIT_S)


def state_of(platform: Platform, run: str) -> dict | None:
    return platform.answer("runs", run, "--federation", "local")


def kill_one(platform: Platform, chance: random.Random, spent: dict[str, int]) -> str | None:
    """Kills one process; None: there was nobody of that kind just now."""
    kinds = [kind for kind, most in VICTIMS.items() if most is None or spent.get(kind, 0) < most]
    kind = chance.choice(kinds)
    victims = platform.processes(kind)
    if not victims:
        return None
    victim = chance.choice(victims)
    try:
        os.kill(victim, signal.SIGKILL)
    except ProcessLookupError:
        return None
    spent[kind] = spent.get(kind, 0) + 1
    wait_for(f"{kind} {victim} to be gone", lambda: not pid_exists(victim), RETURN_LIMIT_S)
    if kind in ("keep", "server"):
        # Each starts the other; that both die in one instant is beyond what is promised.
        wait_for(f"another {kind}", lambda: bool(platform.processes(kind)), RETURN_LIMIT_S)
    return kind


def whole(platform: Platform) -> bool:
    counts = {kind: len(platform.processes(kind)) for kind in ("keep", "server", "superlink", "supernode")}
    return counts == {"keep": 1, "server": 1, "superlink": 1, "supernode": NODES}


def killed(platform: Platform, kills: int, seed: int) -> None:
    print(f"seed {seed}")
    chance = random.Random(seed)
    platform.run("up", "--detach", "--nodes", str(NODES))
    platform.wait_ready("local")
    shards = {node["name"]: node["shard"] for node in platform.json("nodes", "--federation", "local")["items"]}
    done, runs = 0, []
    while done < kills:
        run = start_run(platform)
        spent: dict[str, int] = {}
        runs.append(run)
        over = time.monotonic() + RUN_LIMIT_S
        while (state := state_of(platform, run)) is None or state["state"] != "finished":
            assert time.monotonic() < over, f"run {run} does not end: {state}"
            if done < kills and (kind := kill_one(platform, chance, spent)):
                done += 1
                print(f"kill {done}: {kind}")
            # Not an event to wait for: kills shall fall anywhere in a round, and in what repairs the one before.
            time.sleep(chance.uniform(0.0, 2.0))
        assert state["outcome"] == "completed", state
    platform.wait_ready("local", RETURN_LIMIT_S)
    wait_for("exactly what the document says", lambda: whole(platform), RETURN_LIMIT_S)
    now = {node["name"]: node["shard"] for node in platform.json("nodes", "--federation", "local")["items"]}
    assert now == shards, "every node has the shard that it had"
    listed = {run["id"]: run["outcome"] for run in platform.json("runs", "--federation", "local")["items"]}
    assert all(listed[run] == "completed" for run in runs)
    platform.run("down")
    wait_for("nothing to be left", lambda: not any(map(platform.processes, VICTIMS)), RETURN_LIMIT_S)


@pytest.mark.quick
def test_some_kills(workspace, request):
    killed(Platform(workspace), QUICK_KILLS, request.config.getoption("--seed"))


def test_many_kills(workspace, request):
    killed(Platform(workspace), request.config.getoption("--kills"), request.config.getoption("--seed"))


@pytest.mark.quick
@pytest.mark.trellis_only
def test_who_started_a_run_is_known_after_a_restart_of_the_server(workspace):
    platform = Platform(workspace)
    platform.run("up", "--nodes", "1", "--detach")
    platform.wait_ready("local")
    run = platform.json("run", "native:mlp", "--federation", "local", "--detach", "--rounds", "1")["run_id"]
    before = platform.json("runs", run, "--federation", "local")
    assert before["started_by"], before
    assert before["config"]["num-server-rounds"] == 1, before
    [server] = platform.processes("server")
    os.kill(server, signal.SIGKILL)
    wait_for("another server", lambda: platform.processes("server") not in ([], [server]), RETURN_LIMIT_S)
    after = wait_for("the run to be listed again", lambda: state_of(platform, run), RETURN_LIMIT_S)
    assert after["started_by"] == before["started_by"], after
