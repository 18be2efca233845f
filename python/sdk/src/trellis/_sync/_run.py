# Generated from trellis/aio/_run.py by generate.py; do not edit.
"""A run: waiting for it, its history, its model, what it says."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Optional, Union
from urllib.parse import quote

from .. import _patience, _safetensors, types
from .._history import History, history
from .._progress import Progress
from ..errors import NotFound, Refused, RunFailed, TrellisError, Unreachable, WaitTimeout
from ._io import sleep

if TYPE_CHECKING:
    import numpy

    from ._client import Client, Feed

RunChange = Union[types.RunEvent, types.RoundEvent]


class Run:
    """A run on a federation. `info` is what the server said about it last; `refresh` asks again."""

    def __init__(self, client: Client, info: types.RunInfo) -> None:
        self._client = client
        self.info = info

    def __repr__(self) -> str:
        state = self.info.outcome or self.info.state
        return f"<{type(self).__name__} {self.id} of {self.info.app} on {self.federation}: {state}>"

    @property
    def id(self) -> str:
        return self.info.id

    @property
    def federation(self) -> str:
        return self.info.federation

    @property
    def finished(self) -> bool:
        """Whether it was over when the server was asked last."""
        return self.info.state == "finished"

    @property
    def outcome(self) -> Optional[str]:
        """`completed`, `failed` or `stopped`; None: it was not over when the server was asked last."""
        return self.info.outcome

    def refresh(self) -> types.RunInfo:
        """Asks the server how it is."""
        self.info = self._client._run_info(self.federation, self.id)
        return self.info

    def events(self, timeout: Optional[float] = None) -> Iterator[RunChange]:
        """What happens, until the run is over: a RoundEvent for each report, a RunEvent for each change of its state.

        Reports from before the call come first, and each comes once. A server that is away is waited for, for a minute, and
        what happened meanwhile is caught up on; then Unreachable is raised. WaitTimeout is raised after `timeout` seconds.
        """
        deadline, absence = _patience.Deadline(timeout), _patience.Absence()
        seen: set[tuple[int, str]] = set()
        told = None
        feed = self._client._feed(self.federation)
        try:
            while True:
                try:
                    # The state before the reports: those of a finished run are all there.
                    info = self.refresh()
                    reports = self._new_reports(seen)
                except (Unreachable, Refused) as error:
                    absence.excuse(error)
                    info, reports = self.info, []
                else:
                    absence.over()
                for report in reports:
                    yield types.RoundEvent(kind="round", federation=self.federation, run=self.id, report=report)
                if info.state != told:
                    told = info.state
                    yield types.RunEvent(kind="run", run=info)
                if info.state == "finished":
                    return
                self._await_change(feed, deadline)
        finally:
            feed.close()

    def _new_reports(self, seen: set[tuple[int, str]]) -> list[types.TrainingReport]:
        # The report at the end has the number of the last round: that round is asked for again.
        last = max((round for round, _ in seen), default=None)
        reports = self._client._rounds(self.federation, self.id, None if not last else last - 1)
        new = [report for report in reports if (report.round, report.kind) not in seen]
        seen.update((report.round, report.kind) for report in new)
        # What is said at the end comes after what is said of its round.
        return sorted(new, key=lambda report: (report.round, report.kind != "round"))

    def _await_change(self, feed: Feed, deadline: _patience.Deadline) -> None:
        """Until something is told about this run; at most until it is time to look anyway."""
        look = _patience.Deadline(_patience.LOOK_S)
        while not look.passed:
            if deadline.passed:
                raise WaitTimeout(f"run {self.id} is not over yet: {self.info.state}. It goes on")
            try:
                event = feed.next(deadline.within(look.within(_patience.LOOK_S)))
            except (Unreachable, Refused):
                # Whether the server is away is judged by its answers about the run.
                sleep(deadline.within(_patience.ASK_AGAIN_S))
                return
            if _concerns(event, self.id):
                return

    def wait(self, timeout: Optional[float] = None, *, progress: bool = True, check: bool = True) -> Run:
        """Waits until the run is over, shows its rounds, and returns it. Interrupting the wait leaves the run alone.

        A run that failed raises RunFailed, unless `check` is False.
        """
        shown = Progress(self.id) if progress else None
        for event in self.events(timeout):
            if shown is not None and event.kind == "round" and event.report.kind == "round":
                shown.round(event.report)
        if shown is not None:
            shown.end(self.info)
        if check and self.info.outcome == "failed":
            raise RunFailed(self.id, self.info.details)
        return self

    @property
    def history(self) -> History:
        """A dict for each round, with its metrics; `to_pandas()` makes a DataFrame of them."""
        return history(self.reports())

    def reports(self) -> list[types.TrainingReport]:
        """Everything that is known about the rounds, replies of single nodes and findings included."""
        return self._client._rounds(self.federation, self.id, None)

    def logs(self, *, node: Optional[str] = None, follow: bool = False) -> Iterator[str]:
        """Lines of its log, or what its ClientApps wrote on a node; with `follow` until it is over."""
        of_node = f"/nodes/{quote(node, safe='')}" if node else ""
        path = f"/federations/{self.federation}/runs/{self.id}{of_node}/log"
        for line in self._client._log(path, follow, to_the_end=True):
            yield line

    def stop(self) -> Run:
        """Stops it, and returns it; `wait` waits for its end. A run that is over stays as it is."""
        self.info = self._client._stop_run(self.federation, self.id)
        return self

    def models(self) -> list[types.ModelFile]:
        """The checkpoints there are of it, the newest first."""
        return [model for model in self._client.models(self.federation) if model.run == self.id]

    def model(self, round: Optional[int] = None) -> dict[str, numpy.ndarray[Any, Any]]:
        """The arrays of the newest checkpoint, or of that of a round. Needs numpy."""
        return _safetensors.arrays(self.download(round))

    def state_dict(self, round: Optional[int] = None) -> dict[str, Any]:
        """The same as tensors, for `load_state_dict` of a PyTorch module. Needs torch."""
        return _safetensors.state_dict(self.download(round))

    def download(self, round: Optional[int] = None) -> bytes:
        """The bytes of the newest checkpoint, or of that of a round, in the format safetensors."""
        models = self.models()
        if not self.info.native and not models:
            raise TrellisError(
                f"run {self.id} has no model on the server: the ServerApp of the app keeps it, not Trellis. "
                "Native aggregation keeps checkpoints (native_server=True)"
            )
        fitting = [model for model in models if round is None or model.round == round]
        if not fitting:
            rounds = ", ".join(str(model.round) for model in reversed(models))
            there = f"there are checkpoints of rounds {rounds}" if rounds else "there is no checkpoint of it yet"
            which = "model" if round is None else f"model of round {round}"
            raise NotFound(404, "not-found", f"run {self.id} has no {which}: {there}")
        newest = max(fitting, key=lambda model: model.round)
        return self._client.download_model(newest.path, self.federation)


def _concerns(event: Optional[types.Event], run: str) -> bool:
    if event is None:
        return False
    if event.kind == "run":
        return event.run.id == run
    return event.kind == "resync" or (event.kind == "round" and event.run == run)
