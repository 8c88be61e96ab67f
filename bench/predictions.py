"""How near is the predicted throughput of a cluster to the measured one, and is the choice right?

For each cluster (1 to 4 hosts on one machine, of several speeds, on several links) `ddlplan tune
--hosts` measures nodes and network as a user would have it. Then jobs are launched: on all hosts
with several global batches, and on each subset that might be the fastest. Each launch says what it
predicted and what it measured. A verdict is right where the subset that it chose is, when measured,
within 5 % of the fastest one; adding a host never makes the launch slower than
that by more than 3 %.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from _block import Ddlplan, Output, Required, Result, make_parser, positive, root_option, run_bench
from _hosts import CASE
from testbed.bed import Testbed, TestHost

from probes.timing import Measurement

_TIE = 1.05
_WORST_CHOICE = 1.03


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """A cluster, and the global batches that it is launched with."""

    speeds: tuple[float, ...]
    """Cores of each host."""
    rate: str | None
    batches: tuple[int, ...]

    def __str__(self) -> str:
        speeds = "+".join(f"{speed:g}" for speed in self.speeds)
        return f"{speeds} cores, {self.rate or 'no limit'}"


_SETTINGS = (
    Setting(speeds=(1.0,), rate=None, batches=(32, 64)),
    Setting(speeds=(1.0, 1.0), rate="1gbit", batches=(32, 128)),
    Setting(speeds=(1.0, 1.0), rate="10gbit", batches=(32, 128)),
    Setting(speeds=(1.0, 0.5), rate=None, batches=(48, 128)),
    Setting(speeds=(1.0, 0.25), rate="1gbit", batches=(64, 128)),
    Setting(speeds=(1.0, 0.5, 0.25), rate=None, batches=(64, 128)),
    Setting(speeds=(0.5, 0.5, 0.5, 0.5), rate="10gbit", batches=(64, 128)),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Launched:
    """One launch."""

    hosts: tuple[str, ...]
    predicted: float
    measured: float


def main() -> int:
    """Measure and show."""
    parser = make_parser(__doc__)
    parser.add_argument("--steps", type=positive, default=8, help="of each launch (8)")
    parser.add_argument("--budget", default="60s", help="of each tune (60s)")
    parser.add_argument(
        "--settings", default="", help="numbers of the clusters to try: 0,3,... (all)"
    )
    arguments = parser.parse_args()
    chosen = [int(text) for text in arguments.settings.split(",") if text]
    out = Output("predictions", as_json=arguments.json)
    out.introduce()
    errors: list[float] = []
    losses: list[float] = []
    for number, setting in enumerate(_SETTINGS):
        if chosen and number not in chosen:
            continue
        with Testbed(len(setting.speeds), cores=_cores(setting), rate=setting.rate) as bed:
            for host, speed in zip(bed.hosts, setting.speeds, strict=True):
                bed.set_quota(host, speed if speed < 1 else None)
            with Ddlplan.in_own_folder() as ddlplan:
                found, lost = _Trial(ddlplan, bed, setting, arguments.steps, out).run(
                    arguments.budget
                )
        errors += found
        losses += lost
    return out.conclude(_results(errors, losses))


def _cores(setting: Setting) -> list[str]:
    """Deal out the two cores so that each has about as much to do."""
    if len(setting.speeds) == 4:
        return ["0", "0", "1", "1"]
    return ["0", *["1"] * (len(setting.speeds) - 1)]


class _Trial:
    """One cluster."""

    def __init__(
        self, ddlplan: Ddlplan, bed: Testbed, setting: Setting, steps: int, out: Output
    ) -> None:
        self._ddlplan = ddlplan
        self._bed = bed
        self._setting = setting
        self._steps = steps
        self._out = out
        self._common = ["--use-case", CASE, "--data", ddlplan.folder]
        self._common += ["--ssh-config", bed.ssh_config, *root_option()]

    def run(self, budget: str) -> tuple[list[float], list[float]]:
        """Give the relative errors, and by which factors the choice was slower than the best."""
        self._say_samples(4096)
        limits = ["--strategies", "sequential", "--trials", 1, "--max-batch", 64]
        self._ddlplan.run(
            "tune", *self._common, *self._hosts(self._bed.hosts), "--budget", budget, *limits
        )
        errors, losses = [], []
        for batch in self._setting.batches:
            self._say_samples(batch * self._steps)
            done = [self._launch(hosts, batch, all_hosts=True) for hosts in self._subsets()]
            free = self._launch(self._bed.hosts, batch, all_hosts=False)
            errors += [one.measured / one.predicted - 1 for one in [*done, free]]
            same = [one.measured for one in done if set(one.hosts) == set(free.hosts)]
            best = max(one.measured for one in done)
            losses.append(best / max([free.measured, *same]))
            self._out.say(f"{self._setting}, batch {batch}: chose {' '.join(free.hosts)}")
            for one in [*done, free]:
                off = 100 * (one.measured / one.predicted - 1)
                said = f"predicted {one.predicted:7.2f}  measured {one.measured:7.2f}"
                self._out.say(f"  {' '.join(one.hosts):<28} {said}  ({off:+.1f} %)")
        return errors, losses

    def _subsets(self) -> list[Sequence[TestHost]]:
        """List the subsets that may be the fastest: of the fastest so many hosts."""
        ordered = sorted(
            zip(self._setting.speeds, self._bed.hosts, strict=True), key=lambda pair: -pair[0]
        )
        hosts = [host for _, host in ordered]
        return [hosts[:count] for count in range(1, len(hosts) + 1)]

    def _launch(self, hosts: Sequence[TestHost], batch: int, *, all_hosts: bool) -> Launched:
        options = ["--global-batch", batch, "--epochs", 2, "--keep-shares"]
        options += ["--all-hosts"] if all_hosts else []
        data: dict[str, Any] = self._ddlplan.run(
            "launch", *self._common, *self._hosts(hosts), *options
        ).data
        return Launched(
            hosts=tuple(data["verdict"]["chosen"]["hosts"]),
            predicted=data["verdict"]["chosen"]["throughput_samples_per_s"],
            measured=data["epochs"][-1]["throughput_samples_per_s"],
        )

    def _hosts(self, hosts: Sequence[TestHost]) -> list[object]:
        file = Path(self._ddlplan.folder, f"hosts-{len(hosts)}")
        return ["--hosts", self._bed.write_host_file(file, hosts)]

    def _say_samples(self, samples: int) -> None:
        (self._ddlplan.folder / "samples").write_text(str(samples))


def _results(errors: Sequence[float], losses: Sequence[float]) -> list[Result]:
    off = sorted(abs(error) for error in errors)
    right = sum(loss <= _TIE for loss in losses) / len(losses)
    return [
        Result(figure="launches", value=float(len(off))),
        Result(
            figure="median error of the prediction",
            value=100 * Measurement(samples_s=tuple(off)).median_s,
            unit="%",
            required=Required(high=5),
        ),
        Result(figure="worst error", value=100 * off[-1], unit="%", required=Required(high=15)),
        Result(figure="right verdicts", value=100 * right, unit="%", required=Required(low=100)),
        Result(
            figure="best subset / launch, the worst",
            value=max(losses),
            required=Required(high=_WORST_CHOICE),
        ),
    ]


if __name__ == "__main__":
    run_bench(main)
