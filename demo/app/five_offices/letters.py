"""Letters of ten kinds, as points around one centre for each kind. Knows nothing of Flower."""

from dataclasses import dataclass

import numpy as np

KINDS, FEATURES = 10, 16
LETTERS_PER_OFFICE = 400
# Of five letters four are trained on.
TEST_EVERY = 5
SPREAD = 1.3
# The smaller, the more unlike are the offices.
LIKENESS = 0.5


@dataclass(frozen=True)
class Letters:
    features: np.ndarray
    kinds: np.ndarray

    def __len__(self) -> int:
        return len(self.kinds)


def of_office(office: int) -> tuple[Letters, Letters]:
    """What an office trains on, and what it is tested on. Each has many letters of some kinds and few of others."""
    centres = np.random.default_rng(0).normal(size=(KINDS, FEATURES)) * 1.5
    chance = np.random.default_rng(1000 + office)
    kinds = chance.choice(KINDS, size=LETTERS_PER_OFFICE, p=chance.dirichlet(np.full(KINDS, LIKENESS)))
    features = centres[kinds] + chance.normal(size=(LETTERS_PER_OFFICE, FEATURES)) * SPREAD
    is_test = np.arange(LETTERS_PER_OFFICE) % TEST_EVERY == 0
    return Letters(features[~is_test], kinds[~is_test]), Letters(features[is_test], kinds[is_test])
