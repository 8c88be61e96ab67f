"""Several hosts on one machine, for tests and benchmarks: see `testbed.bed`."""

from testbed.bed import Testbed, TestHost
from testbed.need import find_obstacle

__all__ = ["TestHost", "Testbed", "find_obstacle"]
