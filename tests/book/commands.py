"""Commands in the ```sh blocks of a page, and which of them need something that a machine alone does not have."""

import re
import shlex
from dataclasses import dataclass
from pathlib import Path

BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)

# Not run, with the reason. A command is listed as it is printed, without its comment. That its words exist is checked all the same.
ELSEWHERE = {
    # They build the program, or everything.
    "make demo": "builds a release",
    "make test": "is the suite that this is part of",
    "make release": "builds a release",
    "pip install flwr": "needs a package index; the suites provide flwr",
    "pip install tensorboard && tensorboard --logdir runs": "needs a package index; tests/tracking provides tensorboard",
    "trellis run --mlflow http://127.0.0.1:5000 --mlflow-experiment digits": "an MLflow server, as tests/tracking has one",
    # Clouds.
    "trellis image build superlink && trellis image build supernode --framework sklearn": "needs the images of a distribution",
    "trellis plan -f federation.yaml --templates": "the document names OpenNebula clouds",
    # Clusters.
    "trellis operator manifests --image registry.example.org/trellis-operator:0.1.0 | kubectl apply --server-side -f -": "cluster",
    "kubectl wait --for condition=established crd/federations.flwr.exalsius.ai": "cluster",
    "kubectl apply -f my-federation.yaml": "cluster",
    "kubectl get fedf; kubectl get fedrun": "cluster",
    # Flags that are left out: "..." stands for those of the reader.
    "flower-supernode --insecure --superlink 127.0.0.1:9092 ...": "is not complete",
    "flower-supernode --insecure --superlink 127.0.0.1:8000 ...": "is not complete",
    "flower-supernode --superlink link.example.org:9092 --root-certificates ca.crt ...": "is not complete",
    "flwr run my-app my-federation --stream": "the reader's own connection",
    # Names that only the reader's network has.
    "flower-supernode --superlink link.example.org:9092 --root-certificates ca.crt --auth-supernode-private-key node.key": "network",
    "trellis run my-app --superlink link.example.org:8000 --root-certificates ca.crt --token-file my.token": "network",
    "trellis run ./my-app --superlink link.example.org:8000 --root-certificates ca.crt --token-file my.token": "network",
    "trellis supernode --superlink fl.example.org:9092 --root-certificates ca.crt --name ward-7": "network",
    "trellis server --listen 0.0.0.0:7766 --certificate server.pem --key server.key --trust ca.crt --host trellis.example.org": "network",
    "export TRELLIS_SERVER=https://trellis.example.org:7766 TRELLIS_SERVER_TOKEN_FILE=~/.trellis-token": "network",
    "trellis status --server-root-certificates ca.crt": "network",
    "export TRELLIS_SUPERLINK=link.example.org:8000": "network",
    "export TRELLIS_ROOT_CERTIFICATES=ca.crt": "network",
    # A person with a browser.
    "trellis login approve C6B9205A3B": "a login that waits",
}

# How those begin that stay until they are ended, and what they say when they are at work; nothing: they say nothing.
STAYING = {
    "trellis up": "is up:",
    "trellis server": "serving",
    "trellis superlink --": "SuperLink is ready",
    "trellis supernode --": "connected",
    "trellis audit --follow": "",
}

# What stands for something of the reader's, and how it is found.
NEWEST_RUN = "$(trellis runs -o json | python3 -c 'import json, sys; print(json.load(sys.stdin)[\"items\"][0][\"id\"])')"
LAST_MODEL = "$(trellis model ls --models ~/.local/state/trellis/superlink/models -o json | " \
    "python3 -c 'import json, sys; print(json.load(sys.stdin)[\"checkpoints\"][-1][\"run_id\"])')"
TOKEN_OF = "$(trellis token ls -o json | python3 -c 'import json, sys; print(next(t[\"id\"] for t in " \
    "json.load(sys.stdin)[\"tokens\"] if t[\"label\"] == \"{}\"))')"
SERVER_TOKEN = "$(trellis token server ls -o json | python3 -c 'import json, sys; print(json.load(sys.stdin)[\"items\"][-1][\"id\"])')"
STANDING_FOR = {
    "trellis stop RUN": {"RUN": NEWEST_RUN},
    "trellis token revoke 1a9da2ed && rm ~/.local/state/trellis/superlink/admin.token": {"1a9da2ed": TOKEN_OF.format("admin-token-file")},
    "trellis token revoke 3904d08a": {"3904d08a": TOKEN_OF.format("nightly")},
    "trellis token server revoke 3fa94c07": {"3fa94c07": SERVER_TOKEN},
    "trellis run --superlink 127.0.0.1:8000 --rounds 20 --seed 7 --resume 8302175904427817733": {"8302175904427817733": LAST_MODEL},
}

# Directories of an administrator, which the reader of this test is not.
OWN_PLACES = {"/var/lib/trellis-ca": "$HOME/trellis-ca", "/etc/trellis/tls": "$HOME/trellis-tls"}


@dataclass(frozen=True)
class Command:
    page: str
    # As it is printed, in one line, without its comment.
    text: str

    @property
    def runs(self) -> bool:
        return self.text not in ELSEWHERE

    def calls(self) -> list[list[str]]:
        """The words of each call of ours in it."""
        lexer = shlex.shlex(self.text, posix=True, punctuation_chars=True)
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
            if self.text == begin or self.text.startswith(begin) and begin.endswith(("--", "follow")):
                return f"staying {shlex.quote(word)} {shlex.quote(text)}"
        return f"echo {shlex.quote('$ ' + self.text)}\n{text}"


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


def commands(page: Path) -> list[Command]:
    found = []
    for block in blocks(page, "sh"):
        whole = re.sub(r"\s*\\\n\s*", " ", block)
        lines = (uncommented(line) for line in whole.splitlines())
        found.extend(Command(page.name, line) for line in lines if line)
    return found
