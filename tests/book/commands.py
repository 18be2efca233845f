"""Commands in the ```sh blocks of a page, and which of them need something that a machine alone does not have."""

import re
import shlex
from dataclasses import dataclass
from pathlib import Path

from harness.workspace import REPOSITORY

BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
HERE_DOCUMENT = re.compile(r"<<'?(\w+)'?$")
DOCS = REPOSITORY / "docs"

# Pages whose commands are run elsewhere, or need more than a machine. That their words exist is checked all the same.
PAGES_ELSEWHERE = {
    "kubernetes.md": "a cluster: crates/trellis/tests/packaging/quick_start.rs pastes the page into a shell beside a real API server",
    "kubernetes/security.md": "a cluster, and a machine outside of it: tests/kube runs the same with pods and machines",
    "kubernetes/install.md": "a cluster and a registry: crates/trellis/tests/packaging does the same on a real API server",
    "kubernetes/platform.md": "a cluster: tests/kube",
    "kubernetes/runs.md": "a cluster: tests/kube",
    "kubernetes/scaling.md": "a cluster: tests/kube",
    "start/kubernetes.md": "a cluster: the commands are those of kubernetes.md",
    "opennebula.md": "a cloud, and the packages of a distribution: tests/vm builds the images, tests/zones runs the documents",
    "start/opennebula.md": "a cloud: the commands are those of opennebula.md",
    "gpu.md": "a machine with a GPU; without one the checks rightly fail. crates/control/doctor tests them",
    "monitoring.md": "a checkout, an editor and Prometheus: tests/monitoring runs the files with Debian's",
    "install.md": "root, and the files of a release: tests/dist installs all of them in clean systems",
    "start/contributor.md": "a checkout and a toolchain: continuous integration runs make test",
}

# Not run, with the reason. A command is listed as it is printed, without its comment.
ELSEWHERE = {
    "make demo": "builds the program",
    "make wheel": "builds a release; the test builds the wheel from the program under test",
    "pip install tensorboard && tensorboard --logdir runs": "needs a package index; tests/tracking provides tensorboard",
    "trellis run --mlflow http://127.0.0.1:5000 --mlflow-experiment digits": "an MLflow server, as tests/tracking has one",
    # Flags that are left out: "..." stands for those of the reader.
    "flower-supernode --insecure --superlink 127.0.0.1:9092 ...": "is not complete",
    "flower-supernode --insecure --superlink 127.0.0.1:8000 ...": "is not complete",
    "flower-supernode --superlink link.example.org:9092 --root-certificates ca.crt ...": "is not complete",
    "flwr run my-app my-federation --stream": "the reader's own connection",
    # Directories and names that only the reader has.
    "trellis supernode --insecure --app-data /data/images --app-data /data/cache:rw --app-env HF_HOME --app-network none": "data",
    "flower-supernode --superlink link.example.org:9092 --root-certificates ca.crt --auth-supernode-private-key node.key": "network",
    "trellis run ./my-app --superlink link.example.org:8000 --root-certificates ca.crt --token-file my.token": "network",
    "trellis supernode --superlink fl.example.org:9092 --root-certificates ca.crt --name ward-7": "network",
    "trellis supernode --superlink link.example.org:9092 --root-certificates ca.crt --auth-supernode-private-key node.key "
    "--node-config 'partition-id=0 num-partitions=10'": "network",
    "trellis node join --superlink fl.example.org:8000 --root-certificates ca.crt --key node.key --token-file ward-7.join "
    "--name ward-7": "network: the tutorial joins a node",
    "trellis supernode --superlink fl.example.org:9092 --root-certificates ca.crt --auth-supernode-private-key node.key "
    "--name ward-7 --app-data /srv/images --node-config 'data-dir=\"/srv/images\"'": "network: the tutorial starts such a node",
    "trellis server --listen 0.0.0.0:7766 --certificate server.pem --key server.key --trust ca.crt --host trellis.example.org": "network",
    "export TRELLIS_SERVER=https://trellis.example.org:7766 TRELLIS_SERVER_TOKEN_FILE=~/.trellis-token": "network",
    "trellis status --server-root-certificates ca.crt": "network",
    "export TRELLIS_SUPERLINK=link.example.org:8000": "network",
    "export TRELLIS_ROOT_CERTIFICATES=ca.crt": "network",
    # A person with a browser, and an identity provider.
    "trellis server --url https://trellis.example.org --oidc-issuer https://login.example.org --oidc-client-id trellis --oidc-client-secret-file client.secret --oidc-role researchers=runner --oidc-role platform=admin": "tests/sso has a provider",
    "trellis login --oidc --server https://trellis.example.org": "tests/sso has a provider",
    "trellis status --server https://trellis.example.org": "needs the login before it",
    "trellis login end --server https://trellis.example.org": "needs the login before it",
    "trellis login approve C6B9205A3B --server https://trellis.example.org --federation lab": "a login that waits",
    "curl -s -H 'Content-Type: application/json' -d \"{\\\"id_token\\\": \\\"$ID_TOKEN\\\"}\" https://trellis.example.org/api/v1/sign-on/token": "tests/sso has a provider",
    "trellis login approve C6B9205A3B": "a login that waits",
}

# How those begin that stay until they are ended, and what they say when they are at work; nothing: they say nothing.
STAYING = {
    "trellis up": "is up:",
    "trellis server": "serving",
    "trellis superlink --insecure": "SuperLink is ready",
    "trellis superlink --ssl": "SuperLink is ready",
    "trellis supernode --insecure": "connected",
    "trellis supernode --superlink": "connected",
    "trellis audit --follow": "",
}

# What stands for something of the reader's, and how it is found.
NEWEST_RUN = "$(trellis runs -o json | python3 -c 'import json, sys; print(json.load(sys.stdin)[\"items\"][0][\"id\"])')"
LAST_MODEL = "$(trellis model ls -o json | python3 -c 'import json, sys; print(json.load(sys.stdin)[\"checkpoints\"][-1][\"run_id\"])')"
LAST_SAVED = "$(trellis model ls -o json | python3 -c 'import json, sys; print(json.load(sys.stdin)[\"saved\"][-1][\"path\"])')"
TOKEN_OF = "$(trellis token ls -o json | python3 -c 'import json, sys; print(next(t[\"id\"] for t in " \
    "json.load(sys.stdin)[\"tokens\"] if t[\"label\"] == \"{}\"))')"
SERVER_TOKEN = "$(trellis token server ls -o json | python3 -c 'import json, sys; print(json.load(sys.stdin)[\"items\"][-1][\"id\"])')"
STANDING_FOR = {
    "trellis stop RUN": {"RUN": NEWEST_RUN},
    "cp SAVED .": {"SAVED": LAST_SAVED},
    "trellis model export RUN --out digits.safetensors": {"RUN": LAST_MODEL},
    "trellis model export RUN --out model.safetensors --force": {"RUN": LAST_MODEL},
    "trellis run ./my-app --federation lab --native-server --rounds 10 --resume RUN": {"RUN": LAST_MODEL},
    "trellis model show RUN": {"RUN": LAST_MODEL},
    "trellis model export RUN --out digits.npz": {"RUN": LAST_MODEL},
    "trellis model rm RUN@1": {"RUN": LAST_MODEL},
    "trellis token revoke 1a9da2ed && rm ~/.local/state/trellis/superlink/admin.token": {"1a9da2ed": TOKEN_OF.format("admin-token-file")},
    "trellis token revoke 3904d08a": {"3904d08a": TOKEN_OF.format("nightly")},
    "trellis token server revoke 3fa94c07": {"3fa94c07": SERVER_TOKEN},
    "trellis run --superlink 127.0.0.1:8000 --rounds 20 --seed 7 --resume 8302175904427817733": {"8302175904427817733": LAST_MODEL},
}

# Directories of an administrator, which the reader of this test is not.
OWN_PLACES = {"/var/lib/trellis-ca": "$HOME/trellis-ca", "/etc/trellis/tls": "$HOME/trellis-tls"}


@dataclass(frozen=True)
class Command:
    # As in the table of contents.
    page: str
    # As it is printed, without its comment; continued lines are joined, and a here-document is part of its command.
    text: str

    @property
    def runs(self) -> bool:
        return self.page not in PAGES_ELSEWHERE and self.text not in ELSEWHERE

    def calls(self) -> list[list[str]]:
        """The words of each call of ours in it."""
        lexer = shlex.shlex(self.text.partition("\n")[0], posix=True, punctuation_chars=True)
        lexer.whitespace_split = True
        calls: list[list[str]] = [[]]
        for word in lexer:
            if set(word) <= set("|&;<>()"):
                calls.append([])
            else:
                calls[-1].append(word)
        return [call[1:] for call in calls if call and call[0] == "trellis"]

    def script(self) -> str:
        """For bash, where an error ends everything."""
        text = self.text
        for standing, found in STANDING_FOR.get(self.text, {}).items():
            text = text.replace(standing, found)
        for place, own in OWN_PLACES.items():
            text = text.replace(place, own)
        for begin, word in STAYING.items():
            if self.text == begin or self.text.startswith(begin) and "--" in begin:
                return f"staying {shlex.quote(word)} {shlex.quote(text)}"
        return f"echo {shlex.quote('$ ' + self.text.partition(chr(10))[0])}\n{text}"


def uncommented(line: str) -> str:
    """Without the comment at its end; a # within a word is none."""
    quote = ""
    for at, char in enumerate(line):
        if quote:
            quote = "" if char == quote else quote
        elif char in "'\"":
            quote = char
        elif char == "#" and (at == 0 or line[at - 1].isspace()):
            return line[:at].rstrip()
    return line.rstrip()


def blocks(page: Path, language: str) -> list[str]:
    return [text for word, text in BLOCK.findall(page.read_text()) if word == language]


def name(page: Path) -> str:
    """As in the table of contents."""
    return str(page.relative_to(DOCS)) if page.is_relative_to(DOCS) else page.name


def commands(page: Path) -> list[Command]:
    found = []
    for block in blocks(page, "sh"):
        lines = iter(re.sub(r"\s*\\\n\s*", " ", block).splitlines())
        for line in lines:
            text = uncommented(line)
            if begin := HERE_DOCUMENT.search(text):
                for more in lines:
                    text += f"\n{more}"
                    if more == begin[1]:
                        break
            if text:
                found.append(Command(name(page), text))
    return found
