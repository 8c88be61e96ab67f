"""Facts of a use case that a planner needs, without importing it."""

from __future__ import annotations

from dataclasses import dataclass

from probes.codec import Count, NonNegative, Whole


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseFacts:
    """Facts that one worker collected when it loaded the use case and its data."""

    default_batch: Count
    """The baseline's node batch."""

    train_samples: Count
    validation_samples: int

    parameter_count: int
    parameter_bytes: Whole
    """Size of the parameters that are trained, and so of one set of gradients."""

    flop_per_sample: float | None = None
    """Operations of a forward and a backward pass of one sample: a multiplication and an addition
    are two. ``None`` where they cannot be counted."""

    kept_bytes_per_sample: Whole | None = None
    """What the forward pass of a sample keeps for the backward pass; ``None`` if unknown."""

    sample_bytes: Whole | None = None
    """Size of a sample in a batch; ``None`` if unknown."""

    max_stages: Count
    """Parts that the model can be cut into: 1 where it is not given as consecutive layers."""

    uncut_reason: str | None = None
    """Why the model cannot be cut, beside a lack of layers."""

    digest: str
    """The same as long as the use case's name, its code, the code of the user's that it imports,
    its model, and the shape and amount of its data are; wherever they lie."""

    batch_choices: tuple[Count, ...] = ()
    """Node batches that may be tried on a CPU, ascending; the user's limits are in them."""

    look_batch: Count | None = None
    """A smaller batch that plans may be tried with on a CPU for what it shows of others; ``None``
    where steps are short."""

    gpu_batch_choices: tuple[Count, ...] = ()
    """The same on GPUs, which want larger ones; where it is empty, the CPU's count there too."""

    precisions: tuple[str, ...] = ("fp32",)
    """Precisions that may be tried on a CPU, the most exact first."""

    gpu_precisions: tuple[str, ...] = ("fp32",)
    """Precisions that may be tried on a GPU, the most exact first."""

    pixel_bytes: Whole | None = None
    """Size of all pictures, decoded; ``None`` where the data set cannot give decoded ones."""

    has_fused_optimizer: bool = False
    """Whether torch has the use case's optimizer in a fused form."""

    updates_in_parts: bool = False
    """Whether parameters can be updated one by one: the optimizer treats each element by itself,
    and the gradient's norm has no limit."""

    updates_at_once: bool = False
    """Whether the optimizer must see all parameters at once, as for a norm over all gradients."""

    has_weights: bool = False
    """Whether a batch's loss is a mean over something else than samples."""

    own_methods: tuple[str, ...] = ()
    """Methods of the contract that the use case has itself; the others are the defaults."""

    has_batch_norm: bool = False
    """Whether layers normalise over the batch, of which every worker sees its own part."""

    unsaved: tuple[str, ...] = ()
    """Buffers of the model that are in no file of weights."""

    inputs: tuple[str, ...] = ("files",)
    """Inputs that may be tried on a CPU; GPUs have ``"device"`` beside ``"cache"``."""

    most_loaders: int = 2
    """Loading processes that a worker on a CPU may be tried with at most."""

    allocators: tuple[str, ...] = ("default", "retain")
    """Allocators that were found on this node."""

    can_compile: bool = False
    """Whether ``torch.compile`` finds a compiler on this node."""

    data: str | None = None
    """Where its data were; ``None`` where it finds them by itself."""

    read_s: float | None = None
    """Time of one core to read a training sample whose file is in the page cache and to make it
    ready, decoding included; ``None`` where it is not known."""

    sample_s: NonNegative = 0.0
    """Time of one sample of a plain step on all cores, roughly; 0 where it is not known."""

    calls_s: float | None = None
    """Time of a forward and backward pass on all cores whatever its samples; ``None`` where it is
    not known."""

    is_generated: bool = False
    """Whether the use case has made its samples up, because it was given no data."""

    warnings: tuple[str, ...] = ()
