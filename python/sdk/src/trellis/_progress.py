"""What a caller sees who waits for a run: a bar in a notebook or on a terminal, otherwise a line for each round."""

from __future__ import annotations

import html
import shutil
import sys
from typing import Any, Optional, TextIO

from ._history import row
from .types import RunInfo, TrainingReport

_BAR_CHARS = 24
_METRICS = 3
_WIPE = "\r\x1b[2K"


class Progress:
    """Shows rounds on `stream` (standard error). Errors of a display never end a wait."""

    def __init__(self, run: str, stream: Optional[TextIO] = None) -> None:
        self._run = run
        self._stream = stream or sys.stderr
        self._terminal = _is_terminal(self._stream)
        self._notebook: Any = None if stream else _notebook()
        self._handle: Any = None
        self._drawn = False

    def round(self, report: TrainingReport) -> None:
        text = line(report)
        if self._notebook is not None:
            self._show(_html(self._run, text, report.round, report.rounds_planned))
        elif self._terminal:
            self._write(f"{_WIPE}{_bar(report.round, report.rounds_planned)} {text}"[: _width()])
            self._drawn = True
        else:
            self._write(f"{text}\n")

    def end(self, info: RunInfo) -> None:
        text = f"run {info.id} {info.outcome or 'ended'}"
        if self._notebook is not None:
            done = info.training.round if info.training else 0
            self._show(_html(self._run, text, done, done))
            return
        if self._drawn:
            self._write("\n")
        self._write(f"{text}\n")

    def _show(self, text: str) -> None:
        try:
            content = self._notebook.HTML(text)
            if self._handle is None:
                self._handle = self._notebook.display(content, display_id=True)
            else:
                self._handle.update(content)
        except Exception:  # The display of a notebook is whatever its front end makes of it.
            self._notebook = None

    def _write(self, text: str) -> None:
        try:
            self._stream.write(text)
            self._stream.flush()
        except (OSError, ValueError):
            # Nobody reads it any more.
            self._terminal = False


def line(report: TrainingReport) -> str:
    """A round in a line."""
    planned = f"/{report.rounds_planned}" if report.rounds_planned else ""
    cells = row(report)
    parts = [f"round {report.round}{planned}"]
    if isinstance(seconds := cells.get("seconds"), (int, float)):
        parts.append(f"{seconds:.2f} s")
    phase = report.train or report.evaluate
    if phase is not None:
        parts.append(f"{phase.answered}/{phase.asked} nodes")
    parts += [f"{name} {value:.4f}" for name, value in _shown(cells)]
    return "  ".join(parts)


def _shown(cells: dict[str, Any]) -> list[tuple[str, float]]:
    """Losses and accuracies, or else the first metrics there are."""
    metrics = [
        (name, value)
        for name, value in cells.items()
        if name.startswith(("train_", "evaluate_")) and isinstance(value, (int, float)) and "num-examples" not in name
    ]
    usual = [(name, value) for name, value in metrics if "loss" in name or "acc" in name]
    return (usual or metrics)[-_METRICS:]


def _bar(done: int, planned: int) -> str:
    filled = min(_BAR_CHARS, _BAR_CHARS * done // planned) if planned else 0
    return f"[{'#' * filled}{'.' * (_BAR_CHARS - filled)}]"


def _html(run: str, text: str, done: int, planned: int) -> str:
    bar = f'<progress value="{done}" max="{max(planned, done, 1)}" style="width: 16em"></progress>'
    return f"<div>{bar} <code>{html.escape(text)}</code> <small>run {html.escape(run)}</small></div>"


def _width() -> int:
    # A line that is wrapped cannot be rewritten.
    return max(20, shutil.get_terminal_size().columns - 1)


def _is_terminal(stream: TextIO) -> bool:
    try:
        return stream.isatty()
    except (AttributeError, ValueError):
        return False


def _notebook() -> Any:
    """The display of the notebook that this runs in; None: there is none."""
    shell = sys.modules.get("IPython")
    if shell is None:
        return None
    try:
        running = shell.get_ipython()
        if running is None or "IPKernelApp" not in running.config:
            return None
        from IPython import display
    except Exception:  # Another program may have a module of that name.
        return None
    return display
