"""Use cases small enough to train for twenty steps in a blink, and ways to fail, by one file name.

Tests name a use case by this file and its class, wherever in `tiny` that is.
"""

from __future__ import annotations

from tiny.base import *  # noqa: F403
from tiny.failing import *  # noqa: F403
from tiny.inputs import *  # noqa: F403
from tiny.losses import *  # noqa: F403
from tiny.models import *  # noqa: F403
from tiny.optimizers import *  # noqa: F403
