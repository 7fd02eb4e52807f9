"""Extensions applied to a body: `load` before sending, `unload` on receipt.

A body that cannot be unloaded raises BodyRejected; the session answers it.
"""

from __future__ import annotations

from typing import cast

from wirelake.errors import DecodeError, LocalProtocolError
from wirelake.protocols.emp.faults import Fault
from wirelake.protocols.emp.messages import (
    APPLICATION_FIRST,
    Application,
    Compression,
    Data,
    Extension,
    MessageType,
    OtherExtension,
    Scheme,
)
from wirelake.protocols.emp.options import Options, Refused
from wirelake.protocols.emp.wire import pack, unpack

__all__ = ["BodyRejected", "load", "unload", "unregistered"]


class BodyRejected(Exception):
    """A body that cannot be unloaded: which rule it breaks, and for EMP-9 which extension rejects it."""

    def __init__(self, fault: Fault, detail: str, extension_id: int | None = None, code: int | None = None) -> None:
        self.fault = fault
        self.detail = detail
        self.extension_id = extension_id
        self.code = code
        super().__init__(fault, detail)


def load(body: bytes, extensions: tuple[Extension, ...], *, compress: bool, type_id: int, options: Options) -> Data | Application:
    """The message that carries a body: request-response first, compression last (EMP-39)."""
    for extension in extensions:
        if isinstance(extension, OtherExtension) and extension.id < APPLICATION_FIRST:  # EMP-4
            raise LocalProtocolError(Fault.EXTENSION_UNKNOWN, f"extension {extension.id}: an application's begin at {APPLICATION_FIRST}")
    if compress:
        extensions = (*extensions, Compression(Scheme.GZIP))
        body = pack(body)
    if len(extensions) > options.limits.max_extension_blocks:  # EMP-36
        raise LocalProtocolError(Fault.BLOCKS_OVER_LIMIT, f"{len(extensions)}, limit {options.limits.max_extension_blocks}")
    return Data(body, extensions) if type_id == MessageType.DATA else Application(type_id, body, extensions)


def unload(extensions: tuple[Extension, ...], body: bytes, options: Options) -> tuple[bytes, int]:
    """The body as it was before its extensions were applied, the last undone first (EMP-39), and the bytes that decompressing made.

    Raises BodyRejected.
    """
    inflated = 0
    for extension in reversed(extensions):
        if isinstance(extension, Compression):
            try:
                body = unpack(extension.scheme, body, options.limits.max_body_size)
            except DecodeError as reason:
                raise BodyRejected(cast(Fault, reason.fault), reason.detail) from None
            inflated += len(body)
        elif isinstance(extension, OtherExtension):
            body = _unregister(extension, body, options)
    return body, inflated


def _unregister(extension: OtherExtension, body: bytes, options: Options) -> bytes:
    codec = options.codecs.get(extension.id)
    if codec is None:  # EMP-9
        raise BodyRejected(Fault.EXTENSION_UNKNOWN, f"extension {extension.id}", extension.id)
    try:
        return codec.undo(extension.content, body)
    except Refused as reason:
        raise BodyRejected(Fault.EXTENSION_REFUSED, str(reason), extension.id, reason.code & 0xFF) from None
    except Exception as reason:
        raise BodyRejected(Fault.HANDLER_FAILED, f"extension {extension.id}: {reason}") from reason  # the application's own bug


def unregistered(extensions: tuple[Extension, ...], options: Options) -> int | None:
    """EMP-9: the first extension without a handler, on a message without a body to undo.

    Unknown ones are not skipped.
    """
    others = (one.id for one in extensions if isinstance(one, OtherExtension))
    return next((one for one in others if one not in options.codecs), None)
