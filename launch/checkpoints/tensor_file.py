"""Writer of safetensors files, one tensor after the other, with a digest of the bytes.

The library's own writer needs all tensors in memory that no two share, which is one more copy of
the model, and leaves the digest to a second pass.

Source: https://huggingface.co/docs/safetensors, "Format".
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from itertools import chain
from pathlib import Path
from typing import BinaryIO

import torch
from torch import Tensor

from launch.checkpoints.manifest import FileRecord
from launch.errors import CheckpointError
from launch.local_group.shared_parameters import tensor_bytes
from launch.system.durable_files import write_durably

_DTYPES = {
    torch.float64: "F64",
    torch.float32: "F32",
    torch.float16: "F16",
    torch.bfloat16: "BF16",
    torch.int64: "I64",
    torch.int32: "I32",
    torch.int16: "I16",
    torch.int8: "I8",
    torch.uint8: "U8",
    torch.bool: "BOOL",
    torch.complex64: "C64",
    torch.uint64: "U64",
    torch.uint32: "U32",
    torch.uint16: "U16",
    torch.float8_e4m3fn: "F8_E4M3",
    torch.float8_e5m2: "F8_E5M2",
}
_READ_BYTES = 8 << 20
_MAX_HEADER_BYTES = 100_000_000
"""The library refuses to read a longer one."""


def write_tensors(
    path: Path, tensors: Mapping[str, Tensor], metadata: Mapping[str, str] | None = None
) -> FileRecord:
    """Write tensors to a new file that only the user can read, down to the disk.

    Args:
        path: Of the file, which may not exist.
        tensors: On any device, in any strides.
        metadata: Texts that are stored with them.

    Raises:
        CheckpointError: A tensor is of a kind that the format does not know.
        OSError: The file cannot be written.
    """
    digest = hashlib.sha256()
    num_bytes = 0
    with write_durably(path) as file:
        header = memoryview(encode_header(tensors, metadata))
        for block in chain([header], map(_content, tensors.values())):
            num_bytes += _write(file, block, digest)
    return FileRecord(name=path.name, num_bytes=num_bytes, sha256=digest.hexdigest())


def encode_header(tensors: Mapping[str, Tensor], metadata: Mapping[str, str] | None) -> bytes:
    """Give the beginning of a file: names, types and places of the tensors.

    Raises:
        CheckpointError: A tensor is of a kind that the format does not know, or there is too much
            metadata.
    """
    entries: dict[str, object] = {"__metadata__": dict(metadata)} if metadata else {}
    offset = 0
    for name, tensor in tensors.items():
        if tensor.dtype not in _DTYPES or tensor.layout is not torch.strided:
            raise CheckpointError(
                f"{name} is a tensor of {tensor.dtype}, {tensor.layout}, which safetensors cannot "
                "hold: keep dense tensors of the usual types"
            )
        end = offset + tensor.nbytes
        entries[name] = {
            "dtype": _DTYPES[tensor.dtype],
            "shape": list(tensor.shape),
            "data_offsets": [offset, end],
        }
        offset = end
    document = json.dumps(entries).encode()
    document += b" " * (-len(document) % 8)  # so that tensors begin where a number may
    if len(document) > _MAX_HEADER_BYTES:
        raise CheckpointError(
            f"names and other state than tensors take {len(document)} bytes, and safetensors reads "
            f"at most {_MAX_HEADER_BYTES}: keep large state as tensors"
        )
    return len(document).to_bytes(8, "little") + document


def _content(tensor: Tensor) -> memoryview:
    content: memoryview = tensor_bytes(tensor).numpy().data
    return content


def _write(file: BinaryIO, block: memoryview, digest: hashlib._Hash) -> int:
    for start in range(0, len(block), _READ_BYTES):
        piece = block[start : start + _READ_BYTES]
        digest.update(piece)  # while it is in the cache
        file.write(piece)
    return len(block)
