"""What the ServerApp of numpy_fedavg noted: which replies each round brought, and when."""

import json
from pathlib import Path

KINDS = ("train", "evaluate")


class RoundJournal:
    """The file may not be there yet, and its last line may be half written."""

    def __init__(self, path: Path):
        self.path = path

    def entries(self) -> list[dict]:
        if not self.path.exists():
            return []
        lines = self.path.read_text().splitlines(keepends=True)
        return [json.loads(line) for line in lines if line.endswith("\n")]

    def answered(self) -> int:
        """How often all nodes have answered by now."""
        return sum(entry["what"] in KINDS for entry in self.entries())

    def ends(self) -> list[float]:
        """Seconds since 1970 at which the rounds were over, from the end of round 0 on: before the first one."""
        return [entry["at"] for entry in self.entries() if entry["what"] == "end"]

    def faults(self, rounds: int, nodes: int, kinds: tuple[str, ...] = KINDS) -> list[str]:
        """Where it is not so that each instruction has one reply, each of a round from another node, without error."""
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
