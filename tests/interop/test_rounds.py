"""Rounds of unmodified ServerApps are reported as those of native ones: with the means that the strategy itself came to."""

import ast
import json
import re

import pytest

from harness.accounts import Api

ROUNDS = 3
OLDEST, NEWEST = "1.25", "1.42"

pytestmark = pytest.mark.trellis_only


def reports(fed, run_id: int) -> list[dict]:
    answer = Api(fed.superlink).call("run-history", run_id=str(run_id))
    assert answer["more"] is False
    return answer["reports"]


def trained(federation, app: str, version: str):
    fed = federation(app=app, fleet=(version,), cli=version, runtime=version).start()
    run_id = fed.cli.submit(num_server_rounds=ROUNDS)
    assert fed.wait_finished(run_id).status == "finished:completed", fed.cli.log(run_id).stdout
    return reports(fed, run_id), fed.cli.log(run_id).stdout


def means(reports: list[dict]) -> list[dict]:
    phases = [report[phase] for report in reports for phase in ("train", "evaluate")]
    return [pytest.approx(phase["metrics"]) for phase in phases]


@pytest.mark.parametrize("version", [pytest.param(OLDEST, marks=pytest.mark.quick), NEWEST])
def test_the_means_are_those_of_the_strategy(federation, version):
    told, log = trained(federation, "measured", version)

    aggregated = [ast.literal_eval(found) for found in re.findall(r"Aggregated MetricRecord: (\{.*\})", log)]
    assert len(aggregated) == 2 * ROUNDS, log
    assert aggregated == means(told)
    assert [(report["round"], report["kind"], report["strategy"]) for report in told] == [
        (number, "round", "FedAvg") for number in range(1, ROUNDS + 1)
    ]
    failing = told[1]["train"]
    assert (failing["asked"], failing["answered"], len(failing["clients"])) == (2, 1, 1)
    assert [failure["kind"] for failure in failing["failed"]] == ["error"]
    weights = sorted(client["weight"] for client in told[0]["evaluate"]["clients"])
    assert weights == [1.0, 3.0]
    assert all(client["seconds"] > 0 for client in told[0]["train"]["clients"])


@pytest.mark.parametrize("version", [OLDEST, NEWEST])
def test_those_of_clients_and_strategies_from_before_messages_too(federation, version):
    told, log = trained(federation, "measured_before", version)

    aggregated = [json.loads(found) for found in re.findall(r"means of (?:train|evaluate): (\{.*\})", log)]
    assert len(aggregated) == 2 * ROUNDS, log
    assert aggregated == means(told)
    assert [report["rounds_planned"] for report in told] == [ROUNDS] * ROUNDS
