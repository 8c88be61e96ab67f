"""Faults that the store must outlive: killed searches, power that is cut, damaged databases.

Three parts, each by itself or all together:

* ``--kills``: a search on recorded times, which stores its trials and its plan, is killed by
  ``kill -9`` at random moments, again and again on one database. Every acknowledged trial is there
  once, at most one more, and the database is whole.
* ``--power``: each write, truncation, sync and removal that SQLite makes is put on record
  (`_sqlite_writes.py`). At random places of the record the power is cut: what was synced is there,
  of the rest any part, and in writes that are cut short. What is read from it afterwards is the
  state before or after the transaction of that moment, and no acknowledged one is missing.
* ``--damaged``: bytes of a good database are flipped, pages zeroed or swapped, the end cut off.
  What then reads and writes it works, or ends with exit code 6 and one line. Every twentieth is
  also given to commands.

Where SQLite keeps the data cannot tell a flipped bit in a time from another time: it has no
checksums. So of damaged databases only that they are refused, or read without a traceback, is
asked.
"""

from __future__ import annotations

from argparse import Namespace

from _block import Output, Result, make_parser, run_bench
from _damaged_databases import damage_databases
from _killed_searches import kill_searches
from _power_cuts import cut_power


def main() -> int:
    """Run the parts that are asked for."""
    arguments = _parse()
    out = Output("store_faults", as_json=arguments.json)
    out.introduce()
    parts = {"kills": kill_searches, "power": cut_power, "damaged": damage_databases}
    wanted = {name: getattr(arguments, name) for name in parts}
    results: list[Result] = []
    for name, part in parts.items():
        if wanted[name]:
            found = part(wanted[name], arguments, out)
            out.show(found)
            results += found
    return out.conclude(results)


def _parse() -> Namespace:
    parser = make_parser(__doc__)
    parser.add_argument("--kills", type=int, default=500, help="of a search (500)")
    parser.add_argument("--latest-s", type=float, default=2.0, help="latest moment, in s (2)")
    parser.add_argument("--power", type=int, default=2000, help="cuts of the power (2000)")
    parser.add_argument("--transactions", type=int, default=150, help="that are cut (150)")
    parser.add_argument("--damaged", type=int, default=20_000, help="databases (20000)")
    parser.add_argument("--processes", type=int, default=2, help="that try them (2)")
    parser.add_argument("--seed", type=int, default=0, help="of everything (0)")
    return parser.parse_args()


if __name__ == "__main__":
    run_bench(main)
