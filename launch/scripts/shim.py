"""Shim: runs a user's program in the user's own Python and tells when its optimizers step.

``python shim.py train.py ARGUMENTS``, ``python shim.py -m module ARGUMENTS`` and
``python shim.py -c CODE ARGUMENTS`` do what Python would do without the shim. It is one file that
needs the standard library alone and runs in Pythons from 3.8 on, because the user's environment
may be another one than ddlplan's. Its settings are in one variable, which it takes out of the
environment, so that programs which the script starts have nothing of it.

Nothing of torch is imported here: an entry of ``sys.meta_path`` waits until the program does so,
and then registers torch's own hook on all optimizers. A process has a connection from its first
step on. At the end of a turn it waits there, inside of the hook, for the next one. Processes that
make no step, such as loaders of data, never report. Those that multiprocessing starts by spawn or
forkserver are seen through what it sends them first, those that are forked have the hooks already.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import sys
import threading
import time
import weakref

TYPE_CHECKING = False
if TYPE_CHECKING:  # so that typing is not loaded in the user's process
    from collections.abc import Callable
    from typing import Any, TypeVar

    T = TypeVar("T")

VARIABLE = "DDLPLAN_SCRIPT"
_MODULE = "_ddlplan_shim"
_PATCHES = "_ddlplan_patches"
_INSTALLED = "_ddlplan_installed"
LOST_CONNECTION = 77
"""Exit code of a process whose connection the script has closed."""

_FLUSH_NS = 1_000_000_000
"""Between two reports of a process that does not wait: each wakes who reads it."""

_FIRST_LOSSES = 3
"""Steps of optimizers whose losses are told: to read more of them takes time."""

_GIVE_UP_S = 5.0
"""Time that a launched script waits at most until its report is taken."""
_MANY_BATCHES = 256
"""Batches without a step of an optimizer that are told, a power of two: a step may be hidden."""

_COUNTED, _LISTED = 2, 3
"""Where the samples of a loader's batches are seen, beside 0 and 1, their dimensions: in what the
loader has counted; in the length of the batch; from then on, of its first part, its second ..."""

_MOST_WORDS = 2000
_WORLD = ("WORLD_SIZE", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE")
_RANK = ("RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK")


class _WatchedProcess:
    """What this process has done since its last report."""

    def __init__(self, settings: dict[str, Any]) -> None:
        self.settings = settings
        self.lock = threading.RLock()
        self.first_pid = os.getpid()
        self.runs_on = bool(settings.get("runs_on"))  # launched: it is never to wait, nor to end
        self.made: Any = _ById()  # optimizers: those of a parent are there after a fork, too
        self.begin()

    def begin(self) -> None:
        """Forget all: the process is new."""
        self.pid = os.getpid()
        self.socket: Any = None
        self.inode = 0
        self.unread = b""
        self.optimizers: Any = _ById()
        self.loaders: Any = _ById()
        self.sources: Any = _ById()
        self.places: dict[int, int] = {}
        self.seen_optimizers = self.seen_loaders = 0
        self.news: list[dict[str, Any]] = []
        self.events: list[tuple[Any, ...]] = []
        self.losses_left = _FIRST_LOSSES
        self.fetches: dict[tuple[int, int | None, int], int] = {}
        self.input_ns = 0
        self.backwards = 0
        self.losses: list[Any] = []
        self.untold = 0
        self.left = 0
        self.boundary = -1
        self.has_told_rest = self.is_lost = False
        self.last_ns = self.flushed_ns = time.perf_counter_ns()

    def begin_anew(self) -> None:
        """Start anew after a fork: the steps of the parent are not those of this process."""
        self.lock = threading.RLock()
        if self.socket is not None:
            self.socket.close()
        self.begin()

    def on_step(self, optimizer: Any) -> None:
        """Note a step of an optimizer; wait where it was the last of a turn."""
        if self.is_lost:
            return
        with self.lock:
            number = self.optimizers.numbers.get(id(optimizer))
            if number is None:
                number = self.seen_optimizers  # not their number now: some may be gone
                self.seen_optimizers += 1
                self.optimizers.put(optimizer, number)
                idle = sum(at not in self.optimizers.numbers for at in list(self.made.numbers))
                name = type(optimizer).__name__
                self.news.append({"optimizer": number, "name": name, "idle": idle})
            self.untold = 0
            if self.socket is None:
                self.connect()
            counts = self.boundary < 0 or number == self.boundary
            is_last = counts and self.left <= 1 and not self.runs_on
            if is_last:
                _synchronise()
            now_ns = time.perf_counter_ns()
            self.note(number, now_ns)
            if counts:
                self.left -= 1
            if is_last:
                self.send({"waits": True})
                self.wait()
            elif now_ns - self.flushed_ns > _FLUSH_NS:
                self.send({})

    def note(self, number: int, now_ns: int) -> None:
        """Add an event; what it holds is put into a report only when that is sent."""
        what = (number, self.fetches, self.backwards)
        self.events.append((now_ns - self.last_ns, self.input_ns, what, self.losses))
        self.last_ns = now_ns
        self.fetches = {}
        self.input_ns = self.backwards = 0
        if self.losses_left:
            self.losses = []
            self.losses_left -= 1

    def on_fetch(self, iterator: Any, batch: Any, waited_ns: int) -> None:
        """Note a batch that was read in this process."""
        source = self.sources.numbers.get(id(iterator))
        loader = -1 if source is None else source.number
        size = _size(batch) if source is None else self.size_of(batch, source)
        torch = sys.modules.get("torch")
        key = (loader, size, int(torch is None or torch.is_grad_enabled()))
        self.fetches[key] = self.fetches.get(key, 0) + 1
        self.input_ns += waited_ns
        if key[2] and not self.is_lost:
            self.untold += 1
            # Again at twice as many: the first may be those of an evaluation.
            if self.untold >= _MANY_BATCHES and not self.untold & (self.untold - 1):
                with self.lock:
                    if self.socket is None:
                        self.connect()
                    self.send({"unseen": _rows(self.fetches)})

    def size_of(self, batch: Any, source: _Source) -> int | None:
        """Give the samples of a batch: a loader's first one, whose samples are known, tells where.

        It may be the second dimension, behind the steps in time. A last batch has its own number of
        samples, and may have as many features as a whole one has samples.
        """
        counted = source.count()
        place = self.places.get(source.number)
        if place is None and source.batch is not None:
            place = _find_place(batch, source)
            if place is not None:
                self.places[source.number] = place
        if place is None or place < _COUNTED:
            return _size(batch, place or 0)
        if place == _COUNTED:
            return counted
        part = place - _LISTED  # counted from 1; 0: the batch itself
        return _try(lambda: len(batch[part - 1] if part else batch))

    def on_loader(self, loader: Any, iterator: Any) -> None:
        """Note that a data loader was started."""
        workers = _try(lambda: int(loader.num_workers))
        number = self.loaders.numbers.get(id(loader))
        if number is None:
            number = self.seen_loaders
            self.seen_loaders += 1
            self.loaders.put(loader, number)
            # Another loader of the same data may go on with a training.
            data = _try(lambda: id(loader.dataset)) or id(loader)
            self.news.append({"loader": number, "workers": workers, "data": data})
        self.sources.put(iterator, _Source(number, loader))

    def on_backward(self, loss: Any) -> None:
        """Note a loss, without what it was computed from."""
        self.backwards += 1
        if self.losses_left and not self.runs_on and _is_number(loss):
            self.losses.append(loss.detach())

    def connect(self) -> None:
        """Connect to the process that measures, and identify this one."""
        try:
            import socket

            connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            if self.runs_on:
                connection.settimeout(_GIVE_UP_S)
            connection.connect("\0" + self.settings["address"])
        except OSError:  # nobody hears it, or it has no file left
            if not self.runs_on:
                raise
            self.is_lost = True
            return
        self.socket, self.inode = connection, os.fstat(connection.fileno()).st_ino
        rank, world = _place_of_rank()
        torch = sys.modules.get("torch")
        threads = getattr(torch, "get_num_threads", lambda: None)()
        hello = {"token": self.settings["token"], "pid": self.pid, "rank": rank}
        patched = sorted(getattr(sys.modules.get(_PATCHES), "applied", ()))
        place = {"world": world, "threads": threads, "is_async": _uses_gpu()}
        self.write({**hello, **place, "patched": patched})
        import atexit

        atexit.register(self.flush)
        if "multiprocessing.util" in sys.modules:  # whose processes leave without atexit
            from multiprocessing.util import Finalize

            Finalize(None, self.flush, exitpriority=100)

    def tell_error(self, error: BaseException) -> None:
        """Send what ends a launched script, where that has words."""
        # A process that was forked has told nothing by then: it would count as another rank.
        is_scripts_own = self.pid == self.first_pid
        if self.runs_on and is_scripts_own and isinstance(error, (Exception, SystemExit)):
            words = error.code if isinstance(error, SystemExit) else _words(error)
            if isinstance(words, str):
                if self.socket is None:
                    self.connect()
                self.send({"ended_by": words[-_MOST_WORDS:]})

    def flush(self) -> None:
        """Send what is left at the end of this process."""
        if self.pid == os.getpid() and not self.has_told_rest and self.is_open():
            self.has_told_rest = True
            rest_s = (time.perf_counter_ns() - self.last_ns) / 1e9
            self.send({"rest_s": rest_s, "rest": _rows(self.fetches)})

    def send(self, report: dict[str, Any]) -> None:
        """Send what has happened since the last report."""
        events, self.events = self.events, []
        news, self.news = self.news, []
        # To read them is to wait for the GPU.
        reads_losses = not _uses_gpu() or ("waits" in report and not _captures_graph())
        told: list[tuple[Any, ...]] = []
        last: dict[int, tuple[Any, ...]] = {}
        for time_ns, input_ns, what, losses in events:
            number, fetches, backwards = what
            if last.get(number) == what and not losses:  # as most are
                told.append((number, time_ns, input_ns))
                continue
            last[number] = what
            loss = _mean(losses) if reads_losses else None
            told.append((number, time_ns, input_ns, _rows(fetches), backwards, loss))
        self.write({"news": news, "events": told, **report})
        self.flushed_ns = time.perf_counter_ns()

    def write(self, document: dict[str, Any]) -> None:
        """Write a line. A script that closes all its files has closed ours as well."""
        if self.is_lost:
            return
        try:
            if not self.is_open():  # its number may be another file by now
                raise OSError
            self.socket.sendall(json.dumps(document).encode() + b"\n")
        except OSError:
            if not self.runs_on:
                os._exit(LOST_CONNECTION)
            self.is_lost = True

    def is_open(self) -> bool:
        """Tell whether there is a connection, and the script has not closed it."""
        if self.socket is None:
            return False
        try:
            return os.fstat(self.socket.fileno()).st_ino == self.inode
        except (OSError, ValueError):
            return False

    def wait(self) -> None:
        """Wait for the next turn."""
        while b"\n" not in self.unread:
            block = self.socket.recv(4096)
            if not block:  # who measures is gone
                os._exit(0)
            self.unread += block
        line, _, self.unread = self.unread.partition(b"\n")
        turn = json.loads(line.decode())
        self.left, self.boundary = turn["steps"], turn["boundary"]
        self.last_ns = time.perf_counter_ns()


class _ById:
    """What is known of objects, by their `id`, until they are gone.

    A WeakKeyDictionary makes an object for each look at it.
    """

    def __init__(self) -> None:
        self.numbers: dict[int, Any] = {}
        self.references: dict[int, Any] = {}

    def put(self, key: Any, number: Any) -> None:
        at = id(key)

        def forget(_reference: Any) -> None:
            del self.numbers[at], self.references[at]

        try:
            self.references[at] = weakref.ref(key, forget)
        except TypeError:  # an iterator of the user's own may have none
            return
        self.numbers[at] = number


class _Source:
    """A data loader that is read: its number, and what it says itself of its batches."""

    def __init__(self, number: int, loader: Any) -> None:
        self.number = number
        batch = _try(lambda: int(loader.batch_size))
        total = _try(lambda: len(loader.sampler))  # None: it reads on without an end that is known
        self.is_own = batch is not None
        if batch is None:  # of the user's sampler, whose batches others may split or share
            batch = _try(lambda: int(loader.batch_sampler.batch_size))
        if batch and total:  # the first batch is all of the data where that is less
            batch = min(batch, total)
            total -= total % batch if _try(lambda: int(loader.drop_last)) else 0
        self.batch, self.total, self.left = batch, total, 0

    def count(self) -> int | None:
        """Give the samples of the next batch by what is left of the data, which may come again."""
        if not self.batch or not self.total:
            return None
        self.left = self.left or self.total
        size = min(self.batch, self.left)
        self.left -= size
        return size


def _rows(fetches: dict[tuple[int, int | None, int], int]) -> list[tuple[Any, ...]]:
    return [(*key, count) for key, count in list(fetches.items())]  # a thread may read on


def _words(error: BaseException) -> str:
    """Give the last lines of a traceback."""
    import traceback

    return "".join(traceback.format_exception_only(type(error), error))


def _is_inner(optimizer: Any, frame: Any) -> bool:
    """Tell whether a step is a part of another one of the same optimizer.

    A class may call the step of its parent, as Horovod's do: torch calls the hooks for both.

    Args:
        optimizer: Whose step has ended.
        frame: Of torch, which calls the hooks.
    """
    code, outer = frame.f_code, frame.f_back
    while outer is not None:
        if outer.f_code is code and any(one is optimizer for one in outer.f_locals.values()):
            return True
        outer = outer.f_back
    return False


def _synchronise() -> None:
    if _uses_gpu() and not _captures_graph():
        sys.modules["torch"].cuda.synchronize()


def _uses_gpu() -> bool:
    cuda = getattr(sys.modules.get("torch"), "cuda", None)
    return cuda is not None and cuda.is_initialized()


def _captures_graph() -> bool:
    """Tell whether a CUDA graph is being made of what is done now: to wait would end that."""
    return bool(sys.modules["torch"].cuda.is_current_stream_capturing())


def _place_of_rank() -> tuple[int, int]:
    """Give rank and world size: of torch.distributed, else of what started the process."""
    distributed = sys.modules.get("torch.distributed")
    if distributed is not None and distributed.is_available() and distributed.is_initialized():
        return distributed.get_rank(), distributed.get_world_size()
    found = [
        next((int(os.environ[n]) for n in names if os.environ.get(n, "").isdigit()), default)
        for names, default in ((_RANK, 0), (_WORLD, 1))
    ]
    return found[0], found[1]


def _size(batch: Any, dimension: int = 0) -> int | None:
    """Give the number of samples: one dimension of the first tensor.

    A batch of the user's own class may raise anything when it is looked at: that is not to end a
    training.
    """
    try:
        first = batch[0] if isinstance(batch, (list, tuple)) and batch else batch
        shape = getattr(first, "shape", None)
        if shape and len(shape) > dimension:  # pairs of batches, mostly
            return int(shape[dimension])
        return _dimension(batch, dimension, 0)
    except Exception:  # noqa: BLE001
        return None


def _find_place(batch: Any, source: _Source) -> int | None:
    """Find where in a loader's first batch its samples are seen; ``None``: nowhere.

    Without such a dimension, as of graphs or pictures of different sizes, what the loader counts
    holds, else a list of as many. One that counts to one may have a data set of whole batches.
    """
    if _size(batch) == source.batch:
        return 0
    if source.is_own and _size(batch, 1) == source.batch:
        return 1
    if source.is_own and source.total and source.batch != 1:
        return _COUNTED
    parts = batch if isinstance(batch, (list, tuple)) else ()
    for at, part in (*enumerate(parts, 1), (0, batch)):
        if isinstance(part, (list, tuple)) and len(part) == source.batch:
            return _LISTED + at
    return None


def _try(look: Callable[[], T]) -> T | None:
    """Give what is found at an object of the user's own; ``None`` where to look raises anything."""
    try:
        return look()
    except Exception:  # noqa: BLE001
        return None


def _is_number(loss: Any) -> bool:
    try:
        return bool(loss.numel() == 1)
    except Exception:  # noqa: BLE001  # of a class of the user's own, or while it is traced
        return False


def _mean(losses: list[Any]) -> float | None:
    # Complex ones have none, nor have those of a model without values.
    return _try(lambda: sum(map(float, losses)) / len(losses)) if losses else None


def _dimension(value: Any, number: int, depth: int) -> int | None:
    shape = getattr(value, "shape", None)
    if shape is not None:
        return int(shape[number]) if len(shape) > number else None
    if depth > 4 or isinstance(value, (str, bytes)):
        return None
    if hasattr(value, "values") and hasattr(value, "keys"):
        parts = list(value.values())
    elif isinstance(value, (list, tuple)):
        parts = list(value)
    else:
        parts = list(getattr(value, "__dict__", {}).values())
    for part in parts:
        found = _dimension(part, number, depth + 1)
        if found is not None:
            return found
    return len(value) if isinstance(value, list) and not number else None


class _ImportWatch:
    """An entry of ``sys.meta_path`` that acts when a module has been imported."""

    def __init__(self, actions: dict[str, list[Any]]) -> None:
        self.actions = actions

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        actions = self.actions.get(name)
        if actions is None:
            return None
        for finder in list(sys.meta_path):
            # A finder of the old kind has no such method: Python from 3.12 on leaves it out.
            find = None if finder is self else getattr(finder, "find_spec", None)
            spec = find and find(name, path, target)
            if spec is not None and spec.loader is not None:
                loader: Any = spec.loader
                loader.exec_module = _run_and_act(loader, actions)
                return spec
        return None


def _run_and_act(loader: Any, actions: list[Any]) -> Any:
    run = loader.exec_module

    def run_and_act(module: Any) -> None:
        del loader.exec_module  # the loader is as it was, for who asks it for its source
        run(module)
        for action in actions:
            action(module)

    return run_and_act


class _Installer:
    """Installs the shim in a process that unpickles it."""

    def __init__(self, settings: dict[str, Any]) -> None:
        self.settings = settings

    def __reduce__(self) -> Any:
        import runpy

        return runpy.run_path, (__file__, {"SETTINGS": self.settings}, _MODULE)


def install(settings: dict[str, Any]) -> None:
    """Patch and watch this process from now on, as far as it is asked for."""
    if _INSTALLED in sys.modules:
        return
    sys.modules[_INSTALLED] = type(sys)(_INSTALLED)
    actions: dict[str, list[Any]] = {"multiprocessing.spawn": [_follow_spawn(settings)]}
    for found in (_patch_actions(settings), _watch_actions(settings)):
        for name, some in found.items():
            actions.setdefault(name, []).extend(some)
    for name in [name for name in actions if name in sys.modules]:
        for action in actions.pop(name):
            action(sys.modules[name])
    sys.meta_path.insert(0, _ImportWatch(actions))


def _follow_spawn(settings: dict[str, Any]) -> Any:
    """Give what makes processes that multiprocessing starts by spawn do the same."""

    def follow(module: Any) -> None:
        prepare = module.get_preparation_data

        def prepare_and_install(name: str) -> dict[str, Any]:
            return {**prepare(name), _MODULE: _Installer(settings)}

        module.get_preparation_data = prepare_and_install

    return follow


def _patch_actions(settings: dict[str, Any]) -> dict[str, list[Any]]:
    """Give what changes the script, where its user has asked for that."""
    if not settings.get("patches") and "seed" not in settings:
        return {}
    from importlib.util import module_from_spec, spec_from_file_location

    folder = os.path.dirname(os.path.abspath(__file__))  # noqa: PTH100, PTH120
    spec = spec_from_file_location(_PATCHES, f"{folder}/patches.py")
    module = module_from_spec(spec)  # type: ignore[arg-type]
    sys.modules[_PATCHES] = module
    spec.loader.exec_module(module)  # type: ignore[union-attr]
    found: dict[str, list[Any]] = module.actions(settings.get("patches", {}), settings.get("seed"))
    return found


def _watch_actions(settings: dict[str, Any]) -> dict[str, list[Any]]:
    """Give what watches the steps, where somebody wants to know of more than how it ends."""
    if "address" not in settings:
        return {}
    process = _WatchedProcess(settings)
    vars(sys.modules[_INSTALLED])["process"] = process
    os.register_at_fork(after_in_child=process.begin_anew)
    if settings.get("errors_alone"):
        return {}

    def watch_optimizers(module: Any) -> None:
        def step_hook(optimizer: Any, _args: Any, _kwargs: Any) -> None:
            if not _is_inner(optimizer, sys._getframe(1)):
                process.on_step(optimizer)

        hook: Any = step_hook
        hook._torchdynamo_disable = True  # or torch.compile would trace it
        module.register_optimizer_step_post_hook(hook)
        make = module.Optimizer.__init__

        @functools.wraps(make)
        def make_and_note(self: Any, *args: Any, **kwargs: Any) -> None:
            make(self, *args, **kwargs)
            process.made.put(self, None)

        module.Optimizer.__init__ = make_and_note

    def watch_loaders(module: Any) -> None:
        base, loader_class = module._BaseDataLoaderIter, module.DataLoader
        fetch, start = base.__next__, loader_class.__iter__

        @functools.wraps(fetch)
        def fetch_and_note(self: Any) -> Any:
            began_ns = time.perf_counter_ns()
            batch = fetch(self)
            process.on_fetch(self, batch, time.perf_counter_ns() - began_ns)
            return batch

        @functools.wraps(start)
        def start_and_note(self: Any) -> Any:
            iterator = start(self)
            process.on_loader(self, iterator)
            return iterator

        base.__next__, loader_class.__iter__ = fetch_and_note, start_and_note

    def watch_losses(module: Any) -> None:
        backward = module.Tensor.backward

        @functools.wraps(backward)
        def backward_and_note(self: Any, *args: Any, **kwargs: Any) -> Any:
            process.on_backward(self)
            return backward(self, *args, **kwargs)

        module.Tensor.backward = backward_and_note

    return {
        "torch.optim.optimizer": [watch_optimizers],
        "torch.utils.data.dataloader": [watch_loaders],
        "torch._tensor": [watch_losses],
    }


def run(arguments: list[str]) -> None:
    """Run a program as Python would, in a module ``__main__`` of its own."""
    import builtins
    import pkgutil
    import runpy

    main = type(sys)("__main__")
    main.__dict__.update(__builtins__=builtins, __annotations__={})
    sys.modules["__main__"] = main
    is_safe = getattr(sys.flags, "safe_path", False) or sys.flags.isolated
    option = arguments[0]
    if option == "-c":
        sys.argv = ["-c", *arguments[2:]]
        if not is_safe:
            sys.path[0] = ""
        code = compile(arguments[1], "<string>", "exec", dont_inherit=True)
        exec(code, main.__dict__)  # noqa: S102
        return
    if option == "-m":
        sys.argv = ["-m", *arguments[2:]]
        if not is_safe:
            sys.path[0] = os.getcwd()  # noqa: PTH109
        runpy._run_module_as_main(arguments[1])  # type: ignore[attr-defined]
        return
    sys.argv = list(arguments)
    if pkgutil.get_importer(option) is not None:  # a folder, or an archive of whatever name
        if not is_safe:
            sys.path[0] = option
        else:
            sys.path.insert(0, option)
        runpy._run_module_as_main("__main__", False)  # type: ignore[attr-defined]
        return
    import io
    from importlib.machinery import SourceFileLoader, SourcelessFileLoader

    try:
        with io.open_code(os.path.abspath(option)) as file:  # noqa: PTH100
            content = file.read()
    except OSError as error:
        sys.exit(f"python: can't open file {option!r}: [Errno {error.errno}] {error.strerror}")
    compiled = pkgutil.read_code(io.BytesIO(content))  # None: source, or another's
    if compiled is None and option.endswith(".pyc"):
        raise RuntimeError("Bad magic number in .pyc file")
    if not is_safe:
        sys.path[0] = os.path.dirname(os.path.realpath(option))  # noqa: PTH120
    path = os.path.abspath(option) if sys.version_info >= (3, 9) else option  # noqa: PTH100
    main.__dict__.update(__file__=path, __cached__=None)
    loader: Any = SourceFileLoader if compiled is None else SourcelessFileLoader
    main.__loader__ = loader("__main__", path)
    exec(compiled or compile(content, path, "exec", dont_inherit=True), main.__dict__)  # noqa: S102


def _hide_shim(kind: type[BaseException], error: BaseException, trace: Any) -> None:
    """Show an error without the frames of this file."""
    while trace is not None and trace.tb_frame.f_code.co_filename == __file__:
        trace = trace.tb_next
    sys.__excepthook__(kind, error.with_traceback(trace), trace)


if __name__ == "__main__":
    _settings = os.environ.pop(VARIABLE, None)
    if _settings:
        install(json.loads(_settings))
    sys.excepthook = _hide_shim
    try:
        run(sys.argv[1:])
    except BaseException as _error:
        with contextlib.suppress(Exception):  # nobody watches, or the script has changed much
            sys.modules[_INSTALLED].process.tell_error(_error)
        raise
elif __name__ == _MODULE:
    install(globals()["SETTINGS"])  # given by `_Installer`
