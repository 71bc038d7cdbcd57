"""A command-line tool that counts the words of files with asyncio, and counts its own use.

    python devices/example/tool.py README.md LICENSE     counts words
    python devices/example/tool.py telemetry             shows the question, what would leave now, and what left
    python devices/example/tool.py telemetry on          consents; "off" withdraws

The tool asks nothing while it works: until the person has said "telemetry on", it stores and sends nothing. Then it reports
beside its work, waits at most about two seconds for the network, and works the same if the telemetry fails.

`ldpstream serve devices/example/usage.toml` is the service. The environment names the gateway (TOOL_GATEWAY) and the folder of
the person's files (TOOL_HOME).
"""

import asyncio
import os
import sys
import time
from contextlib import suppress
from pathlib import Path

from ldpstream.device import Activity, AsyncSender, Device, DeviceError, switched_off
from ldpstream.surveys import load_survey

SURVEY = Path(__file__).with_name("usage.toml")
GATEWAY = os.environ.get("TOOL_GATEWAY", "http://127.0.0.1:8081")
HOME = Path(os.environ.get("TOOL_HOME", Path.home() / ".words"))


def this_device() -> Device:
    HOME.mkdir(mode=0o700, parents=True, exist_ok=True)
    return Device(load_survey(SURVEY), HOME / "usage.device")


def use_log() -> Activity:
    return Activity(HOME / "usage.activity")


def words_of(path: str) -> int:
    return len(Path(path).read_text(encoding="utf-8").split())


async def count(paths: list[str]) -> int:
    """Prints the number of words of each file. Reports the use of the tool meanwhile."""
    telling = asyncio.create_task(tell(time.monotonic()))
    for path, words in zip(paths, await asyncio.gather(*(asyncio.to_thread(words_of, path) for path in paths))):
        sys.stdout.write(f"{words:8} {path}\n")
    with suppress(DeviceError, OSError, ValueError):  # a fault of the telemetry is none of the tool
        await telling
    return 0


async def tell(began: float) -> None:
    device = await asyncio.to_thread(this_device)
    async with AsyncSender(device, GATEWAY, wait_s=2) as sender:
        if switched_off() is None and await sender.call(device.consent) == "given":
            activity = await sender.call(use_log)
            await sender.call(activity.seen)
            await sender.call(activity.took, "count", time.monotonic() - began)
            await sender.call(activity.answer, device)
            await sender.attempt()


def telemetry(wish: str | None) -> int:
    """Consents, withdraws the consent, or shows everything about the telemetry."""
    device, off = this_device(), switched_off()
    if wish == "on":
        device.give_consent()
    elif wish == "off":
        device.withdraw_consent()
        (HOME / "usage.activity").unlink(missing_ok=True)
    elif wish is not None:
        sys.stderr.write(f'telemetry takes "on" or "off", got {wish!r}\n')
        return 2
    lines = [f"Switched off by {off}." if off else f"Your consent: {device.consent()}."]
    if device.to_ask():
        lines += [device.question(), 'Say "telemetry on" if you agree.']
    elif wish is None and device.consent() == "given":
        step = max(0, device.survey.step_at(time.time_ns() // 10**6))  # a clock before the survey's start shows nothing
        shown = device.preview(use_log().values(device.survey, step), step)
        lines += ["What would leave now:", *map(str, shown), "What left:", *map(str, device.journal())]
    sys.stdout.write("\n".join(lines) + "\n")
    return 0


def main(arguments: list[str]) -> int:
    if not arguments:
        sys.stderr.write("usage: tool.py FILE... | telemetry [on|off]\n")
        return 2
    if arguments[0] == "telemetry":
        return telemetry(arguments[1] if len(arguments) > 1 else None)
    return asyncio.run(count(arguments))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
