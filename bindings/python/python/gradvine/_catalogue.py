"""What there is (rules, compressors, topologies), and reports of runs."""

from __future__ import annotations

import html
import os
import warnings
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from . import _gradvine
from ._errors import SetupError
from ._local import Value, read_experiment


@dataclass(frozen=True)
class Rule:
    """An update rule."""

    #: Its name in ``rule.kind``.
    name: str
    #: What it does, its paper, and the equations of a round.
    summary: str
    paper: str
    update: str
    #: What it keeps besides the model, what it sends, what must hold for it to work.
    state: str
    sends: str
    conditions: str
    #: Whether its exchanges are compressed.
    compresses: bool
    #: Whether it computes with the size of a step, which programs then have to state.
    needs_step: bool
    #: Its constants, each with its meaning and default.
    constants: dict[str, str]


@dataclass(frozen=True)
class Compressor:
    """A compressor."""

    #: Its name in ``compressor.kind``.
    name: str
    #: What it does, its paper, and its class (unbiased, contraction or exact).
    summary: str
    paper: str
    class_: str
    #: Its constants, each with its meaning and default.
    constants: dict[str, str]


Entry = TypeVar("Entry", Rule, Compressor)


class Catalogue(list[Entry]):
    """A list that a notebook shows as a table of names, summaries and papers."""

    def _repr_html_(self) -> str:
        rows = ([one.name, one.summary, one.paper] for one in self)
        cells = ("".join(f"<td>{html.escape(text)}</td>" for text in row) for row in rows)
        body = "".join(f"<tr>{row}</tr>" for row in cells)
        head = "<tr><th>name</th><th>summary</th><th>paper</th></tr>"
        return f"<table><thead>{head}</thead><tbody>{body}</tbody></table>"


def rules() -> Catalogue[Rule]:
    """All update rules."""
    return Catalogue(Rule(**rule) for rule in _gradvine.rules())


def compressors() -> Catalogue[Compressor]:
    """All compressors."""
    return Catalogue(Compressor(**compressor) for compressor in _gradvine.compressors())


@dataclass(frozen=True)
class Topology:
    """Nodes, links, and their weights. A notebook shows its picture."""

    name: str
    #: The names of the nodes, in the order of the matrix.
    nodes: list[str]
    #: The pairs of linked nodes.
    links: list[tuple[str, str]]
    #: W, n x n, doubly stochastic.
    matrix: npt.NDArray[np.float64] = field(repr=False)
    #: max(abs(lambda_2), abs(lambda_n)) of W, and 1 - rho.
    rho: float
    gap: float
    #: Rounds until any disagreement is a hundredth; None if there is none or it stays.
    mixing_time: float | None
    svg: str = field(repr=False)

    def _repr_svg_(self) -> str:
        return self.svg


def topology(source: str | os.PathLike[str] | Mapping[str, Value]) -> Topology:
    """A topology: a family with its size such as ``"torus:4x4"``, a topology file, or the keys of
    an experiment that name one."""
    if isinstance(source, Mapping):
        text, beside = read_experiment(source)
    else:
        text, beside = read_experiment({"topology.file": os.fspath(source)})
    made = _gradvine.topology((text, os.fspath(beside)))
    return Topology(**{**made, "matrix": np.asarray(made["matrix"], np.float64)})


@dataclass(frozen=True)
class Page:
    """A report. A notebook shows it; :meth:`save` writes it."""

    html: str = field(repr=False)

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Writes the page, which needs no other file and no network."""
        file = Path(path)
        file.write_text(self.html, encoding="utf-8")
        return file

    def _repr_html_(self) -> str:
        # In a frame, so that its styles stay its own.
        quoted = self.html.replace("&", "&amp;").replace('"', "&quot;")
        return f'<iframe srcdoc="{quoted}" width="100%" height="800"></iframe>'


def report(
    *folders: str | os.PathLike[str] | Iterable[str | os.PathLike[str]], unfinished: bool = False
) -> Page:
    """Curves, bytes and settings of one or several runs, from their run directories.

    A run that is not over is shown as far as it has come, with a warning unless ``unfinished``.
    """
    paths: list[str] = []
    for folder in folders:
        if isinstance(folder, str | os.PathLike):
            paths.append(os.fspath(folder))
        else:
            paths.extend(os.fspath(one) for one in folder)
    if not paths:
        problem = "expected at least one run directory"
        raise SetupError(f"folders: {problem}", None, "folders", None, problem)
    page, notes = _gradvine.report(paths)
    for note in notes:
        if not unfinished:
            warnings.warn(note, stacklevel=2)
    return Page(page)
