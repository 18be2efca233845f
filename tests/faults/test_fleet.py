"""A fleet of 200 nodes with a native app, one process each, on this machine."""

import statistics
from pathlib import Path

import pytest

from harness.waiting import wait_for

NODES = 200
ROUNDS = 20
FLEET_BYTES = 4_000_000_000
JOIN_LIMIT_S = 300.0
RUN_LIMIT_S = 600.0
QUICK_NODES, QUICK_ROUNDS = 10, 3

pytestmark = pytest.mark.trellis_only


def pss_bytes(pid: int) -> int:
    """Memory of a process, with its share of what it has in common with others."""
    with open(f"/proc/{pid}/smaps_rollup") as rollup:
        return 1024 * int(next(line for line in rollup if line.startswith("Pss:")).split()[1])


def roll_call(own_federation, nodes: int, rounds: int):
    fed = own_federation(app="roll_call", nodes=nodes, native="echo")
    fed.superlink.start()
    fed.start_nodes()
    fed.superlink.control.wait_nodes_online(nodes, JOIN_LIMIT_S)
    before = fed.superlink.control.online_nodes()

    run_id = fed.cli.submit(nodes=nodes, num_server_rounds=rounds, result_path=fed.result_path())
    assert fed.wait_finished(run_id, RUN_LIMIT_S).status == "finished:completed"

    result = fed.result()
    assert [(called["answered"], called["same"], called["errors"]) for called in result] == [
        (sorted(map(str, before)), nodes, [])
    ] * rounds
    return fed, [called["seconds"] for called in result]


def test_fleet200_finishes_twenty_rounds(own_federation, capsys):
    fed, seconds = roll_call(own_federation, NODES, ROUNDS)

    pids = fed.node_pids()
    used = sum(pss_bytes(pid) for pid in pids)
    peaks = [int(_status(pid)["VmHWM"].split()[0]) / 1024 for pid in pids]
    with capsys.disabled():
        print(
            f"\nfleet200: {NODES} nodes, {ROUNDS} rounds, median {statistics.median(seconds):.2f} s, longest "
            f"{max(seconds):.2f} s; {used / 1e6:.0f} MB in all, {used / NODES / 1e6:.1f} MB for each (PSS); "
            f"highest peak of one {max(peaks):.1f} MiB (RSS)"
        )
    assert used < FLEET_BYTES
    for node in fed.nodes:
        wait_for(f"{node.name} to keep nothing", lambda node=node: not node.stored_objects(), 10.0)


@pytest.mark.quick
def test_a_small_fleet_with_a_native_app(own_federation):
    roll_call(own_federation, QUICK_NODES, QUICK_ROUNDS)


def _status(pid: int) -> dict[str, str]:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}
