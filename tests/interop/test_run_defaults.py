"""Defaults of a SuperLink: below what `flwr run --run-config` says, above what the app says, and no key that it does not have."""

import pytest

OLDEST, NEWEST = "1.25", "1.42"

pytestmark = [pytest.mark.trellis_only, pytest.mark.quick]


@pytest.mark.parametrize("version", [OLDEST, NEWEST])
def test_runs_begin_with_the_defaults_of_the_superlink(federation, workspace, reference, version):
    defaults = workspace.root / "defaults.toml"
    defaults.write_text('num-server-rounds = 2\nstrategy = "FedAdam"\n')
    flags = ("--run-defaults", str(defaults))
    fed = federation(fleet=(version,), cli=version, runtime=version, link_flags=flags).start()

    silent = fed.cli.submit(result_path=fed.result_path("silent"))
    assert fed.wait_finished(silent).status == "finished:completed"
    spoken = fed.cli.submit(result_path=fed.result_path("spoken"), num_server_rounds=1)
    assert fed.wait_finished(spoken).status == "finished:completed"

    assert (fed.result("silent")["rounds"], fed.result("spoken")["rounds"]) == (2, 1), "the app itself says 3"
    assert fed.result("silent")["sha256"] == reference(rounds=2)
    assert "Defaults of this SuperLink: num-server-rounds = 2." in fed.cli.log(silent).text
    assert "Defaults of this SuperLink" not in fed.cli.log(spoken).text
