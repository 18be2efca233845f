"""An independent judge of the API: PyPI's Schemathesis makes requests from the OpenAPI document and checks the answers."""

import json
import subprocess
from dataclasses import dataclass, field

from harness.environment import environment
from harness.workspace import Workspace

PACKAGES = ("schemathesis==4.32.5",)
# Streams do not end by themselves.
LEFT_OUT = ("watch_events",)
REQUEST_LIMIT_S = 30.0
# Beyond the time that the judge was given for making requests.
END_LIMIT_S = 120.0


@dataclass(frozen=True)
class Judge:
    """`known` are names of things that exist, by the parameter that takes them; requests about others are made too."""

    workspace: Workspace
    url: str
    token: str
    known: dict[str, str]
    # By operation: parameters that must be these, since anything else would do harm, or take too long.
    fixed: dict[str, dict[str, str]] = field(default_factory=dict)
    # Operations whose body can be right by its schema and wrong all the same.
    more_than_a_schema: tuple[str, ...] = ()

    def try_out(self, seconds: int, seed: int) -> subprocess.CompletedProcess[str]:
        programs = environment("schemathesis", *PACKAGES)
        config = self.workspace.root / "schemathesis.toml"
        config.write_text(self._config())
        words = ["--max-time", str(seconds), "--seed", str(seed), "--request-timeout", str(REQUEST_LIMIT_S)]
        left_out = [word for name in LEFT_OUT for word in ("--exclude-operation-id", name)]
        argv = [str(programs / "st"), "--config-file", str(config), "run", f"{self.url}/api/v1/openapi.json"]
        return subprocess.run(
            # Two workers at once make the Python 3.11 that some have fail in itself.
            [*argv, *words, *left_out, "--workers", "1", "--continue-on-failure", "--no-color"],
            env=self.workspace.env(),
            cwd=self.workspace.root,
            capture_output=True,
            text=True,
            timeout=seconds + END_LIMIT_S,
            check=False,
        )

    def _config(self) -> str:
        # Strings of JSON are strings of TOML.
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
                # What was just created is not what is asked for.
                lines += ["checks.ensure_resource_availability.enabled = false"]
            if operation in self.more_than_a_schema:
                # 400: it takes an If-Match that does not match its pattern for a good one.
                statuses = json.dumps(["2xx", "400", "401", "403", "404", "409", "412", "422"])
                lines += [f"checks.positive_data_acceptance.expected-statuses = {statuses}"]
        return "\n".join(lines) + "\n"
