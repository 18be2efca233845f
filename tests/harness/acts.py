"""Runs a script with the `acts` app in a federation of one node, and returns the outcome of each act."""

from dataclasses import dataclass

from harness.federation import Federation

RUN_LIMIT_S = 300.0


@dataclass(frozen=True)
class ActResult:
    """The result of one act at the ServerApp: a reply, an error, or a timeout."""

    act: str
    seconds: float
    error: int | None
    reason: str
    reply: dict

    @property
    def outcome(self) -> str:
        """The part that must be the same with every runner: the code of the error, or the count in the Context."""
        if self.error is not None:
            return f"{self.act}: error {self.error}"
        return f"{self.act}: count {self.reply['count']}" if self.reply else f"{self.act}: nothing"

    @property
    def pid(self) -> int:
        return self.reply["pid"]


def submit(federation: Federation, script: str, name: str = "result", **config: object) -> int:
    return federation.cli.submit(script=script, result_path=federation.result_path(name), **config)


def collect(federation: Federation, run_id: int, name: str = "result") -> list[ActResult]:
    """Waits for the end of a run, which must complete; returns the results of its acts."""
    state = federation.wait_finished(run_id, RUN_LIMIT_S)
    assert state.status == "finished:completed", state
    return [_act_result(act) for act in federation.result(name)]


def play(federation: Federation, script: str, name: str = "result", **config: object) -> list[ActResult]:
    return collect(federation, submit(federation, script, name, **config), name)


def _act_result(act: dict) -> ActResult:
    fixed = {"act": act.pop("act"), "seconds": act.pop("seconds")}
    return ActResult(**fixed, error=act.pop("error", None), reason=act.pop("reason", ""), reply=act)
