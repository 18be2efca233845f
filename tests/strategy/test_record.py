"""What the Rust tests compare with is what Flower answers."""

import pytest

from strategy.record import RECORD, cases, lines


@pytest.mark.quick
@pytest.mark.parametrize("version", ["1.25", "1.42"])
def test_the_record_is_true(official, version):
    theirs = official(version)
    assert lines([theirs.answer(case) for case in cases().values()]) == RECORD.read_text().splitlines()
