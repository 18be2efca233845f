"""Native strategies with unmodified Flower around them learn as Flower's own do."""

import numpy as np
import pytest

NODES, ROUNDS = 5, 6
LOCAL = {"local_epochs": 2}
# Both add the same numbers, in another order and with other roundings; training carries the difference on.
NEAR = {"rtol": 1e-3, "atol": 1e-4}
STRATEGIES = {
    "FedAvg": {},
    "FedProx": {"proximal_mu": 0.5},
    "FedAdam": {},
    "Krum": {"num_malicious": 1},
}

pytestmark = pytest.mark.trellis_only


def check_same_curve(fed, strategy: str) -> None:
    settings = {"strategy": strategy, **STRATEGIES[strategy], **LOCAL}
    curve, weights = fed.train_in_python(ROUNDS, **settings)

    native = fed.train(rounds=ROUNDS, **settings)

    assert np.abs(np.subtract(native.curve("eval_acc"), [point["accuracy"] for point in curve])).max() < 0.01
    assert np.abs(np.subtract(native.curve("eval_loss"), [point["loss"] for point in curve])).max() < 0.01
    own = native.weights()
    assert own.keys() == weights.keys()
    for name, array in weights.items():
        np.testing.assert_allclose(own[name], array, **NEAR)


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("version", ["1.25", "1.42"])
def test_the_curve_is_that_of_flower(digits, strategy, version):
    check_same_curve(digits(NODES, version), strategy)


@pytest.mark.parametrize("version", ["1.25", "1.42"])
def test_the_curve_is_that_of_flower_with_its_own_nodes(digits, version):
    check_same_curve(digits(3, version, fleet=(version,)), "FedAvg")


@pytest.mark.quick
def test_digits_are_learned(digits):
    curve = digits(3).train(rounds=8, local_epochs=4).curve()

    assert curve[-1] > 0.9, curve
