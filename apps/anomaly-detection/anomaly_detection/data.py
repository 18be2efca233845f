"""Rows of numbers, of which some may be known to be anomalies, and each node's part of them. Knows nothing of Flower."""

import csv
from dataclasses import dataclass
from pathlib import Path

import numpy as np

CSV = "data.csv"
LABELS = ("label", "anomaly", "is_anomaly", "class")
NORMAL_WORDS = ("0", "0.0", "false", "no", "normal", "")
# Of five rows four are trained on.
TEST_EVERY = 5
# The generated set: sensors that follow fewer causes.
SENSORS, CAUSES, NOISE = 8, 3, 0.1
ROWS_PER_NODE, ANOMALIES = 600, 0.1


@dataclass(frozen=True)
class Rows:
    """`anomalies` says which rows are none of the normal ones; None: nobody knows."""

    values: np.ndarray
    anomalies: np.ndarray | None

    def __len__(self) -> int:
        return len(self.values)

    def chosen(self, which: np.ndarray) -> "Rows":
        return Rows(self.values[which], None if self.anomalies is None else self.anomalies[which])


def sensors(count: int, seed: int) -> Rows:
    """Readings for so many nodes. An anomaly has readings that each are usual, and do not go together."""
    rng = np.random.default_rng(seed)
    rows = ROWS_PER_NODE * count
    mixing, offsets = rng.normal(0, 1, (CAUSES, SENSORS)), rng.uniform(-20, 80, SENSORS)
    values = np.tanh(rng.normal(0, 1, (rows, CAUSES))) @ mixing + NOISE * rng.normal(0, 1, (rows, SENSORS))
    anomalies = rng.random(rows) < ANOMALIES
    for sensor in range(SENSORS):
        values[anomalies, sensor] = rng.choice(values[:, sensor], int(anomalies.sum()))
    return Rows((values * rng.uniform(0.5, 5, SENSORS) + offsets).astype(np.float32), anomalies)


def read(directory: Path) -> Rows:
    """`data.csv`: numbers, with a first line of names or without; a column of labels is not trained on."""
    path = directory / CSV
    with path.open(newline="") as file:
        lines = [line for line in csv.reader(file) if line]
    if not lines:
        raise ValueError(f"{path} is empty")
    names = [] if _is_numbers(lines[0]) else [name.strip().lower() for name in lines.pop(0)]
    label = next((names.index(name) for name in LABELS if name in names), None)
    values, known = [], []
    for number, line in enumerate(lines, start=1 + bool(names)):
        try:
            values.append([float(cell) for column, cell in enumerate(line) if column != label])
            known.append(label is not None and line[label].strip().lower() not in NORMAL_WORDS)
        except (ValueError, IndexError) as error:
            raise ValueError(f"{path} line {number}: {error}") from None
    if len({len(row) for row in values}) > 1:
        raise ValueError(f"the lines of {path} are not equally long")
    array = np.array(values, np.float32)
    if not len(array) or not np.isfinite(array).all():
        raise ValueError(f"{path} must have rows, all of finite numbers")
    return Rows(array, None if label is None else np.array(known))


def _is_numbers(cells: list[str]) -> bool:
    try:
        return bool([float(cell) for cell in cells])
    except ValueError:
        return False


def part(rows: Rows, number: int, count: int, seed: int) -> Rows:
    order = np.random.default_rng(seed).permutation(len(rows))
    return rows.chosen(order[number::count])


def divided(rows: Rows) -> tuple[Rows, Rows]:
    """To train on, without what is known to be an anomaly; and to be tested with. On this node's own scale."""
    is_test = np.arange(len(rows)) % TEST_EVERY == 0
    training, testing = rows.chosen(np.flatnonzero(~is_test)), rows.chosen(np.flatnonzero(is_test))
    if training.anomalies is not None and not training.anomalies.all():
        training = training.chosen(np.flatnonzero(~training.anomalies))
    middle, spread = training.values.mean(axis=0), np.maximum(training.values.std(axis=0), 1e-6)
    return tuple(Rows((rows.values - middle) / spread, rows.anomalies) for rows in (training, testing))
