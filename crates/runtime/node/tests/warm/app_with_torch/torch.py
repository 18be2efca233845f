"""A fake PyTorch on a machine with two GPUs, which records limits."""

limits = {}


class Tensor:
    pass


class cuda:  # noqa: N801, as in the original
    @staticmethod
    def is_available():
        return True

    @staticmethod
    def device_count():
        return 2

    @staticmethod
    def set_per_process_memory_fraction(fraction, device):
        limits[device] = fraction
