"""The crates keep the architecture: layers, walls around dependencies, size of files, dependencies that are used."""

import json
import re
import subprocess
from pathlib import Path

import pytest
from harness.workspace import REPOSITORY

CRATES = REPOSITORY / "crates"
MAX_CODE_LINES = 600
MAX_FUNCTION_LINES = 70
FUNCTION = re.compile(r"( *)(?:pub(?:\([^)]*\))? )?(?:const |async |unsafe )*fn (\w+)")
# Beside the product: no crate of the product depends on them, except in its tests.
BESIDE = {"bench", "fake-kubelet", "fake-one", "testing"}
# Which crates may use a dependency. Other crates go through these.
WALLS = {
    "axum": {"operator", "server"},
    "landlock": {"sandbox"},
    "quick-xml": {"fake-one", "one"},
    "ratatui": {"top"},
    "rcgen": {"pki", "testing"},
    "rusqlite": {"node", "registry", "store-sqlite"},
    "seccompiler": {"sandbox"},
    "tracing-subscriber": {"fake-kubelet", "fake-one", "logging"},
    "yaml-rust2": {"spec"},
}
# Crates of ours that know each other by a port or a contract only, although the layers would allow more.
APART = {"link": {"client", "store-memory", "store-sqlite"}}
# Decision code: time, randomness and IO arrive as arguments.
PURE = {"core", "kube", "native", "oidc", "plan", "spec", "strategy", "tunnel", "wire"}
IMPURE = {"hyper", "rustix", "tempfile", "tokio", "tracing"}
# tonic-prost: for generated code; k8s-openapi: selects the version of Kubernetes for kube.
USED_UNNAMED = {("wire", "tonic-prost"), ("driver-kube", "k8s-openapi")}
# What one crate defines for all: a copy elsewhere is refused. Patterns of Rust sources, and where they may be.
ONCE = {
    r"fn (hex|unhex|sha256|sha256_hex|fnv1a)\(": {"digest"},
    r'format!\("\{\w*:02x\}"': {"digest"},
    # appliance: a jitter; store-sqlite: nanoseconds, in names of files.
    r"SystemTime::now\(\)\.duration_since": {"appliance", "clock", "store-sqlite"},
    # Exports, images, trees of certificates and models, and one secret that is written where it was prepared.
    r"\.sync_all\(\)": {"catalogue", "files", "image", "models", "pki", "store-sqlite", "trellis"},
}
# The name in sources where it is not that of the package.
LIBRARY_NAMES = {"rustls-webpki": "webpki"}
# Files of crates/control/spec that may name a kind of site: the kinds themselves, what is exported, and the reader of documents that
# are always about Kubernetes. Beside them only the driver of a kind names it.
KINDS = re.compile(r"control/spec/src/(site_kind(/.*)?|lib|operator)\.rs")
pytestmark = pytest.mark.quick


@pytest.fixture(scope="module")
def packages():
    command = ["cargo", "metadata", "--format-version", "1", "--no-deps", "--offline"]
    output = subprocess.run(command, cwd=REPOSITORY, check=True, capture_output=True, text=True).stdout
    return {short(package["name"]): package for package in json.loads(output)["packages"]}


def short(name):
    return name.removeprefix("trellis-")


def directory(package):
    return Path(package["manifest_path"]).parent


def uses(package, ours):
    """The dependencies of a package outside its tests: crates of the workspace, or all others."""
    names = [wanted["name"] for wanted in package["dependencies"] if wanted["kind"] is None]
    return {short(name) for name in names if name.startswith("trellis-") == ours}


def layers():
    """From top to bottom, as ARCHITECTURE.md writes them: `a -> {b, c} -> d`."""
    text = (REPOSITORY / "ARCHITECTURE.md").read_text()
    chain = re.search(r"Imports go down only: `([^`]*)`", text).group(1)
    return [set(re.findall(r"[a-z-]+[a-z]", layer)) for layer in chain.split(" -> ")]


def test_imports_go_down_only(packages):
    level = {crate: number for number, layer in enumerate(layers()) for crate in layer}
    assert set(level) == set(packages) - BESIDE, "ARCHITECTURE.md names each crate of the product in one layer"
    for name in level:
        for used in uses(packages[name], ours=True):
            assert used not in BESIDE, f"{name} is part of the product and depends on {used}, which is for tests"
            assert level[used] > level[name], f"{name} depends on {used}, which is not in a lower layer"
            assert used not in APART.get(name, ()), f"{name} depends on {used}; go through a port in core or a type in wire"


def test_dependencies_stay_behind_their_walls(packages):
    for name, package in packages.items():
        others = uses(package, ours=False)
        for dependency in others & set(WALLS):
            assert name in WALLS[dependency], f"{name} depends on {dependency}; go through {WALLS[dependency]}"
        if name in PURE:
            assert not others & IMPURE, f"{name} is decision code and depends on {others & IMPURE}"


def test_dependencies_are_used(packages):
    unused = []
    for name, package in packages.items():
        places = {None: ["src"], "dev": ["src", "tests", "examples", "benches"], "build": ["build.rs"]}
        for wanted in package["dependencies"]:
            sources = "\n".join(rust_text(directory(package) / place) for place in places[wanted["kind"]])
            crate = (wanted["rename"] or LIBRARY_NAMES.get(wanted["name"], wanted["name"])).replace("-", "_")
            if (name, wanted["name"]) not in USED_UNNAMED and not re.search(rf"\b{crate}\b", sources):
                unused.append(f"{name}: {wanted['name']} ({wanted['kind'] or 'normal'})")
    assert not unused, f"dependencies that no source names: {unused}"


def rust_text(path):
    files = [path] if path.is_file() else sorted(path.rglob("*.rs"))
    return "\n".join(file.read_text() for file in files)


def test_every_crate_is_on_the_map(packages):
    text = (REPOSITORY / "ARCHITECTURE.md").read_text()
    for name, package in packages.items():
        place = directory(package).relative_to(REPOSITORY)
        assert re.search(rf"^{place} ", text, re.MULTILINE), f"the map in ARCHITECTURE.md has no line for {place}"
        assert package["description"], f"{place}/Cargo.toml has no description"


@pytest.mark.parametrize("pattern", ONCE)
def test_shared_small_things_are_defined_once(packages, pattern):
    for name in set(packages) - ONCE[pattern]:
        for path in sorted((directory(packages[name]) / "src").rglob("*.rs")):
            found = re.search(pattern, path.read_text())
            assert not found, f"{path.relative_to(REPOSITORY)} has {found.group(0)!r}; it belongs to one of {ONCE[pattern]}"


def test_decision_code_does_not_read_the_clock_or_files(packages):
    for name in PURE:
        assert not uses(packages[name], ours=True) & {"clock", "files"}, f"{name} is decision code"


def test_files_are_small():
    for path in sorted(CRATES.rglob("*.rs")):
        code = code_lines(path.read_text().splitlines())
        assert code <= MAX_CODE_LINES, f"{path.relative_to(REPOSITORY)} has {code} lines of code: split it by a noun"


def test_only_its_driver_names_a_kind_of_site():
    sources = {path.relative_to(CRATES).as_posix(): path.read_text() for path in sorted(CRATES.glob("**/src/**/*.rs"))}
    kinds = {kind for text in sources.values() for kind in re.findall(r"impl SiteFields for (\w+)", text)}
    assert kinds >= {"LocalSite", "OneSite", "KubeSite"}
    for kind in kinds:
        named = {path for path, text in sources.items() if re.search(rf"\b{kind}\b", text)}
        crates = {path.split("/src/")[0].split("/")[-1] for path in named if not KINDS.fullmatch(path)}
        assert len(crates) <= 1 and all(crate.startswith("driver-") for crate in crates), (
            f"{kind} is named in {crates}: what is different for a kind of site belongs behind plan::DriverKind"
        )
    for path, text in sources.items():
        assert not re.search(r"\.kind\(\) *[!=]= *\"", text), f"{path} compares the kind of a site with a word"


def code_lines(lines):
    return sum(1 for line in lines if line.strip() and not line.strip().startswith("//"))


def functions(lines):
    """Name and lines of each function, in a file as rustfmt leaves it."""
    for number, line in enumerate(lines):
        if not (match := FUNCTION.match(line)):
            continue
        indent, name = match.groups()
        for length, following in enumerate(lines[number:], start=1):
            # A trait's function without a body ends with its semicolon.
            if following == f"{indent}}}" or (following.startswith(f"{indent}") and following.endswith((";", "{}")) and
                                              following[len(indent):len(indent) + 1] not in ("", " ")):
                yield name, lines[number : number + length]
                break


def production_files():
    for path in sorted(CRATES.glob("**/src/**/*.rs")):
        is_test = "tests" in path.parts or path.name in ("tests.rs", "testing.rs") or path.name.endswith("_tests.rs")
        if not is_test:
            yield path, path.read_text().split("#[cfg(test)]\nmod tests {")[0].splitlines()


def test_functions_fit_a_screen():
    names = set()
    for path, lines in production_files():
        for name, body in functions(lines):
            names.add(name)
            length = code_lines(body)
            assert length <= MAX_FUNCTION_LINES, f"{path.relative_to(REPOSITORY)}: {name} has {length} lines: split it"
    assert len(names) > 1000, "functions are no longer found"
