"""Folders of surveys: which files count, when a change counts, and what a broken file leaves alone."""

import os
import tomllib
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from ldpstream.surveys import SurveyError, parse_survey
from ldpstream.surveys.life.folder import Changes, SurveyFolder, SurveyFolderError, SurveyText
from tests.small_survey import small_text

NOTHING = Changes((), (), (), {}, ())
START_MS = 1_767_571_200_000  # 2026-01-05T00:00:00Z


def opened(paths: Sequence[Path], now_ms: Callable[[], int] = lambda: 0) -> SurveyFolder:
    """A folder, by default at a time before the surveys begin."""
    return SurveyFolder(paths, now_ms)


def toml(name: str, size: int = 5) -> str:
    level = {"name": "l", "mechanism": "GRR", "eps": 1.0}
    return small_text({"name": "a", "size": size, "level": [level]}, name=name, lateness_steps=1)


def write(path: Path, text: str) -> None:
    """Replaces a file in one step, as editors do; the new file has another inode."""
    new = path.with_name(".new")
    new.write_text(text)
    new.replace(path)


@pytest.fixture
def place(tmp_path: Path) -> Path:
    write(tmp_path / "a.toml", toml("a"))
    write(tmp_path / "b.toml", toml("b"))
    return tmp_path


def names(folder: SurveyFolder) -> list[str]:
    return [text.survey.name for text in folder.surveys.values()]


def two_looks(folder: SurveyFolder) -> Changes:
    """Looks twice, and checks that the first look changes nothing."""
    assert folder.look() == NOTHING
    return folder.look()


def test_surveys_of_files_and_folders(place: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    (place / ".hidden.toml").write_text("[")
    (place / "readme.md").write_text("[")
    (place / "deeper.toml").mkdir()
    other = tmp_path_factory.mktemp("other") / "c.txt"
    write(other, toml("c"))
    folder = opened([other, place, place / "a.toml"])
    assert names(folder) == ["c", "a", "b"]
    assert folder.broken == {}
    assert folder.only_file is None
    for fingerprint, text in folder.surveys.items():
        assert text.survey.fingerprint == fingerprint
        assert text.path.read_text() == text.text
    assert opened([other]).only_file == other
    assert folder.look() == folder.look() == NOTHING


def test_changes_count_in_the_second_look(place: Path) -> None:
    folder = opened([place])
    write(place / "c.toml", toml("c"))
    write(place / "a.toml", toml("a", size=6))
    (place / "b.toml").unlink()
    changes = two_looks(folder)
    assert [text.survey.name for text in changes.added] == ["a", "c"]
    assert [text.survey.name for text in changes.removed] == ["a", "b"]
    assert changes.added[0].survey.fingerprint != changes.removed[0].survey.fingerprint
    assert names(folder) == ["a", "c"]
    assert folder.look() == NOTHING


def test_a_file_that_is_still_written_is_not_read(place: Path) -> None:
    folder, text = opened([place]), toml("c")
    for size in (20, 200, len(text)):
        (place / "c.toml").write_text(text[:size])
        assert folder.look() == NOTHING
    assert [added.survey.name for added in folder.look().added] == ["c"]


def test_a_broken_file_keeps_its_last_survey_and_harms_no_other(place: Path) -> None:
    folder = opened([place])
    write(place / "a.toml", "size = [")
    write(place / "c.toml", toml("c", size=1))
    write(place / "d.toml", toml("d"))
    changes = two_looks(folder)
    assert [text.survey.name for text in changes.added] == ["d"]
    assert changes.removed == ()
    assert {path.name for path in changes.broken} == {"a.toml", "c.toml"}
    assert all("\n" not in why and str(place) not in why for why in changes.broken.values())
    assert names(folder) == ["a", "b", "d"]
    assert folder.look() == NOTHING  # reported once
    write(place / "a.toml", toml("a"))
    (place / "c.toml").unlink()
    changes = two_looks(folder)
    assert set(changes.mended) == {place / "a.toml", place / "c.toml"}
    assert names(folder) == ["a", "b", "d"]
    assert folder.broken == {}


def test_the_same_fingerprint_with_another_text_is_an_update(place: Path) -> None:
    folder = opened([place])
    write(place / "a.toml", toml("a").replace("size = 5", "size = 5\nordered = true"))
    changes = two_looks(folder)
    assert changes._replace(updated=()) == NOTHING
    assert changes.updated[0].survey.attributes[0].ordered


def test_one_name_belongs_to_one_survey(place: Path) -> None:
    folder = opened([place])
    write(place / "0.toml", toml("a", size=6))
    changes = two_looks(folder)
    expected = f"two different surveys are named a: {place / 'a.toml'} has this name too"
    assert changes == NOTHING._replace(broken={place / "0.toml": expected})
    with pytest.raises(SurveyFolderError, match=r"a\.toml: two different surveys are named a: .*0\.toml has this name too"):
        opened([place])
    (place / "a.toml").unlink()
    changes = two_looks(folder)
    assert (len(changes.added), len(changes.removed)) == (1, 1)
    assert folder.broken == {}
    write(place / "copy.toml", toml("a", size=6))
    two_looks(folder)
    assert names(folder) == ["a", "b"]
    assert folder.broken == {}


def test_a_config_map_mount(tmp_path: Path) -> None:
    def mount(version: str, **texts: str) -> None:
        """Swaps the data folder as Kubernetes does."""
        data = tmp_path / f"..{version}"
        data.mkdir()
        for name, text in texts.items():
            (data / f"{name}.toml").write_text(text)
        (tmp_path / "..data_tmp").symlink_to(data.name)
        os.replace(tmp_path / "..data_tmp", tmp_path / "..data")
        for link in tmp_path.glob("[!.]*"):
            if not link.exists():
                link.unlink()
        for name in texts:
            if not (tmp_path / f"{name}.toml").is_symlink():
                (tmp_path / f"{name}.toml").symlink_to(f"..data/{name}.toml")

    mount("1", a=toml("a"), b=toml("b"))
    folder = opened([tmp_path])
    assert names(folder) == ["a", "b"]
    mount("2", a=toml("a"), b=toml("b", size=6), c=toml("c"))
    changes = two_looks(folder)
    assert [text.survey.name for text in changes.added] == ["b", "c"]
    assert [text.survey.name for text in changes.removed] == ["b"]
    mount("3", a=toml("a"))
    assert len(two_looks(folder).removed) == 2
    assert names(folder) == ["a"]


def test_a_folder_that_cannot_be_read_keeps_its_surveys(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = opened([place])
    place.rename(place.with_name("away"))
    assert folder.look() == NOTHING._replace(broken={place: "cannot be read: No such file or directory"})
    assert folder.look() == folder.look() == NOTHING
    assert names(folder) == ["a", "b"]
    place.with_name("away").rename(place)
    assert folder.look() == NOTHING._replace(mended=(place,))


def test_a_folder_may_lose_all_its_surveys_later_but_not_at_the_start(place: Path) -> None:
    folder = opened([place])
    for path in place.glob("*.toml"):
        path.unlink()
    assert len(two_looks(folder).removed) == 2
    assert folder.surveys == {}
    with pytest.raises(SurveyFolderError, match=r"no survey found; a folder's surveys are its files \*\.toml"):
        opened([place])
    write(place / "c.toml", "size = [")
    with pytest.raises(SurveyFolderError, match=r"no survey found; .*c\.toml: not TOML"):
        opened([place])


def test_a_broken_file_at_the_start(place: Path) -> None:
    write(place / "c.toml", "size = [")
    folder = opened([place])
    assert names(folder) == ["a", "b"]
    assert list(folder.broken) == [place / "c.toml"]
    with pytest.raises(SurveyError, match=r"c\.toml: not TOML"):
        opened([place / "c.toml"])
    with pytest.raises(SurveyError, match=r"nowhere: cannot be read"):
        opened([place, place / "nowhere"])


# ---- the file of an open survey

OPEN_MS = START_MS + 3_600_000


def fingerprint(text: str) -> str:
    return parse_survey(tomllib.loads(text)).fingerprint.hex()


def replacing(text: str, old: str) -> str:
    return f'replaces = "{fingerprint(old)}"\n{text}'


def test_one_save_of_an_open_survey_does_not_end_it(place: Path) -> None:
    folder = opened([place], lambda: OPEN_MS)
    write(place / "a.toml", toml("a", size=6))
    changes = two_looks(folder)
    assert (changes.added, changes.removed) == ((), ())
    (why,) = changes.broken.values()
    assert f'replaces = "{fingerprint(toml("a"))}"' in why
    assert [text.survey.attributes[0].size for text in folder.surveys.values()] == [5, 5]
    assert folder.changed == {place / "a.toml"}
    assert folder.incomplete  # devices may have the new file already: a gateway must not refuse them for good
    assert folder.look() == NOTHING  # reported once
    write(place / "a.toml", toml("a"))
    assert two_looks(folder) == NOTHING._replace(mended=(place / "a.toml",))
    assert not folder.changed
    assert not folder.incomplete


def test_an_open_survey_ends_when_the_operator_says_so(place: Path) -> None:
    """The operator sets `replaces` in the new file, or removes the file."""
    folder = opened([place], lambda: OPEN_MS)
    write(place / "a.toml", replacing(toml("a", size=6), toml("a")))
    (place / "b.toml").unlink()
    changes = two_looks(folder)
    assert [text.survey.attributes[0].size for text in changes.added] == [6]
    assert [text.survey.name for text in changes.removed] == ["a", "b"]
    assert changes.broken == {}
    write(place / "a.toml", toml("a"))  # the old survey replaces nothing, so it does not come back by itself
    assert list(two_looks(folder).broken) == [place / "a.toml"]


@pytest.mark.parametrize(
    ("at_ms", "is_open"),
    [
        (START_MS - 60_001, False),  # before a report of a clock that runs ahead may count
        (START_MS - 60_000, True),
        (START_MS + 11 * 60_000 - 1, True),  # ten steps, and one step of lateness
        (START_MS + 11 * 60_000, False),
    ],
)
def test_a_survey_is_open_while_its_reports_may_count(place: Path, at_ms: int, is_open: bool) -> None:
    write(place / "a.toml", toml("a").replace("step_seconds", "ends = 10\nstep_seconds"))
    folder = opened([place], lambda: at_ms)
    write(place / "a.toml", toml("a"))
    assert bool(two_looks(folder).broken) == is_open


def test_a_refused_change_takes_effect_when_the_open_survey_has_ended(place: Path) -> None:
    now_ms = START_MS
    write(place / "a.toml", toml("a").replace("step_seconds", "ends = 10\nstep_seconds"))
    folder = opened([place], lambda: now_ms)
    write(place / "a.toml", toml("a"))
    two_looks(folder)
    now_ms = START_MS + 11 * 60_000
    changes = folder.look()
    assert (len(changes.added), len(changes.removed), changes.mended) == (1, 1, (place / "a.toml",))
    assert folder.look() == NOTHING


def test_a_file_that_moves_ends_no_survey(place: Path) -> None:
    folder = opened([place], lambda: OPEN_MS)
    write(place / "a.toml", toml("b"))
    write(place / "b.toml", toml("a"))
    assert two_looks(folder) == NOTHING
    assert set(names(folder)) == {"a", "b"}


def test_a_broken_file_that_becomes_another_survey_ends_no_open_survey(place: Path) -> None:
    folder = opened([place], lambda: OPEN_MS)
    write(place / "a.toml", "size = [")
    two_looks(folder)
    write(place / "a.toml", toml("a", size=6))
    assert list(two_looks(folder).broken) == [place / "a.toml"]
    assert folder.surveys.keys() == opened([place / "b.toml"]).surveys.keys() | {bytes.fromhex(fingerprint(toml("a")))}


def test_a_kept_survey_takes_the_place_of_a_file_that_changed_while_no_process_looked(place: Path) -> None:
    write(place / "a.toml", toml("a", size=6))
    folder = opened([place], lambda: OPEN_MS)
    changed = next(text.survey for text in folder.surveys.values() if text.survey.name == "a")
    kept = SurveyText(parse_survey(tomllib.loads(toml("a"))), Path("topic"), toml("a"))
    folder.keep(changed, kept)
    changes = folder.look()
    assert [text.survey for text in changes.added] == [kept.survey]
    assert [text.survey for text in changes.removed] == [changed]
    assert list(changes.broken) == [place / "a.toml"]
    assert folder.look() == NOTHING
    write(place / "a.toml", replacing(toml("a", size=6), toml("a")))
    assert [text.survey for text in two_looks(folder).removed] == [kept.survey]
