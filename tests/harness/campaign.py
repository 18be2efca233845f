"""A federation whose SuperLink is killed, at crash points or at random moments, and restarted with its state. The SuperNodes
(and the SuperExec, if there is one) are started once.
"""

import random
import signal
import time

from harness.control import RunState, tolerant
from harness.federation import Federation
from harness.flower_cli import CommandFailed
from harness.process import Process, marked_commands
from harness.waiting import wait_for

# Large enough that arrays are stored as files, while records and messages are stored in rows.
ARRAY_LENGTH = 16_384
DEATH_LIMIT_S = 5.0
RUN_LIMIT_S = 240.0
# Long enough to reach every phase of a round, short enough that the backoff of clients stays small.
KILL_AFTER_S = (0.05, 3.0)
DOWN_S = (0.0, 0.4)
LEFT_BEHIND_LIMIT_S = 10.0

# The releases of nodes, command line and ServerApps in a campaign.
FLEETS = {
    "grpc": {"fleet": ("1.25",), "cli": "1.25", "runtime": "1.25"},
    "http": {"fleet": ("1.42",), "cli": "1.42", "runtime": "1.42"},
    "mixed": {"fleet": ("1.25", "1.39", "1.42"), "nodes": 3, "cli": "1.42", "runtime": "1.25"},
}


class Campaign:
    """`story` is the sequence of events, for the message of a failure. `settings` are additional run settings."""

    def __init__(self, federation: Federation, rounds: int, seed: int, **settings: object):
        self.federation = federation
        self.rounds = rounds
        self._settings = settings
        self.deaths = 0
        self.story: list[str] = [f"seed {seed}"]
        self._superlink = federation.superlink
        self._submitted: set[int] = set()
        self._random = random.Random(seed)
        self._began = time.monotonic()

    def begin(self, crash_at: str | None = None) -> None:
        """Starts the federation; the SuperLink is armed from its first instruction."""
        if not self._launch(crash_at):
            self.revive()  # It crashed before it served.
        self.federation.start_nodes()

    def submit(self, name: str) -> int:
        """Submits a run exactly once, through a SuperLink that may crash meanwhile."""
        config = {
            "num_server_rounds": self.rounds,
            "array_length": ARRAY_LENGTH,
            "nodes": self.federation.shape.nodes,
            "result_path": self.federation.result_path(name),
            "journal_path": self.federation.journal(name).path,
        } | self._settings
        run_id = None
        while run_id is None:
            try:
                run_id = self.federation.cli.submit(**config)
            except CommandFailed:
                self._superlink.process.wait_exit(DEATH_LIMIT_S)
                self.revive()
                # The answer was lost, but the run may exist.
                run_id = next(iter(set(self._runs()) - self._submitted), None)
        self._submitted.add(run_id)
        self._tell(f"run {run_id} submitted")
        return run_id

    def pass_points(self, run_id: int, points: list[str]) -> list[str]:
        """Lets the armed SuperLink crash, restarts it armed with the next point, and so on; returns the reached points."""
        reached = []
        for position, point in enumerate(points):
            if self.wait_death_or_end(run_id) is not None:
                break
            reached.append(point)
            following = points[position + 1] if position + 1 < len(points) else None
            self.revive(following)
        return reached

    def kill_at_random(self, run_id: int, kills: int) -> int:
        """Sends kill -9 at random moments of the run; returns the number of kills."""
        for done in range(kills):
            if self._finished_within(run_id, self._random.uniform(*KILL_AFTER_S)):
                return done
            self._superlink.kill()
            # A random outage, not a wait for an event.
            time.sleep(self._random.uniform(*DOWN_S))
            self.revive()
        return kills

    def wait_death_or_end(self, run_id: int) -> RunState | None:
        """Returns the state of a finished run, or None if the SuperLink died before."""

        def look() -> RunState | str | None:
            if not self._superlink.process.alive:
                return "dead"
            return tolerant(lambda: self._if_finished(run_id))()

        seen = wait_for(f"run {run_id} to finish or the SuperLink to die", look, RUN_LIMIT_S)
        return None if seen == "dead" else seen

    def revive(self, crash_at: str | None = None) -> None:
        """Restarts the killed SuperLink with its state."""
        process: Process = self._superlink.process
        assert process.exit_code == -signal.SIGKILL, f"the SuperLink exited with {process.exit_code}"
        self.deaths += 1
        self._tell("SuperLink killed")
        self._launch(crash_at)

    def finish(self, run_id: int) -> RunState:
        state = self._superlink.control.wait_finished(run_id, RUN_LIMIT_S)
        self._tell(f"run {run_id} is {state.status} {state.details}".rstrip())
        return state

    def logged(self, run_id: int) -> str:
        return self.federation.cli.log(run_id).stdout

    def left_behind(self) -> list[str]:
        """Stops the SuperLink; returns leftovers of finished runs: processes, objects, an inconsistent state."""
        left = self._serverapps_left()
        if code := self._superlink.stop():
            left.append(f"the SuperLink exited with {code} when it was stopped")
        check = self._superlink.check_state()
        if check.returncode != 0:
            left.append(f"--check-state ended with {check.returncode}: {check.stdout}{check.stderr}")
        return left + [f"object file {path}" for path in self._superlink.stored_objects()]

    def _serverapps_left(self) -> list[str]:
        mark = self.federation.workspace.mark
        try:
            wait_for("ServerApps to end", lambda: not marked_commands(mark, "flwr-serverapp"), LEFT_BEHIND_LIMIT_S)
        except AssertionError:
            return [f"ServerApp process {pid}" for pid in marked_commands(mark, "flwr-serverapp")]
        return []

    def _launch(self, crash_at: str | None) -> bool:
        self._tell(f"SuperLink started{f', armed to die at {crash_at}' if crash_at else ''}")
        self._superlink.launch(crash_at)
        return self._superlink.settle()

    def _finished_within(self, run_id: int, seconds: float) -> bool:
        deadline = time.monotonic() + seconds
        while (left := deadline - time.monotonic()) > 0:
            if tolerant(lambda: self._if_finished(run_id))():
                return True
            time.sleep(min(left, 0.1))
        return False

    def _if_finished(self, run_id: int) -> RunState | None:
        state = self._superlink.control.run(run_id)
        return state if state.finished else None

    def _runs(self) -> dict[int, RunState]:
        return wait_for("the list of runs", tolerant(self._superlink.control.runs), DEATH_LIMIT_S)

    def _tell(self, what: str) -> None:
        self.story.append(f"{time.monotonic() - self._began:7.2f} s  {what}")
