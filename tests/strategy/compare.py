"""How near two answers must be to each other.

Flower computes in the type of each array and rounds after every operation; we compute in float64 and round once. So
there are two comparisons:

- With Flower's answer as it is. The difference must be within 1e-6 (float32) of the array's *scale*: its largest
  magnitude in the model, the replies or the answer. Not of each number by itself: where terms of opposite sign cancel,
  what is left may be small, and Flower's rounding errors are as large as the terms were.
- With Flower's answer to the same case in float64, each round beginning with the model that our round before gave.
  There no rounding of Flower's is left, and the difference must be within a few units of our one rounding.

FedAdagrad, FedAdam and FedYogi divide by the size of past differences, and so magnify rounding errors where a
difference is near zero. There the first comparison allows, beside the 1e-6, twice what Flower's own answer is away
from Flower's own in float64: it cannot be asked to be nearer to us than to itself.
"""

from dataclasses import dataclass

import numpy as np

from strategy.cases import ADAPTIVE, COUPLED, DISTANT, EXACT, WIDENING, Arrays, Case, heard
from strategy.peers import Official, Ours

# Flower's rounding: a dozen replies, each multiplied and added once.
OWN = {"float64": 1e-12, "float32": 1e-6, "float16": 1e-2}
# Our one rounding, and that of what is remembered from round to round.
EPSILONS = 4


@dataclass(frozen=True)
class Answers:
    """A case and what was answered."""

    case: Case
    ours: list[dict]
    own: list[dict]
    wide: list[dict]
    # In float64 all the way, each round with the model of the one before; for the adaptive ones.
    freely: list[dict] | None


def ask(case: Case, ours: Ours, official: Official) -> Answers:
    told = case.told()
    answer = ours.answer(told)
    assert "rounds" in answer, answer
    mine = answer["rounds"]
    given = [told["training"]["model"], *(one["arrays"] for one in mine[:-1])]

    def theirs(**how: object) -> list[dict]:
        answer = official.answer(told, **how)
        assert "rounds" in answer, answer
        return answer["rounds"]

    freely = theirs(wide=True) if case.strategy in ADAPTIVE else None
    return Answers(case, mine, theirs(), theirs(wide=True, given=given), freely)


def check(case: Case, ours: Ours, official: Official) -> None:
    answers = ask(case, ours, official)
    assert len(answers.ours) == len(answers.own) == len(case.rounds)
    model = case.model
    for number, replies in enumerate(case.rounds):
        mine, own, wide = (heard(of[number]["arrays"]) for of in (answers.ours, answers.own, answers.wide))
        assert {name: values.shape for name, values in mine.items()} == {name: own[name].shape for name in own}
        for name in mine:
            place = f"{case.strategy} {case.parameters}, round {number + 1}, {name} ({model[name].dtype})"
            seen = [model[name], *(reply.arrays[name] for reply in replies), own[name], wide[name]]
            scale = max((float(np.abs(values.astype(np.float64)).max(initial=0.0)) for values in seen), default=0.0)
            free = heard(answers.freely[number]["arrays"])[name] if answers.freely else None
            assert case.compat or mine[name].dtype == case.model[name].dtype, place
            check_own(case, place, mine[name], own[name], scale, free)
            if case.strategy == "Bulyan" and mine[name].dtype == np.float16:
                chosen = [replies[index].arrays[name] for index in answers.ours[number]["chosen"]]
                check_nearest_the_median(place, mine[name], chosen, int(case.parameters["num_malicious"]))
            else:
                check_wide(place, mine[name], wide[name], scale)
        model = mine
        check_metrics(case, answers.ours[number], (answers.wide if blurred(case) else answers.own)[number])
        check_norm(answers.ours[number], answers.own[number])


def check_own(case: Case, place: str, mine: np.ndarray, own: np.ndarray, scale: float, free: np.ndarray | None) -> None:
    dtype = mine.dtype.name
    assert mine.dtype == own.dtype or case.strategy in WIDENING and own.dtype == np.float64, f"{place}: {dtype}"
    if blurred(case) or case.strategy == "Bulyan" and dtype == "float16":
        return
    if case.strategy in EXACT and not case.privacy:
        assert mine.tobytes() == own.tobytes(), f"{place}: {mine} instead of {own}"
        return
    coupled = case.privacy or case.strategy in COUPLED
    allowed = scale * (max(OWN[values.dtype.name] for values in case.model.values()) if coupled else OWN[dtype])
    if free is not None:
        allowed = allowed + 2 * np.abs(own.astype(np.float64) - free)
    assert_near(f"{place}, as Flower rounds", mine, own, allowed)


def blurred(case: Case) -> bool:
    """Whether Flower squares in halves, where squares overflow and are often equal: what it makes of them is chance."""
    halves = [values.dtype == np.float16 for values in case.model.values()]
    # Distances are computed in the widest type, norms in that of each array.
    return case.strategy in DISTANT and all(halves) or case.strategy in COUPLED and any(halves)


def check_wide(place: str, mine: np.ndarray, wide: np.ndarray, scale: float) -> None:
    epsilon = 1e-12 if mine.dtype == np.float64 else EPSILONS * float(np.finfo(mine.dtype).eps)
    assert_near(f"{place}, in float64", mine, wide, epsilon * scale)


def check_nearest_the_median(place: str, mine: np.ndarray, chosen: list[np.ndarray], malicious: int) -> None:
    """Halves are often equally far from the median, and any may then be taken: the mean lies between the extremes."""
    values = np.stack(chosen).astype(np.float64).reshape(len(chosen), -1)
    wanted = len(chosen) - 2 * malicious
    for found, column in zip(mine.reshape(-1).astype(np.float64), values.T, strict=True):
        distances = np.abs(column - np.median(column))
        limit = np.sort(distances)[wanted - 1]
        inside, edge = column[distances < limit], np.sort(column[distances == limit])
        rest = wanted - len(inside)
        low, high = (float(inside.sum() + part.sum()) / wanted for part in (edge[:rest], edge[len(edge) - rest :]))
        rounding = EPSILONS * float(np.finfo(np.float16).eps) * float(np.abs(column).max())
        assert low - rounding <= found <= high + rounding, f"{place}: {found} is not between {low} and {high}"


def assert_near(place: str, found: np.ndarray, expected: np.ndarray, allowed: object) -> None:
    difference = np.abs(found.astype(np.float64) - expected.astype(np.float64))
    if not (difference <= allowed).all():
        worst = np.unravel_index(int(np.argmax(difference - allowed)), difference.shape)
        limit = np.broadcast_to(allowed, difference.shape)[worst]
        apart = f"{difference[worst]:.3g} apart, {limit:.3g} allowed"
        raise AssertionError(f"{place}: {found[worst]!r} instead of {expected[worst]!r} at {worst}: {apart}")


def check_metrics(case: Case, mine: dict, own: dict) -> None:
    """Bit by bit; only those who choose replies add them up in the order of their choice."""
    if own["metrics"] is None:
        return
    found, expected = dict(mine["metrics"]), dict(own["metrics"])
    if case.strategy not in DISTANT:
        assert found == expected, case.strategy
        return
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        np.testing.assert_allclose(found[name], value, rtol=1e-12, err_msg=f"{case.strategy} {name}")


def check_norm(mine: dict, own: dict) -> None:
    if own["clipping_norm"] is not None:
        np.testing.assert_allclose(mine["clipping_norm"], own["clipping_norm"], rtol=1e-12)


def values_of(answer: dict) -> Arrays:
    return heard(answer["rounds"][-1]["arrays"])
