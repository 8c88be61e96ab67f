"""Statistical efficiency of a batch: how much of its samples' worth a larger batch keeps.

A training gets as far with fewer samples where they come in small batches, since an average over
many samples says little more than one over some. Letters::

    B0      batch that the learning rate was chosen for: the use case's own
    B       another batch                     phi   gradient noise scale, in samples
    f(B)    factor of the learning rate       1, B / B0 or its square root

A step with B samples is worth at most ``gain`` steps with B0, whatever its learning rate::

    gain(B) = (B / B0) (phi + B0) / (phi + B)

That is what AdaScale and Pollux scale the learning rate by. A step whose learning rate is scaled by
less gets no farther than that: where it stays as it is, one step is worth one step. So a step is
worth ``min(f, gain)`` steps, and a sample of it::

    efficiency(B) = min(f(B), gain(B)) B0 / B

With a linear scaling and B above B0 that is ``(phi + B0) / (phi + B)``.

Sources: McCandlish et al., 2018, https://arxiv.org/abs/1812.06162, equation 2.7; Johnson et al.,
"AdaScale SGD", 2020, https://arxiv.org/abs/2007.05105; Qiao et al., "Pollux", OSDI 2021,
https://arxiv.org/abs/2008.12260, equation 7.
"""

from __future__ import annotations

import math

LR_SCALINGS = ("none", "linear", "sqrt")


def learning_rate_factor(scaling: str, batch: int, base_batch: int) -> float:
    """Give the factor of the learning rate for a batch, ``f(B)``.

    Args:
        scaling: One of `LR_SCALINGS`.
        batch: Samples per step of all nodes.
        base_batch: B0.
    """
    ratio = batch / base_batch
    return {"none": 1.0, "linear": ratio, "sqrt": math.sqrt(ratio)}[scaling]


def gain(scale: float, batch: int, base_batch: int) -> float:
    """Give how many steps of the base batch one step of a batch is worth at most."""
    return batch / base_batch * (scale + base_batch) / (scale + batch)


def efficiency(scale: float, batch: int, base_batch: int, scaling: str) -> float:
    """Give the worth of a sample in a batch, against one in the base batch.

    Args:
        scale: Gradient noise scale, in samples.
        batch: B.
        base_batch: B0.
        scaling: Of the learning rate, one of `LR_SCALINGS`.
    """
    factor = learning_rate_factor(scaling, batch, base_batch)
    return min(factor, gain(scale, batch, base_batch)) * base_batch / batch


def cautious_efficiency(
    scale: float, high: float, batch: int, base_batch: int, scaling: str
) -> float:
    """Give the worth of a sample as `efficiency` does, and for small batches one that lasts.

    Samples of smaller batches than the base batch are worth most where the scale is small, as it is
    when a training begins. It grows, often a hundredfold: for them the upper end of its interval
    counts, and the base batch at least. So none is worth twice as much, and none is chosen that for
    most of the training takes twice as long.

    Args:
        scale: Gradient noise scale, in samples.
        high: Upper end of its interval.
        batch: B.
        base_batch: B0.
        scaling: Of the learning rate, one of `LR_SCALINGS`.
    """
    lasting = max(high, float(base_batch)) if batch < base_batch else scale
    return efficiency(lasting, batch, base_batch, scaling)
