"""The run config, read with its limits: everything that is wrong with it is told at once. Knows nothing of Flower."""

from collections.abc import Mapping

STRATEGIES = (
    "FedAvg",
    "FedProx",
    "FedAdam",
    "FedAdagrad",
    "FedYogi",
    "FedAvgM",
    "FedMedian",
    "FedTrimmedAvg",
    "Krum",
    "Bulyan",
)
# Nodes that a rule against so many liars needs: factor and rest.
NODES_FOR_LIARS = {"Krum": (2, 3), "Bulyan": (4, 3)}


class BadSettings(ValueError):
    """All that is wrong with a run config."""

    def __init__(self, problems: list[str]):
        super().__init__("the run config cannot be used: " + "; ".join(problems))


class Settings:
    """Reads values one by one, gathers what is wrong, and tells it when asked to `finish`."""

    def __init__(self, config: Mapping[str, object]):
        self._config = config
        self.problems: list[str] = []

    def whole(self, key: str, least: int) -> int:
        return int(self._number(key, lambda value: value == int(value) and value >= least, f"a whole number from {least}"))

    def positive(self, key: str) -> float:
        return self._number(key, lambda value: value > 0, "a number above 0")

    def not_negative(self, key: str) -> float:
        return self._number(key, lambda value: value >= 0, "a number from 0")

    def share(self, key: str, below: float) -> float:
        return self._number(key, lambda value: 0 <= value < below, f"a number from 0 to below {below}")

    def text(self, key: str) -> str:
        return str(self._config.get(key, "")).strip()

    def switch(self, key: str) -> bool:
        word = self.text(key).lower()
        if word not in ("true", "false", "yes", "no", "1", "0"):
            self.problems.append(f"{key} is {word!r}, and must be true or false")
        return word in ("true", "yes", "1")

    def choice(self, key: str, names: tuple[str, ...]) -> str:
        word = self.text(key)
        for name in names:
            if _plain(name) == _plain(word):
                return name
        self.problems.append(f"{key} is {word!r}, and must be one of {', '.join(names)}")
        return names[0]

    def finish(self) -> None:
        if self.problems:
            raise BadSettings(self.problems)

    def _number(self, key: str, is_good, expected: str) -> float:
        value = self._config.get(key)
        try:
            number = float(value)  # type: ignore[arg-type]
            if is_good(number):
                return number
        except (TypeError, ValueError, OverflowError):
            pass
        self.problems.append(f"{key} is {value!r}, and must be {expected}")
        return 1.0


def _plain(name: str) -> str:
    return name.replace("-", "").replace("_", "").lower()
