"""Nodes and the SuperLink die again and again: each run completes with the right weights, and nobody helps."""

import random
import time

import pytest

from harness.campaign import ARRAY_LENGTH, DOWN_S, KILL_AFTER_S, Campaign
from harness.own_supernode import OwnNode, OwnSupernode
from harness.process import pid_exists
from harness.release import GRPC, HTTP
from harness.waiting import wait_for

ROUNDS = 6
KILLS = 20
GONE_LIMIT_S = 30.0
FLEET = (OwnNode(port=GRPC), OwnNode(port=HTTP))

pytestmark = pytest.mark.trellis_only


@pytest.fixture
def campaign(federation, pytestconfig) -> Campaign:
    return Campaign(federation(fleet=FLEET), ROUNDS, pytestconfig.option.seed)


def check(campaign: Campaign, run_id: int, name: str, expected: str) -> None:
    story = "\n".join(campaign.story)
    assert campaign.finish(run_id).status == "finished:completed", story
    result = campaign.federation.result(name)
    assert (result["sha256"], result["rounds"]) == (expected, ROUNDS), f"{result}\n{story}"


def test_runs_survive_kills_of_the_superlink(campaign, reference):
    expected = reference(rounds=ROUNDS, length=ARRAY_LENGTH)
    campaign.begin()
    pids = campaign.federation.node_pids()

    left, number = KILLS, 0
    while left:
        name = f"run-{number}"
        run_id = campaign.submit(name)
        left, number = left - campaign.kill_at_random(run_id, left), number + 1
        check(campaign, run_id, name, expected)

    assert (campaign.federation.dead_nodes(), campaign.federation.node_pids()) == ([], pids)
    assert campaign.left_behind() == []


def test_runs_survive_kills_of_nodes(campaign, reference, pytestconfig):
    expected = reference(rounds=ROUNDS, length=ARRAY_LENGTH)
    campaign.begin()
    fed, chance = campaign.federation, random.Random(pytestconfig.option.seed)
    ids = sorted(node.wait_connected() for node in fed.nodes)

    left, number = KILLS, 0
    while left:
        name = f"run-{number}"
        run_id = campaign.submit(name)
        while left and not fed.superlink.control.run(run_id).finished:
            # Not waiting for anything: the moment and the length of the outage are the experiment.
            time.sleep(chance.uniform(*KILL_AFTER_S))
            kill_and_restart(chance.choice(fed.nodes), chance)
            left -= 1
        number += 1
        check(campaign, run_id, name, expected)

    assert sorted(node.wait_connected() for node in fed.nodes) == ids
    assert fed.superlink.control.online_nodes() == ids


def kill_and_restart(node: OwnSupernode, chance: random.Random) -> None:
    """Half of the time with its apps at once, as when the machine loses power."""
    apps = node.app_pids()
    node.process.kill() if chance.random() < 0.5 else node.kill_everything()
    time.sleep(chance.uniform(*DOWN_S))
    node.start()
    wait_for("the apps of a killed node to end", lambda: not any(map(pid_exists, apps)), GONE_LIMIT_S)
