"""How a training went, as rows of plain values."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Union

from .errors import ConfigurationError
from .types import MetricReport, PhaseReport, TrainingReport

Cell = Union[int, float, str, list[float], None]


class History(list[dict[str, Cell]]):
    """A dict for each round. Metrics are named as in the API: `train_loss`, `evaluate_accuracy`."""

    def to_pandas(self) -> Any:
        """A DataFrame with a row for each round, indexed by it. Needs pandas."""
        try:
            import pandas
        except ImportError:
            raise ConfigurationError("to_pandas() needs pandas: pip install pandas") from None
        return pandas.DataFrame(list(self)).set_index("round") if self else pandas.DataFrame()

    def column(self, name: str) -> list[Cell]:
        """The values of one name, in the order of rounds; None where a round has none."""
        return [row.get(name) for row in self]


def history(reports: Iterable[TrainingReport]) -> History:
    """The rounds of a run. The report about the whole training is no round."""
    return History(row(report) for report in reports if report.kind == "round")


def row(report: TrainingReport) -> dict[str, Cell]:
    """One round."""
    phases = [("train", report.train), ("evaluate", report.evaluate)]
    there = [(name, phase) for name, phase in phases if phase is not None]
    cells: dict[str, Cell] = {"round": report.round}
    if there:
        cells["seconds"] = sum(phase.seconds for _, phase in there)
        cells["nodes"] = there[0][1].answered
    if report.update_norm is not None:
        cells["update_norm"] = report.update_norm
    if report.epsilon is not None:
        cells["epsilon"] = report.epsilon
    for name, phase in there:
        cells.update(_metrics(name, phase))
    return cells


def _metrics(phase_name: str, phase: PhaseReport) -> dict[str, Cell]:
    # Many apps put the phase into the name themselves.
    names = {key: key if key.startswith(phase_name) else f"{phase_name}_{key}" for key in phase.metrics}
    return {names[key]: _number(metric) for key, metric in phase.metrics.items()}


def _number(metric: MetricReport) -> Cell:
    """JSON has no numbers that are not finite: the API has `nan`, `inf` and `-inf` as text."""
    return float(metric) if isinstance(metric, str) and metric in ("nan", "inf", "-inf") else metric
