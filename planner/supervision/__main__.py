"""Program of a supervisor: ``python -m planner.supervision DB JOB``.

It returns once the supervisor is registered, which goes on in a session of its own.
"""

from __future__ import annotations

import os
import sys

_READY = b"1"


def main(db: str, job_id: int) -> int:
    """Start the supervisor of a job as nobody's child; give 0 once it has the job."""
    reading, writing = os.pipe()
    if os.fork():  # no thread runs yet
        os.close(writing)
        return 0 if os.read(reading, 1) == _READY else 1
    os.close(reading)
    os.setsid()

    from planner.supervision.supervisor import Supervisor  # imports take a second

    supervisor = Supervisor(db, job_id)
    if not supervisor.register():
        return 1
    os.write(writing, _READY)
    os.close(writing)
    supervisor.run()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], int(sys.argv[2])))
