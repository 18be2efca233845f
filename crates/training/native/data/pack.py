"""Packs the digits that scikit-learn brings into `digits.bin` beside this file: 41 bytes for each image.

The first byte is the digit. Then come 64 pixels, row by row, as numbers of five bits (they go from 0 to 16), the lowest
bit first. Run with the Python of an environment that has scikit-learn.
"""

from pathlib import Path

from sklearn.datasets import load_digits

digits = load_digits()
with open(Path(__file__).parent / "digits.bin", "wb") as file:
    for pixels, digit in zip(digits.data.astype(int), digits.target):
        packed = sum(int(pixel) << 5 * place for place, pixel in enumerate(pixels))
        file.write(bytes([digit]) + packed.to_bytes(40, "little"))
