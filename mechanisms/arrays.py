"""NumPy, loaded when a function first uses it.

A device parses a survey and draws its reports without NumPy. Modules that a device loads import `np` and `npt` from here. They
begin with ``from __future__ import annotations``, since a computed annotation would load NumPy.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

__all__ = ["np", "npt"]

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
else:
    NOT_INSTALLED = "arrays need the package numpy: in your checkout, pip install '.[simulation]'"

    class _OnFirstUse:
        def __getattr__(self, name: str) -> Any:
            try:
                found = getattr(import_module("numpy"), name)
            except ModuleNotFoundError as error:
                raise ModuleNotFoundError(NOT_INSTALLED, name=error.name) from None
            setattr(self, name, found)  # later uses find it without this function
            return found

    np = npt = _OnFirstUse()
