"""The audit of a spaced level: bounds of the losses between sequences of values, from the reports of real devices.

The level has GRR with k = 2 and ε = 1. A device reports once in w = 2 steps, and at most B = 3 times. Each device holds one of
three sequences: 0 at every step, 1 at every step, or 1 only at w consecutive steps. The claims of
`mechanisms.kinds.OneTime.spaced` are:

    eps_window     the first and the third sequence: the loss of all steps is at most ε
    eps_sequence   the first and the second sequence: the loss of 4 consecutive steps is at most 2 ε
    eps_lifetime   the first and the second sequence: the loss of all steps is at most 3 ε

The attack counts the devices that reported 0, and nothing else, at the observed steps (`CLAIMS`).
"""

import os
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory

import msgspec
import numpy as np
import numpy.typing as npt

from lab.audit.clopper_pearson import loss_bound
from lab.audit.finding import Control, Finding, Loss
from ldpstream.device.device import Device
from ldpstream.mechanisms.arguments import IntArray
from ldpstream.surveys import Survey, parse_survey
from ldpstream.surveys.envelope import Envelope

W, B, STEPS, SILENT = 2, 3, 10, -1
WINDOW = slice(2, 2 + W)
SPAN = slice(2, 2 + 2 * W)
OFF = 1  # the step that the devices of a control miss
SEQUENCES = {"zeros": np.zeros(STEPS, int), "ones": np.ones(STEPS, int), "window": np.zeros(STEPS, int)}
SEQUENCES["window"][WINDOW] = 1
CLAIMS: tuple[tuple[Loss, str, slice, int], ...] = (  # loss, sequence other than zeros, observed steps, number of reports
    ("eps_window", "window", WINDOW, 1),
    ("eps_sequence", "ones", SPAN, 2),
    ("eps_lifetime", "ones", slice(0, STEPS), B),
)
SPACED_SHARE = 250  # devices are slow: one device of each sequence for this many vectorised reports
MEMORY = "/dev/shm"  # a file system in memory: on a disk, a device would wait for the disk at every report
Sent = npt.NDArray[np.int64]  # (n, steps) report of each device, or SILENT
Due = npt.NDArray[np.bool_]  # (n, steps) true if a device reports


def spaced_survey() -> Survey:
    level = {"name": "spaced", "mechanism": "GRR", "eps": 1.0, "every_steps": W, "lifetime_reports": B}
    return parse_survey({
        "name": "audit", "start": datetime(2026, 1, 5, tzinfo=UTC), "step_seconds": 3600, "window_steps": W,
        "lateness_steps": 1, "collection": "smp", "attribute": [{"name": "bit", "size": 2, "level": [level]}],
    })  # fmt: skip


def spaced_findings(n: int, alpha: float) -> list[Finding]:
    """Audits the three claims on real devices.

    Args:
        n: number of devices of each sequence.
    """
    m = spaced_survey().mechanisms[0][0]
    sent = {name: device_reports(sequence, n) for name, sequence in SEQUENCES.items()}
    return [
        _finding("device", loss, t, t * m.eps_1, sent["zeros"][:, steps], sent[other][:, steps], alpha)
        for loss, other, steps, t in CLAIMS
    ]


def spaced_controls(n: int, rng: np.random.Generator, alpha: float) -> list[Control]:
    """Audits devices that break the rules of a spaced level, each for the loss that the fault increases."""
    m = spaced_survey().mechanisms[0][0]
    faults: tuple[tuple[str, Loss, Callable[[IntArray], Due]], ...] = (
        ("reports at every step", "eps_window", lambda phases: np.ones((phases.size, STEPS), bool)),
        ("makes up for a missed report", "eps_window", _made_up),
        ("reports more often than its lifetime allows", "eps_lifetime", _phased),
    )
    found = []
    for fault, broken, due in faults:
        ((_, other, steps, t),) = (claim for claim in CLAIMS if claim[0] == broken)
        zeros, others = (
            np.where(due(rng.integers(0, W, n)), m.report(np.tile(values, n), rng).reshape(n, -1).astype(int), SILENT)[:, steps]
            for values in (SEQUENCES["zeros"], SEQUENCES[other])
        )
        found.append(Control(fault, m.signature, _finding("broken", broken, t, t * m.eps_1, zeros, others, alpha)))
    return found


def device_reports(values: IntArray, n: int) -> Sent:
    """Runs n devices that hold the same sequence of values, and returns what each device sends at each step."""
    survey, sent = spaced_survey(), np.full((n, len(values)), SILENT)
    with TemporaryDirectory(prefix="ldpstream-audit-", dir=MEMORY if os.path.isdir(MEMORY) else None) as folder:
        for i in range(n):
            device = Device(survey, Path(folder) / "device", consent="simulated")
            for step, value in enumerate(values.tolist()):
                envelope = device.report("bit", value, step)
                if envelope is not None:
                    (sent[i, step],) = msgspec.msgpack.decode(envelope, type=Envelope).payload
            (Path(folder) / "device").unlink()
    return sent


def _finding(path: str, loss: Loss, t: int, claimed: float, zeros: Sent, others: Sent, alpha: float) -> Finding:
    hits, false_hits = (int(((sent != 1).all(axis=1) & (sent == 0).any(axis=1)).sum()) for sent in (zeros, others))
    bound = float(loss_bound(hits, false_hits, len(zeros), alpha))
    return Finding(path, loss, t, claimed, bound, (0, 1), hits, false_hits, len(zeros))


def _phased(phases: IntArray) -> Due:
    return np.asarray(np.arange(STEPS) % W == phases[:, None])


def _made_up(phases: IntArray) -> Due:
    """The devices miss step `OFF` and report at the next step instead."""
    due = _phased(phases)
    due[:, OFF + 1] |= due[:, OFF]
    due[:, OFF] = False
    return due
