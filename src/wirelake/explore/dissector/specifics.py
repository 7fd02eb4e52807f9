"""Specifics: the parts of a dissector that only one protocol has, and the constants that its Lua file uses."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

from wirelake.protocols.emp.messages import ExtensionId, Scheme
from wirelake.protocols.emp.messages import MessageType as EmpType
from wirelake.protocols.event_mesh.messages import EventType
from wirelake.protocols.relink.handshake import EPOCHS
from wirelake.protocols.relink.limits import Stage
from wirelake.protocols.relink.messages import Kind
from wirelake.protocols.wolpertinger.layer1.fragments import OVERHEAD
from wirelake.protocols.wolpertinger.layer2.calls import ErrorCode, error_name
from wirelake.protocols.wolpertinger.layer2.xml_reader import ROOTS
from wirelake.protocols.wolpertinger.limits import DEFAULT_LIMITS as TEXT_LIMITS
from wirelake.protocols.wolpertinger.messages import Encryption, TextKind
from wirelake.protocols.wolpertinger.options import DEFAULT_OPTIONS
from wirelake.protocols.wolpertinger.scanner import IS_COUNT, IS_ENCRYPTION, IS_GZIP, IS_ID, IS_INDEX, IS_RESULT, IS_SIGNATURE
from wirelake.protocols.wolpertinger.wire import BLOCK_SIZE
from wirelake.protocols.yamp.messages import MessageType as YampType

__all__ = ["SPECIFICS", "Specifics"]

Value = int | float | Mapping[int, str] | Mapping[str, int] | frozenset[str]


class Specifics(msgspec.Struct, frozen=True, kw_only=True):
    """What the generator must know about one protocol, besides its descriptor."""

    tables: tuple[str, ...] = ("tcp.port",)
    """Dissector tables that the port is added to."""
    heuristics: tuple[str, ...] = ("tcp",)
    """Lists of dissectors that recognise traffic by its content."""
    native: frozenset[str] = frozenset()
    """Kernels that are in the Lua file `…_scan.lua`."""
    kernels: tuple[str, ...] = ()
    """Kernels that the Lua file calls, besides those of the scanner."""
    gzip: bool = False
    """Whether payloads may be compressed."""
    stateful: bool = True
    """Whether reading a message depends on earlier ones."""
    exact_need: bool = True
    """Whether the bytes that the scanner needs are the whole message.

    Wireshark loses a message in its second pass, if a dissector asks for a number of bytes and then for more.
    """
    fields: tuple[tuple[str, str, str, str], ...] = ()
    """Fields that the Lua file adds: column, type, form, title."""
    constants: Mapping[str, Value] = {}


SPECIFICS: Final[dict[str, Specifics]] = {
    "emp": Specifics(
        gzip=True,
        kernels=("utf8",),
        fields=(("plain_body", "bytes", "bytes", "Decompressed body"),),
        constants={
            "ERROR_TYPE": EmpType.ERROR,
            "DATA_TYPE": EmpType.DATA,
            "COMPRESSION_ID": ExtensionId.COMPRESSION,
            "GZIP_SCHEME": Scheme.GZIP,
            "IDENTITY_SCHEME": Scheme.IDENTITY,
        },
    ),
    "event_mesh": Specifics(
        tables=("udp.port",),
        heuristics=("udp",),
        stateful=False,
        constants={"FIRST_TYPE": EventType.HELLO, "LAST_TYPE": EventType.EVENT},
    ),
    "relink": Specifics(
        kernels=("utf8",),
        exact_need=False,
        constants={
            "VERSION_KIND": Kind.VERSION,
            "REQUEST_KIND": Kind.REQUEST,
            "REPLY_KIND": Kind.REPLY,
            "PACKETS_STAGE": Stage.PACKETS,
            "VERSION_STAGE": Stage.VERSION,
            "REQUEST_STAGE": Stage.REQUEST,
            "REPLY_STAGE": Stage.REPLY,
            "FIRST_EPOCH": EPOCHS.start,
            "LAST_EPOCH": EPOCHS.stop,
        },
    ),
    "yamp": Specifics(
        tables=("tcp.port", "ws.port"),
        heuristics=("tcp", "ws"),
        fields=(("body_serializer", "string", "text", "Body serializer"),),
        constants={
            "EVENT_TYPE": YampType.EVENT,
            "CANCEL_TYPE": YampType.CANCEL,
            "HANDSHAKE_TYPE": YampType.HANDSHAKE,
            "LAST_TYPE": YampType.RESPONSE,
        },
    ),
    "wolpertinger": Specifics(
        gzip=True,
        native=frozenset(["_stop_of", "_pair", "_has_blanks"]),
        fields=(
            ("document", "string", "text", "Document"),
            ("root", "string", "text", "Root"),
            ("component", "string", "text", "Component"),
            ("method", "string", "text", "Method"),
            ("call_id", "string", "text", "Call id"),
            ("error_code", "uint64", "number", "Error code"),
            ("error_name", "string", "text", "Error name"),
        ),
        constants={
            "RESULT_KIND": TextKind.RESULT,
            "FRAGMENT_KIND": TextKind.FRAGMENT,
            "AES": Encryption.AES,
            "SECURE_AES": Encryption.SECURE_AES,
            "UNKNOWN_ENCRYPTION": Encryption.UNKNOWN,
            "BLOCK_SIZE": BLOCK_SIZE,
            "MAX_WEIGHT": -(-TEXT_LIMITS.max_reassembled_size // 3) * 4,
            "MAX_INCOMPLETE": DEFAULT_OPTIONS.max_incomplete,
            "FRAGMENT_TIMEOUT": DEFAULT_OPTIONS.fragment_timeout,
            "OVERHEAD": OVERHEAD,
            "ROOTS": frozenset(ROOTS),
            "ERROR_NAMES": {code.value: str(error_name(code.value)) for code in ErrorCode},
            "KEYS": {
                "message_id": IS_ID,
                "result": IS_RESULT,
                "gzip": IS_GZIP,
                "encryption": IS_ENCRYPTION,
                "secure": IS_ENCRYPTION,
                "fragment_index": IS_INDEX,
                "fragment_count": IS_COUNT,
                "signature": IS_SIGNATURE,
            },
        },
    ),
}
"""Protocol -> its specifics. A protocol that is not here has no dissector."""
