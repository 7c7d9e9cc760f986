#!/usr/bin/env python3
"""Prints the tables of src/inputs/slices_test.c: what MiniCPM-V's slice_image() makes of pictures of many shapes.

  python3 -m venv v && v/bin/pip install pillow numpy xxhash
  v/bin/python tests/record_slices.py

Upstream's formulas, written down again from their description. Hashes are XXH3-64 of the RGB bytes of the pieces,
one behind the other, of the picture that picture() gives.
"""
import math
import struct

import numpy as np
import xxhash
from PIL import Image


def divide(length, unit):
    return max(round(length / unit) * unit, unit)


def fit(width, height, side, patch, enlarge):
    if width * height > side * side or enlarge:
        ratio = width / height
        height = int(side / math.sqrt(ratio))
        width = int(height * ratio)
    return divide(width, patch), divide(height, patch)


def plan(width, height, side, patch, most):
    many = min(math.ceil(width * height / (side * side)), most)
    if many <= 1:
        return fit(width, height, side, patch, True), None, None
    shape, best, least = math.log(width / height), [1, 1], float("inf")
    for n in (many - 1, many, many + 1):
        if n == 1 or n > most:
            continue
        for columns in range(1, n + 1):
            if n % columns == 0:
                error = abs(shape - math.log(columns / (n // columns)))
                if error < least:
                    best, least = [columns, n // columns], error
    refined = divide(width, best[0]) / best[0], divide(height, best[1]) / best[1]
    each = fit(*refined, side, patch, True)
    return fit(width, height, side, patch, False), best, each


def picture(width, height):
    i = np.arange(width * height * 3, dtype=np.uint64)
    return Image.fromarray((i * i * 31 + i // 7 * 57).astype(np.uint8).reshape(height, width, 3))


def pieces(width, height, side, patch, most):
    whole, grid, each = plan(width, height, side, patch, most)
    image = picture(width, height)
    seen = [image.resize(whole, Image.Resampling.BICUBIC)]
    if grid:
        large = image.resize((each[0] * grid[0], each[1] * grid[1]), Image.Resampling.BICUBIC)
        for y in range(0, large.height, each[1]):
            for x in range(0, large.width, each[0]):
                seen.append(large.crop((x, y, x + each[0], y + each[1])))
    return xxhash.xxh3_64_hexdigest(b"".join(np.asarray(s).tobytes() for s in seen))


def row(width, height, side=448, patch=14, most=9):
    whole, grid, each = plan(width, height, side, patch, most)
    return [width, height, side, patch, most, *whole, *(grid or (0, 0)), *(each or (0, 0))]


def many():
    """As every_shape() of the test; a plan with a side above 65535 is refused there, and left out."""
    state, out = 1, b""
    for i in range(20000):
        some = []
        for _ in range(5):
            state = (state * 6364136223846793005 + 1442695040888963407) % 2**64
            some.append(state >> 33)
        bits = 1 + some[0] % 12
        shape = (1 + some[1] % 2**bits, 1 + some[2] % 4096, (448, 448, 56, 980)[some[3] % 4], (14, 14, 7)[some[3] % 3],
                 1 + some[4] % 36)
        if i % 3 == 0:  # squares and other shapes half way between two grids
            shape = (shape[0] * (1, 1, 4, 9)[some[2] % 4], shape[0] * (1, 4, 1, 4)[some[2] % 4], *shape[2:])
        got = row(*shape)
        if max(got[5], got[6], got[7] * got[9], got[8] * got[10]) <= 65535:
            out += struct.pack("<6q", *got[5:])
    return xxhash.xxh3_64_hexdigest(out)


some = [(1, 1), (1, 2), (2, 1), (448, 448), (449, 448), (448, 449), (1344, 1344), (896, 448), (448, 896), (65535, 64),
        (4096, 1), (12000, 9000), (10, 3000), (3000, 10), (7, 7), (1097, 1097), (1120, 1120, 448, 14, 6)]
shapes = [(1, 1, 448, 14, 9), (30, 20, 448, 14, 9), (90, 61, 28, 7, 9), (61, 90, 28, 7, 9), (100, 100, 40, 14, 6),
          (33, 300, 42, 14, 4), (300, 7, 42, 14, 9), (640, 480, 448, 14, 9), (97, 97, 56, 14, 9), (56, 56, 56, 14, 9)]
for s in some:
    print("    {", str(row(*s))[1:-1], "},")
for s in shapes:
    print("    {", ", ".join(map(str, s)) + f', "{pieces(*s)}"', "},")
print(many())
