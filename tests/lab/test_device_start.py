"""The benchmark of the device's start counts modules as a fresh interpreter does."""

from lab.bench.device_start import PROGRAMS, measure


def test_a_program_with_more_imports_has_more_modules_and_memory() -> None:
    found = {row.program: row for row in measure(1)}
    assert list(found) == list(PROGRAMS)
    order = [found[name].modules for name in ("nothing", "the package", "the device", "the device, and one report")]
    assert order == sorted(set(order))
    assert found["nothing"].peak_mib < found["the device"].peak_mib
