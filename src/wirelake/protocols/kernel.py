"""The `@kernel` decorator, and code that all scanners share: byte readers, row columns.

A kernel is a plain function over bytes that writes integers into flat tables. It runs as plain Python, which costs nothing to start. Or it
runs compiled by Numba, which costs half a second once and is some hundred times faster. `active` gives the form that this process uses.
Both forms write the same rows, and tests compare them.

Users choose nothing: processes that decode blocks or serve call `use_compiled`. Live peers that receive in bulk let `Buffer.compile` run in
a thread. `buffer.py` still scans few bytes plain.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from enum import Enum
from functools import wraps
from hashlib import blake2b
from types import CodeType, FunctionType
from typing import TYPE_CHECKING, Final, Protocol, TypeAlias, TypeVar

from wirelake.kernel_cache import OPTIONS, jit
from wirelake.protocols.memory_copy import memory_copy_type

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

__all__ = [
    "COMPILED_BYTES",
    "FAULT",
    "FAULT_AT",
    "KIND",
    "LENGTH",
    "NO_ROOM",
    "PART",
    "PARTS",
    "SHARED",
    "START",
    "Find",
    "HeaderScan",
    "Numbers",
    "Octets",
    "Scan",
    "ScanLimits",
    "Stride",
    "Walk",
    "active",
    "array",
    "compiled",
    "copy",
    "fingerprint",
    "header_scanner",
    "i64",
    "i64_le",
    "is_plain",
    "kernel",
    "over_arrays",
    "positions",
    "ready",
    "strider",
    "table",
    "u16",
    "u16_le",
    "u32",
    "u32_le",
    "use_compiled",
    "use_plain",
    "walker",
]

F = TypeVar("F", bound=Callable[..., object])

Octets: TypeAlias = "bytes | bytearray | memoryview | npt.NDArray[np.uint8]"
"""Bytes as kernels read them: an array of 8-bit numbers where they run compiled."""
Numbers: TypeAlias = "list[int] | npt.NDArray[np.int64]"
"""Rows, parts and positions as kernels read and write them: flat, 64-bit numbers where they run compiled."""
ScanLimits: TypeAlias = tuple[int, ...]
"""The limits of a protocol as its kernels take them."""


class Scan(Protocol):
    """The kernel that reads the whole messages of one segment of bytes."""

    def __call__(
        self, data: Octets, start: int, stop: int, rows: Numbers, parts: Numbers, limits: ScanLimits, /
    ) -> tuple[int, int, int, int]:
        """Return (rows written, parts written, next offset, bytes needed); see `NO_ROOM`."""


class Find(Protocol):
    """The kernel that finds where messages certainly begin again."""

    def __call__(self, data: Octets, start: int, stop: int, limits: ScanLimits, /) -> int:
        """Return the first such offset from `start` on, or `stop`."""


class Walk(Protocol):
    """The kernel that reads many segments; see `walker`."""

    def __call__(
        self,
        data: Octets,
        starts: Numbers,
        stops: Numbers,
        segment: int,
        at: int,
        rows: Numbers,
        segment_of: Numbers,
        parts: Numbers,
        ends: Numbers,
        limits: ScanLimits,
        /,
    ) -> tuple[int, int, int, int]:
        """Return (rows written, parts written, segment, offset)."""


class Stride(Protocol):
    """The kernel that reads many segments and stops in each where it makes no sense; see `strider`."""

    def __call__(
        self,
        data: Octets,
        starts: Numbers,
        stops: Numbers,
        segment: int,
        at: int,
        rows: Numbers,
        segment_of: Numbers,
        parts: Numbers,
        ends: Numbers,
        faults: Numbers,
        limits: ScanLimits,
        /,
    ) -> tuple[int, int, int, int]:
        """Return (rows written, parts written, segment, offset)."""


class HeaderScan(Protocol):
    """The kernel that reads the first frame of many segments; see `header_scanner`."""

    def __call__(
        self, data: Octets, starts: Numbers, stops: Numbers, rows: Numbers, parts: Numbers, ends: Numbers, limits: ScanLimits, /
    ) -> None: ...


# The columns every scanner's row begins with, so that buffers, walkers and the ledger serve all protocols.
START: Final = 0
"""Offset of the first byte of the frame."""
LENGTH: Final = 1
"""Bytes in the frame; of a frame whose end cannot be known, the bytes that were looked at."""
KIND: Final = 2
"""The protocol's own number for what this frame is."""
FAULT: Final = 3
"""0, or the protocol's fault code: the first rule this frame breaks."""
FAULT_AT: Final = 4
"""Offset of the byte that breaks it."""
PART: Final = 5
"""Index of the first row of this frame in the second, flat array (blocks, TLVs, …)."""
PARTS: Final = 6
"""How many rows it has there."""
SHARED: Final = 7
"""How many columns are shared: a protocol's own columns start here."""

NO_ROOM: Final = -1
"""Returned by a scanner as the bytes it needs, when it stopped because its rows or parts are full."""

COMPILED_BYTES: Final = 128
"""Bytes that wait in a live session's buffer from which they are scanned compiled.

A call of compiled code costs about 4 µs whatever the size; a plain scan costs 4 to 10 µs a message in a tight loop. In a live peer, the two
cost the same for one small message, as far as a busy machine shows. An earlier measurement had a sequential EMP request at 171 µs compiled
and 115 µs plain. So one small message is scanned plain, and anything more compiled; `benchmarks/buffer.py` measures the tight loop.
"""
compiled_from = COMPILED_BYTES
"""The same, as this process uses it.

Tests set it to 0, so that compiled scanners see small messages too.
"""

ready: dict[Callable[..., object], Callable[..., object]] = {}
"""Scanners that were compiled for live sessions while these scanned plain: see `Buffer.compile`."""

_kernels: list[Callable[..., object]] = []
_dispatchers: dict[Callable[..., object], Callable[..., object]] = {}
_use_compiled = False
_views: dict[Callable[..., object], Callable[..., object]] = {}
_use_plain = False


def kernel(function: F) -> F:
    """Mark a function as a kernel: it stays a plain function, and `compiled` finds it."""
    _kernels.append(function)
    return function


def compiled(function: F) -> F:
    """Return the kernel compiled by Numba.

    It takes arrays; see `array` and `table`. Only this function and `use_compiled` import Numba.
    """
    if function not in _dispatchers:
        import numba  # noqa: PLC0415 - half a second that a short command must not pay

        for each in _kernels:
            if each not in _dispatchers:
                _dispatchers[each] = jit(each, fingerprint(each))
                if _dispatchers[each] is each:
                    _dispatchers[each] = _over_views(each)
                else:
                    # Lets one kernel call another: Numba asks an object whose type it does not know for it here.
                    each._numba_type_ = numba.types.Dispatcher(_dispatchers[each])  # type: ignore[attr-defined]  # a function's dict
        if "_numba_type_" not in vars(copy):
            copy._numba_type_ = memory_copy_type()  # type: ignore[attr-defined]  # a function's dict
    return _dispatchers[function]  # type: ignore[return-value]  # a dispatcher is called like its function


def fingerprint(function: Callable[..., object]) -> str:
    """Hash everything that a kernel's compiled code consists of.

    That is its code and its module, which is imported when the compiled code is loaded, and the kernels and constants that it uses, and
    they use.
    """
    digest = blake2b(digest_size=16)
    for text in (repr(OPTIONS), *_ingredients(function, set())):
        digest.update(text.encode())
        digest.update(b"\0")
    return digest.hexdigest()


def _ingredients(function: object, seen: set[object]) -> Iterator[str]:
    """Describe a kernel, and each kernel and constant that it uses, in an order that is the same in every process."""
    if not isinstance(function, FunctionType) or function in seen:
        return
    seen.add(function)
    if function is copy:
        yield from _ingredients(memory_copy_type, seen)
    yield f"{function.__module__}.{function.__qualname__}"
    yield from _code(function.__code__)
    used = [(name, function.__globals__[name]) for name in function.__code__.co_names if name in function.__globals__]
    cells = [cell.cell_contents for cell in function.__closure__ or ()]
    for name, value in (*used, *zip(function.__code__.co_freevars, cells, strict=True)):
        yield name
        if isinstance(value, FunctionType):
            yield from _ingredients(value, seen)
        elif isinstance(value, type) and issubclass(value, Enum):
            yield from (f"{member.name}={member.value!r}" for member in value)
        elif isinstance(value, int | float | str | bytes | tuple):
            yield repr(value)


def _code(code: CodeType) -> Iterator[str]:
    """Describe the instructions of a function, and of the functions in it."""
    yield code.co_code.hex()
    yield repr((code.co_names, code.co_varnames))
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _code(constant)
        else:
            yield repr(constant)


def _over_views(function: F) -> F:
    """Wrap a kernel for when Numba is switched off.

    A byte of an array is a number of 8 bits that overflows; a byte of its view is a Python number.
    """

    import numpy as np  # noqa: PLC0415 - only where kernels run on arrays

    @wraps(function)
    def call(*arguments: object) -> object:
        return function(*(value.data if isinstance(value, np.ndarray) and value.dtype == np.uint8 else value for value in arguments))

    return call  # type: ignore[return-value]  # it is called like its function


def use_compiled() -> bool:
    """Let this process use compiled kernels from now on, if Numba is installed; returns whether it does.

    Processes that decode blocks or serve call this once. Short commands do not, and save the half second.
    """
    global _use_compiled, _use_plain  # noqa: PLW0603 - one switch per process is the point
    _use_plain = False
    try:
        import numba  # noqa: PLC0415 - see compiled
    except ImportError:
        return False
    _use_compiled = not bool(getattr(numba.config, "DISABLE_JIT", False))
    return _use_compiled


def use_plain(wanted: bool = True) -> None:
    """Let this process decode blocks without Numba, until it calls `use_compiled`, or this with False.

    For commands whose input is small, or not known yet. A process that uses compiled kernels already goes on with them.
    """
    global _use_plain  # noqa: PLW0603 - see use_compiled
    _use_plain = wanted and not _use_compiled


def is_plain() -> bool:
    """Whether kernels for arrays run as plain Python: then a loop of a library is faster."""
    return _use_plain


def over_arrays(function: F) -> F:
    """Return a kernel for arguments that are arrays: compiled, unless the process called `use_plain`."""
    if not _use_plain:
        return compiled(function)
    if function not in _views:
        _views[function] = _over_views(function)
    return _views[function]  # type: ignore[return-value]  # it is called like its function


def active(function: F) -> F:
    """Return the form of a kernel that this process uses; its arguments come from `array` and `table`."""
    return compiled(function) if _use_compiled else function


def array(data: bytes, *, compiled: bool | None = None) -> Octets:
    """Return bytes in the form that active kernels read, or plain or compiled ones."""
    if not (_use_compiled if compiled is None else compiled):
        return data
    import numpy as np  # noqa: PLC0415 - only where kernels run compiled

    return np.frombuffer(data, np.uint8)


def table(rows: int, columns: int, *, compiled: bool | None = None) -> Numbers:
    """Return a flat table of so many rows, in the form that active kernels write, or plain or compiled ones."""
    if not (_use_compiled if compiled is None else compiled):
        return [0] * (rows * columns)
    import numpy as np  # noqa: PLC0415 - only where kernels run compiled

    return np.zeros(rows * columns, np.int64)


def positions(places: list[int], *, compiled: bool | None = None) -> Numbers:
    """Return where segments begin or end, in the form that active kernels read, or plain or compiled ones."""
    if not (_use_compiled if compiled is None else compiled):
        return places
    import numpy as np  # noqa: PLC0415 - only where kernels run compiled

    return np.array(places, np.int64)


def copy(out: Octets, at: int, data: Octets, start: int, size: int) -> None:
    """Copy data[start:start + size] to out[at:at + size], which must not overlap. Compiled kernels call memcpy; see `memory_copy.py`."""
    memoryview(out)[at : at + size] = memoryview(data)[start : start + size]  # type: ignore[arg-type]  # an array is a buffer


@kernel
def u16(data: Octets, at: int) -> int:
    """Two bytes, big-endian. (Adding to a literal makes Numba see signed numbers, as every other number here is.)"""
    value: int = ((0 + data[at]) << 8) | (0 + data[at + 1])
    return value


@kernel
def u32(data: Octets, at: int) -> int:
    """Four bytes, big-endian."""
    value: int = ((0 + data[at]) << 24) | ((0 + data[at + 1]) << 16) | ((0 + data[at + 2]) << 8) | (0 + data[at + 3])
    return value


@kernel
def i64(data: Octets, at: int) -> int:
    """Eight bytes, big-endian, as the signed number with the same bits: what an int64 column can hold."""
    high = u32(data, at)
    if high >= 0x80000000:
        high -= 0x100000000
    return (high << 32) | u32(data, at + 4)


@kernel
def u16_le(data: Octets, at: int) -> int:
    """Two bytes, little-endian."""
    value: int = (0 + data[at]) | ((0 + data[at + 1]) << 8)
    return value


@kernel
def u32_le(data: Octets, at: int) -> int:
    """Four bytes, little-endian."""
    value: int = (0 + data[at]) | ((0 + data[at + 1]) << 8) | ((0 + data[at + 2]) << 16) | ((0 + data[at + 3]) << 24)
    return value


@kernel
def i64_le(data: Octets, at: int) -> int:
    """Eight bytes, little-endian, as the signed number with the same bits."""
    high = u32_le(data, at + 4)
    if high >= 0x80000000:
        high -= 0x100000000
    return (high << 32) | u32_le(data, at)


def walker(scan: Scan, find: Find, columns: int, part_columns: int) -> Walk:
    """Make a kernel that runs `scan` over many segments, and goes on after bytes it cannot read.

    Where `scan` cannot read on, `find` looks for the next certain frame. The bytes between are one row that carries the fault.
    So all bytes of a segment are in rows, but for an unfinished frame at its end.
    """

    @kernel
    def walk(
        data: Octets,
        starts: Numbers,
        stops: Numbers,
        segment: int,
        at: int,
        rows: Numbers,
        segment_of: Numbers,
        parts: Numbers,
        ends: Numbers,
        limits: ScanLimits,
    ) -> tuple[int, int, int, int]:
        """Walk segments[segment:], the first from offset `at`.

        Call again with what it returned until segment == len(starts).

        `segment_of[i]` is the segment of row i; `ends[s]` is where the unfinished frame of segment s begins. Returns (rows written,
        parts written, segment, offset). `rows` and `parts` must hold at least one frame.
        """
        count, used = 0, 0
        while segment < len(starts):
            stop = stops[segment]
            written, taken, end, need = scan(data, at, stop, rows[count * columns :], parts[used * part_columns :], limits)
            for row in range(count, count + written):
                rows[row * columns + PART] += used
                segment_of[row] = segment
            count += written
            used += taken
            at = end
            last = (count - 1) * columns
            if written and rows[last + FAULT] and rows[last + START] == end:
                at = find(data, end + 1, stop, limits)
                rows[last + LENGTH] = at - end
                if at < stop and count * columns < len(rows):
                    continue
                if at < stop:
                    return count, used, segment, at
            elif need == NO_ROOM and at < stop:  # else a part of a handshake that ends with its segment
                return count, used, segment, at
            ends[segment] = at
            segment += 1
            if segment < len(starts):
                at = starts[segment]
        return count, used, segment, at

    return walk


def header_scanner(scan: Scan, columns: int) -> HeaderScan:
    """Make a kernel that runs `scan` over the first frame of many segments, for frames without parts."""

    @kernel
    def scan_headers(
        data: Octets, starts: Numbers, stops: Numbers, rows: Numbers, parts: Numbers, ends: Numbers, limits: ScanLimits
    ) -> None:
        """Write a row for each segment, and to `ends[s]` where its first frame ends: -1 if there is no whole one without a fault."""
        for segment in range(len(starts)):
            first = segment * columns
            written, taken, end, _ = scan(data, starts[segment], stops[segment], rows[first : first + columns], parts, limits)
            ends[segment] = end if written == 1 and taken == 0 and rows[first + FAULT] == 0 else -1

    return scan_headers


def strider(scan: Scan, columns: int, part_columns: int) -> Stride:
    """Make a kernel that runs `scan` over many segments.

    It leaves a segment at the first byte it cannot read. It is for streams of which more bytes may come.
    """

    @kernel
    def stride(
        data: Octets,
        starts: Numbers,
        stops: Numbers,
        segment: int,
        at: int,
        rows: Numbers,
        segment_of: Numbers,
        parts: Numbers,
        ends: Numbers,
        faults: Numbers,
        limits: ScanLimits,
    ) -> tuple[int, int, int, int]:
        """Walk segments[segment:], the first from offset `at`.

        Call again with what it returned until segment == len(starts).

        `segment_of[i]` is the segment of row i. `ends[s]` is where the unfinished frame of segment s begins, or its first unreadable
        byte: then `faults[s]` says why. Returns (rows written, parts written, segment, offset). `rows` and `parts` must hold at least
        one frame.
        """
        count, used = 0, 0
        while segment < len(starts):
            written, taken, end, need = scan(data, at, stops[segment], rows[count * columns :], parts[used * part_columns :], limits)
            last = (count + written - 1) * columns
            is_lost = written > 0 and rows[last + FAULT] != 0 and rows[last + START] == end
            if is_lost:
                faults[segment] = rows[last + FAULT]
                written -= 1
            for row in range(count, count + written):
                rows[row * columns + PART] += used
                segment_of[row] = segment
            count += written
            used += taken
            at = end
            if not is_lost and need == NO_ROOM:
                return count, used, segment, at
            ends[segment] = at
            segment += 1
            if segment < len(starts):
                at = starts[segment]
        return count, used, segment, at

    return stride
