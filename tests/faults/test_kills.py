"""SuperLink and nodes are ended at random moments of runs and started again: no reply is lost or counted twice.

`--seed` repeats a session.
"""

from collections.abc import Callable
from functools import partial

import pytest

from harness.campaign import ARRAY_LENGTH
from harness.node_campaign import NodeCampaign
from harness.own_supernode import PER_MESSAGE, WARM
from harness.release import DEFAULT

TIMES = 20
LIFECYCLES = (WARM, PER_MESSAGE)
RUNTIMES = (DEFAULT, "1.42")
# Rounds of warm apps take no time: the clients sleep, so that a node is mostly ended while an app works for it.
TRAIN_SECONDS = 0.2
ROUNDS = {WARM: 30, PER_MESSAGE: 4}
# From a start to the next end: also before the node is connected, and long enough that an app is done now and then.
AFTER_S = {WARM: (0.05, 3.0), PER_MESSAGE: (0.05, 8.0)}
QUICK_ROUNDS = {WARM: 16, PER_MESSAGE: 2}
QUICK_AFTER_S = (0.05, 2.0)

pytestmark = pytest.mark.trellis_only

Act = Callable[[int, str], bool]


class Trial:
    """A federation with which acts are done until each was done in the middle of a run."""

    def __init__(self, campaign: NodeCampaign):
        self.campaign = campaign
        self.runs: dict[int, str] = {}
        campaign.begin()

    def go_through(self, acts: list[Act]) -> None:
        waiting = list(acts)
        while waiting:
            name = f"run-{len(self.runs)}"
            run_id = self.campaign.submit(name)
            self.runs[run_id] = name
            while waiting and waiting[0](run_id, name):
                waiting.pop(0)
            self.campaign.finish(run_id)


@pytest.fixture
def trial(own_federation, pytestconfig):
    def make(lifecycle: str, rounds: int, runtime: str = DEFAULT) -> Trial:
        federation = own_federation(lifecycle=lifecycle, python=runtime)
        return Trial(NodeCampaign(federation, rounds, pytestconfig.option.seed, train_seconds=TRAIN_SECONDS))

    return make


@pytest.mark.parametrize("runtime", RUNTIMES)
@pytest.mark.parametrize("lifecycle", LIFECYCLES)
def test_the_superlink_may_be_killed(trial, reference, check_unharmed, lifecycle, runtime):
    over = trial(lifecycle, ROUNDS[lifecycle], runtime)
    pids = over.campaign.federation.node_pids()

    over.go_through([over.campaign.kill_superlink] * TIMES)

    assert over.campaign.federation.node_pids() == pids
    check_unharmed(over.campaign, over.runs, reference(rounds=ROUNDS[lifecycle], length=ARRAY_LENGTH))


@pytest.mark.parametrize("runtime", RUNTIMES)
@pytest.mark.parametrize("lifecycle", LIFECYCLES)
def test_nodes_may_be_killed(trial, reference, check_unharmed, lifecycle, runtime):
    over = trial(lifecycle, ROUNDS[lifecycle], runtime)

    over.go_through([partial(over.campaign.kill_node, after_s=AFTER_S[lifecycle])] * TIMES)

    check_unharmed(over.campaign, over.runs, reference(rounds=ROUNDS[lifecycle], length=ARRAY_LENGTH))


@pytest.mark.parametrize("lifecycle", LIFECYCLES)
def test_nodes_may_be_stopped(trial, reference, check_unharmed, lifecycle):
    over = trial(lifecycle, ROUNDS[lifecycle])

    over.go_through([partial(over.campaign.stop_node, after_s=AFTER_S[lifecycle])] * TIMES)

    check_unharmed(over.campaign, over.runs, reference(rounds=ROUNDS[lifecycle], length=ARRAY_LENGTH))


@pytest.mark.quick
@pytest.mark.parametrize("lifecycle", LIFECYCLES)
def test_all_of_them_may_be_ended_in_turn(trial, reference, check_unharmed, lifecycle):
    over = trial(lifecycle, QUICK_ROUNDS[lifecycle])
    campaign = over.campaign

    nodes = [partial(end, after_s=QUICK_AFTER_S) for end in (campaign.kill_node, campaign.stop_node)]
    over.go_through([campaign.kill_superlink, *nodes])

    check_unharmed(campaign, over.runs, reference(rounds=QUICK_ROUNDS[lifecycle], length=ARRAY_LENGTH))
