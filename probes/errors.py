"""Errors of measuring a machine or a time.

ProbeError
|-- InvalidMeasurementError    no samples, or a time that is not a positive number
|-- InvalidDocumentError       what was stored, sent or written by hand is not what it should be
|-- SpeedProbeError            the process that measures limits gave no result
|-- DataProbeError             the files of a data set could not be read, or not in time
`-- LinkProbeError             no link to measure, or nothing computes beside it
"""

from __future__ import annotations


class ProbeError(Exception):
    """Base of what the probes floor raises on purpose."""


class InvalidMeasurementError(ProbeError):
    """A measurement has no samples, or a time in it is not a positive number."""


class InvalidDocumentError(ProbeError):
    """What was stored, sent or written by hand is wrong. The message has where and how."""


class SpeedProbeError(ProbeError):
    """The process that measures limits gave no result."""


class DataProbeError(ProbeError):
    """The files of a data set could not be read, or not in time."""


class LinkProbeError(ProbeError):
    """There is no other rank to measure a link to, or nothing computes beside the measurement."""


def first_line(error: Exception) -> str:
    """Give the first line of an error's message, or its class: CUDA's messages have several."""
    return str(error).strip().partition("\n")[0] or type(error).__name__
