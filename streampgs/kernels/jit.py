"""How the loops are compiled, and a few instructions that plain loops cannot express."""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import config, types
from numba.core import cgutils
from numba.extending import intrinsic, overload, register_jitable
from numpy.typing import NDArray

from streampgs.kernels import vector_math
from streampgs.kernels.compile_cache import njit_with_safe_cache

__all__ = [
    "WITHOUT_COMPILER",
    "called",
    "compiled",
    "copy_entries",
    "frozen",
    "inlinable",
    "prefetch_for_writing",
    "reordering",
]

# Compiled loops release the interpreter lock, so that reading and training run at the same time.
compiled = njit_with_safe_cache(nogil=True, error_model="numpy")

# A plain function that loops may call. Unlike an @njit function, it can be closed over without losing the cache. It is
# always inlined: a call that passes a few arrays costs as much as twenty entries of a row.
inlinable = register_jitable(forceinline=True)

# The same for functions that loops rarely call. They are not inlined, so that the loop keeps its registers.
called = register_jitable

# Only sums within one row may be reassociated, which lets a dot product use vector registers. Sums over several rows
# must not be: their bits would depend on where a call ends, and a pause would change the result.
reordering = register_jitable(fastmath={"reassoc", "contract", "nsz"}, forceinline=True)


def frozen(array: NDArray[Any]) -> NDArray[Any]:
    """A loop is compiled twice for arrays of which some can be written to: of those that it only reads, none can."""
    view = array.view()
    view.flags.writeable = False
    return view


def _element(context, builder, kind, array, index):  # type: ignore[no-untyped-def]
    """The address of array[index], unchecked."""
    view = context.make_array(kind)(context, builder, array)
    return builder.bitcast(builder.gep(view.data, [index]), cgutils.voidptr_t)


def _plain_prefetch(array, index):  # type: ignore[no-untyped-def]
    pass


def _prefetch(typingctx, array, index):  # type: ignore[no-untyped-def]
    def generate(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
        word = ir.IntType(32)
        kind = ir.FunctionType(ir.VoidType(), [cgutils.voidptr_t, word, word, word])
        prefetch = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0")
        place = _element(context, builder, signature.args[0], *arguments)
        builder.call(prefetch, [place, word(1), word(3), word(1)])  # for writing, into all caches, data
        return context.get_dummy_value()

    return types.void(array, types.intp), generate


def _plain_copy(target, to, source, start, count):  # type: ignore[no-untyped-def]
    target[to : to + count] = source[start : start + count]


def _copy(typingctx, target, to, source, start, count):  # type: ignore[no-untyped-def]
    if target.dtype != source.dtype:
        return None

    def generate(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
        target_value, to_value, source_value, start_value, count_value = arguments
        size = context.get_abi_sizeof(context.get_data_type(signature.args[0].dtype))
        cgutils.raw_memcpy(
            builder,
            _element(context, builder, signature.args[0], target_value, to_value),
            _element(context, builder, signature.args[2], source_value, start_value),
            count_value,
            size,
        )
        return context.get_dummy_value()

    return types.void(target, types.intp, source, types.intp, types.intp), generate


@intrinsic
def _bits(typingctx, number):  # type: ignore[no-untyped-def]
    def generate(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
        return builder.bitcast(arguments[0], ir.IntType(64))

    return types.int64(types.float64), generate


@intrinsic
def _float(typingctx, bits):  # type: ignore[no-untyped-def]
    def generate(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
        return builder.bitcast(arguments[0], ir.DoubleType())

    return types.float64(types.int64), generate


@overload(vector_math.bits_of, jit_options={"forceinline": True})
def _bits_of_compiled(number):  # type: ignore[no-untyped-def]
    return lambda number: _bits(number)  # type: ignore[call-arg]


@overload(vector_math.float_of, jit_options={"forceinline": True})
def _float_of_compiled(bits):  # type: ignore[no-untyped-def]
    return lambda bits: _float(bits)  # type: ignore[call-arg]


for _function in vector_math.FUNCTIONS:
    register_jitable(fastmath={"contract"}, forceinline=True)(_function)

# prefetch_for_writing(array, index): start fetching the cache line of array[index]; any index is allowed.
# copy_entries(target, to, source, start, count): a memcpy between arrays of one type. It takes half the time of
# a loop for rows of a hundred entries. Neither function checks bounds.
WITHOUT_COMPILER: bool = vars(config)["DISABLE_JIT"]
prefetch_for_writing: Any = _plain_prefetch if WITHOUT_COMPILER else intrinsic(_prefetch)
copy_entries: Any = _plain_copy if WITHOUT_COMPILER else intrinsic(_copy)
