"""What is said while data are prepared, kept for whoever asks."""

from __future__ import annotations


class Heard:
    def __init__(self) -> None:
        self.progressed: list[tuple[int, int, str]] = []
        self.warnings: list[str] = []

    def progress(self, done: int, total: int, what: str) -> None:
        self.progressed.append((done, total, what))

    def warning(self, message: str) -> None:
        self.warnings.append(message)
