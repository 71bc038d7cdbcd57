"""The benchmarks: speed, memory, accuracy, coverage of intervals, and the costs of the whole service."""

import os

if not os.environ.get("OMP_NUM_THREADS"):
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # as in the commands (`ldpstream.__main__`)
