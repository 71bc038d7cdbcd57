"""The wallet's file: limits, other files, missing files, full disks and old copies; and the program in the documents."""

import re
import shutil
import textwrap
from pathlib import Path

import pytest

from ldpstream.device import Device, DeviceError, StoreCleared, StoreFull, Wallet, WalletFull
from ldpstream.device.claims import touched_steps
from ldpstream.device.files import wallet_file
from ldpstream.mechanisms import OneTime, mechanism

from .test_device import rows
from .test_device_errors import full
from .wallet_rig import ONCE, ROOT, TWICE, Clock, survey


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "wallet"


def test_limits_are_checked_and_permanent(path: Path) -> None:
    for limits, message in (
        ({}, "a wallet needs a limit"),
        ({"per_window": 1.0}, "belong together"),
        ({"window_s": 60, "for_ever": 1.0}, "belong together"),
        ({"for_ever": 0.0}, "for_ever must be a number in"),
        ({"for_ever": float("nan")}, "for_ever must be a number in"),
        ({"per_window": 1.0, "window_s": 1.5}, "window_s must be an integer in"),
        ({"per_window": True, "window_s": 1}, "per_window must be a number in"),
    ):
        with pytest.raises(ValueError, match=message):
            Wallet(path, **limits)
    assert not path.exists()
    with Wallet(path, per_window=1, window_s=60, for_ever=2).file.connection(create=True):
        pass  # as with the first consent
    with pytest.raises(DeviceError) as caught:
        Wallet(path, per_window=1, window_s=60)
    assert str(caught.value) == (
        f"{path}: the wallet's limits are permanently 1 nat within 60 s and 2 nats for ever, got 1 nat within 60 s"
    )


def test_a_full_disk_at_the_first_consent_makes_no_wallet(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CI", raising=False)  # it switches devices off
    asked = survey("study", TWICE)
    device = Device(asked, wallet := Wallet(path, for_ever=9.0))
    with full(path, monkeypatch), pytest.raises(StoreFull):
        device.give_consent()
    assert (wallet.spent().surveys, path.stat().st_size) == ((), 0)
    Device(asked, Wallet(path, for_ever=8.0)).give_consent()
    with pytest.raises(DeviceError, match="permanently 8 nats for ever, got 9 nats for ever"):
        device.give_consent()


def test_a_wallet_and_a_device_do_not_share_a_file(tmp_path: Path) -> None:
    asked = survey("study", TWICE)
    Device(asked, Wallet(tmp_path / "wallet", for_ever=9.0), consent="simulated")
    with pytest.raises(DeviceError, match="has format 1004, this program needs format 6"):
        Device(asked, tmp_path / "wallet", consent="simulated")
    Device(asked, tmp_path / "device", consent="simulated")
    with pytest.raises(DeviceError, match="has format 6, this program needs format 1004"):
        Wallet(tmp_path / "device", for_ever=9.0)


@pytest.mark.parametrize("expect_enrolled", [False, True])
def test_a_folder_is_no_wallet_and_keeps_its_mode(tmp_path: Path, expect_enrolled: bool) -> None:
    tmp_path.chmod(0o755)
    with pytest.raises(DeviceError, match="is a folder, not a file"):
        Wallet(tmp_path, for_ever=9.0, expect_enrolled=expect_enrolled)
    assert tmp_path.stat().st_mode & 0o777 == 0o755


def test_a_missing_or_empty_wallet_is_noticed(path: Path) -> None:
    with pytest.raises(StoreCleared, match="is missing"):
        Wallet(path, for_ever=9.0, expect_enrolled=True)
    wallet, asked = Wallet(path, for_ever=9.0), survey("study", TWICE)
    with pytest.raises(StoreCleared, match="the enrolment was erased"):  # as if an older copy of the file were restored
        Device(asked, wallet, expect_enrolled=True, consent="simulated")
    device = Device(asked, wallet, consent="simulated")
    path.write_bytes(b"")
    for use in (
        wallet.spent,
        lambda: Device(asked, wallet, consent="simulated"),
        lambda: wallet.leave("00"),
        lambda: device.report("q0", 1, 0),
        device.withdraw_consent,
    ):
        with pytest.raises(StoreCleared):
            use()
    with pytest.raises(StoreCleared, match="the file is empty"):
        Wallet(path, for_ever=9.0, expect_enrolled=True)
    path.unlink()
    with pytest.raises(StoreCleared, match="the file is missing; make a new Wallet"):
        wallet.spent()


def test_an_older_copy_of_the_file_costs_at_most_a_second_budget(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The copy lacks all later surveys and reports. The wallet therefore keeps the budget before the copy is restored, and
    again afterwards."""
    Clock(monkeypatch)
    wallet = Wallet(path, for_ever=4.0)
    Device(survey("a", TWICE), wallet, consent="simulated").report("q0", 1)
    shutil.copy(path, tmp_path / "copy")
    Device(survey("b", TWICE), wallet, consent="simulated").report("q0", 1)
    shutil.copy(tmp_path / "copy", path)
    with pytest.raises(StoreCleared):
        Device(survey("b", TWICE), wallet, expect_enrolled=True, consent="simulated")
    Device(survey("c", TWICE), wallet, consent="simulated")
    with pytest.raises(WalletFull):
        Device(survey("b", TWICE), wallet, consent="simulated")


def test_the_latest_time_fits_the_file(path: Path) -> None:
    wallet, asked = Wallet(path, per_window=2.0, window_s=1), survey("study", ONCE)
    Device(asked, wallet, consent="simulated").report("q0", 1, 2**62)
    wallet.leave(asked.pin)
    assert rows(path, "SELECT until_ms FROM survey") == [(wallet_file.LATEST_MS,)]
    assert wallet.spent().charged_per_window == 1.0


def test_the_program_in_the_documents_prints_what_the_documents_show(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    text = (ROOT / "docs" / "howto" / "device.md").read_text()
    section = text.partition("## Several surveys, one budget\n")[2].partition("\n## ")[0]
    blocks = re.findall(r"(?:^(?:    .*)?\n)+", section, re.MULTILINE)
    program, output = (textwrap.dedent(block).strip("\n") for block in blocks if block.strip())
    for name in ("changing", "commute"):
        shutil.copy(ROOT / "surveys" / "samples" / f"{name}.toml", tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("CI", raising=False)  # it switches devices off
    exec(program, {})
    assert capsys.readouterr().out == output + "\n"
    for name, loss in (("L-GRR", "1.65"), ("L-OSUE", "7.04")):
        m = mechanism(name, 5, eps_inf=2.0, eps_1=1.0)
        assert f"{m.claims.eps_per_report:.2f}" == loss
        assert re.search(rf"{loss}\s+nats\s+for\s+{name}", section)
    for every, reports in ((25, 1), (24, 2)):
        m = mechanism("GRR", 5, eps=1.0)
        assert isinstance(m, OneTime)
        assert m.spaced(every).reports_in(touched_steps(86_400, 3600)) == reports
