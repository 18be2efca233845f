"""Clipping beside Flower's wrappers, without noise. What noise is like is tested beside the code."""

import pytest

from strategy.cases import Maker, private
from strategy.compare import check

VERSIONS = ("1.25", "1.42")
KINDS = ("server-fixed", "server-adaptive", "client-fixed", "client-adaptive")

pytestmark = pytest.mark.quick


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("strategy", ["FedAvg", "FedMedian"])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("version", VERSIONS)
def test_clipped_as_flower_clips(ours, official, version, kind, strategy, dtype):
    for seed in range(5):
        check(private(Maker(seed, scalars=False), kind, strategy, dtype, compat=True), ours, official(version))


@pytest.mark.parametrize("kind", ["server-fixed", "client-fixed"])
@pytest.mark.parametrize("version", VERSIONS)
def test_where_clients_count_alike_there_is_no_difference(ours, official, version, kind):
    for seed in range(5):
        check(private(Maker(seed, scalars=False), kind, "FedAvg", "float64", compat=False), ours, official(version))


@pytest.mark.parametrize("kind", ["server-adaptive", "client-adaptive"])
def test_the_limit_follows_the_paper_and_not_flowers_sign(ours, official, kind):
    case = private(Maker(1, scalars=False), kind, "FedAvg", "float64", compat=False)
    mine = [one["clipping_norm"] for one in ours.answer(case.told())["rounds"]]
    theirs = [one["clipping_norm"] for one in official("1.42").answer(case.told())["rounds"]]
    assert mine[0] == theirs[0]
    # Where one rises, the other falls by as much.
    assert mine[1] * theirs[1] == pytest.approx(mine[0] ** 2, rel=1e-12)
