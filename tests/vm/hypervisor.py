#!/usr/bin/env python3
"""One virtual machine, as the fake cloud orders it: `hypervisor.py IMAGES BRIDGE`, with its directory in FAKE_ONE_VM_DIR.

Makes the disc with the context, a card on the bridge and a layer above the image of the VM's role, and becomes QEMU. The
layer stays when the machine is started again: that is a reboot, and not another machine.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

MEMORY_MIB = 640


def main(images: Path, bridge: str) -> None:
    place = Path(os.environ["FAKE_ONE_VM_DIR"])
    number = int((place / "id").read_text())
    context = (place / "context.sh").read_text(errors="replace")
    role = "superlink" if "superlink" in (place / "name").read_text() else "supernode"

    layer, disc, card = place / "layer.qcow2", place / "context.iso", f"tap{number}"
    if not layer.exists():
        image = images / f"trellis-{role}.qcow2"
        run("qemu-img", "create", "-q", "-f", "qcow2", "-F", "qcow2", "-b", str(image), str(layer))
    given = [str(place / name) for name in ("context.sh", "token.txt") if (place / name).exists()]
    run(os.environ["TRELLIS_BIN"], "image", "disc", "--output", str(disc), *given)
    subprocess.run(["ip", "link", "delete", card], capture_output=True, check=False)
    run("ip", "tuntap", "add", card, "mode", "tap")
    run("ip", "link", "set", card, "master", bridge, "up")

    found = re.search(r"^ETH0_MAC='([0-9a-fA-F:]+)'", context, re.MULTILINE)
    mac = found.group(1) if found else f"02:00:0a:4d:00:{number:02x}"
    os.execvp(
        "qemu-system-x86_64",
        [
            "qemu-system-x86_64",
            *("-name", f"vm{number}", "-machine", "pc,accel=tcg", "-cpu", "max", "-smp", "1", "-m", str(MEMORY_MIB)),
            *("-drive", f"if=virtio,format=qcow2,file={layer}"),
            *("-drive", f"if=ide,media=cdrom,format=raw,readonly=on,file={disc}"),
            *("-netdev", f"tap,id=net,ifname={card},script=no,downscript=no"),
            *("-device", f"virtio-net-pci,netdev=net,mac={mac},romfile="),
            *("-device", "virtio-rng-pci", "-display", "none", "-monitor", "none"),
            *("-serial", f"file:{place / 'console'}"),
            *("-qmp", f"unix:{place / 'qmp'},server=on,wait=off"),
        ],
    )


def run(*argv: str) -> None:
    subprocess.run(argv, check=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
