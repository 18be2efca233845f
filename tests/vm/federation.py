"""A federation in virtual machines, deployed as OpenNebula's users do it: two VM templates and a service of OneFlow."""

import base64
import json
import time
from pathlib import Path

from harness.process import Process
from harness.workspace import trellis_binary
from vm.cloud import Cloud

NODES = 2
# Three emulated machines on two processors.
READY_LIMIT_S = 1200.0
RUN_LIMIT_S = 1200.0
TOKEN = "an-admin-token-that-only-this-test-knows-0123456789"


class Machines:
    """The machines, and runs on them."""

    def __init__(self, cloud: Cloud):
        self.cloud = cloud
        self.workspace = cloud.workspace
        self.began = time.monotonic()
        self.evidence = self.workspace.root / "evidence.txt"

    def deploy(self) -> None:
        template = {role: self._template(role) for role in ("superlink", "supernode")}
        roles = [
            {"name": "superlink", "type": "vm", "cardinality": 1, "template_id": template["superlink"]},
            {"name": "supernode", "type": "vm", "cardinality": NODES, "template_id": template["supernode"]},
        ]
        roles[1]["parents"] = ["superlink"]
        service = {"name": "federation", "deployment": "straight", "ready_status_gate": True, "roles": roles}
        made = self.cloud.flow("/service_template", service)
        self.note("service template registered")
        self.cloud.flow(f"/service_template/{made['ID']}/action", {"action": {"perform": "instantiate", "params": {}}})
        self.note("service instantiated")
        self.superlink = self.cloud.ready("superlink", 1, READY_LIMIT_S)[0]
        self.note(f"SuperLink ready: {self._told(self.superlink)}")
        for node in self.cloud.ready("supernode", NODES, READY_LIMIT_S):
            self.note(f"SuperNode ready: {self._told(node)}")

    def _template(self, role: str) -> int:
        said = {"NETWORK": "YES", "TOKEN": "YES", "REPORT_READY": "YES"}
        if role == "superlink":
            said |= {"FL_ADMIN_TOKEN": TOKEN}
        else:
            said |= {"FL_CLIENT_APP": "native:mlp"}
        context = ", ".join(f'{name}="{value}"' for name, value in said.items())
        text = f'NAME="{role}"\nCPU="1"\nMEMORY="640"\nNIC=[NETWORK="private"]\nCONTEXT=[{context}]\n'
        return int(self.cloud.call("one.template.allocate", text))

    def start_run(self, rounds: int) -> Process:
        """`trellis run`, from a machine of the same network; its output is JSON lines."""
        attributes = self.cloud.machines("superlink")[0]["attributes"]
        authority, token = self.workspace.root / "ca.crt", self.workspace.root / "token"
        authority.write_bytes(base64.b64decode(attributes["FL_CA_CERT"]))
        token.write_text(TOKEN)
        argv = [str(trellis_binary()), "run", "native:mlp", "-o", "json", "--superlink", attributes["TRELLIS_HTTP"]]
        argv += ["--root-certificates", str(authority), "--token-file", str(token)]
        argv += ["--set", f"num-server-rounds={rounds}", "--set", f"min-available-nodes={NODES}"]
        argv += ["--set", f"min-train-nodes={NODES}"]
        name = f"run-{len(self.workspace.processes)}"
        self.note(f"run with {rounds} rounds begins")
        return self.workspace.start(name, self.cloud.namespace.command(argv), self.workspace.env())

    def finish(self, run: Process) -> list[dict]:
        """What it told, when it has ended well."""
        code = run.wait_exit(RUN_LIMIT_S)
        assert code == 0, f"it exited with {code}\n{run.output()}\n{self.consoles()}"
        told = [json.loads(line) for line in run.output().splitlines() if line.startswith("{")]
        self.note(f"run ended: {json.dumps(told[-1])}")
        return told

    def consoles(self, lines: int = 40) -> str:
        """The ends of what the machines show."""
        found = []
        for place in sorted(self.cloud.directory.glob("*/console")):
            kept: list[str] = place.read_text(errors="replace").splitlines()[-lines:]
            found.append("\n".join([f"--- {place.parent.name}", *kept]))
        return "\n".join(found)

    def note(self, text: str) -> None:
        """For the record of what was seen, with the seconds since the beginning."""
        with self.evidence.open("a") as evidence:
            evidence.write(f"{time.monotonic() - self.began:7.1f} s  {text}\n")

    @staticmethod
    def _told(machine: dict) -> str:
        names = ("FL_ENDPOINT", "FL_TLS", "FL_VERSION", "FL_NODE_ID", "FL_NODE_READY", "READY")
        told = {name: machine["attributes"][name] for name in names if name in machine["attributes"]}
        return f"VM {machine['id']} at {machine['ip']}: {json.dumps(told)}"

    def keep_evidence(self, place: Path) -> None:
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(self.evidence.read_text())
