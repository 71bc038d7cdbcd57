"""The example page counts its own use end to end: consent, preview, journal, and people and answers that are published."""

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest
from axe_playwright_python.sync_playwright import Axe
from fastapi.testclient import TestClient
from playwright.sync_api import Browser, BrowserContext, Page, Playwright, expect

from lab.pictures import shrink
from ldpstream.publishing.answers.responses import Served as Published
from ldpstream.publishing.api.app import create_api
from ldpstream.publishing.schedule import MARGIN_MS
from ldpstream.services.demo import EmbeddedService
from ldpstream.surveys import Survey, load_survey
from tests.deploy.tools import TYPESCRIPT
from tests.gateway.gateway_rig import Served
from tests.publishing.page.page_rig import PATIENCE_MS, SHOTS
from tests.services.rig import wait_until

from .browser_rig import Chromium, PageServer

FILE = TYPESCRIPT / "example" / "usage.toml"
DAY_MS = 86_400_000
RECORD = """import('/build/ldpstream-device.js').then(({ Activity, IndexedDBStore }) =>
    new Activity(new IndexedDBStore('words activity')).seen())"""  # a page that closes has recorded, and not yet erased
DO_NOT_TRACK = "Object.defineProperty(navigator, 'doNotTrack', { get: () => '1' })"


class Site:
    """The page's server and gateway at one time, which a test moves."""

    def __init__(self, server: PageServer, survey: Survey) -> None:
        self.survey, self.now_ms = survey, survey.opens_ms(3)
        self.gateway = Served(survey=survey, origins=[server.url], tokens=[], now_ms=lambda: self.now_ms)
        self.url, server.gateway = f"{server.url}/example/", self.gateway.url
        server.survey = msgspec.json.encode(survey.device_survey)

    def open(self, context: BrowserContext, query: str = "") -> Page:
        page = context.new_page()
        page.set_default_timeout(PATIENCE_MS)
        page.clock.set_fixed_time(datetime.fromtimestamp(self.now_ms / 1000, UTC))
        page.goto(self.url + query)
        page.wait_for_selector("html[data-ready=yes]")
        return page

    def counted(self) -> list[bytes]:
        return [envelope for (envelope,) in self.gateway.rig.log.counted()]


@pytest.fixture
def site(server: PageServer) -> Iterator[Site]:
    made = Site(server, load_survey(FILE))
    yield made
    made.gateway.close()


def kept(page: Page) -> dict[str, Any]:
    """Returns the records of all databases of the page."""
    return dict(page.evaluate("import('/pages/kept.js').then(({ kept }) => kept())"))


def wrote(page: Page) -> bool:
    """True if the activity log of the last day has all that `use` does."""
    days = kept(page)["words activity"].get("activity", {"days": {0: {}}})["days"]
    return {"export", "write"} <= set(list(days.values())[-1])


def use(page: Page, seconds: float = 0) -> None:
    """Writes for a time, and saves the text."""
    page.get_by_label("Your text").focus()
    page.evaluate("ms => { const now = performance.now(); performance.now = () => now + ms; }", 1000 * seconds)
    page.get_by_label("Your text").fill("one two three")
    page.get_by_role("button", name="Save").click()
    expect(page.locator("#words")).to_have_text("3 words")


def agree(page: Page) -> None:
    page.get_by_role("button", name="Take part", exact=True).click()
    expect(page.locator("#state")).to_contain_text("You take part")


def shown(page: Page) -> list[list[str]]:
    """Returns the bytes of each report of the preview by their parts, in hexadecimal digits."""
    blocks = (page.locator("#preview").text_content() or "").split("\n\n")
    return [[line.split("  ")[0] for line in block.split("\n")[1:-1]] for block in blocks if "\n" in block]


def look(page: Page, picture: str | None = None) -> None:
    """Opens all parts of the page, and checks that they are accessible and fit the width."""
    page.evaluate("document.querySelectorAll('details').forEach((part) => (part.open = true))")
    broken = [f"{found['id']}: {found['nodes'][0]['html']}" for found in Axe().run(page).response["violations"]]
    assert (broken, page.evaluate("document.documentElement.scrollWidth - innerWidth")) == ([], 0)
    if SHOTS and picture:
        page.locator("#terms" if picture.endswith("dark") else "#leaving").evaluate("part => (part.open = false)")
        path = Path(f"{SHOTS}/example-{picture}.png")
        page.screenshot(full_page=True, path=path)
        shrink(path)


@pytest.mark.parametrize(("width", "name"), [(1100, "desktop"), (380, "phone")])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_page_counts_its_use_only_with_consent(
    width: int, name: str, scheme: Any, browser: Browser, server: PageServer, site: Site
) -> None:
    context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme)
    log, asked = site.gateway.rig.log, list[str]()
    context.on("request", lambda request: asked.append(request.url))
    page = site.open(context)
    use(page)
    for words in ("Purpose: Decide what to improve", "Asked by: Example Project", "write_seconds (all answers", "728 days"):
        expect(page.locator("#asks")).to_contain_text(words)
    look(page, name if scheme == "light" else None)
    examples = shown(page)
    assert [len(parts) for parts in examples] == [8] * 4
    assert all(url.startswith((server.url, "blob:")) for url in asked)
    assert kept(page) == {}

    log.ready = False  # the service is away
    agree(page)
    expect(page.locator("#state")).to_contain_text("A report waits")
    other = site.open(context)
    use(other)
    (made,) = shown(page)
    log.ready = True
    page.reload()
    expect(page.locator("#journal li")).to_contain_text(f"answered: {''.join(made)}")
    assert site.counted() == [bytes.fromhex("".join(made))]
    assert made[:-1] in [parts[:-1] for parts in examples]  # all but the random answer
    look(page, f"{name}-dark" if scheme == "dark" else None)
    wait_until(partial(wrote, page), lambda: "the other tab's records")

    page.get_by_role("button", name="Stop").click()
    expect(page.locator("#state")).to_contain_text("You do not take part")
    for tab in (page, other):
        use(tab)
    expect(page.locator("#journal li")).to_have_count(0)
    site.now_ms += 7 * DAY_MS
    page.evaluate(RECORD)
    again = site.open(context)
    assert again.locator("#stop").is_hidden()
    assert [sorted(records) for records in kept(again).values()] == [[], ["consent", "device"]]
    assert len(site.counted()) == 1
    context.close()


def test_people_and_answers_are_published(tmp_path: Path, browser: Browser, server: PageServer) -> None:
    """Each browser is a person. The survey is the page's, with almost no noise, and everybody answers all questions."""
    toml = FILE.read_text().replace('"auto"\neps_inf = 2.0\neps_1 = 1.0', '"GRR"\neps = 120.0').replace('"smp"', '"spl"')
    (tmp_path / "exact.toml").write_text(toml)
    site = Site(server, survey := load_survey(tmp_path / "exact.toml"))
    service = EmbeddedService(survey)
    visits = {"a": (0, 1, 8, 15), "b": (2, 4, 6, 13), "c": (7, 8, 10, 16), "d": (17,)}  # days
    people = {name: browser.new_context() for name in visits}
    for day in range(21):
        site.now_ms = service.now_ms = survey.opens_ms(0) + day * DAY_MS + DAY_MS // 2
        before = len(site.counted())
        for name in sorted(name for name, days in visits.items() if day in days):
            page = site.open(people[name])
            if day == visits[name][0]:
                agree(page)
                use(other := site.open(people[name]), seconds=90)
                wait_until(partial(wrote, other), lambda: "the other tab's records")
            weeks = {visit // 7 for visit in visits[name] if visit <= day}
            assert (page.locator("#journal").text_content() or "").count("answered: 97") == 4 * len(weeks)
        for envelope in site.counted()[before:]:
            service.append(envelope)
        service.count()
    site.gateway.close()
    service.now_ms = survey.closes_ms(2) + MARGIN_MS
    service.estimate()
    client = TestClient(create_api(Published(survey, service.results, service.rejected)))
    usage = client.get("/api/v1/usage").json()
    assert (usage["people"]["values"], service.rejected()) == ([2, 3, 3], {})
    assert usage["a_day"]["values"][1:] == pytest.approx([3 * (2 + 3) / 2 / 7, 3 * (1 + 3) / 2 / 7], rel=1e-6)
    path = "/api/v1/attributes/{}/histogram?span=step&step=2"  # people: a, c and d
    found = {a.name: client.get(path.format(a.name)).json()["frequencies"] for a in survey.attributes}
    assert {name: [round(3 * share, 3) for share in shares] for name, shares in found.items()} == {
        "active_days": [1, 1, 0, 1, 0, 0, 0, 0],
        "age": [1, 1, 1, 0, 0, 0],
        "export": [2, 1],
        "write_seconds": [2, 1, 0, 0],  # c wrote 90 s in a week with 3 days
    }
    for context in people.values():
        context.close()


@pytest.mark.parametrize(
    ("preferences", "said"),
    [
        ({"enable_do_not_track": True}, "Do Not Track is on, so this page does not count its use."),
        ({"profile": {"default_content_setting_values": {"cookies": 2}}}, "browsers refuse it in some private windows"),
    ],
    ids=["switch", "no storage"],
)
def test_a_browser_that_refuses_counts_nothing(
    preferences: dict[str, Any], said: str, playwright: Playwright, tmp_path: Path, site: Site
) -> None:
    (tmp_path / "Default").mkdir()
    (tmp_path / "Default" / "Preferences").write_text(json.dumps(preferences))
    page = site.open(Chromium(playwright, tmp_path).context)
    use(page)
    expect(page.locator("#state")).to_contain_text(said)
    assert [page.locator(f"#{name}").is_hidden() for name in ("agree", "stop", "leaving")] == [True] * 3
    assert page.evaluate("indexedDB.databases().catch(() => [])") == []
    page.context.close()


def test_the_local_mode_sends_nothing(browser: Browser, site: Site) -> None:
    page = site.open(browser.new_context(), "?local")
    agree(page)
    expect(page.locator("#journal li")).to_contain_text("local: 97")
    assert site.counted() == []
    page.context.close()


@pytest.mark.parametrize("said", ["Do Not Track is on", "can be reported no more"])
def test_people_can_stop_while_nothing_is_counted(said: str, browser: Browser, site: Site) -> None:
    """After the consent, a switch is turned on, or the clock goes back to a step that the device has forgotten."""
    context = browser.new_context()
    page = site.open(context, "?local")
    agree(page)
    if said.startswith("Do"):
        before = kept(page)
        page.evaluate(DO_NOT_TRACK)
        use(page)
        expect(page.locator("#state")).to_contain_text(said)
        assert kept(page) == before
    else:
        for _ in range(3):
            site.now_ms += 7 * DAY_MS
            site.open(context, "?local")
        site.now_ms -= 21 * DAY_MS
        page = site.open(context, "?local")
        expect(page.locator("#state")).to_contain_text(said)
    page.get_by_role("button", name="Stop").click()
    expect(page.locator("#stop")).to_be_hidden()
    assert [sorted(records) for records in kept(page).values()] == [[], ["consent", "device"]]
    context.close()
