"""A model of 300 MB in 20 arrays passes through the SuperLink intact, in both directions.

The official 1.25.0 SuperLink cannot be asked for this: it shows an instruction to the nodes before its objects are
there, answers a pull of a missing one with UNKNOWN ("Both bytes_sent and bytes_recv cannot be zero"), and the round
never ends.
"""

import pytest

from harness.federation import PLAIN, TLS
from harness.process import peak_memory_bytes

ARRAYS = 20
MODEL_BYTES = 300_000_000
LENGTH = MODEL_BYTES // ARRAYS // 4
RUN_LIMIT_S = 300.0


@pytest.mark.trellis_only
@pytest.mark.parametrize("security", [PLAIN, TLS])
def test_a_model_of_300_mb_arrives_intact(federation, reference, security):
    fed = federation(security=security).start()

    run_id = fed.cli.submit(
        num_server_rounds=1, array_count=ARRAYS, array_length=LENGTH, evaluate=False, result_path=fed.result_path()
    )

    state = fed.wait_finished(run_id, RUN_LIMIT_S)
    assert state.status == "finished:completed", state
    assert fed.result() == {
        "sha256": reference(rounds=1, count=ARRAYS, length=LENGTH),
        "rounds": 1,
        "bytes": MODEL_BYTES,
    }
    assert peak_memory_bytes(fed.superlink.process.pid) < MODEL_BYTES, "memory grew with the model"
