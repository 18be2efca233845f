"""A whole run with unmodified Flower 1.25 around the SuperLink, in every mode, compared bit for bit."""

import pytest

from harness.federation import PLAIN, PROCESS, SUBPROCESS, TLS, TLS_AUTH

ROUNDS = 3
STREAM_LIMIT_S = 180.0
QUICK = [(SUBPROCESS, PLAIN), (PROCESS, TLS_AUTH)]


def modes():
    for isolation in (SUBPROCESS, PROCESS):
        for security in (PLAIN, TLS, TLS_AUTH):
            marks = [pytest.mark.quick] if (isolation, security) in QUICK else []
            yield pytest.param(isolation, security, marks=marks, id=f"{isolation}-{security}")


@pytest.mark.parametrize(("isolation", "security"), modes())
def test_weights_equal_those_of_the_official_superlink(federation, expected_digest, isolation, security):
    expected = expected_digest(num_server_rounds=ROUNDS)
    fed = federation(isolation=isolation, security=security).start()

    stream = fed.cli.follow(num_server_rounds=ROUNDS, result_path=fed.result_path())
    assert stream.wait_exit(STREAM_LIMIT_S) == 0, stream.output()

    shown = stream.output()
    assert f"weights sha256 {expected}" in shown
    for server_round in range(1, ROUNDS + 1):
        assert f"round {server_round} of {ROUNDS}:" in shown
    assert fed.result() == {"sha256": expected, "rounds": ROUNDS, "bytes": 4 * 1024 * 4}
    (run,) = fed.superlink.control.runs().values()
    assert (run.status, run.details) == ("finished:completed", "")
    assert fed.dead_nodes() == []


def test_the_official_weights_are_those_of_plain_arithmetic(expected_digest, reference):
    """Guards the yardstick itself: FedAvg over the wire must equal FedAvg in one process."""
    assert expected_digest(num_server_rounds=ROUNDS) == reference(rounds=ROUNDS)
