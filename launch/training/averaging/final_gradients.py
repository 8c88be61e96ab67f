"""Final gradients: those that have been in all backward passes of a step."""

from __future__ import annotations

from launch.errors import UseCaseError


class FinalGradients:
    """Counts the backward passes that each gradient of a step has been in."""

    def __init__(self, parameters: int) -> None:
        self._counts = [0] * parameters
        self._passes: int | None = None

    def start_step(self, passes: int | None) -> None:
        """Reset the counts.

        Args:
            passes: Backward passes that this step has here; ``None`` where a gradient is not final
                by then, or where they are not known.
        """
        self._counts = [0] * len(self._counts)
        self._passes = passes

    def count(self, index: int) -> bool:
        """Count a gradient; return whether it is final.

        Raises:
            UseCaseError: It was final before, and may be in flight to other nodes.
        """
        if self._passes is None:
            return False
        self._counts[index] += 1
        if self._counts[index] > self._passes:
            raise UseCaseError(
                "a gradient came twice in one backward pass, as re-entrant checkpointing "
                "does: call torch.utils.checkpoint with use_reentrant=False"
            )
        return self._counts[index] == self._passes
