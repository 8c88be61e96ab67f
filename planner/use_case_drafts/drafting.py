"""Draft of a use case from a script: model, data, loss and optimizer, by its code alone."""

from __future__ import annotations

import ast
import re
import tokenize
from collections.abc import Iterator, Sequence, Set
from keyword import iskeyword
from pathlib import Path
from stat import S_ISREG

from planner.errors import UsageError
from planner.use_case_drafts.accumulation import batches_per_step
from planner.use_case_drafts.code import (
    argument,
    assignments,
    calls_in,
    dotted,
    given_to,
    last_name,
    names_bound,
    names_read,
    renamed,
    simplified,
    slice_of,
)
from planner.use_case_drafts.data import DataFinder
from planner.use_case_drafts.draft import Draft, Method
from planner.use_case_drafts.loss import find_loss
from planner.use_case_drafts.metrics import find_metrics
from planner.use_case_drafts.options import read_options
from planner.use_case_drafts.scope import Scope, value_of
from planner.use_case_drafts.training_loop import TrainingLoop, as_it_is, find_loop, opened

_EPOCHS = ("epochs", "num_epochs", "n_epochs", "max_epochs", "num_train_epochs")
"""What scripts call the number of their epochs."""

_STEPPED_BY_EPOCH = (
    "steps it once per epoch, ddlplan after every step: write it so, with steps_per_epoch"
)
_NEVER_STEPPED = (
    "does not show that it is stepped: leave this as it is where it never is, or write it with "
    "steps_per_epoch, as ddlplan steps it after every step"
)


def draft_use_case(script: Path) -> Draft:
    """Read a script, which is never executed, and draft the use case that it trains.

    Raises:
        UsageError: It cannot be read, has no training loop, or trains what no use case is.
    """
    try:
        if not S_ISREG(script.stat().st_mode):
            raise UsageError(f"{script}: it is no regular file: name a script")
        with tokenize.open(script) as stream:  # in the encoding that the script names
            source = stream.read()
        tree = ast.parse(source, str(script))
    except OSError as error:
        raise UsageError(f"{script}: {error.strerror}: name a script") from error
    except (SyntaxError, ValueError) as error:
        line, why = "", str(error)
        if isinstance(error, SyntaxError):
            line, why = f", line {error.lineno}" if error.lineno else "", error.msg
        raise UsageError(f"{script}{line}: no Python: {why}") from error
    loop = find_loop(tree, script)
    return _Drafter(tree, loop, script, source).draft()


class _Drafter:
    def __init__(self, tree: ast.Module, loop: TrainingLoop, script: Path, source: str) -> None:
        self._tree = tree
        self._loop = loop
        self._script = script
        self._source = source
        self._options = read_options(tree)
        inner = [
            node
            for statement in loop.others
            for node in ast.walk(statement)
            if isinstance(node, ast.Import | ast.ImportFrom) and node not in tree.body
        ]
        self._scope = Scope(tree, [*inner, *opened(tree.body)], self._options)
        self._before = simplified(loop.before)

    def draft(self) -> Draft:
        optimizers = dict(self._optimizers())
        if len(optimizers) > 1:
            raise UsageError(
                f"{self._script}: {len(optimizers)} optimizers ({', '.join(optimizers)}), and a "
                f"use case has one: {as_it_is(self._script)}"
            )
        if len(self._loop.losses) > 1:
            lines = ", ".join(str(loss.lineno) for loss in self._loop.losses)
            raise UsageError(
                f"{self._script}: a step calls backward() {len(self._loop.losses)} times (lines "
                f"{lines}), and a use case has one loss: {as_it_is(self._script)}"
            )
        name, call = next(iter(optimizers.items()), (None, None))
        model = _model_of(call, self._loop.body) if call is not None else None
        data = DataFinder(self._loop, self._before, self._scope, self._script.name)
        found = [
            self._model(model),
            data.dataset(),
            *data.collate(),
            *find_loss(self._loop, self._before, model, self._scope, self._script.name),
            self._optimizer(call),
            *self._schedule(name),
        ]
        carried, problems = self._scope.carried()
        limit, limit_todo = self._gradient_norm()
        batch, batch_todo = self._default_batch(data, name)
        words = re.findall(r"[A-Za-z0-9]+", self._script.stem)
        class_name = "".join(word[:1].upper() + word[1:] for word in words) or "Script"
        is_name = class_name.isidentifier() and not iskeyword(class_name)  # as None is
        if not is_name or class_name in names_bound(carried):
            class_name = f"Case{class_name}"
        return Draft(
            script=re.sub(r"[^\w. -]", "_", self._script.name),  # for comments and a docstring
            source=self._source,
            class_name=class_name,
            name=self._script.stem,
            default_batch=batch,
            max_gradient_norm=limit,
            settings=tuple(self._scope.settings.values()),
            carried=carried,
            methods=tuple(found),
            todo=(*problems, *limit_todo, *batch_todo, *find_metrics(self._tree)),
        )

    def _default_batch(
        self, data: DataFinder, optimizer: str | None
    ) -> tuple[int | None, list[str]]:
        """Give the samples of a step, which may have several batches of the script."""
        batch, todo = data.default_batch()
        batches, text = batches_per_step(self._loop, optimizer, self._before, self._options)
        if batches is None:
            unsure = "times the batches of a step, if the script steps after several batches"
            return batch, [*todo, f"default_batch: {unsure}: {text}"]
        if batch is None and batches > 1:
            return None, [f"{one}, times {batches}: {text}" for one in todo]
        return None if batch is None else batch * batches, todo

    def _optimizers(self) -> Iterator[tuple[str, ast.Call]]:
        """Find what is stepped in the loop and was made of parameters."""
        stepped = set()
        for call in calls_in(self._loop.body):
            match call:
                case ast.Call(func=ast.Attribute(value=ast.Name(id=name), attr="step"), args=args):
                    stepped |= {name} | {last_name(one) for one in args}
        for name, made in assignments(self._before):
            if isinstance(made, ast.Call) and name in stepped and _parameters_in(given_to(made)):
                yield name, made

    def _model(self, model: str | None) -> Method:
        if model is None or model not in names_bound(self._before):
            todo = f"make the model: {self._script.name} does not show which it is"
            return Method(name="model", arguments="self", todo=(todo,))
        body = slice_of(self._before, {model}, self._scope.fixed)
        line = next(s.lineno for s in reversed(body) if model in names_bound([s]))
        body.append(ast.Return(ast.Name(model, ast.Load())))
        return self._scope.method("model", "self", body, line=line)

    def _optimizer(self, call: ast.Call | None) -> Method:
        arguments = "self, parameters"
        if call is None:
            text = "make the optimizer of these parameters"
            return Method(name="optimizer", arguments=arguments, todo=(text,))
        todo: list[str] = []
        match next(value for value in given_to(call) if _parameters_in([value])):
            case (
                ast.Call(
                    func=ast.Attribute(value=owner, attr="parameters"), args=[], keywords=[]
                ) as first
            ) if _is_whole(owner):
                call = _with_parameters(call, first)
            case first:
                todo.append(f"of {ast.unparse(first)}, make what these parameters allow")
        outer = slice_of(self._before, names_read([call]) - {"parameters"}, self._scope.fixed)
        body = [*outer, ast.Return(call)]
        return self._scope.method("optimizer", arguments, body, line=call.lineno, todo=todo)

    def _schedule(self, optimizer: str | None) -> Iterator[Method]:
        """Give the learning-rate schedule: of several the last that is stepped with each batch."""
        if optimizer is None:
            return
        by_batch, at_all = _names_stepped(self._loop.body), _names_stepped(self._tree.body)
        made: list[tuple[bool, bool, ast.Call]] = []
        for name, value in assignments(self._before):
            if isinstance(value, ast.Call):
                given = argument(value, "optimizer", 0)
                if given is not None and last_name(given) == optimizer:
                    made.append((name in by_batch, name in at_all, value))
        if made:
            by_step, is_stepped, call = max(reversed(made), key=lambda one: one[:2])
            otherwise = _STEPPED_BY_EPOCH if is_stepped else _NEVER_STEPPED
            yield self._schedule_of(call, optimizer, None if by_step else otherwise)

    def _schedule_of(self, call: ast.Call, optimizer: str, otherwise: str | None) -> Method:
        """Make the method; what the script does otherwise than ddlplan is left to the user."""
        line, given = call.lineno, {"optimizer", "steps_per_epoch", "epochs"}
        body: list[ast.stmt] = [ast.Return(ast.Constant(None))]
        todo = [f"{ast.unparse(call)}: {self._script.name} {otherwise}"]
        if otherwise is None:
            new = dict.fromkeys(_EPOCHS, ast.Name("epochs", ast.Load()))
            new[optimizer] = ast.Name("optimizer", ast.Load())
            lengths = _LengthReplacer(self._loop.batches, self._options.holders)
            call, *before = (lengths.visit(renamed(node, new)) for node in (call, *self._before))
            # Schedules that it is made of are of this optimizer too.
            outer = slice_of(before, names_read([call]) - given, self._scope.fixed | given)
            body, todo = [*outer, ast.Return(call)], []
            batches, _ = batches_per_step(self._loop, optimizer, self._before, self._options)
            if batches != 1:
                todo.append(
                    f"a step may have several batches of {self._script.name}: see that what is "
                    "counted here are steps, as steps_per_epoch"
                )
        arguments = "self, optimizer, steps_per_epoch, epochs"
        return self._scope.method("schedule", arguments, body, line=line, todo=todo)

    def _gradient_norm(self) -> tuple[float | None, list[str]]:
        for call in calls_in(self._loop.body):
            match last_name(call.func):
                case "clip_grad_norm_" | "clip_grad_norm":
                    limit = argument(call, "max_norm", 1)
                    value = value_of(limit, self._options, self._before)
                    is_plain = argument(call, "norm_type", 2) is None
                    if is_plain and isinstance(value, int | float) and value > 0:
                        return float(value), []
                    return None, [f"max_gradient_norm: {ast.unparse(call)}, line {call.lineno}"]
                case "clip_grad_value_":
                    return None, [f"line {call.lineno} clips each value of a gradient: left out"]
        return None, []


def _names_stepped(statements: Sequence[ast.stmt]) -> set[str]:
    return {
        last_name(call.func.value)
        for call in calls_in(statements)
        if isinstance(call.func, ast.Attribute) and call.func.attr == "step"
    }


def _parameters_in(values: Sequence[ast.expr]) -> list[ast.Call]:
    return [
        inner
        for inner in calls_in(values)
        if last_name(inner.func) in ("parameters", "named_parameters")
    ]


def _with_parameters(call: ast.Call, first: ast.expr) -> ast.Call:
    given = ast.Name("parameters", ast.Load())
    args = [given if one is first else one for one in call.args]
    keywords = [ast.keyword(k.arg, given if k.value is first else k.value) for k in call.keywords]
    return ast.copy_location(ast.Call(call.func, args, keywords), call)


def _model_of(call: ast.Call, loop: Sequence[ast.stmt]) -> str | None:
    """Give the one name whose parameters an optimizer is made of, or those of its parts.

    The loop calls a model, and not what only holds one, as ``args`` in ``args.net.parameters()``.
    """
    called = {dotted(inner.func) for inner in calls_in(loop)}
    parts = [
        dotted(inner.func.value).partition(".")
        for inner in _parameters_in(given_to(call))
        if isinstance(inner.func, ast.Attribute)
    ]
    owners = {name for name, _, part in parts if not part or name in called} - {"", "self"}
    return owners.pop() if len(owners) == 1 else None


def _is_whole(owner: ast.expr) -> bool:
    """Tell whether parameters are those of a model, and not of a part such as ``model.head``."""
    return dotted(owner).removeprefix("self.").removesuffix(".module").isidentifier()


class _LengthReplacer(ast.NodeTransformer):
    """Puts ``steps_per_epoch`` in the place of the number of batches, ``epochs`` of their option.

    What `launch` is told of them counts, not the script's default.
    """

    def __init__(self, batches: ast.expr, holders: Set[str]) -> None:
        self._text = f"len({ast.unparse(batches)})"
        self._holders = holders

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        match node:
            case ast.Attribute(value=ast.Name(id=holder), attr=name, ctx=ast.Load()) if (
                holder in self._holders and name in _EPOCHS
            ):
                return ast.Name("epochs", ast.Load())
        return self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> ast.AST:
        if ast.unparse(node) == self._text:
            return ast.Name("steps_per_epoch", ast.Load())
        return self.generic_visit(node)
