"""Data of a script: the data sets behind its loaders, their batch and their collate function."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

from planner.use_case_drafts.code import (
    argument,
    assignments,
    calls_in,
    last_name,
    names_read,
    simplified,
    slice_of,
    values_assigned,
)
from planner.use_case_drafts.draft import Method
from planner.use_case_drafts.options import constant_of
from planner.use_case_drafts.scope import Scope, value_of
from planner.use_case_drafts.training_loop import TrainingLoop, statements_before

_DRAWN = {"randn", "rand", "randint"}
_RANDOM = {*_DRAWN, "randperm", "random_split", "shuffle", "normal", "randn_like", "rand_like"}
_DROPPED = {"DistributedSampler", "RandomSampler"}
"""Samplers that draw each sample once an epoch, as ddlplan does."""


class DataFinder:
    """What a script's loaders say of its data; ``before`` is executed before its loop."""

    def __init__(
        self, loop: TrainingLoop, before: list[ast.stmt], scope: Scope, script: str
    ) -> None:
        self._loop = loop
        self._before = before
        self._scope = scope
        self._script = script
        self._loader = _loader_of(loop.batches, before)

    def default_batch(self) -> tuple[int | None, list[str]]:
        """Give the batch of the script, or what is to be filled in."""
        if self._loader is None:
            return None, ["default_batch: the samples of a batch"]
        given = argument(self._loader, "batch_size", 1)
        if given is None and any(k.arg is None for k in self._loader.keywords):
            given = self._batch_in_a_dictionary()
        elif given is None:
            return 1, []
        value = value_of(given, self._scope.options, self._before)
        if isinstance(value, int) and value > 0:
            return value, []
        return None, ["default_batch: the samples of a batch"]

    def _batch_in_a_dictionary(self) -> ast.expr | None:
        assert self._loader is not None
        names = {n for k in self._loader.keywords if k.arg is None for n in names_read([k.value])}
        values = [
            value
            for statement in slice_of(self._before, names, self._scope.fixed)
            for node in ast.walk(statement)
            if isinstance(node, ast.Dict)
            for key, value in zip(node.keys, node.values, strict=True)
            if constant_of(key) == "batch_size"
        ]
        return values[0] if len(values) == 1 else None

    def dataset(self) -> Method:
        """Give both data sets."""
        arguments = "self, data, *, train"
        train = argument(self._loader, "dataset", 0) if self._loader is not None else None
        if self._loader is None or train is None:
            text = f"open the training samples, of {ast.unparse(self._loop.batches)}, or others"
            return Method(name="dataset", arguments=arguments, todo=(text,))
        todo = list(self._remarks(self._loader))
        other, statements, remark = self._validation()
        fixed = self._scope.fixed
        own = slice_of(self._before, names_read([train]), fixed)
        if other is None:
            todo.append(remark)
            body = self._seeded([*own, *_returning(train, own)], todo)
        else:
            theirs = slice_of(statements, names_read([other]), fixed)
            shared = {ast.unparse(s) for s in own} & {ast.unparse(s) for s in theirs}
            body = [
                *(s for s in own if ast.unparse(s) in shared),
                ast.If(
                    ast.Name("train", ast.Load()),
                    [
                        *(s for s in own if ast.unparse(s) not in shared),
                        *_returning(train, own),
                    ],
                    [],
                ),
                *(s for s in theirs if ast.unparse(s) not in shared),
                *_returning(other, theirs),
            ]
            body = self._seeded(body, todo)
        return self._scope.method("dataset", arguments, body, line=self._loader.lineno, todo=todo)

    def collate(self) -> Iterator[Method]:
        """Give the collate function, where the loader has one."""
        if self._loader is None:
            return
        function = argument(self._loader, "collate_fn", 6)
        if function is None or ast.unparse(function) == "None":
            return
        outer = slice_of(self._before, names_read([function]), self._scope.fixed)
        call = ast.Call(function, [ast.Name("samples", ast.Load())], [])
        body = [*outer, ast.Return(call)]
        yield self._scope.method("collate", "self, samples", body, line=function.lineno)

    def _remarks(self, loader: ast.Call) -> Iterator[str]:
        sampler = argument(loader, "sampler", 3)
        if sampler is not None and not self._is_plain(sampler):
            text = ast.unparse(sampler)
            yield f"sampler={text} is left out: ddlplan draws each sample once an epoch"
        if (batches := argument(loader, "batch_sampler", 4)) is not None:
            yield f"batch_sampler={ast.unparse(batches)} is left out: ddlplan draws the batches"

    def _is_plain(self, sampler: ast.expr) -> bool:
        made = [sampler]
        if isinstance(sampler, ast.Name):
            made = values_assigned(self._before, sampler.id)
        kinds = {last_name(call.func) for call in calls_in(made)}
        return bool(kinds & _DROPPED)

    def _validation(self) -> tuple[ast.expr | None, Sequence[ast.stmt], str]:
        """Find the validation samples: what another loader of the script opens."""
        others = simplified(self._loop.others)  # as the loader is
        loaders = [
            (name, node, call)
            for statement in others
            for node in ast.walk(statement)
            for name, call in assignments([node])
            if isinstance(call, ast.Call) and last_name(call.func) == "DataLoader"
            if ast.unparse(call) != ast.unparse(self._loader or call)
        ]
        chosen = loaders
        if len(loaders) > 1:
            chosen = [loader for loader in loaders if "val" in loader[0].lower()]
        if len(chosen) == 1:
            _, statement, call = chosen[0]
            other = argument(call, "dataset", 0)
            if other is not None:
                return other, simplified(statements_before(others, statement)), ""
        if loaders:
            names = ", ".join(name for name, _, _ in loaders)
            return None, [], f"validation samples: one of {names}; these are those for training"
        remark = f"validation samples: {self._script} has none; these are those for training"
        return None, [], remark

    def _seeded(self, body: list[ast.stmt], todo: list[str]) -> list[ast.stmt]:
        """Draw at random as with one seed: every process must find the same samples."""
        calls = [c for c in calls_in(body) if last_name(c.func) in _RANDOM]
        free = [c for c in calls if not any(k.arg == "generator" for k in c.keywords)]
        if not free:
            return body
        if any(ast.unparse(call.func).startswith(("np.", "numpy.", "random.")) for call in free):
            todo.append("seed what is drawn: every process must find the same samples")
            return body
        seed = next(
            (
                value
                for call in calls_in(self._before)
                if last_name(call.func) == "manual_seed" and call.args
                if isinstance(value := value_of(call.args[0], self._scope.options, []), int)
            ),
            0,
        )
        seeded = ast.parse(f"torch.manual_seed({seed})").body
        fork = ast.parse("torch.random.fork_rng(devices=[])", mode="eval").body
        self._scope.wanted.add("torch")
        return [ast.With([ast.withitem(fork)], [*seeded, *body])]


def _loader_of(batches: ast.expr, before: Sequence[ast.stmt]) -> ast.Call | None:
    """Find the call of DataLoader that gives the batches."""
    made: ast.expr | None = batches
    if isinstance(batches, ast.Name):
        values = values_assigned(before, batches.id)
        made = values[-1] if values else None
    if isinstance(made, ast.Call) and last_name(made.func) == "DataLoader":
        return made
    return None


def _returning(samples: ast.expr, made: Sequence[ast.stmt]) -> list[ast.stmt]:
    """Return samples; those that were drawn at random are marked as made up."""
    kinds = {last_name(call.func) for call in calls_in([*made, samples])}
    if "TensorDataset" not in kinds or not kinds & _DRAWN:
        return [ast.Return(samples)]
    name, naming = "samples", list[ast.stmt]()
    if isinstance(samples, ast.Name):
        name = samples.id
    else:
        naming.append(ast.Assign([ast.Name(name, ast.Store())], samples, lineno=0))
    mark = ast.parse(f"{name}.is_generated = True").body
    return [*naming, *mark, ast.Return(ast.Name(name, ast.Load()))]
