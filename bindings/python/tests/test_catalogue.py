"""Rules, compressors, topologies and reports as functions."""

from __future__ import annotations

import numpy as np
import pytest

import gradvine
from conftest import Bowl, everywhere, model


def test_rules_and_compressors_are_listed():
    rules = {rule.name: rule for rule in gradvine.rules()}
    assert {"d-psgd", "choco", "diloco", "noloco"} <= rules.keys()
    assert "outer_momentum" in rules["noloco"].constants
    assert rules["choco"].compresses and not rules["noloco"].compresses
    assert {"identity", "min-max", "top-k"} <= {one.name for one in gradvine.compressors()}


def test_a_topology_has_its_matrix_and_spectrum():
    ring = gradvine.topology("ring:6")
    assert ring.nodes == [str(node) for node in range(6)] and len(ring.links) == 6
    w = ring.matrix
    assert np.allclose(w.sum(axis=0), 1) and np.allclose(w, w.T)
    second = np.sort(np.abs(np.linalg.eigvalsh(w)))[-2]
    assert ring.rho == pytest.approx(second) and ring.gap == pytest.approx(1 - second)
    assert ring._repr_svg_().startswith("<svg")
    with pytest.raises(gradvine.SetupError, match="rung"):
        gradvine.topology("rung:6")


def test_runs_are_reported(nodes, tmp_path):
    def run(node, file):
        bowl = Bowl(node)
        with gradvine.join(file, model(), rows=1) as joined:
            while not joined.done:
                bowl.step(joined)
            return joined.finish().folder

    folders = everywhere(nodes("path:2"), run)
    page = gradvine.report(folders)
    assert page.save(tmp_path / "report.html").read_text() == page.html
    assert "d-psgd" in page.html and "<iframe" in page._repr_html_()
    with pytest.raises(gradvine.SetupError, match="nowhere"):
        gradvine.report(tmp_path / "nowhere")
    with pytest.raises(gradvine.SetupError, match="at least one"):
        gradvine.report()
