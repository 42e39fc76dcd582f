# dumps.py -- attention dumps as users bring them, made from a seed.
# SPDX-License-Identifier: GPL-3.0-or-later
"""dumps.py FOLDER/: writes layers.h5, steps.h5, gap.h5, soft.h5, *.npy"""
import sys

import h5py
import numpy as np


def attention(rng, *shape):
    a = rng.exponential(size=shape) ** 2
    a = np.tril(a)
    return (a / a.sum(-1, keepdims=True)).astype("f4")


def steps(path, numbers, rows, rng):
    full = attention(rng, 2, 1, 3, 16, 16)
    with h5py.File(path, "w") as f:
        for place, number in enumerate(numbers):
            for layer in range(2):
                end = rows + place
                first = 0 if place == 0 else end - 1
                f[f"step_{number}/layer_{layer}"] = \
                    full[layer, :, :, first:end, :end]


def main():
    out = sys.argv[1]
    rng = np.random.default_rng(3)
    with h5py.File(out + "layers.h5", "w") as f:
        for layer in range(3):
            f[f"layer_{layer:02d}/attention"] = attention(rng, 1, 2, 40, 40)
    steps(out + "steps.h5", range(12), 5, rng)
    steps(out + "gap.h5", [0, 1, 2, 3, 4, 5, 6, 8, 9, 10, 11, 12], 5, rng)
    with h5py.File(out + "soft.h5", "w") as f:
        f["a"] = h5py.SoftLink("/b")
        f["b"] = h5py.ExternalLink("layers.h5", "/layer_00/attention")
        f["c"] = np.arange(4)
    a = attention(rng, 2, 40, 40)
    np.save(out + "plain.npy", a)
    np.save(out + "fortran.npy", np.asfortranarray(a))
    np.save(out + "swapped.npy", np.ascontiguousarray(a.swapaxes(1, 2)))
    with h5py.File(out + "swapped.h5", "w") as f:
        f["attn"] = np.ascontiguousarray(a.swapaxes(1, 2))


main()
