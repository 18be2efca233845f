"""Parts of several releases around one SuperLink: the short form of the matrix, for every day."""

import pytest

from harness.federation import PLAIN, PROCESS, SUBPROCESS, TLS, TLS_AUTH

OLD_AND_NEW = ("1.25", "1.39", "1.42")
NEWEST = "1.42"
ROUNDS = 2


@pytest.mark.trellis_only
@pytest.mark.parametrize("security", [pytest.param(PLAIN, marks=pytest.mark.quick), TLS_AUTH])
def test_a_mixed_fleet_gives_the_weights_of_a_uniform_one(federation, expected_digest, security):
    expected = expected_digest(num_server_rounds=ROUNDS, nodes=len(OLD_AND_NEW))
    fed = federation(nodes=len(OLD_AND_NEW), fleet=OLD_AND_NEW, security=security).start()

    run_id = fed.cli.submit(num_server_rounds=ROUNDS, nodes=len(OLD_AND_NEW), result_path=fed.result_path())

    assert fed.wait_finished(run_id).status == "finished:completed"
    assert (fed.result()["sha256"], fed.result()["rounds"]) == (expected, ROUNDS)
    assert fed.dead_nodes() == []


@pytest.mark.trellis_only
@pytest.mark.parametrize(
    ("isolation", "security"),
    [
        pytest.param(SUBPROCESS, PLAIN, marks=pytest.mark.quick),
        (SUBPROCESS, TLS),
        (PROCESS, PLAIN),
        (PROCESS, TLS_AUTH),
    ],
)
def test_the_newest_release_alone(federation, expected_digest, isolation, security):
    expected = expected_digest(num_server_rounds=ROUNDS)
    everything = {"fleet": (NEWEST,), "cli": NEWEST, "runtime": NEWEST}
    fed = federation(isolation=isolation, security=security, **everything).start()

    run_id = fed.cli.submit(num_server_rounds=ROUNDS, result_path=fed.result_path())

    assert fed.wait_finished(run_id).status == "finished:completed"
    assert (fed.result()["sha256"], fed.result()["rounds"]) == (expected, ROUNDS)
    assert fed.cli.runs() == {run_id: "finished:completed"}
    assert f"weights sha256 {expected}" in fed.cli.log(run_id).stdout
    assert fed.dead_nodes() == []


def test_the_uniform_weights_are_those_of_plain_arithmetic(expected_digest, reference):
    nodes = len(OLD_AND_NEW)
    assert expected_digest(num_server_rounds=ROUNDS, nodes=nodes) == reference(rounds=ROUNDS, nodes=nodes)
