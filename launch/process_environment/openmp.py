"""OpenMP in worker processes: how its threads wait for work."""

from __future__ import annotations

from collections.abc import Mapping

from launch.errors import InvalidPlanError
from launch.plan import Plan

WAIT_POLICIES = ("default", "active", "passive")
"""What OpenMP's threads do while they wait for work: spin for a while, spin, or sleep.

Beside another program a thread that spins has used up its turn on the core when work comes; one
that sleeps has to be woken for every operator.
"""

WAIT_POLICY = "wait_policy"
"""Option of a plan; a library reads it as it is loaded, so that a process has to start with it."""

_VARIABLES: Mapping[str, Mapping[str, str]] = {
    "default": {},
    # OpenMP's own variable, and that of Intel's and LLVM's run-time libraries:
    # https://www.openmp.org/spec-html/5.0/openmpse55.html
    "active": {"OMP_WAIT_POLICY": "ACTIVE", "KMP_BLOCKTIME": "infinite"},
    "passive": {"OMP_WAIT_POLICY": "PASSIVE", "KMP_BLOCKTIME": "0"},
}


def wait_policy(plan: Plan) -> str:
    """Give how the threads of a plan wait.

    Raises:
        InvalidPlanError: There is no such way.
    """
    policy = plan.options.get(WAIT_POLICY, WAIT_POLICIES[0])
    if policy not in WAIT_POLICIES:
        raise InvalidPlanError(
            f"{WAIT_POLICY}={policy!r}: choose one of {', '.join(WAIT_POLICIES)}"
        )
    return str(policy)


def wait_environment(policy: str) -> Mapping[str, str]:
    """Return the variables with which a process starts to wait so; none for the default."""
    return _VARIABLES[policy]
