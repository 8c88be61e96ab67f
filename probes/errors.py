"""What can go wrong while a machine or a time is measured?

ProbeError
|-- InvalidMeasurementError    no samples, or a time that is not a positive number
|-- InvalidHardwareError       a stored description of hardware cannot be read back
|-- SpeedProbeError            the process that measures limits gave no result
`-- LinkProbeError             no link to measure, or nothing computes beside it
"""

from __future__ import annotations


class ProbeError(Exception):
    """Base of what the probes floor raises on purpose."""


class InvalidMeasurementError(ProbeError):
    """A measurement has no samples, or a time in it is not a positive number."""


class InvalidHardwareError(ProbeError):
    """A stored description of hardware cannot be read back."""


class SpeedProbeError(ProbeError):
    """The process that measures limits gave no result."""


class LinkProbeError(ProbeError):
    """One rank has nobody to talk to, or nothing computes beside what is measured."""
