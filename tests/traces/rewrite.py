# rewrite.py -- a trace read and written again by plain h5py.
# SPDX-License-Identifier: GPL-3.0-or-later
"""rewrite.py IN OUT gzip|contiguous|raw|auto: the same members, stored in
another way; attributes as h5py makes them by default."""
import sys

import h5py
import numpy as np

HOW = {
    "gzip": dict(compression="gzip", shuffle=True),
    "contiguous": {},
    "raw": dict(chunks=(1, 64, 100)),
    "auto": dict(chunks=(2, 30, 41), compression="gzip", shuffle=False),
}


def main():
    source, target, kind = sys.argv[1:]
    with h5py.File(source, "r") as a, h5py.File(target, "w") as b:
        def copy(name, item):
            if isinstance(item, h5py.Group):
                out = b.require_group(name)
            else:
                how = HOW[kind] if name.endswith("/attention") else {}
                out = b.create_dataset(name, data=item[()], **how)
            for key, value in item.attrs.items():
                if isinstance(value, np.generic) and value.dtype.kind in "iu":
                    value = int(value)
                elif key == "mask":
                    value = np.bytes_(value)
                out.attrs[key] = value

        a.visititems(copy)
        for key, value in a.attrs.items():
            b.attrs[key] = value
    row = h5py.File(source, "r")["layers/00/attention"][1, 99]
    assert abs(float(row.astype("f8").sum()) - 1) < 1e-2, row.sum()


main()
