"""Rules, compressors, topologies and reports as functions."""

from __future__ import annotations

import warnings
from pathlib import Path
from xml.etree import ElementTree

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


def test_a_notebook_shows_a_table_of_rules_and_compressors():
    for listed in (gradvine.rules(), gradvine.compressors()):
        table = ElementTree.fromstring(listed._repr_html_())
        names = [row.findtext("td") for row in table.findall("tbody/tr")]
        assert names == [one.name for one in listed]
        assert {len(row) for row in table.iter("tr")} == {3}


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


def test_settings_are_priced_before_a_run():
    link = {
        "network.preset": "4g",
        "network.compute": "fixed",
        "network.compute_ms": 5.0,
        "run.rounds": 100,
    }
    arrays = {"w": np.zeros((100, 50)), "b": np.zeros(50)}
    bits = {"rule.kind": "choco", "compressor.kind": "min-max", "compressor.bits": 4}
    plan = gradvine.plan(
        {"topology.file": "ring:6", "rule.kind": "d-psgd", **link},
        arrays,
        settings=[{}, bits, {"rule.kind": "d-psgd", "compressor.kind": "sign"}],
    )
    dense, compressed = plan
    # 5,050 numbers of 4 bytes to two neighbours.
    assert dense.bytes_payload == 2 * 4 * 5050 and dense.bytes_wire > dense.bytes_payload
    assert compressed.bytes_payload < dense.bytes_payload / 7
    assert compressed.round_s < dense.round_s and dense.run_s >= 100 * 0.005
    assert plan.best in list(plan) and len(plan) == 2
    ((settings, why),) = plan.refused
    assert settings["compressor.kind"] == "sign" and "takes no compressor" in why
    assert "choco" in str(plan) and "<table>" in plan._repr_html_() and why in str(plan)
    # The bytes are those of a simulated run.
    run = gradvine.simulate(
        {"topology.file": "ring:6", "rule.kind": "d-psgd", **link, "run.rounds": 3},
        arrays,
        lambda node, x: np.zeros(5050),
        rows=[1] * 6,
    )
    assert run.summary["bytes"]["payload"] == 6 * 3 * dense.bytes_payload
    with pytest.raises(gradvine.SetupError, match="rule.kind"):
        gradvine.plan({"topology.file": "ring:6", "rule.kind": "unknown"}, arrays)


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
    # A run that is not over is shown, with a warning.
    (Path(folders[1]) / "summary.json").unlink()
    with pytest.warns(UserWarning, match=r"has no summary\.json"):
        assert "<iframe" in gradvine.report(folders)._repr_html_()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        gradvine.report(folders, unfinished=True)
    with pytest.raises(gradvine.SetupError, match="nowhere"):
        gradvine.report(tmp_path / "nowhere")
    with pytest.raises(gradvine.SetupError, match="at least one"):
        gradvine.report()
