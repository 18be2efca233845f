"""A federation of our own nodes, which are killed at random moments and restarted with their state. The SuperLink may
be killed too, as in `campaign`.
"""

import time
from collections import Counter
from collections.abc import Callable

from harness.campaign import DOWN_S, LEFT_BEHIND_LIMIT_S, Campaign
from harness.federation import Federation
from harness.own_supernode import OwnSupernode
from harness.process import command_line, marked_pids, pid_exists
from harness.waiting import NotInTime, wait_for

# A node that died five times during one instruction answers with an error, because the app may be the cause. To avoid this, a
# node is killed at most this often before all nodes have answered.
MAX_KILLS_PER_INSTRUCTION = 3
ANSWER_LIMIT_S = 120.0


class NodeCampaign(Campaign):
    """Every act happens at a random moment of a run, and returns whether it was still possible."""

    def __init__(self, federation: Federation, rounds: int, seed: int, **settings: object):
        super().__init__(federation, rounds, seed, **settings)
        # How often each node was killed since all nodes of this run had answered this many times.
        self._ends: Counter[str] = Counter()
        self._answers: tuple[str, int] = ("", 0)

    def kill_superlink(self, run_id: int, _name: str) -> bool:
        return self.kill_at_random(run_id, 1) == 1

    def kill_node(self, run_id: int, name: str, after_s: tuple[float, float]) -> bool:
        """In half of the cases the apps are killed too, as in a power failure; otherwise they must notice."""

        def kill(node: OwnSupernode) -> None:
            node.process.kill() if self._random.random() < 0.5 else node.kill_everything()

        return self._restart_node(run_id, name, after_s, kill)

    def stop_node(self, run_id: int, name: str, after_s: tuple[float, float]) -> bool:
        """Stops the node, which must exit with code 0."""

        def stop(node: OwnSupernode) -> None:
            code = node.process.stop()
            assert code == 0, f"{node.name} exited with {code} when it was stopped"

        return self._restart_node(run_id, name, after_s, stop)

    def _restart_node(
        self, run_id: int, name: str, after_s: tuple[float, float], end: Callable[[OwnSupernode], None]
    ) -> bool:
        if self._finished_within(run_id, self._random.uniform(*after_s)):
            return False
        node = self._random.choice(self.federation.nodes)
        if not self._may_end(node, run_id, name):
            return False
        end(node)
        # A random outage, not a wait for an event.
        time.sleep(self._random.uniform(*DOWN_S))
        node.start()
        self._tell(f"{node.name} ended and started again, after {self._answers[1]} answers")
        return True

    def _may_end(self, node: OwnSupernode, run_id: int, name: str) -> bool:
        """Waits until the node may be killed; returns False if the run ends before."""
        known, before = self._answers
        if known == name and self._ends[node.name] == MAX_KILLS_PER_INSTRUCTION:
            if not self._wait_answers(run_id, name, before):
                return False
        answers = (name, self.federation.journal(name).answered())
        if answers != self._answers:
            self._ends, self._answers = Counter(), answers
        self._ends[node.name] += 1
        return True

    def _wait_answers(self, run_id: int, name: str, before: int) -> bool:
        """Waits until all nodes have answered once more; returns False if the run ends before."""
        journal = self.federation.journal(name)

        def look() -> str | None:
            if journal.answered() > before:
                return "answered"
            return "finished" if self._finished_within(run_id, 0.05) else None

        return wait_for("the next answers of all nodes", look, ANSWER_LIMIT_S) == "answered"

    def left_behind(self) -> list[str]:
        """Stops everything; returns leftovers, including those of nodes."""
        left = []
        for node in self.federation.nodes:
            left += _objects_left(node)
            if code := node.process.stop():
                left.append(f"{node.name} exited with {code} when it was stopped")
        left += super().left_behind()
        return left + self._processes_left()

    def _processes_left(self) -> list[str]:
        mark = self.federation.workspace.mark

        def living() -> list[int]:
            return [pid for pid in marked_pids(mark) if pid_exists(pid)]

        try:
            wait_for("everything that the nodes started to end", lambda: not living(), LEFT_BEHIND_LIMIT_S)
        except NotInTime:
            return [f"process {pid}: {command_line(pid)}" for pid in living()]
        return []


def _objects_left(node: OwnSupernode) -> list[str]:
    try:
        wait_for(f"{node.name} to have delivered all", lambda: not node.stored_objects(), LEFT_BEHIND_LIMIT_S)
    except NotInTime:
        return [f"object file {path}" for path in node.stored_objects()]
    return []
