"""Compares the memo store with a dictionary."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from ldpstream.mechanisms import LONGITUDINAL, Reports
from ldpstream.mechanisms.arguments import IntArray
from ldpstream.producers.memos import Memos

N_DEVICES = 6


@given(
    st.lists(st.dictionaries(st.integers(0, N_DEVICES - 1), st.integers(0, 9)), max_size=8), st.sampled_from(["L-GRR", "L-OLH"])
)
def test_each_device_and_key_has_one_lasting_memo(rounds: list[dict[int, int]], name: str) -> None:
    m = LONGITUDINAL[name](k=10, eps_inf=2.0, eps_1=1.0)
    memos, model = Memos(m), dict[tuple[int, int], object]()
    rng = np.random.default_rng(1)
    for asked in rounds:
        devices = np.array(list(asked), np.int64)
        keys = np.array(list(asked.values()), np.int64) % m.n_keys
        pairs = list(zip(devices.tolist(), keys.tolist()))
        drawn = m.memoize(keys, rng)
        missing = [i for i, pair in enumerate(pairs) if pair not in model]

        def draw(new: IntArray, drawn: Reports = drawn, missing: list[int] = missing) -> Reports:
            assert new.tolist() == missing
            return drawn[new]

        model |= {pairs[i]: drawn[i] for i in missing}
        recalled = memos.recall(devices, keys, draw)
        assert recalled.dtype == m.report_dtype
        assert recalled.tolist() == np.array([model[pair] for pair in pairs], m.report_dtype).tolist()
        assert len(memos._codes) == len(model)
