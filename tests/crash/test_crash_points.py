"""The SuperLink is killed at each named point of a run and started again: the run must not notice."""

import itertools
import os
import signal

import pytest

from harness.campaign import ARRAY_LENGTH, FLEETS, Campaign
from harness.federation import PROCESS, SUBPROCESS
from harness.process import wait_pid_file
from harness.superlink import TRELLIS, crash_points

ROUNDS = 3
QUICK_ROUNDS = 4
QUICK_POINTS = ["instruction-delivered", "object-stored", "replies-collected"]
QUICK_KILLS = 2
# Points that a single run passes many times are also tried in the middle of it.
LATER_VISITS = {"before-commit": (10, 30), "after-commit": (10, 30), "object-stored": (20,), "file-unlink": (3,)}
# With separate isolation somebody else starts the ServerApp.
ONLY_WHERE_WE_LAUNCH = {"app-spawned"}
# Later ServerApps push their outputs and end their run with one call.
ONLY_WITH_APPS_OF = {"outputs-pushed": "1.25"}
LEAST_POINTS = 12
# Four arrays of one chunk each, their record, the config, the content and two messages.
OBJECTS_OF_A_ROUND = 4 + 4 + 1 + 1 + 1 + 2
PAUSE_LIMIT_S = 60.0

pytestmark = pytest.mark.trellis_only


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "crash_at" in metafunc.fixturenames:
        ours = metafunc.config.getoption("--superlink") == TRELLIS
        metafunc.parametrize(("fleet", "isolation", "crash_at"), list(cases()) if ours else [])


def cases():
    for fleet, isolation, point in itertools.product(FLEETS, (SUBPROCESS, PROCESS), crash_points()):
        if isolation == PROCESS and point in ONLY_WHERE_WE_LAUNCH:
            continue
        runtime = FLEETS[fleet]["runtime"]
        if ONLY_WITH_APPS_OF.get(point, runtime) != runtime:
            continue
        for visit in (1, *LATER_VISITS.get(point, ())):
            yield fleet, isolation, f"{point}:{visit}"


def test_there_are_enough_points():
    assert len(set(crash_points())) >= LEAST_POINTS


def test_a_run_survives_a_crash_at(federation, reference, check_survival, pytestconfig, fleet, isolation, crash_at):
    campaign = Campaign(federation(isolation=isolation, **FLEETS[fleet]), ROUNDS, pytestconfig.option.seed)
    expected = reference(rounds=ROUNDS, length=ARRAY_LENGTH, nodes=campaign.federation.shape.nodes)
    campaign.begin(crash_at)
    run_id = campaign.submit("first")

    campaign.pass_points(run_id, [crash_at])

    check_survival(campaign, {run_id: "first"}, expected)
    assert campaign.deaths == 1, f"a run never reaches {crash_at}"


@pytest.mark.parametrize("fleet", ["grpc", "http"])
def test_a_serverapp_may_repeat_its_last_push_after_everybody_has_answered(
    federation, reference, check_survival, pytestconfig, fleet
):
    """The answer to its last PushObject is lost with the SuperLink; it asks again when the objects are used up."""
    expected = reference(rounds=ROUNDS, length=ARRAY_LENGTH)
    fed = federation(**FLEETS[fleet])
    campaign = Campaign(fed, ROUNDS, pytestconfig.option.seed)
    campaign.begin(f"object-stored:{OBJECTS_OF_A_ROUND}")
    run_id = campaign.submit("first")
    assert campaign.wait_death_or_end(run_id) is None, campaign.story

    serverapp = wait_pid_file(fed.result_path("first").with_suffix(".json.pid"), PAUSE_LIMIT_S)
    os.kill(serverapp, signal.SIGSTOP)
    campaign.revive()
    for node in fed.nodes:
        node.process.wait_line("Sent successfully", PAUSE_LIMIT_S)
    os.kill(serverapp, signal.SIGCONT)

    check_survival(campaign, {run_id: "first"}, expected)


@pytest.mark.quick
def test_a_run_survives_several_crashes_and_kills(federation, reference, check_survival, pytestconfig):
    expected = reference(rounds=QUICK_ROUNDS, length=ARRAY_LENGTH)
    campaign = Campaign(federation(), QUICK_ROUNDS, pytestconfig.option.seed)
    campaign.begin(QUICK_POINTS[0])
    run_id = campaign.submit("first")

    reached = campaign.pass_points(run_id, QUICK_POINTS)
    kills = campaign.kill_at_random(run_id, QUICK_KILLS)

    check_survival(campaign, {run_id: "first"}, expected)
    assert (reached, kills) == (QUICK_POINTS, QUICK_KILLS), campaign.story
