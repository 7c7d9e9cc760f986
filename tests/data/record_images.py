#!/usr/bin/env python3
"""Writes tests/data/images: small pictures of every kind, and in expected.json what Pillow makes of them:
a hash, and where the picture has transparency that of the picture on white.

  python3 -m venv v && v/bin/pip install pillow numpy xxhash safetensors
  v/bin/python tests/data/record_images.py GOLDEN

GOLDEN is the full collection of recordings: the tensors of cogvlm/preprocess.safetensors are kept as hashes.
Hashes are XXH3-64 of RGB bytes, row by row, or of float32 tensors. PNG and WebP files that Pillow cannot
write are put together here.
"""
import io
import json
import pathlib
import shutil
import struct
import sys
import zlib

import numpy as np
import PIL
import xxhash
from PIL import Image, ImageOps
from safetensors.numpy import load_file

out = pathlib.Path(__file__).parent / "images"
W, H = 17, 13


def picture(w, h, channels=3, top=256):
    """Waves and a little noise; every channel differs."""
    y, x, c = np.meshgrid(np.arange(h), np.arange(w), np.arange(channels), indexing="ij")
    wave = 0.5 + 0.3 * np.sin(x * 0.7 + c) + 0.2 * np.cos(y * 0.9 - c * 0.5)
    noise = ((x * 31 + y * 17 + c * 7) % 13) / 60 - 0.1
    return np.clip((wave + noise) * (top - 1), 0, top - 1).astype(np.uint16)


# ---- PNG ----

GREY, RGB, PALETTE, GREY_ALPHA, RGBA = 0, 2, 3, 4, 6
CHANNELS = {GREY: 1, RGB: 3, PALETTE: 1, GREY_ALPHA: 2, RGBA: 4}
ADAM7 = [(0, 0, 8, 8), (4, 0, 8, 8), (0, 4, 4, 8), (2, 0, 4, 4), (0, 2, 2, 4), (1, 0, 2, 2), (0, 1, 1, 2)]


def chunk(name, data):
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))


def filtered(rows, each):
    """The five filters of PNG in turn; `each` is the bytes of a pixel, at least 1."""
    before, out = bytes(len(rows[0])) if rows else b"", b""
    for y, row in enumerate(rows):
        kind, line = y % 5, bytearray(row)
        for i in range(len(row)):
            a, b = row[i - each] if i >= each else 0, before[i]
            c = before[i - each] if i >= each else 0
            paeth = min((a, b, c), key=lambda v: abs(a + b - c - v))
            line[i] = (row[i] - (0, a, b, (a + b) // 2, paeth)[kind]) & 255
        out, before = out + bytes([kind]) + bytes(line), row
    return out


def packed(pixels, depth):
    """[h, w, channels] as rows of bytes."""
    h, w, n = pixels.shape
    if depth == 16:
        return [row.astype(">u2").tobytes() for row in pixels.reshape(h, -1)]
    if depth == 8:
        return [row.astype(np.uint8).tobytes() for row in pixels.reshape(h, -1)]
    bits = (pixels.reshape(h, w, 1) >> np.arange(depth - 1, -1, -1)) & 1
    return [np.packbits(row).tobytes() for row in bits.reshape(h, -1).astype(np.uint8)]


def image_data(pixels, depth, interlaced=False):
    each = max(1, pixels.shape[2] * depth // 8)
    data = b""
    for x, y, dx, dy in ADAM7 if interlaced else [(0, 0, 1, 1)]:
        part = pixels[y::dy, x::dx]
        if part.size:
            data += filtered(packed(part, depth), each)
    return zlib.compress(data, 9)


def png(pixels, kind, depth, interlaced=False, before=b"", after=b""):
    h, w, _ = pixels.shape
    head = struct.pack(">IIBBBBB", w, h, depth, kind, 0, 0, int(interlaced))
    data = image_data(pixels, depth, interlaced)
    half = len(data) // 2  # two IDAT chunks
    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + before + chunk(b"IDAT", data[:half])
            + chunk(b"IDAT", data[half:]) + after + chunk(b"IEND", b""))


def exif(orientation, big=True, kind=3):
    """A TIFF directory with two entries; the second is the orientation."""
    e = ">" if big else "<"
    value = struct.pack(e + {1: "B3x", 3: "H2x", 4: "I"}[kind], orientation)
    return ((b"MM\0*" if big else b"II*\0") + struct.pack(e + "IH", 8, 2)
            + struct.pack(e + "HHII", 0x0100, 4, 1, W) + struct.pack(e + "HHI", 0x0112, kind, 1) + value + bytes(4))


def pngs():
    deep = picture(W, H, 1, 65536)
    deep[:, ::2] //= 200  # below and above 255
    ramp = lambda n: np.array([[(i * 83) % 256, (i * 151) % 256, 255 - i % 256] for i in range(n)], np.uint8).tobytes()
    palette = lambda n: chunk(b"PLTE", ramp(n))
    alpha = chunk(b"tRNS", bytes(range(0, 200, 20)))
    frame = lambda n: chunk(b"fcTL", struct.pack(">IIIIIHHBB", n, W, H, 0, 0, 1, 10, 0, 1))
    other = image_data(255 - picture(W, H), 8)
    for depth in (1, 2, 4, 8):
        yield f"grey{depth}", png(picture(W, H, 1, 2**depth), GREY, depth)
        yield f"palette{depth}", png(picture(W, H, 1, 2**depth), PALETTE, depth, before=palette(2**depth))
    yield "grey16", png(deep, GREY, 16)
    yield "grey_trns", png(picture(W, H, 1), GREY, 8, before=chunk(b"tRNS", b"\0\x80"))
    yield "grey_alpha8", png(picture(W, H, 2), GREY_ALPHA, 8)
    yield "grey_alpha16", png(picture(W, H, 2, 65536), GREY_ALPHA, 16)
    yield "rgb8", png(picture(W, H), RGB, 8)
    yield "rgb_trns", png(picture(W, H), RGB, 8, before=chunk(b"tRNS", b"\0\x80\0\x10\0\x20"))
    yield "rgb16", png(picture(W, H, 3, 65536), RGB, 16)
    yield "rgba8", png(picture(W, H, 4), RGBA, 8)
    yield "rgba16", png(picture(W, H, 4, 65536), RGBA, 16)
    yield "palette_trns", png(picture(W, H, 1), PALETTE, 8, before=palette(256) + alpha)
    for name, kind, depth, key in (("grey1", GREY, 1, (0,)), ("grey2", GREY, 2, (1,)), ("grey4", GREY, 4, (0,)), ("grey16", GREY, 16, (261,)),
                                   ("rgb16", RGB, 16, (0x5501, 0x6602, 0x7703))):
        pixels = picture(W, H, len(key), 2**depth)
        pixels[3, 5:9] = [(k & 255) << (8 if name == "rgb16" else 0) for k in key]  # what Pillow takes for the key
        yield name + "_trns", png(pixels, kind, depth, before=chunk(b"tRNS", struct.pack(f">{len(key)}H", *key)))
    yield "palette2_trns", png(picture(W, H, 1, 4), PALETTE, 2, before=palette(4) + chunk(b"tRNS", b"\x80\0\xff"))
    yield "adam7_rgba8", png(picture(W, H, 4), RGBA, 8, True)
    yield "adam7_grey_alpha16", png(picture(W, H, 2, 65536), GREY_ALPHA, 16, True)
    yield "exif_rgba8", png(picture(W, H, 4), RGBA, 8, before=chunk(b"eXIf", exif(6)))
    yield "palette_short", png(picture(W, H, 1), PALETTE, 8, before=palette(100))
    yield "adam7_rgb8", png(picture(W, H), RGB, 8, True)
    yield "adam7_grey1", png(picture(W, H, 1, 2), GREY, 1, True)
    yield "adam7_grey16", png(deep, GREY, 16, True)
    yield "adam7_palette4", png(picture(W, H, 1, 16), PALETTE, 4, True, before=palette(16))
    yield "adam7_3x2", png(picture(3, 2), RGB, 8, True)
    yield "one", png(picture(1, 1), RGB, 8)
    yield "column", png(picture(1, 40), RGB, 8)
    yield "gamma_text", png(picture(W, H), RGB, 8, before=chunk(b"gAMA", struct.pack(">I", 100000)) +
                            chunk(b"zTXt", b"a\0\0" + zlib.compress(b"words")) + chunk(b"tEXt", b"a\0b"))
    yield "exif_before", png(picture(W, H), RGB, 8, before=chunk(b"eXIf", exif(6)))
    yield "exif_after", png(picture(W, H), RGB, 8, after=chunk(b"eXIf", exif(7, False)))
    hexed = lambda data: b"\nexif\n%8d\n%s\n" % (len(data), data.hex().encode())  # as ImageMagick writes it
    named = b"Raw profile type exif\0"
    yield "exif_mark", png(picture(W, H), RGB, 8, before=chunk(b"eXIf", b"Exif\0\0" + exif(5)))
    yield "exif_text", png(picture(W, H), RGB, 8, before=chunk(b"tEXt", named + hexed(b"Exif\0\0" + exif(6))))
    yield "exif_packed", png(picture(W, H), RGB, 8, after=chunk(b"zTXt", named + b"\0" + zlib.compress(hexed(exif(8, False)))))
    yield "exif_twice", png(picture(W, H), RGB, 8, before=chunk(b"tEXt", named + hexed(exif(6))) + chunk(b"eXIf", exif(2)) + chunk(b"eXIf", exif(3)))
    yield "apng", png(picture(W, H), RGB, 8, before=chunk(b"acTL", struct.pack(">II", 2, 0)) + frame(0),
                      after=frame(1) + chunk(b"fdAT", struct.pack(">I", 2) + other))
    yield "apng_default_apart", png(picture(W, H), RGB, 8, before=chunk(b"acTL", struct.pack(">II", 1, 0)),
                                    after=frame(0) + chunk(b"fdAT", struct.pack(">I", 1) + other))


# ---- JPEG ----

def jpeg(w=27, h=21, mode="RGB", **how):
    pixels = picture(w, h, len(mode)).astype(np.uint8)
    file = io.BytesIO()
    Image.fromarray(pixels[:, :, 0] if mode == "L" else pixels, mode).save(file, "JPEG", **{"quality": 80, **how})
    return file.getvalue()


def adobe(data, transform):
    at = data.index(b"Adobe")
    return data[:at + 11] + bytes([transform]) + data[at + 12:]


def jpegs():
    tag = lambda *a: b"Exif\0\0" + exif(*a)
    for name, sampling in (("444", 0), ("422", 1), ("420", 2)):
        yield name, jpeg(subsampling=sampling)
        yield name + "_progressive", jpeg(subsampling=sampling, progressive=True)
    yield "grey", jpeg(mode="L")
    yield "grey_progressive", jpeg(mode="L", progressive=True)
    yield "cmyk", jpeg(mode="CMYK")
    yield "cmyk_progressive", jpeg(mode="CMYK", progressive=True)
    yield "ycck", adobe(jpeg(mode="CMYK"), 2)
    yield "rgb", jpeg(keep_rgb=True)
    yield "restarts", jpeg(restart_marker_blocks=1)
    yield "optimised", jpeg(quality=20, optimize=True)
    yield "one", jpeg(1, 1)
    yield "column", jpeg(1, 40)
    yield "more_after", jpeg() + b"\0\1\2 something else"
    for o in range(1, 10):
        yield f"turned{o}", jpeg(19, 11, exif=tag(o, o % 2 == 0, 3 + (o // 2) % 2))


# ---- WebP ----

def webp(mode="RGB", w=W, h=H, **how):
    file = io.BytesIO()
    Image.fromarray(picture(w, h, len(mode)).astype(np.uint8), mode).save(file, "WEBP", **how)
    return file.getvalue()


def riff(name, data):
    return name + struct.pack("<I", len(data)) + data + bytes(len(data) % 2)


def u24(n):
    return struct.pack("<I", n)[:3]


def webps():
    yield "lossy", webp(quality=70)
    yield "lossless", webp(lossless=True)
    yield "lossy_alpha", webp("RGBA", quality=70)
    yield "lossless_alpha", webp("RGBA", lossless=True, exact=True)
    yield "one", webp(w=1, h=1)
    yield "turned", webp(exif=exif(8))
    frames = [Image.fromarray(p.astype(np.uint8)) for p in (picture(W, H), 255 - picture(W, H))]
    file = io.BytesIO()
    frames[0].save(file, "WEBP", save_all=True, append_images=frames[1:], lossless=True)
    yield "animated", file.getvalue()
    for name, still, alpha in (("opaque", webp(w=9, h=7), 0), ("clear", webp("RGBA", 9, 7, lossless=True, exact=True), 16)):
        inner = still[12:]
        if inner[:4] == b"VP8X":
            inner = inner[18:]
        frame = u24(4) + u24(3) + u24(8) + u24(6) + u24(100) + b"\0" + inner
        body = (riff(b"VP8X", bytes([2 | alpha, 0, 0, 0]) + u24(W - 1) + u24(H - 1))
                + riff(b"ANIM", b"\x40\x80\xc0\xff\0\0") + riff(b"ANMF", frame))
        yield "animated_part_" + name, riff(b"RIFF", b"WEBP" + body)


# ---- what Pillow makes of them ----

def digest(array):
    return f"{xxhash.xxh3_64_intdigest(np.ascontiguousarray(array).tobytes()):016x}"


def is_clear(image):
    return "A" in image.getbands() or image.info.get("transparency") is not None


def on_white(image):  # as transformers' convert_to_rgb()
    white = Image.new("RGBA", image.size, (255,) * 4)
    return np.asarray(Image.alpha_composite(white, image.convert("RGBA")).convert("RGB"))


def main():
    golden = pathlib.Path(sys.argv[1]) / "cogvlm"
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir()
    expected = {"pillow": PIL.__version__, "pictures": [], "resized": [], "prepared": []}
    for maker, kind in ((pngs, "png"), (jpegs, "jpg"), (webps, "webp")):
        for name, data in maker():
            (out / f"{name}.{kind}").write_bytes(data)
            image = ImageOps.exif_transpose(Image.open(io.BytesIO(data)))
            expected["pictures"].append([f"{name}.{kind}", image.width, image.height, digest(np.asarray(image.convert("RGB")))] +
                                        [digest(on_white(image))] * is_clear(image))
    shutil.copyfile(golden / "preprocess_img0.png", out / "preprocess_img0.png")  # 61 x 37
    for name, sizes in (("preprocess_img0.png", [(1, 1), (8, 8), (61, 20), (30, 37), (37, 37), (60, 36), (62, 38), (61, 37), (300, 5),
                                                 (5, 300), (224, 224), (490, 490), (1120, 1120)]),
                        ("one.png", [(1, 1), (56, 56)]), ("column.png", [(56, 56)])):
        image = Image.open(out / name).convert("RGB")
        for size in sizes:
            expected["resized"].append([name, *size, digest(np.asarray(image.resize(size, Image.Resampling.BICUBIC)))])
    for name, tensor in sorted(load_file(golden / "preprocess.safetensors").items()):
        if name.startswith("img0_"):
            expected["prepared"].append(["preprocess_img0.png", tensor.shape[1], digest(tensor)])
    rows = lambda key: "[\n  " + ",\n  ".join(json.dumps(r) for r in expected[key]) + "\n ]"
    (out / "expected.json").write_text(
        f'{{"pillow": "{PIL.__version__}",\n "pictures": {rows("pictures")},\n "resized": {rows("resized")},\n "prepared": {rows("prepared")}}}\n')


main()
