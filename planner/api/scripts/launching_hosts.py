"""Launch of a torchrun script on several hosts, each with its own stored plan."""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from launch.hosts.findings import CheckedHosts
from launch.hosts.host_programs import HostProgram
from launch.hosts.ssh import write_ssh_config
from launch.plan import Setting
from launch.reports import Warned
from launch.scripts.environment import PATCH_PREFIX, PATCHES, placeholder_values
from launch.scripts.host_part import HostPartRequest, PartReady
from launch.scripts.program import PROCESSES, THREADS, WORKERS, Program
from launch.scripts.step_counter import CountedSteps
from launch.scripts.torchrun_nodes import TorchrunNodes, check_torchrun
from launch.system.process_end import explain_exit
from launch.workers.log import find_cause
from planner.api.scripts.launching import (
    ASKING,
    check_found,
    find_changed,
    suggest_tune,
    tell_changed,
)
from planner.api.scripts.recording import begin_row, end_row, heartbeat, rate_of
from planner.cancellation import Cancellation
from planner.errors import CancelledError, StalePlanError, TrainingFailedError, UsageError
from planner.jobs.hosts import Hosts
from planner.jobs.mpi_run import temporary_run_directory
from planner.plans.missing_plans import make_missing_plan_error, needing_plans
from planner.plans.software import current_software
from planner.plans.stored_plan import StoredPlan
from planner.records.training_record import TrainingHost, TrainingStatus
from planner.scripts.host_parts import PartsEnd, ScriptParts
from planner.scripts.naming import (
    STEP_REGEX,
    WHOLE_RUNS,
    code_digest,
    command_line,
    measuring_options,
    script_name,
)
from planner.store import Store
from planner.trials.reports import Listener, ignore
from probes.hardware import Hardware

_FORWARDED = ("NCCL_", "GLOO_", "TORCH_", "TP_")
"""Beginnings of the names of variables that the user has here for all hosts."""

_OF_HOSTS = (
    *(PROCESSES, THREADS, WORKERS),
    *(f"{PATCH_PREFIX}{name}" for name in PATCHES["loader"]),
)
"""What may differ between hosts: how fast each is, and not what it computes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HostScript:
    """What runs on one host."""

    host: str
    stored: StoredPlan
    reasons: tuple[str, ...]
    """Why the plan is stale; used all the same."""

    command: tuple[str, ...]
    ready: PartReady


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedHosts:
    """A script that can start on all its hosts."""

    name: str
    hosts: tuple[HostScript, ...]
    """By rank."""

    parts: ScriptParts

    @property
    def batch(self) -> int:
        """Samples of a step on all hosts, by their plans."""
        return sum(one.stored.plan.node_batch for one in self.hosts)

    def samples_of(self, counted: CountedSteps | None) -> int:
        """Give the samples of a step on all hosts, by what a process has read."""
        if counted is None or counted.samples is None:
            return self.batch
        return counted.samples * sum(one.stored.plan.processes for one in self.hosts)

    @property
    def bound_samples_per_s(self) -> float:
        """Rate at which the slowest host lets all go on, without the network."""
        return self.batch / max(
            one.stored.plan.node_batch / one.stored.throughput_samples_per_s.median
            for one in self.hosts
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class HostsRun:
    """A script that came to its end on all hosts."""

    elapsed_s: float
    training_id: int | None
    """Of its row in the database; ``None`` where that could not be written."""

    counted: CountedSteps | None
    """On the first host; ``None`` where its steps cannot be told."""


@contextmanager
def open_hosts(
    command: Sequence[str],
    hosts: Hosts,
    *,
    db: str = "planner.db",
    allow_stale: bool = False,
    listener: Listener = ignore,
) -> Iterator[PreparedHosts]:
    """Find the plan of each host, and let a program of ours wait there; the block's end ends it.

    The command is as it was tuned, with its placeholders, and begins with torchrun.

    Raises:
        NoPlanError: There is none for a host; the message names the command that finds one.
        StalePlanError: One was made on other hardware or software.
        UsageError: The plans would train different things on the hosts.
        ScriptError: The command is no torchrun, or names something that a host does not have.
        HostUnreachableError: A host failed its checks.
    """
    check_torchrun(command)
    name, program = script_name(command), Program(arguments=tuple(command))
    shown = command_line(command)
    for note in hosts.notes:
        listener(Warned(message=note))
    with (
        needing_plans(shown, db, suggest_tune(name, db)),
        Store.open(db, create=False) as store,  # first: without plans no host is asked
    ):
        checked = hosts.check_good(listener, Cancellation())
        nodes = {host.name: checked.get_hardware(host.name) for host in checked.ranked}
        found = _find_plans(store, name, program, nodes, db, allow_stale=allow_stale)
    for stored in {stored.id: stored for stored, _ in found.values()}.values():
        if changed := find_changed(stored, program):
            listener(Warned(message=tell_changed(stored, changed)))
    _check_equal(program, {host: stored for host, (stored, _) in found.items()})
    with temporary_run_directory() as directory:
        write_ssh_config(checked.hosts, directory.ssh_config, include=hosts.access.ssh_config)
        starts = _make_starts(program, checked, nodes, found)
        ssh_config = None if hosts.access.starts_by_srun else directory.ssh_config
        with ScriptParts(starts, ssh_config=ssh_config) as parts:
            ready = parts.await_ready()
            port = ready[starts[0].name].port
            yield PreparedHosts(
                name=name,
                parts=parts,
                hosts=tuple(
                    HostScript(
                        host=one.name,
                        stored=found[one.name][0],
                        reasons=found[one.name][1],
                        command=one.request.nodes.add_to(ready[one.name].command, port),
                        ready=ready[one.name],
                    )
                    for one in starts
                ),
            )


def launch_on_hosts(
    prepared: PreparedHosts,
    *,
    db: str = "planner.db",
    listener: Listener = ignore,
    keeps_stdout: bool = False,
) -> HostsRun:
    """Run a script on all its hosts until it ends; what fails on one ends it on all.

    Signals that come here are passed on to it. The run is a training in the database. Its steps are
    counted on the first host. See `launch_script`.

    Raises:
        TrainingFailedError: It ended with another exit status than 0, or a host was lost.
        CancelledError: A signal ended it.
    """
    hosts = [
        TrainingHost(
            host=one.host,
            plan_id=one.stored.id,
            plan=one.stored.plan,
            plan_samples_per_s=one.stored.throughput_samples_per_s.median,
        )
        for one in prepared.hosts
    ]
    training_id = begin_row(prepared.name, hosts, prepared.bound_samples_per_s, db, listener)
    began = time.monotonic()
    first = prepared.hosts[0]
    state, message, counted = TrainingStatus.FAILED, "it ended early", None
    try:
        with heartbeat(training_id, db):
            end = prepared.parts.train(first.ready.port, keeps_stdout=keeps_stdout)
        counted = end.ended[first.host].counted if first.host in end.ended else None
        _raise_failure(end, listener)
        state, message = TrainingStatus.DONE, ""
        if counted is not None and prepared.samples_of(counted) != prepared.batch:
            listener(Warned(message=_describe_split(prepared, counted)))
    except CancelledError as error:
        if error.crash is None:
            state = TrainingStatus.CANCELLED
        message = error.crash or str(error)
        raise
    except TrainingFailedError as error:
        message = str(error)
        raise
    finally:
        batch = prepared.samples_of(counted)
        end_row(training_id, db, listener, state, message or None, counted, batch)
    return HostsRun(elapsed_s=time.monotonic() - began, training_id=training_id, counted=counted)


def samples_per_s(prepared: PreparedHosts, run: HostsRun) -> float | None:
    """Give the rate of a run over all processes."""
    return None if run.counted is None else rate_of(run.counted, prepared.samples_of(run.counted))


def _describe_split(prepared: PreparedHosts, counted: CountedSteps) -> str:
    """Say that the script splits its batch over all processes, which no plan of one host knows."""
    return (
        f"a step has {prepared.samples_of(counted)} samples on all hosts, and not "
        f"{prepared.batch} as by their plans: where a script splits its batch over all processes, "
        "each has less to do than where it was tuned, and what the plans allow is no bound"
    )


def _raise_failure(end: PartsEnd, listener: Listener) -> None:
    if end.first_failed is None:
        return
    if end.passed_signal is not None:
        raise CancelledError(end.passed_signal)
    if end.lost is not None:
        raise TrainingFailedError(f"host {end.first_failed} was lost: {end.lost}")
    ended = end.ended[end.first_failed]
    message = f"the script has ended on {end.first_failed}, {explain_exit(ended.code)}"
    if ended.code < 0:
        listener(Warned(message=message))
        raise CancelledError(-ended.code, crash=None if -ended.code in ASKING else message)
    why = f": {find_cause(ended.ended_by)}" if ended.ended_by else ""
    raise TrainingFailedError(f"{message}{why}")


def _find_plans(
    store: Store,
    name: str,
    program: Program,
    nodes: Mapping[str, Hardware],
    db: str,
    *,
    allow_stale: bool,
) -> dict[str, tuple[StoredPlan, tuple[str, ...]]]:
    found, missing = {}, []
    software, code = current_software(), code_digest(program.arguments, Path.cwd())
    remedy = _remedy(name, db)
    for host, node in nodes.items():
        stored = store.plans.best(
            name, fingerprint=node.fingerprint(), node=node.node, software=software, code=code
        )
        if stored is None:
            missing.append(host)
            continue
        remedy = _remedy(name, db, measuring_options(stored.plan))
        try:
            reasons = check_found(stored, program, node, remedy=remedy, allow_stale=allow_stale)
        except StalePlanError as error:
            raise StalePlanError(f"host {host}: {error}") from error
        found[host] = stored, reasons
    if missing:
        shown = command_line(program.arguments)
        raise make_missing_plan_error(shown, f"on {', '.join(missing)}", remedy)
    return found


def _remedy(name: str, db: str, options: Sequence[str] = ()) -> str:
    tune = suggest_tune(name, db, options)
    return f"{tune} there, with one database (--db URL, or plans export and import)"


def _check_equal(program: Program, plans: Mapping[str, StoredPlan]) -> None:
    """Check that all processes of all hosts train the same.

    DistributedDataParallel averages over processes, so that one with another batch would weigh its
    samples otherwise, and would have another number of steps: the others then wait for ever.
    """
    values: dict[str, dict[str, Setting]] = {}
    for host, stored in plans.items():
        plan = stored.plan
        if WHOLE_RUNS in plan.options:
            raise UsageError(
                f"plan {stored.id} is of whole runs, which says nothing of steps on several hosts: "
                "tune without --no-python"
            )
        patched = {n: v for n, v in plan.options.items() if n.startswith(PATCH_PREFIX)}
        values[host] = {**placeholder_values(program, plan), **patched}
        values[host]["samples of a process and step"] = plan.node_batch / plan.processes
    for name in {name: None for own in values.values() for name in own}:
        of_hosts = {host: own.get(name) for host, own in values.items()}
        if name not in _OF_HOSTS and len(set(of_hosts.values())) > 1:
            said = ", ".join(f"{value} on {host}" for host, value in of_hosts.items())
            remedy = "--batch-size N" if name == "batch" else f"--choices {name}=ONE_VALUE"
            if name not in program.placeholders:
                remedy = "the same options"
            raise UsageError(
                f"the plans of the hosts differ in {name} ({said}), and all processes have to "
                f"train the same: tune each host with {remedy}"
            )


def _make_starts(
    program: Program,
    checked: CheckedHosts,
    nodes: Mapping[str, Hardware],
    found: Mapping[str, tuple[StoredPlan, tuple[str, ...]]],
) -> list[HostProgram[HostPartRequest]]:
    mark, names = secrets.token_hex(16), list(nodes)
    environment = {n: v for n, v in os.environ.items() if n == "PATH" or n.startswith(_FORWARDED)}
    by_name = {host.name: host for host in checked.hosts}
    first = checked.addresses.get(names[0], "127.0.0.1")
    return [
        HostProgram(
            name=name,
            host=None if name == checked.this_machine else by_name[name],
            request=HostPartRequest(
                arguments=program.arguments,
                plan=found[name][0].plan,
                node=nodes[name],
                nodes=TorchrunNodes(count=len(names), rank=rank, master_address=first),
                folder=str(Path.cwd()),
                mark=mark,
                environment=environment,
                interface=next(
                    (
                        own.interface
                        for own in checked.facts[name].addresses
                        if own.address == checked.addresses.get(name)
                    ),
                    None,
                ),
                counts_steps=rank == 0 and STEP_REGEX not in found[name][0].plan.options,
            ),
        )
        for rank, name in enumerate(names)
    ]
