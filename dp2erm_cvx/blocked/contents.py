"""Names of arrays that tell their contents."""

from __future__ import annotations

import hashlib
import weakref
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dp2erm_cvx.blocks import is_constant

#: Names of parts of constant arrays, by the identity of the whole, as long as it is there.
_NAMES: dict[int, tuple[weakref.ref[NDArray[Any]], dict[Any, Any]]] = {}


def contents_name(array: NDArray[Any]) -> tuple[Any, ...]:
    """The same for the same numbers of one type and shape, and for no others.

    All numbers are read, but for parts of a :func:`~dp2erm_cvx.blocks.constant` array: those once.
    """
    whole = array if array.base is None else array.base
    if not is_constant(whole):
        return _told(array)
    place = array.ctypes.data, array.shape, array.strides, array.dtype.str
    names = _known(whole)
    if place not in names:
        names[place] = _told(array)
    found: tuple[Any, ...] = names[place]
    return found


def _told(array: NDArray[Any]) -> tuple[Any, ...]:
    return array.dtype.str, array.shape, hashlib.sha256(np.ascontiguousarray(array).data).digest()


def _known(whole: NDArray[Any]) -> dict[Any, Any]:
    key = id(whole)
    if key not in _NAMES:
        _NAMES[key] = weakref.ref(whole, lambda gone: _NAMES.pop(key, None)), {}
    return _NAMES[key][1]
