"""Two of ten clients send noise. Strategies that expect such clients hold; the plain mean does not."""

import json
from pathlib import Path

import pytest

NODES, LIARS, ROUNDS = 10, 2, 10
HONEST_ACCURACY = 0.85
LOCAL = {"local_epochs": 4, "liars": LIARS}
# Bulyan promises to withstand (n - 3) / 4 liars, one of ten; two it leaves out as well, since they are far off.
HOLDING = {
    "Krum": {"num_malicious": LIARS},
    "Bulyan": {"num_malicious": 1},
    "FedTrimmedAvg": {"trim_beta": 0.2},
}

pytestmark = pytest.mark.trellis_only


def test_liars_are_withstood(digits, pytestconfig):
    fed = digits(NODES)
    curves = {}
    for strategy, settings in {"FedAvg": {}, **HOLDING}.items():
        curves[strategy] = fed.train(rounds=ROUNDS, strategy=strategy, **LOCAL, **settings).curve()

    if path := pytestconfig.getoption("--curves"):
        Path(path).write_text(json.dumps(curves))
    assert curves["FedAvg"][-1] < 0.5, curves
    for strategy in HOLDING:
        assert curves[strategy][-1] > HONEST_ACCURACY, curves
