"""What every report of a measurement says of itself, and how it gets into a document."""

import os
import platform
import shlex
import sys
from datetime import date
from pathlib import Path


def circumstances(part: str) -> str:
    cores, memory = os.cpu_count(), os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / (1 << 30)
    words = shlex.join(["bench/run.sh", "--part", part, *sys.argv[1:]])
    machine = f"{cores} cores, {memory:.0f} GiB, Linux {platform.release()}"
    return f"Machine: {machine}. Measured {date.today()} with\n`{words}`\n"


def write(path: Path, part: str, report: str) -> None:
    """Put a report between the markers of its part."""
    begin, end = (f"<!-- bench {part}: {word} -->" for word in ("begin", "end"))
    document = path.read_text()
    if begin not in document or end not in document:
        raise SystemExit(f"{path} has no lines {begin} and {end}")
    before, _, rest = document.partition(begin)
    path.write_text(f"{before}{begin}\n{report}{end}{rest.partition(end)[2]}")
