"""The SuperLink, and our own nodes, are ended at random moments of runs and started again: no reply is lost or counted twice.

`--seed` repeats a session.
"""

import pytest

from harness.campaign import ARRAY_LENGTH
from harness.node_campaign import NodeCampaign
from harness.own_supernode import PER_MESSAGE, WARM
from harness.release import DEFAULT

KILLS = 20
LIFECYCLES = (WARM, PER_MESSAGE)
# Rounds of warm apps take no time: the clients sleep, so that a node is mostly ended while an app works for it.
TRAIN_SECONDS = 0.2
ROUNDS = {WARM: 30, PER_MESSAGE: 4}
# From a start to the next end: also before the node is connected, and long enough that an app is done now and then.
AFTER_S = {WARM: (0.05, 3.0), PER_MESSAGE: (0.05, 8.0)}
RUNTIMES = (DEFAULT, "1.42")
QUICK_KILLS = {WARM: 4, PER_MESSAGE: 1}
QUICK_ROUNDS = {WARM: 12, PER_MESSAGE: 1}

pytestmark = pytest.mark.trellis_only


class Trial:
    """Runs one after the other until what is to happen has happened often enough."""

    def __init__(self, campaign: NodeCampaign):
        self.campaign = campaign
        self.runs: dict[int, str] = {}
        campaign.begin()

    def go_on(self, times: int, happen) -> None:
        """`happen(run_id, name, left)` says how often it happened before the run was over."""
        while times:
            name = f"run-{len(self.runs)}"
            run_id = self.campaign.submit(name)
            self.runs[run_id] = name
            times -= happen(run_id, name, times)
            self.campaign.finish(run_id)


@pytest.fixture
def trial(own_federation, pytestconfig):
    def make(lifecycle: str, rounds: int, runtime: str = DEFAULT) -> Trial:
        federation = own_federation(lifecycle=lifecycle, python=runtime)
        campaign = NodeCampaign(federation, rounds, pytestconfig.option.seed, train_seconds=TRAIN_SECONDS)
        return Trial(campaign)

    return make


@pytest.mark.parametrize("runtime", RUNTIMES)
@pytest.mark.parametrize("lifecycle", LIFECYCLES)
def test_the_superlink_may_be_killed(trial, reference, check_unharmed, lifecycle, runtime):
    over = trial(lifecycle, ROUNDS[lifecycle], runtime)
    pids = over.campaign.federation.node_pids()

    over.go_on(KILLS, lambda run_id, _, left: over.campaign.kill_at_random(run_id, left))

    assert over.campaign.federation.node_pids() == pids
    check_unharmed(over.campaign, over.runs, reference(rounds=ROUNDS[lifecycle], length=ARRAY_LENGTH))


@pytest.mark.parametrize("runtime", RUNTIMES)
@pytest.mark.parametrize("lifecycle", LIFECYCLES)
def test_nodes_may_be_killed(trial, reference, check_unharmed, lifecycle, runtime):
    over = trial(lifecycle, ROUNDS[lifecycle], runtime)

    over.go_on(KILLS, lambda run_id, name, left: over.campaign.kill_nodes(run_id, name, left, AFTER_S[lifecycle]))

    check_unharmed(over.campaign, over.runs, reference(rounds=ROUNDS[lifecycle], length=ARRAY_LENGTH))


@pytest.mark.parametrize("lifecycle", LIFECYCLES)
def test_nodes_may_be_stopped(trial, reference, check_unharmed, lifecycle):
    over = trial(lifecycle, ROUNDS[lifecycle])

    over.go_on(KILLS, lambda run_id, name, left: over.campaign.stop_nodes(run_id, name, left, AFTER_S[lifecycle]))

    check_unharmed(over.campaign, over.runs, reference(rounds=ROUNDS[lifecycle], length=ARRAY_LENGTH))


@pytest.mark.quick
@pytest.mark.parametrize("lifecycle", LIFECYCLES)
def test_all_of_them_may_be_ended_in_turn(trial, reference, check_unharmed, lifecycle):
    rounds, kills, after_s = QUICK_ROUNDS[lifecycle], QUICK_KILLS[lifecycle], AFTER_S[lifecycle]
    over = trial(lifecycle, rounds)
    campaign = over.campaign

    over.go_on(1, lambda run_id, _, left: campaign.kill_at_random(run_id, left))
    over.go_on(kills, lambda run_id, name, left: campaign.kill_nodes(run_id, name, left, after_s))
    over.go_on(1, lambda run_id, name, left: campaign.stop_nodes(run_id, name, left, after_s))

    check_unharmed(campaign, over.runs, reference(rounds=rounds, length=ARRAY_LENGTH))
