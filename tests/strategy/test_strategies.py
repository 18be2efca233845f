"""Our strategies beside Flower's classes: the same replies, the same model."""

import numpy as np
import pytest

from strategy.cases import STRATEGIES, Case, Maker, by_hand, heard
from strategy.compare import check

VERSIONS = ("1.25", "1.42")
# The ten thousand that are promised, half of them with each release.
RANDOM_CASES = 5_000
QUICK_CASES = 10 * len(STRATEGIES)
QUICK = [pytest.param(version, marks=pytest.mark.quick) for version in VERSIONS]


@pytest.mark.parametrize("name", by_hand())
@pytest.mark.parametrize("version", QUICK)
def test_a_case_of_each(ours, official, version, name):
    check(by_hand()[name], ours, official(version))


@pytest.mark.parametrize("version", QUICK)
def test_random_cases(ours, official, version):
    compare(ours, official(version), range(QUICK_CASES))


@pytest.mark.parametrize("version", VERSIONS)
def test_many_random_cases(ours, official, version):
    compare(ours, official(version), range(QUICK_CASES, RANDOM_CASES))


def compare(ours, theirs, seeds):
    """Other cases with each release."""
    for seed in seeds:
        strategy = STRATEGIES[seed % len(STRATEGIES)]
        # A 1.25 cannot aggregate arrays without an axis.
        scalars = theirs.release.minor >= 42
        case = Maker(seed + (RANDOM_CASES if scalars else 0), scalars).case(strategy)
        try:
            check(case, ours, theirs)
        except AssertionError as difference:
            raise AssertionError(f"case {seed}: {difference}") from None


@pytest.mark.quick
def test_integers_keep_their_type_unless_asked_to_be_compatible(ours, official):
    """Flower makes float64 of them; we round that, half to even."""
    layout = [("steps", "int64", (50,)), ("small", "int8", (20,)), ("weight", "float32", (3,))]
    maker = Maker(5, scalars=False)
    case = Case("FedAvg", maker.arrays(layout, 1.0), [maker.replies(layout, 1.0, 5)])
    mine = heard(ours.answer(case.told())["rounds"][0]["arrays"])
    theirs = heard(official("1.42").answer(case.told())["rounds"][0]["arrays"])
    assert {name: values.dtype.name for name, values in theirs.items()} == {
        "steps": "float64",
        "small": "float64",
        "weight": "float32",
    }
    for name in ("steps", "small"):
        assert mine[name].dtype == case.model[name].dtype
        np.testing.assert_array_equal(mine[name], np.round(theirs[name]).astype(mine[name].dtype))


@pytest.mark.quick
@pytest.mark.parametrize("version", VERSIONS)
def test_too_few_for_bulyan_is_a_round_without_a_result(ours, official, version):
    """Flower keeps the model and goes on; we say why."""
    layout = [("weight", "float32", (4,))]
    maker = Maker(6, scalars=False)
    case = Case("Bulyan", maker.arrays(layout, 1.0), [maker.replies(layout, 1.0, 6)], {"num_malicious": 1})
    assert "needs 7 replies" in ours.answer(case.told())["error"]
    theirs = heard(official(version).answer(case.told())["rounds"][0]["arrays"])
    assert theirs["weight"].tobytes() == case.model["weight"].tobytes()


@pytest.mark.quick
@pytest.mark.parametrize("version", VERSIONS)
def test_how_many_nodes_are_asked(ours, official, version):
    rng = np.random.default_rng(3)
    theirs = official(version)
    for _ in range(200):
        online = int(rng.integers(1, 200))
        case = {
            "fraction": float(rng.choice([0.0, 0.01, 0.1, 0.29, 0.5, 0.57, 0.99, 1.0])),
            "min_nodes": int(rng.integers(0, online + 1)),
            "min_available": int(rng.integers(0, online + 1)),
            "online": online,
        }
        told = {"sampling": case}
        assert ours.answer(told) == theirs.answer(told), case
