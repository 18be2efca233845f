"""The arithmetic of the app: pure functions on numpy arrays. Knows nothing of Flower.

FedAvg adds replies in the order in which they arrive, so a comparison bit for bit needs sums that are exact in float32.
Every value a client sends is a multiple of 1/256 and at most 32 in size (13 bits), and the weights are multiples of a
power of two (1/4 and 3/4 for two partitions, 1/16 for eight): the weighted sums need no more than 17 of float32's 24
bits, whatever the order.
"""

import hashlib

import numpy as np

GRID = np.float32(256)
LIMIT = np.float32(32)
STEP_RANGE = 16 * 256


def initial_arrays(seed: int, count: int, length: int) -> list[np.ndarray]:
    return [_on_grid(np.random.default_rng([seed, index]), length) for index in range(count)]


def local_update(arrays: list[np.ndarray], seed: int, partition: int, server_round: int) -> list[np.ndarray]:
    """What a client sends back: depends on what it got, its partition and the round, and on nothing else."""
    updated = []
    for index, array in enumerate(arrays):
        step = _on_grid(np.random.default_rng([seed, 1 + partition, server_round, index]), array.size)
        mixed = np.float32(0.5) * array + step.reshape(array.shape)
        updated.append(np.clip(np.rint(mixed * GRID) / GRID, -LIMIT, LIMIT).astype(np.float32))
    return updated


def example_count(partition: int, partitions: int) -> int:
    """One each, and the rest for the last partition, so that all of them have a power of two."""
    return total_examples(partitions) - (partitions - 1) if partition == partitions - 1 else 1


def total_examples(partitions: int) -> int:
    return 1 << partitions.bit_length()


def mean_square(arrays: list[np.ndarray]) -> float:
    total = sum(float(np.square(array, dtype=np.float64).sum()) for array in arrays)
    return total / max(1, sum(array.size for array in arrays))


def digest(arrays: list[np.ndarray]) -> str:
    """SHA-256 over dtype, shape and bytes of each array, in order."""
    sha = hashlib.sha256()
    for array in arrays:
        sha.update(f"{array.dtype.str}{array.shape}".encode())
        sha.update(np.ascontiguousarray(array).data)
    return sha.hexdigest()


def reference_digest(seed: int, count: int, length: int, rounds: int, partitions: int = 2) -> str:
    """The digest after `rounds` of FedAvg, computed here without any SuperLink."""
    arrays = initial_arrays(seed, count, length)
    total = total_examples(partitions)
    for server_round in range(1, rounds + 1):
        sums = [np.zeros_like(array) for array in arrays]
        for partition in range(partitions):
            factor = np.float32(example_count(partition, partitions) / total)
            for index, update in enumerate(local_update(arrays, seed, partition, server_round)):
                sums[index] += factor * update
        arrays = sums
    return digest(arrays)


def _on_grid(rng: np.random.Generator, length: int) -> np.ndarray:
    return rng.integers(-STEP_RANGE, STEP_RANGE, length, dtype=np.int32).astype(np.float32) / GRID
