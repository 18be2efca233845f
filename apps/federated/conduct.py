"""A whole training: strategy, rounds, checkpoints, and what came out. The app brings its first model and its metrics."""

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, MetricRecord
from flwr.serverapp import Grid

from . import checkpoints
from .settings import Settings
from .strategies import strategy_of

ROUND_LIMIT_S = 3600.0


def conduct(
    grid: Grid,
    context: Context,
    first_model: Callable[[int], dict[str, np.ndarray]],
    train_config: dict | None = None,
    evaluate_config: ConfigRecord | None = None,
    **hooks: object,
) -> None:
    """Train from `first_model(nodes)`, which is asked only when the settings are sound."""
    settings = Settings(context.run_config)
    strategy = strategy_of(settings, **hooks)
    rounds = settings.whole("num-server-rounds", 1)
    every, kept = settings.whole("checkpoint-interval", 1), settings.switch("checkpoint-enabled")
    directory, resume = settings.text("checkpoint-path"), settings.switch("resume")
    if resume and not directory:
        settings.problems.append("resume is true, and checkpoint-path says nowhere to go on from")
    settings.finish()

    arrays, done = first_model(strategy.min_available_nodes), 0
    if resume and (found := checkpoints.latest(directory)):
        done, arrays = found[0], _fitting(arrays, found[1])
        print(f"going on after round {done}, from {directory}")
    if done >= rounds:
        print(f"{done} of {rounds} rounds are done already")
        return
    keeper = checkpoints.Checkpoints(directory, every, rounds) if kept and directory else None

    def after_round(number: int, current: ArrayRecord) -> MetricRecord | None:
        if number and keeper and (path := keeper.offer(done + number, _numpy(current))):
            print(f"checkpoint of round {done + number}: {path}")
        return None

    result = strategy.start(
        grid=grid,
        initial_arrays=ArrayRecord({name: Array(array) for name, array in arrays.items()}),
        num_rounds=rounds - done,
        timeout=ROUND_LIMIT_S,
        train_config=ConfigRecord({"client-lr": settings.positive("client-lr"), **(train_config or {})}),
        evaluate_config=evaluate_config,
        evaluate_fn=after_round,
    )
    _conclude(settings, result, done, directory)


def _conclude(settings: Settings, result, done: int, directory: str) -> None:
    final = _numpy(result.arrays)
    told = {
        "train": _curve(result.train_metrics_clientapp, done),
        "evaluate": _curve(result.evaluate_metrics_clientapp, done),
        "model": None,
    }
    for round_metrics in told["evaluate"]:
        print(", ".join(f"{name} {value:g}" for name, value in round_metrics.items()))
    if directory:
        path = Path(directory) / f"{checkpoints.FINAL}.npz"
        checkpoints.save(path, list(final.values()))
        told["model"] = str(path)
        print(f"the model is in {path}")
    else:
        print("the model is not kept: checkpoint-path is empty")
    if result_path := settings.text("result-path"):
        draft = Path(result_path + ".draft")
        draft.write_text(json.dumps(told))
        draft.replace(result_path)


def _curve(metrics: dict[int, MetricRecord], done: int) -> list[dict]:
    return [{"round": done + number, **dict(record)} for number, record in sorted(metrics.items())]


def _numpy(record: ArrayRecord) -> dict[str, np.ndarray]:
    return {name: array.numpy() for name, array in record.items()}


def _fitting(first: dict[str, np.ndarray], kept: list[np.ndarray]) -> dict[str, np.ndarray]:
    shapes = [array.shape for array in first.values()], [array.shape for array in kept]
    if shapes[0] != shapes[1]:
        raise ValueError("the checkpoint is of another model: give another checkpoint-path, or resume=false")
    return dict(zip(first, kept))
