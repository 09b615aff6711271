"""Which tensors of a torch module the nodes train together, in which order."""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Iterable, Iterator
from typing import Any, NoReturn

import numpy as np
import torch
from torch import nn

from ._errors import SetupError, StateError
from ._node import Array, Tensor

#: The types of parameters that can be trained together. The node computes with f32.
_FLOATS = (torch.float32, torch.bfloat16, torch.float16, torch.float64)

#: Where wrappers keep the module that they wrap, and the packages of wrappers that call it
#: ``module``, which may also be the name of an ordinary part.
_WRAPPED = ("_orig_mod", "_fsdp_wrapped_module", "_checkpoint_wrapped_module")
_WRAPPERS = ("torch.nn.parallel.", "torch.distributed.", "torch.optim.swa_utils", "deepspeed.")


def _is_wrapped(wrapper: nn.Module, name: str) -> bool:
    """Whether this part of a module is what the module wraps: of one compiled, or parallel."""
    return name in _WRAPPED or (name == "module" and type(wrapper).__module__.startswith(_WRAPPERS))


def unwrapped(model: nn.Module) -> nn.Module:
    """The module that the user has written: without ``torch.compile``, ``DataParallel`` and the
    like."""
    for name, inner in model.named_children():
        if _is_wrapped(model, name):
            return unwrapped(inner)
    return model


def plain_name(model: nn.Module, name: str) -> str:
    """The name of a tensor without those of wrappers: the same at a node that compiles its model,
    or a part of it, and at one that does not."""
    words: list[str] = []
    at: nn.Module | None = model
    *modules, last = name.split(".")
    for word in modules:
        if at is None or not _is_wrapped(at, word):
            words.append(word)
        at = None if at is None else at._modules.get(word)
    return ".".join([*words, last])


class Entry:
    """One tensor that the nodes train together."""

    def __init__(self, model: nn.Module, path: str, is_statistic: bool) -> None:
        owner, _, self._key = path.rpartition(".")
        self._owner = model.get_submodule(owner)
        #: Its name without those of wrappers.
        self.name = plain_name(model, path)
        #: Whether it is a buffer: averaged plainly, beside the rule.
        self.is_statistic = is_statistic
        self._first = self.value
        _refuse_unreadable(self.name, self._first)
        if self._first.dtype not in _FLOATS:
            problem = "expected float32, bfloat16, float16 or float64"
            _refuse(self.name, self._first.dtype, problem)
        self.shape, self.dtype = self._first.shape, self._first.dtype
        self.size = self._first.numel()

    def _held(self) -> torch.Tensor | None:
        owner = self._owner
        if self.is_statistic:
            return owner._buffers.get(self._key)
        return owner._parameters.get(self._key)

    @property
    def value(self) -> torch.Tensor:
        """The tensor now. A buffer may be another one than before."""
        value = self._held()
        assert value is not None
        return value

    def check(self) -> None:
        """Raises if the tensor is not the one with which the node joined, or is of another kind."""
        value = self._held()
        if value is None or not (self.is_statistic or value is self._first):
            raise StateError(
                f"{self.name} is not the parameter with which the node joined: the module has "
                "got another one since, which would stay local. Change the model before join, and "
                "load values with load_state_dict (not assign=True)"
            )
        if value.shape != self.shape or value.dtype != self.dtype:
            raise StateError(
                f"{self.name} is {list(value.shape)} {value.dtype}; it was {list(self.shape)} "
                f"{self.dtype} when the node joined: convert the model before join"
            )


class Layout:
    """Which tensors of a module the nodes mix, in which order."""

    def __init__(
        self,
        model: nn.Module,
        *,
        parameters: Iterable[str] | Iterable[nn.Parameter] | None = None,
        buffers: str = "average",
    ) -> None:
        if not isinstance(model, nn.Module):
            problem = "expected a torch.nn.Module, or a mapping from names to arrays"
            raise SetupError(f"model = {type(model).__name__}: {problem}", None, "model")
        if buffers not in ("average", "local"):
            problem = 'expected "average" or "local"'
            raise SetupError(f'buffers = "{buffers}": {problem}', None, "buffers", buffers, problem)
        self.model = model
        self.buffers = buffers
        every = dict(model.named_parameters())
        mixed = _chosen(model, every, parameters)
        paths = [(path, False) for path in every if path in mixed]
        self.frozen = [
            (plain_name(model, path), value) for path, value in every.items() if path not in mixed
        ]
        for name, value in self.frozen:
            _refuse_unreadable(name, value)
        if buffers == "average":
            paths += [
                (path, True) for path, value in model.named_buffers() if value.is_floating_point()
            ]
        made = (Entry(model, path, is_statistic) for path, is_statistic in paths)
        self.entries = [entry for entry in made if entry.size > 0]
        if all(entry.is_statistic for entry in self.entries):
            problem = "no parameter of the model requires a gradient: nothing to train together"
            raise SetupError(f"model: {problem}", None, "model", None, problem)
        self._sizes = [entry.size for entry in self.entries]
        self._staging: torch.Tensor | None = None

    def tensors(self) -> list[Tensor]:
        """Names, shapes and whether they are statistics, in the order of the flat vector."""
        return [(entry.name, list(entry.shape), entry.is_statistic) for entry in self.entries]

    def initial(self) -> Array:
        """The numbers of the tensors, as f32."""
        with torch.no_grad():
            flat = torch.empty(sum(self._sizes), dtype=torch.float32)
            for entry, part in self._parts(flat):
                part.copy_(entry.value.detach())
        return flat.numpy()

    def _parts(self, flat: torch.Tensor) -> Iterator[tuple[Entry, torch.Tensor]]:
        """The tensors with their parts of a flat vector, in their shapes."""
        parts = torch.split(flat, self._sizes)
        for entry, part in zip(self.entries, parts, strict=True):
            yield entry, part.view(entry.shape)

    def agreed(self) -> dict[str, str]:
        """What must also be the same at all nodes: types other than f32, names of tied parameters,
        and a hash of the parameters that are not trained."""
        agreed = {
            f"dtype.{entry.name}": str(entry.dtype).removeprefix("torch.")
            for entry in self.entries
            if entry.dtype != torch.float32
        }
        names: dict[int, list[str]] = {}
        for path, value in self.model.named_parameters(remove_duplicate=False):
            names.setdefault(id(value), []).append(plain_name(self.model, path))
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
        """Raises if a tensor has changed its shape or type since the node joined, or if a module
        has got another parameter."""
        for entry in self.entries:
            entry.check()

    def check_optimizers(self, optimizers: Iterable[torch.optim.Optimizer]) -> list[str]:
        """Compares the parameters of optimizers with those of the model, by identity. Returns the
        names of those that the nodes train together and no optimizer has.

        Raises :class:`SetupError` for an optimizer with parameters that are not of the model: they
        would stay local, or belong to another model.
        """
        ours = {id(value) for value in self.model.parameters()}
        held: set[int] = set()
        for inner in optimizers:
            theirs = [value for group in inner.param_groups for value in group["params"]]
            strange = sum(id(value) not in ours for value in theirs)
            if strange:
                problem = (
                    "expected parameters of the module that the node joined with: make the "
                    "optimizer of that module's parameters, and attach no optimizer of others"
                )
                value = f"{strange} of {len(theirs)} tensors of {type(inner).__name__}"
                text = f"inner: {value} are not parameters of the model: {problem}"
                raise SetupError(text, None, "inner", value, problem)
            held.update(map(id, theirs))
        trained = [entry for entry in self.entries if not entry.is_statistic]
        missing = [entry.name for entry in trained if id(entry.value) not in held]
        if len(missing) == len(trained):
            problem = "it has none of the parameters that the nodes train together"
            raise SetupError(f"inner: {problem}", None, "inner", None, problem)
        return missing

    def _values(self) -> list[torch.Tensor]:
        """The tensors on the CPU: those of a device are copied there first, all at once."""
        values = [entry.value.detach() for entry in self.entries]
        if all(value.device.type == "cpu" for value in values):
            return values
        return self._stage(values)

    def _stage(self, values: list[torch.Tensor]) -> list[torch.Tensor]:
        gpus = {value.device for value in values if value.device.type == "cuda"}
        if self._staging is None:
            self._staging = torch.empty(
                sum(self._sizes), dtype=torch.float32, pin_memory=bool(gpus)
            )
        staged = [
            # Of another type, the rounded numbers count; f32 holds them exactly but for f64.
            part.copy_(value, non_blocking=value.device in gpus)
            for (_, part), value in zip(self._parts(self._staging), values, strict=True)
        ]
        # A model may be spread over several of them.
        for gpu in gpus:
            torch.cuda.synchronize(gpu)
        return staged

    def write_update(self, x: torch.Tensor, update: torch.Tensor) -> None:
        """Writes the change of the model since it was loaded from ``x``: one pass."""
        self.check()
        with torch.no_grad():
            parts = zip(self._values(), self._parts(x), self._parts(update), strict=True)
            for value, (entry, before), (_, out) in parts:
                if entry.dtype == torch.float32:
                    torch.sub(before, value, out=out)
                else:
                    # The model began from the rounded numbers: measured against the exact ones,
                    # rounding would look like training.
                    rounded = before.to(entry.dtype)
                    out.copy_(rounded.to(torch.float64) - value.to(torch.float64))

    def load(self, x: torch.Tensor) -> None:
        """Loads a flat vector into the tensors."""
        self.check()
        with torch.no_grad():
            for entry, part in self._parts(x):
                entry.value.copy_(part)

    def state_dict(self, x: Array) -> dict[str, torch.Tensor]:
        """Copies of all that the module's ``state_dict`` has, under the names of the unwrapped
        module, with the numbers of ``x`` in place of those that the nodes train together."""
        flat = torch.from_numpy(np.array(x))
        shared = {id(entry.value): part for entry, part in self._parts(flat)}
        made: dict[str, torch.Tensor] = {}
        for path, value in self.model.state_dict(keep_vars=True).items():
            if not isinstance(value, torch.Tensor):
                continue
            part = shared.get(id(value))
            copy = value.detach().clone()
            made[plain_name(self.model, path)] = copy if part is None else copy.copy_(part)
        return made


def _refuse(name: str, value: object, problem: str) -> NoReturn:
    place = f"model.{name}"
    raise SetupError(f"{place} = {value}: {problem}", None, place, str(value), problem)


def _refuse_unreadable(name: str, value: torch.Tensor) -> None:
    """Refuses a tensor without numbers that could be read here."""
    if torch.nn.parameter.is_lazy(value):
        _refuse(name, "without a shape", "expected sizes: give the model a batch before join")
    if value.is_meta:
        problem = "expected numbers: call model.to_empty(device=...) and load or reset them first"
        _refuse(name, 'on the device "meta"', problem)
    if hasattr(value, "full_tensor") or value.layout != torch.strided:
        kind = type(value).__name__
        _refuse(name, kind, "expected a dense tensor that is whole on this machine")


def _chosen(
    model: nn.Module,
    every: dict[str, nn.Parameter],
    parameters: Iterable[str] | Iterable[nn.Parameter] | None,
) -> set[str]:
    """The paths of the parameters to train together."""
    if parameters is None:
        return {path for path, value in every.items() if value.requires_grad}
    by_identity = {id(value): path for path, value in every.items()}
    by_name = {plain_name(model, path): path for path in every} | {path: path for path in every}
    chosen: set[str] = set()
    for one in parameters:
        path = by_name.get(one) if isinstance(one, str) else by_identity.get(id(one))
        if path is None:
            names = ", ".join(plain_name(model, path) for path in every)
            problem = f"expected parameters of the model: {names or 'it has none'}"
            value = one if isinstance(one, str) else f"a tensor of shape {list(one.shape)}"
            text = f"parameters: {value} is not among them: {problem}"
            raise SetupError(text, None, "parameters", value, problem)
        chosen.add(path)
    return chosen


def as_tensor(buffer: Any) -> torch.Tensor:
    with warnings.catch_warnings():
        # The model is only read.
        warnings.filterwarnings("ignore", message="The given buffer is not writable")
        return torch.frombuffer(buffer, dtype=torch.float32)
