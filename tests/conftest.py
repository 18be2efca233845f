"""Options, fixtures and failure reports shared by all suites."""

import contextlib
import os
import random
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from harness.expected import official_digest
from harness.federation import APPS, Federation, Shape
from harness.process import tail
from harness.release import DEFAULT
from harness.small_disk import small_disk
from harness.superlink import OFFICIAL, TRELLIS
from harness.workspace import Workspace, trellis_binary
from provision import CannotBeHad, cache_dir, releases

REPORTED_LINES = 40
# Importing torch from a cold disk takes long.
TORCH_LIMIT_S = 300.0
# The defaults in numpy_fedavg's pyproject.toml.
SEED, ARRAY_COUNT, ARRAY_LENGTH = 7, 4, 1024


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("trellis")
    kind = os.environ.get("TRELLIS_SUPERLINK", TRELLIS)
    group.addoption("--superlink", choices=(TRELLIS, OFFICIAL), default=kind, help="the SuperLink under test")
    group.addoption("--official", choices=list(releases()), default=DEFAULT, help="release of the official SuperLink")
    group.addoption("--recompute", action="store_true", help="measure the official SuperLink's weights anew")
    group.addoption("--matrix", help="file for the record of the interop matrix")
    group.addoption("--every-release", action="store_true", help="try also the releases between the usual ones")
    group.addoption("--kills", type=int, default=50, help="random kill -9 of the SuperLink per fleet (crash suite)")
    group.addoption("--curves", help="file for the accuracies that the test with lying clients saw")
    group.addoption("--seed", type=int, default=None, help="seed of the random kills; printed by every run")


def pytest_configure(config: pytest.Config) -> None:
    # Like Ctrl-C: processes, mounts and files of tests are removed.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    if config.getoption("--seed") is None:
        config.option.seed = random.SystemRandom().randrange(2**32)
    kind = config.getoption("--superlink")
    if kind == TRELLIS and not config.option.collectonly and not trellis_binary().exists():
        raise pytest.UsageError(f"{trellis_binary()} does not exist: build it (make release) or set TRELLIS_BIN")


def pytest_report_header(config: pytest.Config) -> str:
    kind = config.getoption("--superlink")
    return f"superlink: {trellis_binary() if kind == TRELLIS else kind}; seed of random kills: {config.option.seed}"


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.getoption("--superlink") == TRELLIS:
        return
    skip = pytest.mark.skip(reason="asks for more than the official SuperLink gives")
    for item in items:
        if item.get_closest_marker("trellis_only"):
            item.add_marker(skip)


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[None]:
    """Adds the end of every log of a failed test to its report."""
    outcome = yield
    report = outcome.get_result()
    if not report.failed:
        return
    values = getattr(item, "funcargs", {}).values()
    places = {value.logs for value in values if isinstance(value, Workspace)}
    places |= {value.workspace.logs for value in values if isinstance(value, Federation)}
    for log in sorted(log for place in places for log in place.glob("*.log")):
        report.sections.append((f"{log}", tail(log, REPORTED_LINES)))


@pytest.fixture(scope="session")
def kind(pytestconfig: pytest.Config) -> str:
    """The kind of SuperLink under test."""
    return pytestconfig.getoption("--superlink")


@pytest.fixture
def workspace(tmp_path: Path) -> Iterator[Workspace]:
    made = Workspace(tmp_path)
    yield made
    made.close()


@pytest.fixture
def small_disk_at(workspace: Workspace) -> Iterator[Callable[..., Path]]:
    """Mounts a small file system, optionally of a given size, at a new state directory."""
    with contextlib.ExitStack() as mounted:

        def mount(name: str, *size_bytes: int) -> Path:
            try:
                return mounted.enter_context(small_disk(workspace.states / name, *size_bytes))
            except CannotBeHad as why:
                pytest.skip(str(why))

        yield mount


@pytest.fixture
def federation(workspace: Workspace, pytestconfig: pytest.Config) -> Callable[..., Federation]:
    """Creates the federation for a test; start it with `.start()`."""

    def make(**wanted: object) -> Federation:
        return make_federation(workspace, pytestconfig, **wanted)

    return make


@pytest.fixture(scope="module")
def shared_federation(pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable]:
    """Creates federations that several tests of a module share; creating one closes the previous one."""
    living: list[Workspace] = []

    def close() -> None:
        while living:
            living.pop().close()

    def make(**wanted: object) -> Federation:
        close()
        living.append(Workspace(tmp_path_factory.mktemp("shared")))
        return make_federation(living[-1], pytestconfig, **wanted)

    yield make
    close()


def make_federation(workspace: Workspace, config: pytest.Config, **wanted: object) -> Federation:
    """Creates a federation; skips the test if a release is not available. A test may require a kind of SuperLink."""
    usual = {"kind": config.getoption("--superlink"), "official": config.getoption("--official")}
    shape = Shape(**(usual | wanted))
    try:
        return Federation(workspace, shape)
    except CannotBeHad as why:
        pytest.skip(str(why))


@pytest.fixture(scope="session")
def torch_python() -> str:
    """An interpreter that has torch and safetensors. They are gigabytes, so they are not installed for a test."""
    python = os.environ.get("TRELLIS_TEST_TORCH") or str(cache_dir() / "torch" / "bin" / "python")
    try:
        seen = subprocess.run(
            [python, "-c", "import torch, safetensors.torch"], capture_output=True, text=True, timeout=TORCH_LIMIT_S
        )
        why = seen.stderr.strip().splitlines()[-1:] if seen.returncode else None
    except OSError as error:
        why = [str(error)]
    if why is not None:
        where = cache_dir() / "torch"
        pytest.skip(
            f"no torch to read models with ({' '.join(why)}): "
            f"python3 -m venv {where} && {where}/bin/pip install torch numpy safetensors, "
            "or name an interpreter that has them in TRELLIS_TEST_TORCH"
        )
    return python


@pytest.fixture(scope="session")
def numpy_model():
    """The arithmetic of the numpy app."""
    sys.path.insert(0, str(APPS / "numpy_fedavg"))
    try:
        from numpy_fedavg import model
    finally:
        sys.path.remove(str(APPS / "numpy_fedavg"))
    return model


@pytest.fixture
def first_model(workspace: Workspace, numpy_model) -> Path:
    """The first model of the numpy app, which its own ServerApp would make."""
    arrays = numpy_model.initial_arrays(SEED, ARRAY_COUNT, ARRAY_LENGTH)
    path = workspace.root / "first.npz"
    np.savez(path, *arrays)
    return path


@pytest.fixture
def numpy_app(workspace: Workspace) -> Path:
    return workspace.copy_app(APPS / "numpy_fedavg", "submitted")


@pytest.fixture(scope="session")
def reference(numpy_model) -> Callable[..., str]:
    """The expected weights, computed by the app's own arithmetic without a SuperLink."""

    def digest(rounds: int, count: int = ARRAY_COUNT, length: int = ARRAY_LENGTH, nodes: int = 2) -> str:
        return numpy_model.reference_digest(SEED, count, length, rounds, nodes)

    return digest


@pytest.fixture(scope="session")
def expected_digest(request: pytest.FixtureRequest) -> Callable[..., str]:
    """The weights with the official SuperLink, measured at most once per session and settings."""
    known: dict[tuple, str] = {}

    def digest(**run_config: object) -> str:
        key = tuple(sorted(run_config.items()))
        if key not in known:
            known[key] = official_digest(recompute=request.config.getoption("--recompute"), **run_config)
        return known[key]

    return digest
