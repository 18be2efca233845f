"""`trellis run` as a user types it, against a federation of a test: the reports of its rounds, and the model it leaves."""

import json
import subprocess
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from harness.federation import Federation
from harness.workspace import REPOSITORY, trellis_binary

RUN_LIMIT_S = 300.0
COMMAND_LIMIT_S = 60.0
DIGITS = REPOSITORY / "crates" / "native" / "data" / "digits.bin"


@dataclass(frozen=True)
class Native:
    """A native run that has ended."""

    run_id: int
    code: int
    reports: list[dict]
    stderr: str

    @property
    def rounds(self) -> list[dict]:
        return [report for report in self.reports if report.get("round", 0) > 0]

    def curve(self, metric: str = "eval_acc") -> list[float]:
        """The aggregated metric, round by round."""
        return [report["evaluate"]["metrics"][metric] for report in self.rounds if report.get("evaluate")]


class NativeRuns:
    """Submits the app of a federation with a native strategy in place of its ServerApp."""

    def __init__(self, federation: Federation):
        self._federation = federation

    @property
    def models(self) -> Path:
        return self._federation.superlink.state_dir / "models"

    def argv(self, *flags: str, **settings: object) -> list[str]:
        link = self._federation.superlink
        tls = link.options.tls
        security = ["--insecure"] if tls is None else ["--root-certificates", str(tls.ca)]
        argv = [str(trellis_binary()), "run", str(self._federation.cli.app), "--superlink", link.http_address, *security]
        for name, value in settings.items():
            argv += ["--set", f"{name.replace('_', '-')}={_text(value)}"]
        return [*argv, "-o", "json", *flags]

    def submit(self, *flags: str, **settings: object) -> int:
        """Begin a run, and do not wait for it."""
        done = self._command(self.argv("--detach", *flags, **settings), COMMAND_LIMIT_S)
        assert done.returncode == 0, done.stderr
        return int(_json_lines(done.stdout)[0]["run_id"])

    def run(self, *flags: str, **settings: object) -> Native:
        done = self._command(self.argv(*flags, **settings), RUN_LIMIT_S)
        lines = _json_lines(done.stdout)
        run_id = next((int(line["run_id"]) for line in lines if "run_id" in line), 0)
        reports = [line for line in lines if "round" in line]
        return Native(run_id, done.returncode, reports, done.stderr)

    def weights(self, run_id: int) -> dict[str, np.ndarray]:
        """The last model of a run, as `trellis model export` gives it."""
        path = self._federation.workspace.root / f"model-{run_id}.npz"
        words = ["model", "export", str(run_id), "--format", "npz", "--out", str(path), "--models", str(self.models)]
        done = self._command([str(trellis_binary()), *words], COMMAND_LIMIT_S)
        assert done.returncode == 0, done.stderr
        with np.load(path) as model:
            return {name: model[name] for name in model.files}

    def saved_bytes(self, run_id: int) -> bytes:
        """The last model of a run, byte for byte."""
        return (self.models / str(run_id) / "latest" / "model.safetensors").read_bytes()

    def _command(self, argv: list[str], limit_s: float) -> subprocess.CompletedProcess[str]:
        workspace = self._federation.workspace
        return subprocess.run(
            argv,
            env=workspace.env(self._federation.cli.release),
            cwd=workspace.root,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=limit_s,
            check=False,
        )


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _json_lines(text: str) -> list[dict]:
    return [json.loads(line) for line in text.splitlines() if line.strip()]
