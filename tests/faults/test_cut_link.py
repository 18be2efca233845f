"""The link between nodes and SuperLink is cut for a while: what was under way is delivered when it is mended, once.

The nodes are on the far side of a cable, in network namespaces of their own; needs root.
"""

import time

import pytest

from faults.across import PORTS, Across
from harness.cable import Cable
from harness.own_supernode import RETRY_SOON
from harness.waiting import wait_for
from provision import CannotBeHad

CUTS_S = (10, 60, 300)
ROUNDS = 2
# After the link is there again; nobody sleeps longer than the cap of the backoff.
PROMPTLY_S = 45.0
# A reply of 20 MB from each node.
ARRAYS, LENGTH = 20, 262_144
REPLIES_BYTES = len(PORTS) * ARRAYS * LENGTH * 4
UPLINK_MBIT_S = 80
CUT_WHEN_SENT = 0.6
# What was on its way when the link was cut is sent again; what had arrived is not.
MOST_SENT = 1.35
PUSH_LIMIT_S = 60.0
DELIVERED_LIMIT_S = 10.0

pytestmark = pytest.mark.trellis_only


@pytest.fixture
def across(workspace) -> Across:
    try:
        cable = Cable(workspace)
    except CannotBeHad as why:
        pytest.skip(f"no cable can be set up here, so cut links are not tested: {why}")
    return Across(workspace, cable, flags=RETRY_SOON)


def durations():
    for seconds in CUTS_S:
        yield pytest.param(seconds, marks=[pytest.mark.quick] if seconds == min(CUTS_S) else [])


def interrupt(across: Across, seconds: float) -> None:
    """The length of the outage is the experiment: nothing ends this wait."""
    time.sleep(seconds)
    across.cable.mend()


def check(across: Across, run, expected: str, kinds: tuple[str, ...]) -> None:
    assert run.wait_exit(PROMPTLY_S) == 0, run.output()
    assert across.journal.faults(ROUNDS, len(PORTS), kinds) == []
    assert across.result()["sha256"] == expected
    for node in across.nodes:
        assert node.process.alive, f"{node.name} ended with {node.process.exit_code}"
        wait_for(f"{node.name} to keep nothing", lambda node=node: not node.stored_objects(), DELIVERED_LIMIT_S)
    assert across.superlink.process.alive


@pytest.mark.parametrize("seconds", durations())
def test_while_apps_work(across, reference, seconds):
    run = across.submit(gated=True, num_server_rounds=ROUNDS)
    across.wait_at_gate()

    across.cable.cut()
    across.open_gate()
    interrupt(across, seconds)

    check(across, run, reference(rounds=ROUNDS), ("train", "evaluate"))


@pytest.mark.parametrize("seconds", CUTS_S)
def test_while_replies_are_sent(across, reference, seconds):
    across.cable.slow_uplink(UPLINK_MBIT_S)
    model = {"array_count": ARRAYS, "array_length": LENGTH, "evaluate": False}
    run = across.submit(gated=True, num_server_rounds=ROUNDS, **model)
    across.wait_at_gate()
    before = across.cable.uplink_bytes()
    sent = lambda: across.cable.uplink_bytes() - before  # noqa: E731
    across.open_gate()

    wait_for("replies to be on their way", lambda: sent() > CUT_WHEN_SENT * REPLIES_BYTES, PUSH_LIMIT_S)
    across.cable.cut()
    assert across.journal.answered() == 0, "the replies arrived before the link was cut"
    interrupt(across, seconds)

    wait_for("the first round to end", lambda: across.journal.answered() > 0, PROMPTLY_S)
    assert sent() < MOST_SENT * REPLIES_BYTES, "what had arrived was sent again"
    check(across, run, reference(rounds=ROUNDS, count=ARRAYS, length=LENGTH), ("train",))


@pytest.mark.parametrize("seconds", CUTS_S)
def test_while_nothing_happens(across, reference, seconds):
    across.cable.cut()
    interrupt(across, seconds)

    run = across.submit(num_server_rounds=ROUNDS)

    check(across, run, reference(rounds=ROUNDS), ("train", "evaluate"))
