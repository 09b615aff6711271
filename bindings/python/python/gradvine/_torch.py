"""Training loops of PyTorch."""

from __future__ import annotations

import hashlib
import logging
import math
import warnings
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np
import torch

from . import _processes
from ._errors import SetupError, StateError
from ._keep import Keeper
from ._node import Array, Node, as_measures
from ._result import Report, Result

_log = logging.getLogger("gradvine")

#: The types of parameters that can be trained together. The node computes with f32.
_FLOATS = (torch.float32, torch.bfloat16, torch.float16, torch.float64)


class Layout:
    """Which tensors of a module the nodes mix, in which order."""

    def __init__(
        self,
        model: torch.nn.Module,
        *,
        parameters: Iterable[str] | Iterable[torch.nn.Parameter] | None = None,
        buffers: str = "average",
    ) -> None:
        if not isinstance(model, torch.nn.Module):
            problem = "expected a torch.nn.Module, or a mapping from names to arrays"
            raise SetupError(f"model = {type(model).__name__}: {problem}", None, "model")
        if buffers not in ("average", "local"):
            problem = 'expected "average" or "local"'
            raise SetupError(f'buffers = "{buffers}": {problem}', None, "buffers", buffers, problem)
        self.model = model
        self.buffers = buffers
        every = dict(model.named_parameters())
        mixed = _chosen(every, parameters)
        self.entries: list[tuple[str, torch.Tensor]] = [
            (name, every[name]) for name in every if name in mixed
        ]
        self.frozen = [(name, value) for name, value in every.items() if name not in mixed]
        if buffers == "average":
            self.entries += [
                (name, value) for name, value in model.named_buffers() if value.is_floating_point()
            ]
        for name, value in self.entries:
            if value.dtype not in _FLOATS:
                problem = "expected float32, bfloat16, float16 or float64"
                place = f"model.{name}"
                raise SetupError(
                    f"{place} = {value.dtype}: {problem}", None, place, str(value.dtype), problem
                )
        self.entries = [(name, value) for name, value in self.entries if value.numel() > 0]
        if not self.entries:
            problem = "no parameter of the model requires a gradient: nothing to train together"
            raise SetupError(f"model: {problem}", None, "model", None, problem)
        self._shapes = [value.shape for _, value in self.entries]
        self._types = [value.dtype for _, value in self.entries]
        self._sizes = [value.numel() for _, value in self.entries]
        self._staging: torch.Tensor | None = None

    def tensors(self) -> list[tuple[str, list[int]]]:
        """Names and shapes, in the order of the flat vector."""
        return [(name, list(value.shape)) for name, value in self.entries]

    def initial(self) -> Array:
        """The numbers of the tensors, as f32."""
        with torch.no_grad():
            flat = torch.empty(sum(self._sizes), dtype=torch.float32)
            for (_, value), part in zip(self.entries, torch.split(flat, self._sizes), strict=True):
                part.copy_(value.detach().reshape(-1))
        return flat.numpy()

    def agreed(self) -> dict[str, str]:
        """What must also be the same at all nodes: types other than f32, names of tied parameters,
        and a hash of the parameters that are not trained."""
        agreed = {
            f"dtype.{name}": str(value.dtype).removeprefix("torch.")
            for name, value in self.entries
            if value.dtype != torch.float32
        }
        names: dict[int, list[str]] = {}
        for name, value in self.model.named_parameters(remove_duplicate=False):
            names.setdefault(id(value), []).append(name)
        for first, *others in names.values():
            if others:
                agreed[f"tied.{first}"] = ",".join(others)
        if self.frozen:
            digest = hashlib.sha256()
            for name, value in self.frozen:
                digest.update(f"{name} {value.dtype} {list(value.shape)}\n".encode())
                raw = value.detach().cpu().contiguous().reshape(-1).view(torch.uint8)
                digest.update(raw.numpy().data)
            agreed["frozen"] = f"{len(self.frozen)} tensors, SHA-256 {digest.hexdigest()}"
        return agreed

    def check(self) -> None:
        """Raises if a tensor has changed its shape or type since the node joined."""
        for (name, value), shape, dtype in zip(
            self.entries, self._shapes, self._types, strict=True
        ):
            if value.shape != shape or value.dtype != dtype:
                raise StateError(
                    f"{name} is {list(value.shape)} {value.dtype}; it was {list(shape)} {dtype} "
                    "when the node joined: convert the model before join"
                )

    def _values(self) -> list[torch.Tensor]:
        """The tensors on the CPU: those of a device are copied there first, all at once."""
        values = [value.detach() for _, value in self.entries]
        if all(value.device.type == "cpu" for value in values):
            return values
        return self._stage(values)

    def _stage(self, values: list[torch.Tensor]) -> list[torch.Tensor]:
        if self._staging is None:
            pinned = torch.cuda.is_available()
            self._staging = torch.empty(sum(self._sizes), dtype=torch.float32, pin_memory=pinned)
        parts = torch.split(self._staging, self._sizes)
        staged = [
            # Of another type, the rounded numbers count; f32 holds them exactly but for f64.
            part.view(value.shape).copy_(value, non_blocking=True)
            for part, value in zip(parts, values, strict=True)
        ]
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        return staged

    def write_update(self, x: torch.Tensor, update: torch.Tensor) -> None:
        """Writes the change of the model since it was loaded from ``x``: one pass."""
        self.check()
        with torch.no_grad():
            parts = zip(
                self._values(),
                self._types,
                torch.split(x, self._sizes),
                torch.split(update, self._sizes),
                strict=True,
            )
            for value, dtype, before, out in parts:
                before, out = before.view(value.shape), out.view(value.shape)
                if dtype == torch.float32:
                    torch.sub(before, value, out=out)
                else:
                    # The model began from the rounded numbers: measured against the exact ones,
                    # rounding would look like training.
                    rounded = before.to(dtype)
                    out.copy_(rounded.to(torch.float64) - value.to(torch.float64))

    def load(self, x: torch.Tensor) -> None:
        """Loads a flat vector into the tensors."""
        self.check()
        with torch.no_grad():
            for (_, value), part in zip(self.entries, torch.split(x, self._sizes), strict=True):
                value.copy_(part.view(value.shape))


def _chosen(
    every: dict[str, torch.nn.Parameter],
    parameters: Iterable[str] | Iterable[torch.nn.Parameter] | None,
) -> set[str]:
    if parameters is None:
        return {name for name, value in every.items() if value.requires_grad}
    names = {id(value): name for name, value in every.items()}
    chosen: set[str] = set()
    for one in parameters:
        name = one if isinstance(one, str) else names.get(id(one))
        if name is None or name not in every:
            problem = f"expected parameters of the model: {', '.join(every) or 'it has none'}"
            value = one if isinstance(one, str) else f"a tensor of shape {list(one.shape)}"
            raise SetupError(
                f"parameters: {value} is not among them: {problem}",
                None,
                "parameters",
                value,
                problem,
            )
        chosen.add(name)
    return chosen


def as_tensor(buffer: Any) -> torch.Tensor:
    with warnings.catch_warnings():
        # The model is only read.
        warnings.filterwarnings("ignore", message="The given buffer is not writable")
        return torch.frombuffer(buffer, dtype=torch.float32)


class Sync:
    """A hook on an optimizer that makes a round after each ``every`` steps; see :func:`attach`."""

    def __init__(
        self,
        node: Node,
        model: torch.nn.Module,
        inner: torch.optim.Optimizer,
        every: int,
        size: float | str | None,
        keep: Iterable[Any] | None,
    ) -> None:
        layout = node._layout
        if layout is None or layout.model is not model:
            raise StateError("attach needs the torch module that the node joined with")
        if every < 1:
            problem = "expected at least 1"
            raise SetupError(f"every = {every}: {problem}", None, "every", str(every), problem)
        self.node = node
        self.inner = inner
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
        self._size = _step_size(node, inner, size)
        self._keeper = Keeper(node, (inner, *(keep or ())), keep is not None)
        self._losses = (0.0, 0)
        self._sizes = 0.0
        if node.rounds == 0:
            self._keeper.clear()
        else:
            self.resumed = self._restore()
        self._load()
        self._handle = inner.register_step_post_hook(self._after_step)

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
        run that goes on. Returns whether there was a state."""
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
        """Removes the hook."""
        self._handle.remove()

    def state_dict(self) -> dict[str, int]:
        """What a checkpoint of the program needs besides those of model and inner optimizer."""
        return {"steps": self.steps, "every": self.every}

    def load_state_dict(self, state: Mapping[str, int]) -> None:
        """Restores :meth:`state_dict`."""
        if state.get("every") != self.every:
            problem = f"expected {self.every}, as attached"
            value = str(state.get("every"))
            raise SetupError(f"every = {value}: {problem}", None, "every", value, problem)
        self.steps = int(state["steps"])


def _step_size(
    node: Node, inner: torch.optim.Optimizer, size: float | str | None
) -> Callable[[], float]:
    """The size of one step of the inner optimizer."""
    plain = type(inner) is torch.optim.SGD and all(
        group["momentum"] == 0 and group["weight_decay"] == 0 for group in inner.param_groups
    )
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
            rates = {float(group["lr"]) for group in inner.param_groups}
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
    inner: torch.optim.Optimizer,
    *,
    every: int,
    size: float | str | None = None,
    keep: Iterable[Any] | None = None,
) -> Sync:
    """Makes one round after every ``every`` steps of a torch optimizer.

    The hook hands the change of the model since the last round to the node, and loads the mixed
    model. The optimizer is not wrapped: schedulers, scalers and gradient accumulation work as
    before. Its state (moments) stays local. The model is loaded with the nodes' common initial
    values.

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
    return Sync(node, model, inner, every, size, keep)


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
    return result
