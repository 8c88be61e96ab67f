"""Faults that the store must outlive: killed searches, power that is cut, damaged databases.

* ``--kills``: a search on recorded times is killed by ``kill -9`` at random moments, again and
  again on one database. Every acknowledged trial is there once, at most one more, and the database
  is whole.
* ``--power``: each change to files that SQLite makes is put on record (`_sqlite_writes.py`). At
  random places of the record the power is cut: what was synced is there, of the rest any part.
  What is read from it afterwards is the state before or after the transaction of that moment.
* ``--damaged``: bytes of a good database are flipped, pages zeroed or swapped, the end cut off.
  What then reads and writes it works, or ends with exit code 6 and one line; SQLite has no
  checksums, by which more could be asked. Every twentieth is also given to commands.
"""

from __future__ import annotations

from _block import Result, begin, make_parser, run_bench
from _damaged_databases import damage_databases
from _killed_searches import kill_searches
from _power_cuts import cut_power


def main() -> int:
    """Run the parts that are asked for."""
    parser = make_parser(__doc__)
    parser.add_argument("--kills", type=int, default=500, help="of a search (500)")
    parser.add_argument("--power", type=int, default=2000, help="cuts of the power (2000)")
    parser.add_argument("--damaged", type=int, default=20_000, help="databases (20000)")
    arguments, out = begin(parser)
    parts = {"kills": kill_searches, "power": cut_power, "damaged": damage_databases}
    results: list[Result] = []
    for name, part in parts.items():
        if count := getattr(arguments, name):
            found = part(count, out)
            out.show(found)
            results += found
    return out.conclude(results)


if __name__ == "__main__":
    run_bench(main)
