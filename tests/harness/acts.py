"""The `acts` app in a federation of one node: a script is played, and what came of each act is told."""

from dataclasses import dataclass

from harness.federation import Federation

RUN_LIMIT_S = 300.0


@dataclass(frozen=True)
class Told:
    """What the ServerApp was told of one act: a reply, an error, or nothing in time."""

    act: str
    seconds: float
    error: int | None
    reason: str
    reply: dict

    @property
    def outcome(self) -> str:
        """What must be the same whoever runs the app: the code of the error, or the count that the Context has."""
        if self.error is not None:
            return f"{self.act}: error {self.error}"
        return f"{self.act}: count {self.reply['count']}" if self.reply else f"{self.act}: nothing"

    @property
    def pid(self) -> int:
        return self.reply["pid"]


def submit(federation: Federation, script: str, name: str = "result", **config: object) -> int:
    return federation.cli.submit(script=script, result_path=federation.result_path(name), **config)


def collect(federation: Federation, run_id: int, name: str = "result") -> list[Told]:
    """Wait for the end of a run that must complete, whatever its acts were."""
    state = federation.wait_finished(run_id, RUN_LIMIT_S)
    assert state.status == "finished:completed", state
    return [_told(act) for act in federation.result(name)]


def play(federation: Federation, script: str, name: str = "result", **config: object) -> list[Told]:
    return collect(federation, submit(federation, script, name, **config), name)


def _told(act: dict) -> Told:
    fixed = {"act": act.pop("act"), "seconds": act.pop("seconds")}
    return Told(**fixed, error=act.pop("error", None), reason=act.pop("reason", ""), reply=act)
