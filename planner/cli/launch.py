"""Command line of ``ddlplan launch``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from planner.cli.jobs import Detach, submit_command
from planner.cli.options import (
    DEFAULT_DATABASE,
    MOST_EPOCHS,
    AllowRoot,
    AllowStale,
    AsJson,
    CaseSettings,
    Database,
    DataFolder,
    HostFile,
    MaybePlan,
    MaybeTuned,
    Mpirun,
    Seed,
    SshConfig,
    faults_option,
    hosts_option,
    named,
    option,
    plan_option,
    what_option,
)
from planner.cli.scripts import Command, check_options, needed_case
from planner.cli.values import check_data, duration_s, find_case, find_hosts, one_of
from planner.errors import UsageError
from planner.records.job_record import JobKind
from planner.report.output import start_output

_FOR_SCRIPTS = ("command", "plan", "allow_stale", "dry_run", "db", "json", "hosts", "ssh_config")
"""Options that a script may have too."""


def launch(
    context: typer.Context,
    command: Command = None,
    *,
    use_case: MaybeTuned = None,
    set: CaseSettings = None,  # noqa: A002 - the name of the option
    data: DataFolder = None,
    seed: Seed = 0,
    epochs: Annotated[
        int,
        what_option("--epochs", help_="Epochs to train.", metavar="N", min=1, max=MOST_EPOCHS),
    ] = 1,
    plan: MaybePlan = None,
    global_batch: Annotated[
        int | None,
        plan_option(
            "--global-batch", help_="Samples of a step over all hosts.", metavar="N", min=1
        ),
    ] = None,
    effective_batch: Annotated[
        int | None,
        plan_option(
            "--effective-batch",
            help_="The same, computed in passes of the plans' batches and added up.",
            metavar="N",
            min=1,
        ),
    ] = None,
    lr_scaling: Annotated[
        str | None,
        plan_option(
            "--lr-scaling",
            help_="How the learning rate goes with the batch, if not as in the plan: "
            "none, linear, sqrt.",
            metavar="HOW",
        ),
    ] = None,
    allow_stale: AllowStale = False,
    checkpoint: Annotated[
        Path | None,
        faults_option(
            "--checkpoint",
            help_="Folder for checkpoints of the training.",
            parser=named,
            metavar="PATH",
        ),
    ] = None,
    checkpoint_every: Annotated[
        str | None,
        faults_option(
            "--checkpoint-every", help_="How often: 90s, 10m (default).", metavar="DURATION"
        ),
    ] = None,
    resume: Annotated[
        bool, faults_option("--resume", help_="Go on from the newest checkpoint, with its seed.")
    ] = False,
    max_restarts: Annotated[
        int,
        faults_option(
            "--max-restarts",
            help_="Restart up to N times after a lost process or host.",
            metavar="N",
            min=0,
        ),
    ] = 0,
    hang_timeout: Annotated[
        str | None,
        faults_option(
            "--hang-timeout",
            help_="End after this time without a step; by default that of 20 steps, at least 60s.",
            metavar="DURATION",
        ),
    ] = None,
    allow_nan: Annotated[
        bool, faults_option("--allow-nan", help_="Train on where the loss is NaN or infinite.")
    ] = False,
    no_noise_scale: Annotated[
        bool, what_option("--no-noise-scale", help_="Do not measure the gradient noise scale.")
    ] = False,
    keep_best: Annotated[
        bool, faults_option("--keep-best", help_="Keep the weights of the best validation too.")
    ] = False,
    hosts: HostFile = None,
    all_hosts: Annotated[
        bool, hosts_option("--all-hosts", help_="Use every host, though fewer may be faster.")
    ] = False,
    keep_shares: Annotated[
        bool, hosts_option("--keep-shares", help_="Keep the hosts' shares of the batch.")
    ] = False,
    wire: Annotated[
        str,
        hosts_option(
            "--wire",
            help_="Gradients between hosts: fp32, bf16, int8, or top1 (the largest 1 %).",
            metavar="FORMAT",
        ),
    ] = "fp32",
    all_reduce: Annotated[
        str,
        hosts_option(
            "--all-reduce",
            help_="How hosts sum gradients: ring, tree, or server (the first one sums).",
            metavar="WAY",
        ),
    ] = "ring",
    ssh_config: SshConfig = None,
    mpirun: Mpirun = None,
    allow_run_as_root: AllowRoot = False,
    onnx: Annotated[
        Path | None,
        option(
            "--onnx",
            help_="Export the trained model to this ONNX file.",
            parser=named,
            metavar="FILE",
        ),
    ] = None,
    tensorboard: Annotated[
        Path | None,
        option(
            "--tensorboard",
            help_="Folder for TensorBoard's event files; each run has its own in it.",
            parser=named,
            metavar="PATH",
        ),
    ] = None,
    dry_run: Annotated[
        bool, option("--dry-run", help_="Print the commands and start nothing.")
    ] = False,
    detach: Detach = False,
    db: Database = DEFAULT_DATABASE,
    json: AsJson = False,
) -> None:
    """Train with the best stored plan of each host, or run a script with its own."""
    out = start_output("launch", as_json=json)
    if command:
        check_options(context, _FOR_SCRIPTS, out)
        if hosts is not None:
            found = find_hosts(hosts, ssh_config, None, allow_root=False)
            if plan is not None:
                raise UsageError(
                    "--plan and --hosts: each host has a plan of its own: leave it out"
                )
            from planner.commands.scripts.launch_hosts import launch as launch_on_hosts

            launch_on_hosts(command, found, db, out, allow_stale=allow_stale, dry_run=dry_run)
            return
        if ssh_config is not None:
            raise UsageError("--ssh-config and no --hosts: name the hosts, or leave it out")
        from planner.commands.scripts.launch import launch as launch_script

        launch_script(command, db, out, plan_id=plan, allow_stale=allow_stale, dry_run=dry_run)
        return
    use_case, data = find_case(use_case, data, plan, db)
    use_case = needed_case(use_case, "launch")
    from launch.gradient_sync.algorithms import algorithm_names
    from launch.gradient_sync.wire_formats import wire_format_names
    from launch.job import CheckpointConfig
    from launch.noise_scale.efficiency import LR_SCALINGS
    from launch.use_cases import make_workload
    from planner.commands.launch import launch as launch_job
    from planner.jobs.launch_request import LaunchRequest
    from planner.jobs.restarts import check_restarts
    from planner.jobs.resuming import check_resume

    if checkpoint_every is not None and checkpoint is None:
        raise UsageError(
            f"--checkpoint-every {checkpoint_every} and no --checkpoint: name a folder"
        )
    if global_batch is not None and effective_batch is not None:
        raise UsageError("--global-batch and --effective-batch exclude each other: give one")
    found = find_hosts(hosts, ssh_config, mpirun, allow_root=allow_run_as_root)
    found.access.require_mpirun()
    check_data(data, found, use_case)
    request = LaunchRequest(
        workload=make_workload(
            use_case, settings=set or (), data=data, seed=seed, data_is_here=found.is_local
        ),
        epochs=epochs,
        plan_id=plan,
        global_batch=global_batch if effective_batch is None else effective_batch,
        accumulates=effective_batch is not None,
        wire=one_of("--wire", wire, wire_format_names()),
        all_reduce=one_of("--all-reduce", all_reduce, algorithm_names()),
        lr_scaling=None if lr_scaling is None else one_of("--lr-scaling", lr_scaling, LR_SCALINGS),
        measures_noise=not no_noise_scale,
        keep_shares=keep_shares,
        allow_stale=allow_stale,
        all_hosts=all_hosts,
        checkpoint=CheckpointConfig(
            folder=None if checkpoint is None else str(checkpoint),
            every_s=duration_s("--checkpoint-every", checkpoint_every or "10m"),
        ),
        resume=resume,
        allow_nan=allow_nan,
        keep_best=keep_best,
        onnx=onnx,
        tensorboard=tensorboard,
        max_restarts=max_restarts,
        hang_timeout_s=None if hang_timeout is None else duration_s("--hang-timeout", hang_timeout),
    )
    if detach:
        check_resume(request)
        check_restarts(request)
        found.access.check_root()
        submit_command(context, JobKind.LAUNCH, db, out)
        return
    launch_job(request, found, db, out, dry_run=dry_run)
