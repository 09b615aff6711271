"""Three sites fit a line to rows that differ between them, with numpy alone.

    python regression.py

Each site is a thread of this program here; on machines of their own, each would call `fit` with
its own node.toml. It prints:

    site 0: w = 2.000 b = -1.000, digest ff6c7415
    site 1: w = 2.000 b = -1.000, digest ff6c7415
    site 2: w = 2.000 b = -1.000, digest ff6c7415
"""

from __future__ import annotations

import tempfile
import threading
from pathlib import Path

import numpy as np

import gradvine


def fit(site: int, file: Path) -> gradvine.Result:
    """Full-batch gradient descent on (w x + b - y)^2 / 2, one round a step."""
    rng = np.random.default_rng(site)
    x = rng.uniform(site - 1, site, 100).astype(np.float32)
    y = 2 * x - 1
    step = np.float32(0.3)
    with gradvine.join(file, {"w": np.zeros(()), "b": np.zeros(())}, rows=len(x)) as node:
        while not node.done:
            w, b = node.x
            error = w * x + b - y
            node.update[:] = step * (error @ x / len(x)), step * error.mean()
            node.round(loss=float((error**2).mean() / 2), size=float(step))
        return node.finish()


def main() -> None:
    experiment = {"run.rounds": 400, "topology.file": "ring:3", "rule.kind": "gradient-tracking"}
    with tempfile.TemporaryDirectory() as folder:
        files = gradvine.local_nodes(Path(folder) / "sites", experiment)
        ends: list[gradvine.Result | None] = [None] * len(files)

        def run(site: int) -> None:
            ends[site] = fit(site, files[site])

        threads = [threading.Thread(target=run, args=(site,)) for site in range(len(files))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    for site, end in enumerate(ends):
        assert end is not None
        w, b = end.model
        print(f"site {site}: w = {w:.3f} b = {b:.3f}, digest {end.digest[:8]}")


if __name__ == "__main__":
    main()
