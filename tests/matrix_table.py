#!/usr/bin/env python3
"""Prints the interop matrix that `make interop` recorded as Markdown, or writes it into a file between its markers.
`matrix_table.py RECORD [--update docs/compatibility.md]`. An incomplete record is refused, because a table would hide the gaps.
"""

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

from harness import matrix  # noqa: E402

BEGIN, END = "<!-- interop matrix: begin -->", "<!-- interop matrix: end -->"
GAPS_SHOWN = 8
LINK_TITLES = {
    matrix.SUPERNODE: "SuperNode",
    matrix.COMMANDS: "`flwr` commands",
    matrix.LAUNCHED: "ServerApp, started by Trellis",
    matrix.SUPEREXEC: "ServerApp, by `flower-superexec`",
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("record", type=Path, help="what `make interop` wrote")
    parser.add_argument("--update", type=Path, help="the file to put the table into")
    options = parser.parse_args()
    if not options.record.exists():
        return complain(f"there is no {options.record}: run make interop first")
    record = matrix.Record.read(options.record)
    if gaps := record.missing():
        shown = ", ".join(gaps[:GAPS_SHOWN])
        return complain(f"{options.record} lacks {len(gaps)} cells ({shown}, ...): run the whole of make interop")
    text = "\n".join([*product_table(record), "", *link_table(record)])
    if options.update is None:
        print(text)
        return 0
    return update(options.update, text)


def product_table(record: matrix.Record) -> list[str]:
    """SuperNodes by command lines; a cell lists the runtimes with which a run completed."""
    finished = sum(record.meeting(*meeting) == matrix.PASS for meeting in matrix.meetings())
    runs = len(matrix.COMMAND_LINES) * len(matrix.RUNTIMES)
    lines = [
        f"{finished} of {len(matrix.meetings())} combinations of a SuperNode, a command line and a ServerApp finished a"
        f" run with the same weights, bit for bit (in {runs} runs, each with a SuperNode of every release). In the"
        " cells, the releases that ran the ServerApp.",
        "",
        "| SuperNode | " + " | ".join(f"`flwr` {cli}" for cli in matrix.COMMAND_LINES) + " |",
        "|---" * (1 + len(matrix.COMMAND_LINES)) + "|",
    ]
    for node in matrix.NODES:
        cells = (cell(record, node, cli) for cli in matrix.COMMAND_LINES)
        lines.append(f"| {node} | " + " | ".join(cells) + " |")
    return lines


def cell(record: matrix.Record, node: str, cli: str) -> str:
    results = {runtime: record.meeting(node, cli, runtime) for runtime in matrix.RUNTIMES}
    passed = [runtime for runtime, result in results.items() if result == matrix.PASS]
    others = [f"{runtime} {result}" for runtime, result in results.items() if result != matrix.PASS]
    return "; ".join([" ".join(passed), *others] if passed else others)


def link_table(record: matrix.Record) -> list[str]:
    """The result of each tested release on each link."""
    between = [version for version in matrix.BETWEEN if any(record.link(link, version) for link in matrix.LINKS)]
    versions = sorted([*matrix.RELEASES, *between])
    lines = [
        "Each release by itself:",
        "",
        "| release | " + " | ".join(LINK_TITLES[link] for link in matrix.LINKS) + " |",
        "|---" * (1 + len(matrix.LINKS)) + "|",
    ]
    for version in versions:
        cells = (record.link(link, version) or "not tried" for link in matrix.LINKS)
        lines.append(f"| {version} | " + " | ".join(cells) + " |")
    too_old = record.link(matrix.SUPERNODE, matrix.TOO_OLD)
    return [*lines, "", f"A SuperNode of {matrix.TOO_OLD} is {too_old}"]


def update(path: Path, table: str) -> int:
    text = path.read_text()
    if text.count(BEGIN) != 1 or text.count(END) != 1:
        return complain(f"{path} needs one line {BEGIN} and one line {END}")
    before, _, rest = text.partition(BEGIN)
    after = rest.partition(END)[2]
    path.write_text(f"{before}{BEGIN}\n{table}\n{END}{after}")
    return 0


def complain(what: str) -> int:
    print(f"matrix_table: {what}", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
