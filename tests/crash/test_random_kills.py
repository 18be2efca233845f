"""The SuperLink is killed at random moments of several runs.

`--kills` says how often for each fleet, `--seed` repeats a session.
"""

import pytest

from harness.campaign import ARRAY_LENGTH, FLEETS, Campaign
from harness.federation import PROCESS, SUBPROCESS

ROUNDS = 6
MODES = (SUBPROCESS, PROCESS)

pytestmark = pytest.mark.trellis_only


@pytest.mark.parametrize("isolation", MODES)
@pytest.mark.parametrize("fleet", FLEETS)
def test_runs_survive_kills_at_random_moments(federation, reference, check_survival, pytestconfig, fleet, isolation):
    share, rest = divmod(pytestconfig.option.kills, len(MODES))
    kills_left = share + (rest if isolation == SUBPROCESS else 0)
    campaign = Campaign(federation(isolation=isolation, **FLEETS[fleet]), ROUNDS, pytestconfig.option.seed)
    expected = reference(rounds=ROUNDS, length=ARRAY_LENGTH, nodes=campaign.federation.shape.nodes)
    campaign.begin()

    runs = {}
    while kills_left:
        name = f"run-{len(runs)}"
        run_id = campaign.submit(name)
        runs[run_id] = name
        kills_left -= campaign.kill_at_random(run_id, kills_left)
        campaign.finish(run_id)

    check_survival(campaign, runs, expected)
