"""Instructions with their answers, and each node's part of them. Knows nothing of Flower."""

import json
from pathlib import Path

import numpy as np

INSTRUCTIONS = "instructions.jsonl"
# Of five examples four are trained on.
TEST_EVERY = 5
PER_NODE = 120
NUMBERS = ("one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")
THINGS = ("stone", "river", "lamp", "garden", "window", "paper", "bridge", "cloud", "apple", "engine")
COLOURS = ("red", "green", "blue", "white", "black")


def example(instruction: str, answer: str, more: str = "") -> str:
    """One text to learn from."""
    given = f"\nInput: {more}" if more else ""
    return f"Instruction: {instruction}{given}\nAnswer: {answer}\n"


def built_in(count: int, seed: int) -> list[str]:
    """Small tasks for so many nodes."""
    rng = np.random.default_rng(seed)
    texts = []
    for _ in range(PER_NODE * count):
        thing, colour = THINGS[rng.integers(len(THINGS))], COLOURS[rng.integers(len(COLOURS))]
        number = int(rng.integers(len(NUMBERS) - 1))
        texts.append(
            (
                example("Which number comes after this one?", NUMBERS[number + 1], NUMBERS[number]),
                example("Write the word in capital letters.", thing.upper(), thing),
                example("Which colour does it have?", colour, f"the {colour} {thing}"),
                example("What is it?", thing, f"the {colour} {thing}"),
            )[rng.integers(4)]
        )
    return texts


def read(directory: Path) -> list[str]:
    """`instructions.jsonl`: a JSON object in each line, with `instruction`, `output` and perhaps `input`; or with `text`."""
    path, texts, problems = directory / INSTRUCTIONS, [], []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
            texts.append(row["text"] if "text" in row else example(row["instruction"], row["output"], row.get("input", "")))
        except (ValueError, KeyError, TypeError) as error:
            problems.append(f"line {number}: {type(error).__name__}: {error}")
    if problems or not texts:
        why = "; ".join(problems[:5]) or "it is empty"
        raise ValueError(f'{path} cannot be used: {why}. Each line is {{"instruction": "...", "output": "..."}}')
    return texts


def part(texts: list[str], number: int, count: int, seed: int) -> list[str]:
    order = np.random.default_rng(seed).permutation(len(texts))
    return [texts[index] for index in order[number::count]]


def divided(texts: list[str]) -> tuple[list[str], list[str]]:
    """To train on, and to be tested with."""
    training = [text for index, text in enumerate(texts) if index % TEST_EVERY]
    return training or texts, texts[::TEST_EVERY]
