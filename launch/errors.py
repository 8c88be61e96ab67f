"""Errors of a running plan.

LaunchError
|-- InvalidPlanError       a plan breaks a rule, or does not fit its node
|   `-- InfeasiblePlanError    no plan of a strategy can run here
|-- UnknownStrategyError   no strategy of that name
|-- UseCaseError           a use case cannot be loaded, or its data cannot be read
|-- HostFileError          a host file cannot be read
|   `-- UnsafeHostError        a host name that a program could take for an option or a command
|-- HostUnreachableError   a host cannot take part
|-- CheckpointError        a checkpoint cannot be written or read
|-- MachineBusyError       something else is timed on this machine, and nobody wants to wait
|-- ExportError            a model cannot be written as another format
|   `-- ExportTargetError      the file cannot be written, or a library for it is missing
|-- NotFiniteError         a loss or a parameter is NaN or infinite
|-- ScriptError            a command of the user's own cannot be measured as it is written
|-- ScriptFailedError      a program of the user's own did not make its steps
|   |-- ScriptEndedError       it came to its own end before
|   `-- ScriptRefusedError     it makes steps, and they cannot be told or compared
|-- LostWorkerError        another worker of the node has ended, so that this one cannot continue
|-- SharedMemoryError      no room is left in /dev/shm
`-- CompilerError          torch.compile cannot compile the model
"""

from __future__ import annotations


class LaunchError(Exception):
    """Base of what the launch floor raises on purpose."""


class InvalidPlanError(LaunchError):
    """A plan breaks a rule, or does not fit its node."""


class InfeasiblePlanError(InvalidPlanError):
    """No plan of a strategy can run here."""


class UnknownStrategyError(LaunchError):
    """No strategy has that name."""


class UseCaseError(LaunchError):
    """A use case cannot be loaded, or its data cannot be read."""


class HostFileError(LaunchError):
    """A host file cannot be read: file, line, token and what was expected are in the message."""


class UnsafeHostError(HostFileError):
    """A host name that a program could take for an option or a shell for a command."""


class HostUnreachableError(LaunchError):
    """A host cannot take part in the job."""


class CheckpointError(LaunchError):
    """A checkpoint cannot be written or read."""


class MachineBusyError(LaunchError):
    """Something else is timed here, or trains, and waiting is not wanted or would have no end."""


class ExportError(LaunchError):
    """A model cannot be written in another format, or computes something else there."""


class ExportTargetError(ExportError):
    """The file cannot be written, or a library that writes it is not installed."""


class NotFiniteError(LaunchError):
    """A loss or a parameter is NaN or infinite."""


class ScriptError(LaunchError):
    """A command of the user's own cannot be measured as it is written. Nothing was started."""


class ScriptFailedError(LaunchError):
    """A program of the user's own did not make its steps: the reason, in one line.

    Attributes:
        reason: The same line.
        log_tail: The last of what it wrote.
        out_of_memory: Whether memory was short.
        lacks_port: Whether another process had a port that it needs.
        is_time_limit: Whether its time was up.
    """

    def __init__(
        self,
        reason: str,
        log_tail: str = "",
        *,
        out_of_memory: bool = False,
        lacks_port: bool = False,
        is_time_limit: bool = False,
    ) -> None:
        super().__init__(reason)
        self.reason = reason
        self.log_tail = log_tail
        self.out_of_memory = out_of_memory
        self.lacks_port = lacks_port
        self.is_time_limit = is_time_limit


class ScriptRefusedError(ScriptFailedError):
    """It makes steps, and they cannot be told from outside, or not be compared with others."""


class ScriptEndedError(ScriptFailedError):
    """It came to its own end, with exit status 0, before it had made all steps of a turn."""


class LostWorkerError(LaunchError):
    """Another worker of the node has ended. Its end is the cause, this one a consequence."""


class SharedMemoryError(LaunchError):
    """No room is left in /dev/shm: loading processes send batches through it, NCCL its sums."""


class CompilerError(LaunchError):
    """`torch.compile` cannot compile the model."""
