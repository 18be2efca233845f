"""Packs the digits data set of scikit-learn into `digits.bin`, 41 bytes per image.

The first byte is the digit. 64 pixels follow, row by row, as five-bit numbers (0 to 16), lowest bit first. Requires
scikit-learn.
"""

from pathlib import Path

from sklearn.datasets import load_digits

digits = load_digits()
with open(Path(__file__).parent / "digits.bin", "wb") as file:
    for pixels, digit in zip(digits.data.astype(int), digits.target):
        packed = sum(int(pixel) << 5 * place for place, pixel in enumerate(pixels))
        file.write(bytes([digit]) + packed.to_bytes(40, "little"))
