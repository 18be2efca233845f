"""Archives with equal bytes for equal files: sorted names, given owners and times. Knows nothing of releases."""

from __future__ import annotations

import gzip
import io
import stat
import tarfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

COMPRESSION_LEVEL = 6


@dataclass(frozen=True)
class Entry:
    """A file, a directory (no content, no link) or a link."""

    name: str
    mode: int = 0o644
    content: bytes | None = None
    link: str = ""
    owner: int = 0


def tree(root: Path, prefix: str = "", owner: int = 0) -> list[Entry]:
    """Everything below a directory, with the modes on disk."""
    entries = []
    for path in sorted(root.rglob("*")):
        name = prefix + path.relative_to(root).as_posix()
        mode = stat.S_IMODE(path.lstat().st_mode)
        if path.is_symlink():
            entries.append(Entry(name, 0o777, link=str(path.readlink()), owner=owner))
        else:
            entries.append(Entry(name, mode, None if path.is_dir() else path.read_bytes(), owner=owner))
    return entries


def tar(entries: Iterable[Entry], time: int) -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for entry in sorted(entries, key=lambda entry: entry.name):
            info = tarfile.TarInfo(entry.name)
            info.mode, info.mtime, info.uid, info.gid = entry.mode, time, entry.owner, entry.owner
            if entry.link:
                info.type, info.linkname = tarfile.SYMTYPE, entry.link
            elif entry.content is None:
                info.type = tarfile.DIRTYPE
            else:
                info.size = len(entry.content)
            archive.addfile(info, io.BytesIO(entry.content or b""))
    return packed.getvalue()


def compressed(content: bytes) -> bytes:
    return gzip.compress(content, COMPRESSION_LEVEL, mtime=0)
