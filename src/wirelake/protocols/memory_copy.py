"""The `copy` of `kernel.py` as Numba compiles it: one call of memcpy.

A loop over slices is slower: Numba counts references to each slice, and each count is an atomic instruction.
"""

from __future__ import annotations

from typing import Any

__all__ = ["memory_copy_type"]


def memory_copy_type() -> object:
    """Return the Numba type of a function that copies data[start:start + size] to out[at:at + size]."""
    from numba.core import cgutils, types  # noqa: PLC0415 - half a second that a short command must not pay
    from numba.core.registry import cpu_target  # noqa: PLC0415 - see above
    from numba.extending import intrinsic  # noqa: PLC0415 - see above

    tools: Any = cgutils  # it has no types

    @intrinsic
    def memory_copy(_: Any, out: Any, at: Any, data: Any, start: Any, size: Any) -> tuple[Any, Any]:  # noqa: ARG001 - types of arguments
        number = types.int64

        def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
            to, origin = (context.make_array(signature.args[place])(context, builder, values[place]).data for place in (0, 2))
            nothing = context.get_constant(number, 0)
            count = builder.select(builder.icmp_signed("<", values[4], nothing), nothing, values[4])
            tools.raw_memcpy(builder, builder.gep(to, [values[1]]), builder.gep(origin, [values[3]]), count, 1)
            return context.get_dummy_value()

        return types.void(out, number, data, number, number), generate

    known: Any = cpu_target.typing_context  # it has no types
    known.refresh()
    return known.resolve_value_type(memory_copy)
