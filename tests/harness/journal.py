"""The journal of numpy_fedavg's ServerApp: the replies of each round, and when they arrived."""

import json
from pathlib import Path

KINDS = ("train", "evaluate")


class RoundJournal:
    """The file may be missing, and its last line may be incomplete."""

    def __init__(self, path: Path):
        self.path = path

    def entries(self) -> list[dict]:
        if not self.path.exists():
            return []
        lines = self.path.read_text().splitlines(keepends=True)
        return [json.loads(line) for line in lines if line.endswith("\n")]

    def answered(self) -> int:
        """How often all nodes have answered."""
        return sum(entry["what"] in KINDS for entry in self.entries())

    def ends(self) -> list[float]:
        """The Unix times of the ends of rounds, starting with round 0, which ends before the first one."""
        return [entry["at"] for entry in self.entries() if entry["what"] == "end"]

    def faults(self, rounds: int, nodes: int, kinds: tuple[str, ...] = KINDS) -> list[str]:
        """Deviations from one error-free reply per instruction and node in each round."""
        entries = [entry for entry in self.entries() if entry["what"] in kinds]
        found = [(entry["round"], entry["what"]) for entry in entries]
        wanted = [(server_round, kind) for server_round in range(1, rounds + 1) for kind in kinds]
        faults = [] if found == wanted else [f"the rounds were {found}"]
        instructions: set[str] = set()
        for entry in entries:
            replies = entry["replies"]
            if len(replies) != nodes or len({reply["node"] for reply in replies}) != nodes:
                faults.append(f"not one reply from each of {nodes} nodes: {entry}")
            elif any(reply["error"] for reply in replies):
                faults.append(f"an error: {entry}")
            if len(instructions | {reply["to"] for reply in replies}) != len(instructions) + len(replies):
                faults.append(f"an instruction was answered twice: {entry}")
            instructions.update(reply["to"] for reply in replies)
        return faults
