"""Ours and other ways to train on two hosts, in turns, by `ddlplan compare --hosts`.

Two hosts of one core each, on one machine: see `tests/hosts/testbed`. Each host gets a plan by a
search of its own; then our job and each peer take turns. Ours decodes the photos in its first
epoch, as a training of a user does.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from _block import Ddlplan, Result, begin, make_parser, run_bench, stated_interval
from testbed.bed import Testbed

_RATE, _BATCH = "1gbit", 32
"""Of the link, and of each host."""

_LOW = {"defaults": 1.3, "ours": 1.1}


def main() -> int:
    """Measure and show."""
    parser = make_parser(__doc__)
    parser.add_argument("--use-case", default="simplebig")
    parser.add_argument("--with", dest="peers", help="only these peers, by commas")
    parser.add_argument("--loader-workers", default=0, help="of each process of a peer (0)")
    parser.add_argument("--tune", default="90s", help="time of the searches (90s)")
    parser.add_argument("--budget", default="60s", help="of each peer's turns (60s)")
    arguments, out = begin(parser)
    with Testbed(2, cores=["0", "1"]) as bed, Ddlplan.in_own_folder() as ddlplan:
        bed.set_rate(_RATE)
        where = ["--use-case", arguments.use_case, *bed.options(ddlplan.folder)]
        batch = ["--batch-size", _BATCH]
        ddlplan.run("tune", *where, *batch, "--budget", arguments.tune, show_progress=True)
        chosen = [] if arguments.peers is None else ["--with", arguments.peers]
        turns = ["--budget", arguments.budget, "--starts", 1]
        turns += ["--loader-workers", arguments.loader_workers]
        found = ddlplan.run("compare", *where, *batch, *turns, *chosen, show_progress=True).data
    for peer in found["peers"]:
        if peer["error"] is not None:
            out.say(f"{peer['peer']}, {peer['setting']}: {peer['error']}")
    return out.conclude(list(_results(found)))


def _results(found: dict[str, Any]) -> Iterator[Result]:
    for peer in found["peers"]:
        if (ratio := peer["ours_per_peer"]) is not None:
            name, setting = peer["peer"], peer["setting"]
            fastest = found["fastest"][setting]
            is_judged = fastest is not None and fastest["peer"] == name
            yield Result(
                f"{_RATE}: samples/s of ours / {name}, {setting}",
                stated_interval(ratio, ratio["samples"]),
                low=_LOW[setting] if is_judged else None,
            )


if __name__ == "__main__":
    run_bench(main)
