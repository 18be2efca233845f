"""A VM of a zone without a hypervisor: an appliance in its own network and file system, started by `fake-one`. It joins
the zone's LAN with the address that the cloud assigned, and ends with its process group.
"""

import os
import subprocess
import sys
import time
from pathlib import Path

MADE_LIMIT_S = 10.0


def main() -> None:
    directory = Path(os.environ["FAKE_ONE_VM_DIR"])
    number, address = (directory / "id").read_text().strip(), (directory / "ip").read_text().strip()
    machine = subprocess.Popen(["unshare", "--net", "--mount", "sleep", "infinity"])
    inside = ["nsenter", f"--target={machine.pid}", "--net", "--mount", "--"]
    wait_until_apart(machine.pid)
    wire = f"vm{number}"
    run("ip", "link", "add", wire, "type", "veth", "peer", "name", "eth0", "netns", str(machine.pid))
    run("ip", "link", "set", wire, "master", os.environ["ZONE_LAN"], "up")
    run(*inside, "ip", "link", "set", "lo", "up")
    run(*inside, "ip", "address", "add", f"{address}/24", "dev", "eth0")
    run(*inside, "ip", "link", "set", "eth0", "up")
    run(*inside, "ip", "route", "add", "default", "via", os.environ["ZONE_GATEWAY"])
    # Interface names are machine-wide without a network namespace, and would collide with those of other VMs.
    run(*inside, "mount", "-t", "tmpfs", "none", "/run")
    root = directory / "root"
    root.mkdir(exist_ok=True)
    appliance = [os.environ["ZONE_TRELLIS"], "appliance", "run", "--root", str(root), "--supervisor", "direct"]
    os.execvp("nsenter", [*inside, *appliance, "--context", str(directory / "one_env")])


def wait_until_apart(pid: int) -> None:
    own, end = os.readlink("/proc/self/ns/net"), time.monotonic() + MADE_LIMIT_S
    while os.readlink(f"/proc/{pid}/ns/net") == own:
        if time.monotonic() > end:
            sys.exit("no network namespace was made")
        time.sleep(0.01)


def run(*argv: str) -> None:
    subprocess.run(argv, check=True)


if __name__ == "__main__":
    main()
