"""The functions that numba compiles. A process that serves clients loads them before it accepts connections.

Other modules load them when they are first called: numba takes a second and 40 MiB. If an import fails halfway, as without free
descriptors, only a new process can repeat it.
"""

from importlib import import_module

MODULES = (
    "mechanisms.kernels.hash_kernels", "estimators.bayes.exponential", "estimators.bayes.few_values_kernels",
    "estimators.bayes.posterior_kernels", "estimators.maximum.em_kernels", "estimators.smooth.plateau_kernels",
    "estimators.smooth.smooth_kernels",
)  # fmt: skip


def load() -> None:
    """Imports numba and the modules with compiled functions. Compiles nothing."""
    for name in MODULES:
        import_module(f"ldpstream.{name}")
