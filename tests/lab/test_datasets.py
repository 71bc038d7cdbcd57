"""Real data sets are read as published, or generated with the same n and k."""

from pathlib import Path

import numpy as np
import pytest

from lab import datasets


@pytest.mark.parametrize("name", datasets.NAMES)
def test_a_generated_data_set_has_its_size_and_is_marked(name: str) -> None:
    found = datasets.load(name, None, seed=3)
    assert found.values.shape[1] == len(found.sizes)
    assert (found.values.min(axis=0) >= 0).all()
    assert (found.values.max(axis=0) < found.sizes).all()
    assert found.source == f"{name} generated"
    assert np.array_equal(found.values, datasets.load(name, None, seed=3).values)
    assert not np.array_equal(found.values, datasets.load(name, None, seed=4).values)


@pytest.mark.parametrize("name", datasets.NAMES)
def test_a_real_data_set_has_the_published_shape(name: str, data_folder: Path) -> None:
    found = datasets.load(name, data_folder)
    assert found.real
    assert found.source == ""
    assert found.values.shape == datasets.load(name, None).values.shape


def test_ms_fimu_has_its_published_number_of_reports(data_folder: Path) -> None:
    assert (datasets.load("ms_fimu", data_folder).values != datasets.ABSENT).sum() == 190_345


def test_a_file_that_differs_from_the_published_is_refused(tmp_path: Path) -> None:
    assert not datasets.load("nursery", tmp_path).real
    (tmp_path / "nursery.data").write_text("a,b\nc,d\n")
    with pytest.raises(datasets.DatasetError, match="12,960 rows"):
        datasets.load("nursery", tmp_path)
    (tmp_path / "kosarak.csv").write_text("1\nSecret\n")
    with pytest.raises(datasets.DatasetError, match="kosarak") as refused:
        datasets.load("kosarak", tmp_path)
    assert "Secret" not in str(refused.value)
