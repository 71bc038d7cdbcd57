"""The memo store of a simulated population."""

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from ldpstream.mechanisms import Mechanism, Reports
from ldpstream.mechanisms.arguments import IntArray


class Memos:
    """The memos of many devices under one mechanism: at most one for each device and memo key, never changed or dropped."""

    def __init__(self, mechanism: Mechanism) -> None:
        self._n_keys = mechanism.n_keys
        # sorted numbers device · n_keys + key: one search finds all memos of a step
        self._codes: IntArray = np.empty(0, np.int64)
        self._rows: Reports = np.empty(0, mechanism.report_dtype)

    def recall(self, devices: IntArray, keys: IntArray, draw: Callable[[IntArray], Reports]) -> Reports:
        """Returns the memos of devices for their keys; draws and stores missing memos.

        Args:
            devices: (n,) numbers of devices, each at most once.
            keys: (n,) the devices' memo keys (`Mechanism.memo_keys`), in [0, n_keys).
            draw: gets the positions in `devices` of the missing memos, and returns a memo for each position.

        Returns:
            (n,) memos, rows of the mechanism's `report_dtype`.
        """
        codes = devices * self._n_keys + keys
        places, known = self._find(codes)
        if not known.all():
            new = np.flatnonzero(~known)
            self._insert(codes[new], draw(new))
            places, _ = self._find(codes)
        return np.asarray(self._rows[places])

    def _find(self, codes: IntArray) -> tuple[IntArray, npt.NDArray[np.bool_]]:
        places = np.searchsorted(self._codes, codes)
        known = places < len(self._codes)
        known[known] = self._codes[places[known]] == codes[known]
        return places, known

    def _insert(self, codes: IntArray, rows: Reports) -> None:
        order = np.argsort(codes, kind="stable")
        codes = codes[order]
        places = np.searchsorted(self._codes, codes)
        self._codes = np.insert(self._codes, places, codes)
        self._rows = np.insert(self._rows, places, rows[order], axis=0)
