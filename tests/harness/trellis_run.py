"""`trellis run`, as a user calls it, and its results."""

import json
import os
import signal
from pathlib import Path

import numpy as np

from harness.process import Process
from harness.release import Flower
from harness.superlink import Superlink
from harness.workspace import Workspace, trellis_binary

RUN_LIMIT_S = 120.0
DTYPES = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "I64": "<i8", "I32": "<i4"}


class TrellisRun:
    """A `trellis run` with output in JSON lines."""

    def __init__(
        self,
        workspace: Workspace,
        app: Path | str,
        *flags: str,
        superlink: Superlink | None = None,
        release: Flower | None = None,
    ):
        argv = [str(trellis_binary()), "run", str(app), "-o", "json", *flags]
        if superlink is not None:
            tls = superlink.options.tls
            argv += ["--superlink", superlink.http_address]
            argv += ["--insecure"] if tls is None else ["--root-certificates", str(tls.ca)]
        name = f"trellis-run-{len(workspace.processes)}"
        self.process: Process = workspace.start(name, argv, workspace.env(release))

    def events(self, kind: str | None = None) -> list[dict]:
        """The events so far; other lines are remarks and logs."""
        lines = [json.loads(line) for line in self.process.output().splitlines() if line.startswith("{")]
        return [line for line in lines if kind in (None, line["event"])]

    def wait_started(self) -> int:
        """Waits until the run exists; returns its id."""
        self.process.wait_line('"event":"started"', RUN_LIMIT_S)
        return int(self.events("started")[0]["run_id"])

    def wait_ended(self, code: int = 0) -> dict:
        """Waits for the exit with this code; returns the last event."""
        found = self.process.wait_exit(RUN_LIMIT_S)
        assert found == code, f"it exited with {found}\n{self.process.output()}"
        return self.events("ended")[-1]

    def interrupt(self) -> None:
        """Sends Ctrl-C."""
        os.kill(self.process.pid, signal.SIGINT)


def saved_arrays(checkpoint: Path) -> dict[str, np.ndarray]:
    """The model in a checkpoint directory (safetensors: a length, a JSON header, the numbers)."""
    content = (checkpoint / "model.safetensors").read_bytes()
    length = int.from_bytes(content[:8], "little")
    header, data = json.loads(content[8 : 8 + length]), content[8 + length :]
    header.pop("__metadata__", None)

    def array(entry: dict) -> np.ndarray:
        start, end = entry["data_offsets"]
        return np.frombuffer(data[start:end], DTYPES[entry["dtype"]]).reshape(entry["shape"])

    return {name: array(entry) for name, entry in header.items()}
