"""A clock that only moves when it is told to."""


class HandClock:
    """Stands still, until it is moved."""

    def __init__(self):
        self.now_s = 100.0

    def __call__(self):
        return self.now_s
