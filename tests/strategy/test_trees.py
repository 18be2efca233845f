"""Trees of XGBoost, joined beside Flower's classes."""

import json

import numpy as np
import pytest

from harness.workspace import REPOSITORY
from strategy.cases import Case, Reply
from strategy.compare import values_of

VERSIONS = ("1.25", "1.42")
MODELS = REPOSITORY / "crates" / "training" / "strategy" / "tests" / "data" / "xgboost"

pytestmark = [pytest.mark.quick, pytest.mark.parametrize("version", VERSIONS)]


def model(name: str) -> dict[str, np.ndarray]:
    text = (MODELS / f"{name}.json").read_bytes() if name else b""
    return {"0": np.frombuffer(text, dtype=np.uint8)}


def case(strategy: str, first: str, *rounds: list[str], compat: bool = False) -> Case:
    def replies(names: list[str]) -> list[Reply]:
        return [Reply(node, model(name), {"num-examples": 10 * node}) for node, name in enumerate(names, 2)]

    return Case(strategy, model(first), [replies(names) for names in rounds], compat=compat)


def trees(answer: dict) -> dict:
    assert "rounds" in answer, answer
    (array,) = values_of(answer).values()
    return json.loads(array.tobytes())


@pytest.mark.parametrize("first", ["", "one", "joined"])
def test_bagging(ours, official, version, first):
    told = case("FedXgbBagging", first, ["one", "other", "parallel"], ["other"]).told()
    assert trees(ours.answer(told)) == trees(official(version).answer(told))


def test_bagging_of_several_rounds_and_classes_as_flower_does_it(ours, official, version):
    told = case("FedXgbBagging", "other", ["three_rounds", "classes_a", "one"], compat=True).told()
    assert trees(ours.answer(told)) == trees(official(version).answer(told))


def test_no_tree_is_dropped_where_flower_drops_some(ours, official, version):
    told = case("FedXgbBagging", "classes_a", ["classes_b", "three_rounds"]).told()

    def count(answer: dict) -> int:
        return len(trees(answer)["learner"]["gradient_booster"]["model"]["trees"])

    assert (count(ours.answer(told)), count(official(version).answer(told))) == (9, 5)


def test_cyclic(ours, official, version):
    """Flower asks one node; which one, is for the round to decide. What it sends is the model."""
    told = case("FedXgbCyclic", "one", ["other", "parallel"]).told()
    theirs = official(version).answer(told)
    ((asked,),) = [one["asked"] for one in theirs["rounds"]]
    replies = told["training"]["rounds"][0]
    told["training"]["rounds"] = [[reply for reply in replies if reply["node"] == asked]]
    assert trees(ours.answer(told)) == trees(theirs)
