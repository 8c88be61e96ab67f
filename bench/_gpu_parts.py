"""The parts of a day with a GPU: its limits, tests, searches, trainings, and a job with a CPU."""

from __future__ import annotations

import json
import math
import os
import shutil
import subprocess
import sys
import tempfile
from argparse import Namespace
from collections.abc import Callable, Iterator, Mapping, Sequence, Sized
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

from _block import CASES, BenchError, Ddlplan, Output, Result
from _gpu_tests import run_gpu_tests
from _launches import Launches, say_plan
from _photos import link_photos

from launch.job import Job, NodeJob
from launch.mpi.job import MpiJob
from launch.mpi.mpirun import find_mpirun
from launch.plan import Plan
from launch.reports import JobFailed, StepDone
from launch.use_cases import resolve
from launch.workload import Workload
from probes import codec
from probes.cpu import read_cpu
from probes.gpu import read_gpus
from probes.speed import best_rate
from probes.timing import paired_ratio

_HERE = Path(__file__).parent
_FOLDER = _HERE / "gpu_cases"
_PLAIN = _HERE / "_plain_gpu.py"
_IN_MEMORY = f"{CASES}:AlexNetInMemory"

_MATRIX = 8192
_COPY_BYTES = 2**30
_SMALLER = 8
"""Of both, where there is no GPU."""

_RATE_TIME_S = 3.0
_MOST_EPOCHS = 200

Lines = Mapping[str, Mapping[str, Any]]
"""What is known of each part."""

Found = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """What is trained on a GPU, and what in its place where there is none."""

    use_case: str
    """A built-in one takes a folder of photos."""

    small: str


_MODELS = {
    "alexnet": Model(use_case="simplebig", small="simplebig"),
    "vgg16": Model(use_case="complexsmall", small=f"{_FOLDER}/small_vgg16.py:Small"),
    "resnet50": Model(
        use_case=f"{_FOLDER}/resnet50.py:ResNet50", small=f"{_FOLDER}/resnet50.py:Small"
    ),
    "transformer": Model(
        use_case=f"{_FOLDER}/transformer.py:Transformer", small=f"{_FOLDER}/transformer.py:Small"
    ),
}


def run_part(options: Namespace, known: Lines) -> Found:
    """Run the part that the options name; give what it found.

    Args:
        options: Of the command line.
        known: What earlier parts have left.

    Raises:
        BenchError: It found nothing.
    """
    cache = options.results.with_suffix(".cache").absolute()
    os.environ["DDLPLAN_CACHE"] = str(cache)
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = str(cache / "inductor")
    # A part that was ended while it compiled leaves files that are too short.
    shutil.rmtree(cache / "inductor", ignore_errors=True)
    if options.device != "cpu" and not (gpus := read_gpus()).gpus:
        raise BenchError(f"no GPU: {gpus.reason}: --device cpu shows on small models that it runs")
    kind, *which = options.part.split()
    parts: dict[str, Callable[..., Found]] = {
        "machine": _measure_limits,
        "tests": _run_tests,
        "tune": _search,
        "train": _train,
        "ranks": _train_with_cpu,
    }
    out = Output("gpu_day", as_json=True)
    found = parts[kind](*which, options=options, known=known, out=out)
    found["results"] = [result.to_json() for result in found["results"]]
    return found | {
        "machine": out.machine
        | {"device": options.device, "gpus": [g.name for g in read_gpus().gpus]}
    }


def _measure_limits(*, options: Namespace, out: Output, **_: object) -> Found:
    """Measure at what rates the device multiplies matrices, and copies."""
    import torch

    on_gpu = options.device != "cpu"
    size = _MATRIX if on_gpu else _MATRIX // _SMALLER

    def rate(dtype: torch.dtype, *, tf32: bool = False) -> float:
        torch.backends.cuda.matmul.allow_tf32 = tf32
        left, right = (torch.randn(size, size, device=options.device).to(dtype) for _ in range(2))
        return best_rate(lambda: done(left @ right), 2.0 * size**3, _RATE_TIME_S)

    def done(_: torch.Tensor) -> None:
        if on_gpu:
            torch.cuda.synchronize(options.device)

    rates = {"bf16": rate(torch.bfloat16), "fp32": rate(torch.float32)}
    if on_gpu:
        rates["tf32"] = rate(torch.float32, tf32=True)
    count = _COPY_BYTES // (1 if on_gpu else _SMALLER)
    source = torch.zeros(count, dtype=torch.uint8, device=options.device)
    target = torch.empty_like(source)
    copy = best_rate(lambda: done(target.copy_(source)), 2.0 * count, _RATE_TIME_S)
    results = [
        Result(f"matrix products in {name}", value / 1e12, "TFLOP/s")
        for name, value in rates.items()
    ]
    results.append(Result("copy, read and written", copy / 1e9, "GB/s"))
    out.show(results)
    return {"results": results, "flop_per_s": rates, "copy_bytes_per_s": copy}


def _run_tests(*, options: Namespace, out: Output, **_: object) -> Found:
    """Run the tests that need a GPU; where some fail, the part has failed, with its figures."""
    found = run_gpu_tests(options.limit)
    passed, *_others = found["results"]
    if options.device != "cpu" and not passed.value and not found["failed"]:
        raise BenchError(f"no test was run: {'; '.join(found['skipped'])}")
    out.show(found["results"])
    return found


def _search(model: str, precision: str, *, options: Namespace, out: Output, **_: object) -> Found:
    """Search as a user would; keep the plan, and what the search took."""
    with _launches(model, options) as (launches, _data):
        answer = launches.tune(f"{options.budget:.0f}s", precision)
        trials = launches.list_trials()
    tuned = answer.data
    plan = tuned["plan"]
    say_plan(out, plan)
    results = [
        Result("search, whole command", answer.wall_s, "s"),
        Result("in training steps", 100 * tuned["stepping_share"], "%"),
        Result("trials", sum(tuned["trials"].values())),
        Result("plan", plan["throughput_samples_per_s"]["median"], "samples/s"),
    ]
    if plan["speedup"] is not None:
        results.append(Result("claimed speedup", plan["speedup"]["median"]))
    out.show(results)
    return {"results": results, "plan": plan, "trials": trials}


def _train(model: str, precision: str, *, options: Namespace, known: Lines, out: Output) -> Found:
    """Launch the plan, in turn with a plain loop and with one that is compiled."""
    plan = known.get(f"tune {model} {precision}", {}).get("plan")
    if plan is None:
        raise BenchError(
            f"no plan for {model} in {precision}: tune {model} {precision} comes first"
        )
    with _launches(model, options) as (launches, data):
        with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
            json.dump(plan, file)
            file.flush()
            plan_id = launches.import_plan(Path(file.name), precision)["id"]
        dataset = resolve(_use_case(model, options)).load().dataset(data, train=True)
        samples = len(cast(Sized, dataset))
        rate = plan["throughput_samples_per_s"]["median"]
        epochs = 1 + min(_MOST_EPOCHS, math.ceil(options.seconds * rate / samples))

        def ours() -> float:
            return launches.launch(plan_id, epochs).samples_per_s

        def plain(*words: str) -> Found:
            batch = ("--batch-size", str(plan["node_batch"]))
            bf16 = ["--bf16"] if precision == "bf16" else []
            return _run_plain(model, options, data, [*batch, *bf16, *words])

        pairs: dict[str, list[tuple[float, float]]] = {"plain": [], "compiled": []}
        flop, loaders, failed = 0, 0, []
        for number in range(options.rounds):
            found = {}
            for way in ("ours", "plain", "compiled")[:: 1 if number % 2 == 0 else -1]:
                try:
                    if way == "ours":
                        found[way] = ours()
                    elif way == "plain":
                        said = plain()
                        found[way], flop = said["samples_per_s"], said["flop_per_sample"]
                        loaders = said["loader_workers"]
                    else:
                        found[way] = plain("--compile", "--channels-last")["samples_per_s"]
                    out.say(f"  {way:9} {found[way]:9.1f} samples/s")
                except BenchError as error:
                    if way == "ours":
                        raise
                    failed.append(f"{way}: {error}")
            for way, values in pairs.items():
                if way in found:
                    values.append((found["ours"], found[way]))
    results = [
        Result(f"ours / {way} loop with the same batch", paired_ratio(values))
        for way, values in pairs.items()
        if values
    ]
    rates = known.get("machine", {}).get("flop_per_s", {})
    for name in (precision, "tf32") if precision == "fp32" else (precision,):
        if flop and name in rates:
            share = 100 * flop * found["ours"] / rates[name]
            results.append(Result(f"ours, share of the {name} rate", share, "%"))
    results.append(Result("ours", found["ours"], "samples/s"))
    out.show(results)
    return {
        "results": results,
        "flop_per_sample": flop,
        "plain_loader_workers": loaders,
        "failed": failed,
        "pairs": pairs,
    }


def _train_with_cpu(*, options: Namespace, out: Output, **_: object) -> Found:
    """Train AlexNet by a rank on the device and one on the other cores, alone and in one job."""
    cores = read_cpu().core_ids
    few = max(1, len(cores) // 8)
    plan = Plan(
        strategy="sequential", node_batch=8, memory_format="channels_last", fused_optimizer=True
    )
    device = replace(plan, devices=(options.device,))
    if options.device != "cpu":
        device = replace(device, strategy="gpu_data", node_batch=512)
    cpu = replace(plan, threads_per_process=len(cores) - few, strategy="threads")
    if len(cores) - few < 2:
        cpu = plan
    ranks = [(device, cores[:few]), (cpu, cores[few:] or cores)]
    rates = [_run_job([rank], options.seconds) for rank in ranks]
    # Samples in the ratio of the speeds, so that both finish a step at the same time.
    batch = max(2, round(device.node_batch * rates[1] / rates[0]))
    together = _run_job([ranks[0], (replace(cpu, node_batch=batch), ranks[1][1])], options.seconds)
    results = [
        Result(f"rank on {options.device} alone", rates[0], "samples/s"),
        Result("rank on the other cores alone", rates[1], "samples/s"),
        Result("both in one job", together, "samples/s"),
    ]
    out.show(results)
    return {"results": results, "node_batches": [device.node_batch, batch]}


def _run_job(ranks: Sequence[tuple[Plan, Sequence[int]]], seconds: float) -> float:
    """Train two epochs of AlexNet in memory by ranks on their cores; give the second's speed."""
    with tempfile.TemporaryDirectory(prefix="ddlplan-bench-") as name:
        folder = Path(name)
        batch = sum(plan.node_batch for plan, _ in ranks)
        (folder / "samples").write_text(str(batch * max(4, round(seconds))))
        job = Job(
            workload=Workload(use_case=_IN_MEMORY, data=name),
            nodes=tuple(
                NodeJob(host=f"node{number}", plan=plan) for number, (plan, _) in enumerate(ranks)
            ),
            run_directory=name,
            epochs=2,
            keep_shares=True,
        )
        document = folder / "job.json"
        document.write_bytes(codec.encode(job))
        command = [find_mpirun(), "--host", f"localhost:{len(ranks)}", "--bind-to", "none"]
        command += ["--allow-run-as-root"] if os.geteuid() == 0 else []
        program = [sys.executable, "-m", "mpi4py", "-m", "launch.rank", str(document)]
        for number, (_, cores) in enumerate(ranks):
            own = ["-n", "1", "taskset", "--cpu-list", ",".join(map(str, cores)), *program]
            command += [*([":"] if number else []), *own]
        log = folder / "mpirun.log"
        with MpiJob(command, log) as running:
            steps: list[StepDone] = []
            while not running.is_over:
                report = running.next_report(1.0)
                if isinstance(report, JobFailed):
                    raise BenchError(f"{report.message}\n{report.log_tail}")
                if isinstance(report, StepDone) and report.epoch == 1:
                    steps.append(report)
            status = running.wait()
        if status or not steps:
            raise BenchError(
                f"exit code {status} of {' '.join(command)}\n{log.read_text()[-2000:]}"
            )
        return sum(step.samples for step in steps) / math.fsum(step.time_s for step in steps)


def _use_case(model: str, options: Namespace) -> str:
    return _MODELS[model].small if options.device == "cpu" else _MODELS[model].use_case


@contextmanager
def _launches(model: str, options: Namespace) -> Iterator[tuple[Launches, Path | None]]:
    """Give what tunes and launches a model, in a folder of its own, and its data."""
    use_case = _use_case(model, options)
    with Ddlplan.in_own_folder() as ddlplan:
        data = None
        if ":" not in use_case:
            # Always at the same place: decoded pictures are known by it.
            data = options.results.with_suffix(".photos").absolute()
            if not data.exists():
                part = data.with_suffix(".part")
                shutil.rmtree(part, ignore_errors=True)
                link_photos("simplebig", None, part, options.photos).rename(data)
        yield Launches(ddlplan, use_case, data), data


def _run_plain(
    model: str, options: Namespace, data: Path | None, words: Sequence[str]
) -> dict[str, float]:
    """Run the plain loop to its end; give the JSON of its last line."""
    case = ["--case", _use_case(model, options)]
    if data is not None:
        case = ["--model", model, "--data", str(data / "train")]
    command = [
        *(sys.executable, str(_PLAIN), *case, "--device", options.device),
        *("--seconds", str(options.seconds), "--loader-workers", str(len(read_cpu().core_ids))),
        *words,
    ]
    done = subprocess.run(
        command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        tail = "\n".join(done.stderr.splitlines()[-20:])
        raise BenchError(f"exit code {done.returncode} of {' '.join(command)}\n{tail}")
    said: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return said
