"""Training loops of PyTorch."""

from __future__ import annotations

import dataclasses
import logging
import math
import weakref
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np
import torch

from . import _processes
from ._errors import SetupError, StateError
from ._keep import Keeper
from ._layout import as_tensor, unwrapped
from ._node import Array, Node, as_measures
from ._result import Report, Result

_log = logging.getLogger("gradvine")

#: The hook of each optimizer that has one.
_hooks: weakref.WeakKeyDictionary[torch.optim.Optimizer, Sync] = weakref.WeakKeyDictionary()


class Sync:
    """A hook on an optimizer that makes a round after each ``every`` steps; see :func:`attach`."""

    def __init__(
        self,
        node: Node,
        model: torch.nn.Module,
        inners: list[torch.optim.Optimizer],
        every: int,
        size: float | str | None,
        keep: Iterable[Any] | None,
    ) -> None:
        layout = node._layout
        if layout is None or unwrapped(layout.model) is not unwrapped(model):
            raise StateError("attach needs the torch module that the node joined with")
        _refuse_second(node, inners)
        missing = layout.check_optimizers(inners)
        if missing:
            names = ", ".join(missing[:5]) + (", ..." if len(missing) > 5 else "")
            _log.warning(
                "%s of the parameters that the nodes train together are in none of the attached "
                "optimizers: %s",
                len(missing),
                names,
            )
        self.node = node
        #: The attached optimizers. A step of the last one counts.
        self.inners = inners
        self.every = every
        #: Steps of the inner optimizer in this run. It falls when the run goes back to a
        #: checkpoint: batches that are chosen by it are then the same again.
        self.steps = 0
        #: Whether attach has put a state back: what the loop does after ``inner.step()``, such as
        #: ``schedule.step()``, is then still to be done once.
        self.resumed = False
        self._fresh = True
        #: Whether the last step made a round: the model is mixed.
        self.synced = False
        self._late = False
        self._layout = layout
        self._size = _step_size(node, inners, size)
        self._keeper = Keeper(node, (*inners, *(keep or ())), keep is not None)
        self._losses = (0.0, 0)
        self._sizes = 0.0
        if node.rounds == 0:
            self._keeper.clear()
        else:
            self.resumed = self._restore()
        self._load()
        self._handle = self.inner.register_step_post_hook(self._after_step)
        node._sync = weakref.ref(self)
        for inner in inners:
            _hooks[inner] = self

    @property
    def inner(self) -> torch.optim.Optimizer:
        """The optimizer whose steps count."""
        return self.inners[-1]

    @property
    def done(self) -> bool:
        """Whether the rounds are over: leave the loop and call :func:`finish`."""
        return self.node.done

    @property
    def rounds(self) -> int:
        """Rounds done."""
        return self.node.rounds

    @property
    def report(self) -> Report:
        """The state of the run."""
        return self.node.report

    def mean(self) -> dict[str, torch.Tensor] | None:
        """The exact mean of all sites' models, for ``load_state_dict`` of a copy of the model; None
        unless the last step made a round that has formed it (:attr:`Node.mean`)."""
        mean = self.node.mean if self.synced else None
        return None if mean is None else self._layout.state_dict(mean)

    def record(self, loss: float, **measures: float) -> None:
        """Adds the loss of a batch to the round's mean, for progress and ``metrics.jsonl``; and
        measures of the program."""
        total, count = self._losses
        self._losses = (total + float(loss), count + 1)
        if measures:
            self.node.measure(**measures)

    def _after_step(self, optimizer: torch.optim.Optimizer, args: Any, kwargs: Any) -> None:
        if self.node.done:
            # A program that was started again after the end makes one step before it looks.
            if self._fresh and not self._late:
                self._late = True
                return
            raise StateError("the rounds of this run are over: leave the loop when sync.done")
        self.steps += 1
        self._fresh = False
        self._sizes += self._size()
        self.synced = False
        if self.steps % self.every == 0:
            self.round()

    def round(self) -> bool:
        """One round now, whatever ``every`` says. Returns whether there is a next one."""
        buffers = self.node._buffers()
        if buffers is not None:
            x, update = (as_tensor(buffer) for buffer in buffers)
            self._layout.write_update(x, update)
            del x, update, buffers
            self._keeper.save(self.node.rounds + 1, self.steps)
            rounds = self.node.rounds + 1
        else:
            # An interrupted call has passed the update on.
            rounds = self.node.rounds
        total, count = self._losses
        size = self._sizes if self._sizes > 0.0 else 1.0
        more = self.node.round(total / count if count else math.nan, size)
        self._losses, self._sizes = (0.0, 0), 0.0
        self.synced = True
        if self.node.rounds < rounds:
            self._restore()
        if more:
            self._load()
        return more

    def _restore(self) -> bool:
        """Puts the training back to where the node is: it has gone back to a checkpoint, or joins a
        run that continues. Returns whether there was a state."""
        rounds = self.node.rounds
        steps = self._keeper.restore(rounds)
        if steps is None:
            _log.info("the optimizer has no state of round %s: its own stays as it is", rounds)
        self.steps = rounds * self.every if steps is None else steps
        return steps is not None

    def reset(self) -> None:
        """Puts the model back to the last mixed one: local training since then is lost."""
        self._losses, self._sizes = (0.0, 0), 0.0
        self._load()

    def _load(self) -> None:
        buffers = self.node._buffers()
        if buffers is not None:
            x = as_tensor(buffers[0])
            self._layout.load(x)

    def detach(self) -> None:
        """Removes the hook. The node can get another one."""
        self._handle.remove()
        if self.node._sync is not None and self.node._sync() is self:
            self.node._sync = None
        for inner in self.inners:
            if _hooks.get(inner) is self:
                del _hooks[inner]

    def state_dict(self) -> dict[str, int]:
        """What a checkpoint of the program needs besides those of model and inner optimizer."""
        return {"steps": self.steps, "every": self.every}

    def load_state_dict(self, state: Mapping[str, int]) -> None:
        """Restores :meth:`state_dict`."""
        if state.get("every") != self.every:
            problem = f"expected {self.every}, as in join"
            value = str(state.get("every"))
            raise SetupError(f"every = {value}: {problem}", None, "every", value, problem)
        self.steps = int(state["steps"])


def _refuse_second(node: Node, inners: Iterable[torch.optim.Optimizer]) -> None:
    """A second hook would make every round twice."""
    first = None if node._sync is None else node._sync()
    for inner in inners:
        first = first or _hooks.get(inner)
    if first is not None:
        raise StateError(
            f"node {first.node.name} is attached to an optimizer already: one hook a node and an "
            "optimizer. Use that one, or call its detach() first"
        )


def _optimizers(inner: Any) -> list[torch.optim.Optimizer]:
    """The optimizers of torch in what was attached, without wrappers such as accelerate's."""
    given = list(inner) if isinstance(inner, list | tuple) else [inner]
    made: list[torch.optim.Optimizer] = []
    for one in given:
        # A wrapper may claim to be an optimizer, without the hooks of one.
        while not hasattr(one, "_optimizer_step_post_hooks") and hasattr(one, "optimizer"):
            one = one.optimizer
        if not (
            isinstance(one, torch.optim.Optimizer) and hasattr(one, "_optimizer_step_post_hooks")
        ):
            problem = "expected a torch.optim.Optimizer, or a list of them"
            kind = type(one).__name__
            raise SetupError(f"inner = {kind}: {problem}", None, "inner", kind, problem)
        if any(one is other for other in made):
            problem = "expected each optimizer once"
            raise SetupError(f"inner: {problem}", None, "inner", None, problem)
        made.append(one)
    if not made:
        problem = "expected at least one optimizer"
        raise SetupError(f"inner: {problem}", None, "inner", None, problem)
    return made


def _is_plain(inner: torch.optim.Optimizer) -> bool:
    return type(inner) is torch.optim.SGD and all(
        group["momentum"] == 0 and group["weight_decay"] == 0 for group in inner.param_groups
    )


def _step_size(
    node: Node, inners: list[torch.optim.Optimizer], size: float | str | None
) -> Callable[[], float]:
    """The size of one step of the inner optimizer."""
    plain = all(map(_is_plain, inners))
    if size is None and not plain and node._about["needs_step"]:
        problem = (
            f'{node.rule} computes with the size of a step: state size="lr", the optimizer\'s step '
            "size, or a number (0: the change of a round counts as its gradient)"
        )
        raise SetupError(f"size: {problem}", None, "size", None, problem)
    if size is None:
        size = "lr" if plain else 0.0
    if size == "lr":

        def rate() -> float:
            rates = {float(group["lr"]) for inner in inners for group in inner.param_groups}
            if len(rates) > 1:
                raise SetupError(
                    f'size = "lr": the groups of the optimizer have {len(rates)} step sizes; '
                    "expected one, or a number",
                    None,
                    "size",
                    "lr",
                )
            return rates.pop()

        return rate
    if isinstance(size, str) or not (math.isfinite(size) and size >= 0.0):
        problem = 'expected "lr" or a number that is not negative'
        raise SetupError(f"size = {size}: {problem}", None, "size", str(size), problem)
    constant = float(size)
    return lambda: constant


def attach(
    node: Node,
    model: torch.nn.Module,
    inner: torch.optim.Optimizer | list[torch.optim.Optimizer],
    *,
    every: int | None = None,
    size: float | str | None = None,
    keep: Iterable[Any] | None = None,
) -> Sync:
    """Makes one round after ``every`` steps of a torch optimizer, the number given to :func:`join`.

    The hook hands the change of the model since the last round to the node, and loads the mixed
    model. The optimizer is not wrapped: schedulers, scalers and gradient accumulation work as
    before. Its state (moments) stays local. The model is loaded with the nodes' common initial
    values. ``inner`` may be several optimizers in a list: the steps of the last one count. Its
    parameters must be those of the module with which the node joined, and a node has one hook at a
    time.

    ``size`` is the size of one inner step, for rules that divide the change by it to keep gradients
    (gradient tracking, BEER, DGC and others): ``"lr"`` is the optimizer's step size, 0 leaves the
    change as it is. Without it, ``"lr"`` for plain SGD, and otherwise 0 if the rule does not use it
    (``rules()`` says which do); if it does, ``size`` must be stated.

    With ``checkpoint.every_rounds`` the state of the optimizer is written beside the node's
    checkpoints, and put back when the run goes back to one: after a restart of this program or of
    another one. ``keep`` adds objects with ``state_dict`` and ``load_state_dict`` (schedulers,
    scalers), or torch generators (``torch.default_generator``). A program that also chooses its
    batches by ``sync.steps`` ends with the bits of an undisturbed run. The state is that in
    ``inner.step()``: where the loop calls ``schedule.step()`` after it, a program that is started
    again calls it once if ``sync.resumed``.
    """
    _processes.check()
    if node._every is None or every not in (None, node._every):
        given = "" if every is None else f" = {every}"
        joined = "without it" if node._every is None else f"with every = {node._every}"
        problem = (
            f"the node joined {joined}; expected in join, which compares it between nodes: "
            "join(..., every=50)"
        )
        raise SetupError(f"every{given}: {problem}", None, "every", given[3:] or None, problem)
    return Sync(node, model, _optimizers(inner), node._every, size, keep)


def finish(
    sync: Sync,
    evaluate: Callable[[torch.nn.Module], float | Mapping[str, float]] | None = None,
) -> Result:
    """Ends the rounds of all nodes, if they are not over, loads the exact mean into the model, and
    returns the results.

    ``evaluate`` gets the model, first with this node's own numbers and then with the mean, and
    returns a number or measures by name, which are in the summary of all nodes, which wait
    for it.
    """
    layout, model = sync._layout, sync._layout.model
    sync.detach()

    def measure(x: Array) -> dict[str, float]:
        layout.load(torch.from_numpy(np.array(x)))
        assert evaluate is not None
        return as_measures(evaluate(model))

    result = sync.node.finish(None if evaluate is None else measure)
    sync._keeper.clear()
    layout.load(torch.from_numpy(np.array(result.mean)))
    return dataclasses.replace(result, _states=layout.state_dict)
