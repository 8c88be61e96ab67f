"""Ways to sum gradients between hosts, compared: ddlplan's ring, MPI's own, a tree, servers, gloo.

Hosts of this machine, see `tests/hosts/testbed`, add up float32 numbers in place, with nothing
beside it (*idle*) and while a process of each host computes on its core (*busy*). The ways are
those of `_sum_ways.py`. All of them are started once for a number of hosts, and take turns.

Every sum is checked on every rank. Ways that take much longer than ddlplan's ring, at a first look
and at a second one, get no turns. The largest messages are tried with those only that may be within
10 % of its time, and take at most twice its processor time: training computes on the same cores.

The *share of the link* is the bytes that each host must send at least, ``2 (n - 1) / n`` times the
message for ``n`` hosts, over what the link could carry in the time. *Processor* is the time per
sum and host: of the rank, and of the interrupts in which packets are handled.
"""

from __future__ import annotations

import time
from argparse import Namespace
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from statistics import fmean, median
from typing import Any

from _block import BenchError, Output, Required, begin, make_parser, run_bench
from _hosts import AnsweringRanks, Cluster
from testbed.bed import Testbed

from probes.cpu import read_cpu
from probes.timing import Interval, paired_ratio

OURS = "ddlplan"
_RANKS = "_sum_ways_rank"
_TURN_S = 0.05
_MOST_REPEATS = 5
"""In a turn. Neighbouring turns differ as much where they are long: what counts is their number."""

_FEWEST_ROUNDS = 3
_CUT = 1.3
"""Times of ours above which a way gets no turns."""

_LEAST_TELLING_BYTES = 10_000_000
"""Messages from here on take longer in proportion to their size."""

_SETTINGS = {"coll": "^han", "coll_tuned_use_dynamic_rules": "1"}
"""Without coll/han, which comes before coll/tuned and has algorithms of its own."""

_DEFAULT_TCP = {"btl_tcp_eager_limit": "65536", "btl_tcp_max_send_size": "131072"}
_OTHER_TCP: Mapping[str, Mapping[str, str]] = {
    "Open MPI's TCP settings": _DEFAULT_TCP,
    "btl_tcp_flags=1": {**_DEFAULT_TCP, "btl_tcp_flags": "1"},
}
"""In place of `launch.mpi.tcp_settings.TCP_MESSAGE_SETTINGS`."""

_TRIED_WITH_THEM = ("Iallreduce ring, buckets", "Iallreduce rabenseifner, buckets")
_BITS_PER_S = {"gbit": 1e9, "mbit": 1e6}
_WITHIN = Required(high=1.1)
_MOST_PROCESSOR = 2.0


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Sums:
    """What a way took in one turn. The shorter one is the lesser one."""

    time_s: float
    """Of one sum, of the slowest rank; the mean of the turn."""

    processor_s: float
    """Of one sum and host."""


AddUp = Callable[[int, int], Sums]
"""Adds up so many bytes so many times."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """What all ways are compared in."""

    hosts: int
    rate: str
    load: str
    num_bytes: int

    def link_share(self, time_s: float) -> float:
        """Give the part of the link that the least bytes of a sum take up."""
        least_bytes = 2 * (self.hosts - 1) / self.hosts * self.num_bytes
        number, unit = self.rate[:-4], self.rate[-4:]
        return 8 * least_bytes / time_s / (float(number) * _BITS_PER_S[unit])

    def __str__(self) -> str:
        return f"{self.hosts} hosts, {self.rate}, {self.load}, {self.num_bytes / 1e6:g} MB"


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """A way in one setting."""

    setting: Setting
    way: str
    turns: tuple[Sums, ...]
    """The first look alone, where it was too slow for turns."""

    ratio: Interval
    """Of its time to that of ddlplan's ring; without a width at the first look."""

    @property
    def is_first_look(self) -> bool:
        """Whether it got no turns."""
        return self.ratio.count == 0

    @property
    def verdict(self) -> str:
        """Whether it is within 10 % of the time of ddlplan's ring: ``yes``, ``no`` or ``open``."""
        return _WITHIN.judge(self.ratio.low, self.ratio.high)

    @property
    def time_s(self) -> float:
        """Median of the turns."""
        return median(turn.time_s for turn in self.turns)

    @property
    def processor_s(self) -> float:
        """Mean of the turns, as the kernel counts in ticks of 10 ms."""
        return fmean(turn.processor_s for turn in self.turns)

    def cells(self) -> list[str]:
        """Give the row of the table."""
        ratio = f"{self.ratio.median:.3g} ({self.ratio.low:.3g} to {self.ratio.high:.3g})"
        return [
            f"{self.setting.num_bytes / 1e6:g}",
            self.way,
            f"{1e3 * self.time_s:.4g}",
            f"{self.ratio.median:.3g} (first look)" if self.is_first_look else ratio,
            f"{100 * self.setting.link_share(self.time_s):.0f} %",
            f"{1e3 * self.processor_s:.3g}",
        ]

    def to_json(self) -> dict[str, Any]:
        """Give it as plain values."""
        return {
            "hosts": self.setting.hosts,
            "rate": self.setting.rate,
            "load": self.setting.load,
            "bytes": self.setting.num_bytes,
            "way": self.way,
            "times_s": [turn.time_s for turn in self.turns],
            "ratio": self.ratio.median,
            "ci_low": None if self.is_first_look else self.ratio.low,
            "ci_high": None if self.is_first_look else self.ratio.high,
            "link_share": self.setting.link_share(self.time_s),
            "processor_s": self.processor_s,
        }


def main() -> int:
    """Measure and show."""
    parser = make_parser(
        __doc__,
        rounds=(16, "of turns, at most"),
        seconds=(20, f"for the rounds of a size, of which there are {_FEWEST_ROUNDS} at least"),
    )
    parser.add_argument("--hosts", default="2,4", help="how many (2,4)")
    parser.add_argument("--rates", default="1gbit,10gbit", help="of the links (1gbit,10gbit)")
    parser.add_argument("--loads", default="idle,busy", help="beside the sums (idle,busy)")
    parser.add_argument("--sizes", default="1,43,228", help="of a message, in MB (1,43,228)")
    arguments, out = begin(parser)
    found: list[Found] = []
    for hosts in map(int, arguments.hosts.split(",")):
        with _ready_ways(hosts) as (bed, first, ways):
            for rate in arguments.rates.split(","):
                bed.set_rate(rate)
                for load in arguments.loads.split(","):
                    first.ask(computes=load == "busy")
                    found += _compare(out, ways, hosts, rate, load, arguments)
    _judge(out, found)
    return 0


@contextmanager
def _ready_ways(hosts: int) -> Iterator[tuple[Testbed, AnsweringRanks, dict[str, AddUp]]]:
    """Bring hosts up, and the ranks of every way. Each has added up once, and was right."""
    cores = read_cpu().usable_cores
    with ExitStack() as stack:
        bed = Testbed(hosts, cores=[str(host * cores // hosts) for host in range(hosts)])
        stack.enter_context(bed)
        cluster, address = Cluster(bed), bed.hosts[0].address

        def start(settings: Mapping[str, str]) -> tuple[AnsweringRanks, list[str]]:
            ranks = cluster.answering_ranks(_RANKS, address, mca={**_SETTINGS, **settings})
            answering = stack.enter_context(ranks)
            return answering, answering.listen()

        first, names = start({})
        ways: dict[str, AddUp] = {name: partial(_add_up, first, name) for name in names}
        for settings, values in _OTHER_TCP.items():
            other, _ = start(values)
            for name in _TRIED_WITH_THEM:
                ways[f"{name}, {settings}"] = partial(_add_up, other, name)
        for add_up in ways.values():
            add_up(4 * 1_000_003, 2)  # a size that nothing divides
        yield bed, first, ways


def _add_up(ranks: AnsweringRanks, way: str, num_bytes: int, repeats: int) -> Sums:
    found = ranks.ask(way=way, bytes=num_bytes, repeats=repeats)
    if not all(one["is_right"] for one in found):
        raise BenchError(f"{way}: a rank has a wrong sum of {num_bytes} bytes")
    times_s = [max(times) for times in zip(*(one["times_s"] for one in found), strict=True)]
    kernel_s = found[0]["kernel_s"]  # every rank has counted all cores
    processor_s = (sum(one["processor_s"] for one in found) + kernel_s) / len(found)
    return Sums(time_s=fmean(times_s), processor_s=processor_s)


def _compare(
    out: Output, ways: Mapping[str, AddUp], hosts: int, rate: str, load: str, arguments: Namespace
) -> list[Found]:
    """Compare all ways with messages of every size, and show a table."""
    left, all_found = dict(ways), []
    for num_bytes in sorted(round(1e6 * float(size)) for size in arguments.sizes.split(",")):
        setting = Setting(hosts=hosts, rate=rate, load=load, num_bytes=num_bytes)
        found = _take_turns(setting, left, arguments)
        all_found += sorted(found, key=lambda one: one.ratio.median)
        if num_bytes >= _LEAST_TELLING_BYTES:
            most_s = _MOST_PROCESSOR * next(one.processor_s for one in found if one.way == OURS)
            fit = [one for one in found if one.verdict != "no" and one.processor_s <= most_s]
            left = {one.way: ways[one.way] for one in fit}
    out.say(f"{hosts} hosts, {rate}, {load}")
    titles = ["MB", "WAY", "TIME, ms", "TIME / OURS (95 %)", "SHARE OF LINK", "PROCESSOR, ms"]
    out.table(titles, [one.cells() for one in all_found])
    out.say()
    for one in all_found:
        out.document(one.to_json())
    return all_found


def _take_turns(setting: Setting, ways: Mapping[str, AddUp], arguments: Namespace) -> list[Found]:
    """Let those ways take turns that are not much slower than ours at a first look."""
    size = setting.num_bytes
    first, ours_s = _look_first(ways, size)
    slow = {name: one for name, one in first.items() if one.time_s > _CUT * ours_s}
    slow.pop(OURS, None)
    repeats = {
        name: max(1, min(round(_TURN_S / sums.time_s), _MOST_REPEATS))
        for name, sums in first.items()
        if name not in slow
    }
    turns: dict[str, list[Sums]] = {name: [] for name in repeats}
    end_s = time.monotonic() + arguments.seconds
    for number in range(arguments.rounds):
        if number >= _FEWEST_ROUNDS and time.monotonic() > end_s:
            break
        # Every other round goes backwards, so that what drifts evenly favours none.
        for name in repeats if number % 2 == 0 else reversed(repeats):
            turns[name].append(ways[name](size, repeats[name]))
    ratios = {name: _paired(took, turns[OURS]) for name, took in turns.items()}
    for name, sums in slow.items():
        ratio = sums.time_s / ours_s
        ratios[name] = Interval(median=ratio, low=ratio, high=ratio, count=0)
        turns[name] = [sums]
    return [
        Found(setting=setting, way=name, turns=tuple(turns[name]), ratio=ratio)
        for name, ratio in ratios.items()
    ]


def _look_first(ways: Mapping[str, AddUp], size: int) -> tuple[dict[str, Sums], float]:
    """Let every way add up, the slow ones twice; give what each took, and the time of ours."""
    tries = 1 if size >= _LEAST_TELLING_BYTES else 5
    first = {name: add_up(size, tries) for name, add_up in ways.items()}
    # Ours may have been lucky, and others may have been disturbed.
    ours_s = fmean([first[OURS].time_s, ways[OURS](size, tries).time_s])
    for name in [name for name, sums in first.items() if sums.time_s > _CUT * ours_s]:
        first[name] = min(first[name], ways[name](size, tries))
    return first, ours_s


def _paired(turns: Sequence[Sums], ours: Sequence[Sums]) -> Interval:
    both = zip(turns, ours, strict=True)
    return paired_ratio([(one.time_s, other.time_s) for one, other in both])


def _judge(out: Output, found: Sequence[Found]) -> None:
    """Show which ways are within 10 % of the time of ddlplan's ring in all settings.

    Who is not tried with all sizes is not. Processor times are those of all its settings together.
    """
    ours = {one.setting: one for one in found if one.way == OURS}
    rows = []
    for way in dict.fromkeys(one.way for one in found):
        its = [one for one in found if one.way == way]
        verdicts = {one.verdict for one in its} | ({"no"} if len(its) < len(ours) else set())
        worst = max(its, key=lambda one: one.ratio.median)
        own_s = sum(ours[one.setting].processor_s for one in its)
        row = [
            way,
            next(word for word in ("no", "open", "yes") if word in verdicts),
            f"{len(its)} of {len(ours)}",
            f"{worst.ratio.median:.3g}",
            str(worst.setting),
            f"{sum(one.processor_s for one in its) / own_s:.3g}",
        ]
        rows.append((-len(its), worst.ratio.median, row))
    titles = ["WAY", "WITHIN 10 %", "TRIED IN", "WORST TIME / OURS", "WHERE", "PROCESSOR / OURS"]
    out.table(titles, [row for *_, row in sorted(rows)])


if __name__ == "__main__":
    run_bench(main)
