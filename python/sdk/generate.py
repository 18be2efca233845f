"""Generates two parts of the package: the data types from docs/api/openapi.json, and the synchronous client from `aio`.

`generate.py` writes the files; `generate.py --check` only says which of them differ, and exits with 1 if one does.
"""

from __future__ import annotations

import io
import json
import sys
import tokenize
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
PACKAGE = HERE / "src" / "trellis"
OPENAPI = HERE.parent.parent / "docs" / "api" / "openapi.json"
ASYNC, SYNC = PACKAGE / "aio", PACKAGE / "_sync"
# Written by hand on both sides: sockets, clocks, processes.
BY_HAND = {"_io.py", "__init__.py"}

# `Run` is what a caller waits for and stops; this is what the server says about it.
RENAMED = {"Run": "RunInfo", "u64": "int"}
# Documents are for people and have a schema of their own (docs/schema).
PLAIN = {"FederationDocument": "dict[str, Any]"}
# Never in a repr, which ends up in logs and notebooks.
SECRET_FIELDS = {"token"}
SIMPLE = {"string": "str", "integer": "int", "number": "float", "boolean": "bool"}
EMPTY = {"str": '""', "int": "0", "float": "0.0", "bool": "False"}

TYPES_HEAD = '''"""What the server answers, as data. Generated from docs/api/openapi.json by generate.py; do not edit."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal, Optional, Union
'''
SYNC_HEAD = "# Generated from trellis/aio/{name} by generate.py; do not edit.\n"


class Types:
    """Python source of the schemas of an OpenAPI document."""

    def __init__(self, schemas: dict[str, Any]) -> None:
        self.schemas = schemas
        self.aliases: list[str] = []
        self.classes: list[str] = []

    def source(self) -> str:
        for name, schema in self.schemas.items():
            if name != "u64":
                self._top(RENAMED.get(name, name), schema)
        return "\n\n\n".join([TYPES_HEAD.rstrip(), *self.classes, "\n".join(self.aliases)]) + "\n"

    def _top(self, name: str, schema: dict[str, Any]) -> None:
        if name in PLAIN:
            self.aliases.append(f"{name} = {PLAIN[name]}")
        elif "enum" in schema:
            self.aliases.append(f"{name} = {self._type(schema)}")
        elif "anyOf" in schema and all(case.get("type") == "object" for case in schema["anyOf"]):
            self._variants(name, schema["anyOf"])
        elif "anyOf" in schema:
            self.aliases.append(f"{name} = {self._type(schema)}")
        else:
            self.classes.append(self._class(name, schema))

    def _variants(self, name: str, cases: list[dict[str, Any]]) -> None:
        """One class for each kind."""
        names = []
        for case in cases:
            [kind] = case["properties"]["kind"]["enum"]
            names.append(kind.capitalize() + name)
            self.classes.append(self._class(names[-1], case))
        self.aliases.append(f"{name} = Union[{', '.join(names)}]")

    def _class(self, name: str, schema: dict[str, Any]) -> str:
        lines = ["@dataclass(frozen=True)", f"class {name}:"]
        if about := schema.get("description"):
            lines += [f'    """{about}"""', ""]
        required = schema.get("required", [])
        fields = schema["properties"]
        for key in sorted(fields, key=lambda key: key not in required):
            if about := fields[key].get("description"):
                lines.append(f"    # {about}")
            lines.append(f"    {key}: {self._field(key, fields[key], key in required)}")
        return "\n".join(lines)

    def _field(self, key: str, schema: dict[str, Any], required: bool) -> str:
        kind = self._type(schema)
        if key in SECRET_FIELDS:
            return f"{kind} = field(repr=False)"
        if required:
            return kind
        if kind.startswith("list["):
            return f"{kind} = field(default_factory=list)"
        if kind.startswith("dict["):
            return f"{kind} = field(default_factory=dict)"
        if kind in EMPTY:
            return f"{kind} = {EMPTY[kind]}"
        return f"{kind} = None" if kind.startswith("Optional[") else f"Optional[{kind}] = None"

    def _type(self, schema: dict[str, Any]) -> str:
        if "$ref" in schema:
            name: str = schema["$ref"].rpartition("/")[2]
            return RENAMED.get(name, name)
        if "enum" in schema:
            return f"Literal[{', '.join(json.dumps(word) for word in schema['enum'])}]"
        if "anyOf" in schema:
            return self._any_of(schema["anyOf"])
        kinds = schema["type"]
        if isinstance(kinds, list):
            return self._any_of([{**schema, "type": kind} for kind in kinds])
        if kinds == "array":
            return f"list[{self._type(schema['items'])}]"
        if kinds == "object":
            return f"dict[str, {self._type(schema['additionalProperties'])}]"
        return SIMPLE[kinds]

    def _any_of(self, cases: list[dict[str, Any]]) -> str:
        some = list(dict.fromkeys(self._type(case) for case in cases if case.get("type") != "null"))
        kind = some[0] if len(some) == 1 else f"Union[{', '.join(some)}]"
        return kind if len(some) == len(cases) or kind.startswith("Optional[") else f"Optional[{kind}]"


# Words of the asynchronous client and what they become. `await` and `async` go.
WORDS = {
    "AsyncIterator": "Iterator",
    "AsyncGenerator": "Generator",
    "StopAsyncIteration": "StopIteration",
    "__aenter__": "__enter__",
    "__aexit__": "__exit__",
    "__aiter__": "__iter__",
    "__anext__": "__next__",
    "aclose": "close",
    "asynccontextmanager": "contextmanager",
    "aio": "_sync",
}
DROPPED = {"async", "await"}


def synchronous(name: str, source: str) -> str:
    """The same module without waiting: `async` and `await` are left out, and a few names change."""
    lines = source.splitlines(keepends=True)
    # From the end, so that places before a change stay right.
    for token in reversed(list(tokenize.generate_tokens(io.StringIO(source).readline))):
        if token.type != tokenize.NAME:
            continue
        (row, begin), (_, end) = token.start, token.end
        line = lines[row - 1]
        if token.string in DROPPED:
            lines[row - 1] = line[:begin] + line[end:].removeprefix(" ")
        elif token.string in WORDS:
            lines[row - 1] = line[:begin] + WORDS[token.string] + line[end:]
    text = "".join(lines).replace("asynchronous", "synchronous")
    return SYNC_HEAD.format(name=name) + text


def generated() -> dict[Path, str]:
    schemas = json.loads(OPENAPI.read_text())["components"]["schemas"]
    files = {PACKAGE / "types.py": Types(schemas).source()}
    for path in sorted(ASYNC.glob("*.py")):
        if path.name not in BY_HAND:
            files[SYNC / path.name] = synchronous(path.name, path.read_text())
    return files


def main(arguments: list[str]) -> int:
    check = arguments == ["--check"]
    if arguments and not check:
        print("usage: generate.py [--check]", file=sys.stderr)
        return 2
    files = generated()
    leftover = [path for path in SYNC.glob("*.py") if path not in files and path.name not in BY_HAND]
    different = [path for path, text in files.items() if not path.is_file() or path.read_text() != text] + leftover
    for path in different:
        print(f"{path.relative_to(HERE)} {'differs: run generate.py' if check else 'written'}")
        if not check:
            if path in files:
                path.write_text(files[path])
            else:
                path.unlink()
    return 1 if check and different else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
