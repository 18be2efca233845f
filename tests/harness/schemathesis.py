"""Schemathesis from PyPI, which generates requests from the OpenAPI document and checks the answers."""

import json
import subprocess
from dataclasses import dataclass, field

from harness.environment import environment
from harness.workspace import Workspace

PACKAGES = ("schemathesis==4.32.5",)
# Streams do not end.
LEFT_OUT = ("watch_events",)
REQUEST_LIMIT_S = 30.0
# In addition to the time for requests.
END_LIMIT_S = 120.0


@dataclass(frozen=True)
class Judge:
    """`known` are existing names by parameter; requests with other names are made too."""

    workspace: Workspace
    url: str
    token: str
    known: dict[str, str]
    # Required parameters by operation: other values would cause damage or take too long.
    fixed: dict[str, dict[str, str]] = field(default_factory=dict)
    # Operations whose body may match the schema and still be invalid.
    more_than_a_schema: tuple[str, ...] = ()

    def try_out(self, seconds: int, seed: int) -> subprocess.CompletedProcess[str]:
        programs = environment("schemathesis", *PACKAGES)
        config = self.workspace.root / "schemathesis.toml"
        config.write_text(self._config())
        words = ["--max-time", str(seconds), "--seed", str(seed), "--request-timeout", str(REQUEST_LIMIT_S)]
        left_out = [word for name in LEFT_OUT for word in ("--exclude-operation-id", name)]
        argv = [str(programs / "st"), "--config-file", str(config), "run", f"{self.url}/api/v1/openapi.json"]
        return subprocess.run(
            # Two concurrent workers make Schemathesis fail with Python 3.11.
            [*argv, *words, *left_out, "--workers", "1", "--continue-on-failure", "--no-color"],
            env=self.workspace.env(),
            cwd=self.workspace.root,
            capture_output=True,
            text=True,
            timeout=seconds + END_LIMIT_S,
            check=False,
        )

    def _config(self) -> str:
        # JSON strings are valid TOML strings.
        lines = [f"headers = {{Authorization = {json.dumps(f'Bearer {self.token}')}}}"]
        lines += ["[dictionaries]"]
        lines += [f"{name} = {{values = [{json.dumps(value)}]}}" for name, value in self.known.items()]
        lines += ["[parameters]"]
        lines += [f'"path.{name}" = {{dictionary = "{name}", probability = 0.8}}' for name in self.known]
        for operation in sorted({*self.fixed, *self.more_than_a_schema}):
            lines += ["[[operations]]", f'include-operation-id = "{operation}"']
            if fixed := self.fixed.get(operation):
                values = ", ".join(f'"{name}" = {json.dumps(value)}' for name, value in fixed.items())
                lines += [f"parameters = {{{values}}}"]
                # A created object need not match the request.
                lines += ["checks.ensure_resource_availability.enabled = false"]
            if operation in self.more_than_a_schema:
                # 400: Schemathesis considers an If-Match valid that does not match its pattern.
                statuses = json.dumps(["2xx", "400", "401", "403", "404", "409", "412", "422"])
                lines += [f"checks.positive_data_acceptance.expected-statuses = {statuses}"]
        return "\n".join(lines) + "\n"
