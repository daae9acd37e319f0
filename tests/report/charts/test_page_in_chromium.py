"""Pages in a real browser: they draw, complain of nothing, ask nobody, and say the numbers of their document."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import slipstick
from slipstick.ir.units import format_time
from slipstick.report.labels import part_label
from slipstick.report.results.documents import SavedResult
from slipstick.report.results.steps import StepResult
from tests.chromium import chromium, complaints, in_light, requests, until

if TYPE_CHECKING:
    from selenium.webdriver import Chrome

pytest.importorskip("vl_convert", reason="charts need slipstick[report]")
# A page of a step, with all its charts.
MOST_BYTES = 2_500_000


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chrome]:
    with chromium(tmp_path_factory.mktemp("profile")) as found:
        yield found


@pytest.fixture(scope="module")
def found() -> StepResult:
    graph = str(Path(__file__).parents[2] / "golden" / "tiny-llama.train.graph")
    return slipstick.estimate(graph, "dgx-h100", gpus=4, tp=2, seq=128, gbs=8)


@pytest.fixture(scope="module")
def page(found: StepResult, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return found.save(tmp_path_factory.mktemp("pages") / "step.html")


def opened(browser: Chrome, path: Path) -> None:
    complaints(browser)
    requests(browser)
    browser.get(path.as_uri())
    until(browser, "document.documentElement.dataset.drawn")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_page_draws_all_its_charts_and_asks_nobody(
    browser: Chrome, page: Path, found: StepResult, scheme: str
) -> None:
    assert page.stat().st_size <= MOST_BYTES
    in_light(browser, scheme)
    opened(browser, page)
    assert complaints(browser) == []
    assert {url.partition(":")[0] for url in requests(browser)} <= {"file", "data"}
    figures = browser.find_elements("css selector", "figure.chart")
    assert len(figures) == len(found.page().charts)
    assert all(one.find_elements("css selector", "svg") and one.get_attribute("aria-label") for one in figures)
    paper = browser.execute_script("return getComputedStyle(document.body).backgroundColor")
    assert (paper == "rgb(255, 255, 255)") == (scheme == "light")


def test_what_it_says_is_what_its_document_says(browser: Chrome, page: Path, found: StepResult) -> None:
    opened(browser, page)
    document = json.loads(browser.execute_script("return document.getElementById('document').textContent"))
    assert document["metrics"] == found.to_dict()["metrics"]
    texts = browser.execute_script(
        "return [...document.querySelector('figure.chart').querySelectorAll('svg text')].map(e => e.textContent)"
    )
    for name, seconds in document["breakdown"].items():
        if seconds > 0:
            assert part_label(name) in texts
            assert any(text.startswith(f"{format_time(seconds)}, ") for text in texts)


def test_names_are_text_whatever_they_are(browser: Chrome, found: StepResult, tmp_path: Path) -> None:
    tree = found.to_dict()
    inputs = tree["inputs"]
    assert isinstance(inputs, dict)
    inputs["model"]["name"] = '<script>document.title="no"</script>\x1b[31m<img src=x onerror=alert(1)>'
    tree["breakdown"] = {"<b>bold</b></script><script>alert(2)</script>": 1.0}
    tree["warnings"] = ["<svg onload=alert(3)>"]
    page = SavedResult(documents={"a.json": tree}).save(tmp_path / "a.html")
    opened(browser, page)
    assert complaints(browser) == []
    assert browser.find_element("css selector", "h1").text.startswith('<script>document.title="no"</script>\\x1b[31m')
    assert browser.title != "no"
    assert browser.find_elements("css selector", "img, b, [onload]") == []
    assert "<svg onload=alert(3)>" in browser.find_element("id", "warnings").text


def test_rows_of_a_search_are_filtered_and_sorted(browser: Chrome, tmp_path: Path) -> None:
    rows = [{"plan": f"tp{k} pp1", "tp": k, "step_time_s": (k - 5) ** 2 + 1.0, "usd_per_mtok": k} for k in range(1, 13)]
    document = {"schema": "slipstick/search/1", "model": "m", "objectives": ["step_time_s"], "best": rows, "front": []}
    opened(browser, SavedResult(documents={"s.json": document}).save(tmp_path / "s.html"))
    section = browser.find_element("css selector", "section:has(.filter)")
    section.find_element("css selector", "input").send_keys("tp1")
    assert section.find_element("css selector", "output").text == "4 of 12 rows"
    section.find_element("xpath", ".//th/button[text()='step_time_s']").click()
    shown = [row.text.split()[0] for row in section.find_elements("css selector", "tbody tr") if row.is_displayed()]
    # Of tp1, 10, 11, 12, the numbers (k - 5)^2 + 1 rise with their distance from 5.
    assert shown == ["tp1", "tp10", "tp11", "tp12"]


def test_a_timeline_zooms(browser: Chrome, page: Path) -> None:
    from selenium.webdriver.common.action_chains import ActionChains
    from selenium.webdriver.common.actions.wheel_input import ScrollOrigin

    opened(browser, page)
    figure = browser.find_element("css selector", "[id^=timeline-of-a-step][id$=chart]")
    browser.execute_script("arguments[0].scrollIntoView({block: 'center'})", figure)

    def ticks() -> list[str]:
        labels = figure.find_elements("css selector", ".role-axis-label text")
        return [one.text for one in labels if one.text]

    before = ticks()
    ActionChains(browser).scroll_from_origin(ScrollOrigin.from_element(figure), 0, -400).perform()
    until(browser, "true")
    assert ticks() != before


def test_every_control_can_be_reached_by_keyboard(browser: Chrome, page: Path) -> None:
    from selenium.webdriver.common.keys import Keys

    opened(browser, page)
    seen = set()
    for _ in range(40):
        browser.switch_to.active_element.send_keys(Keys.TAB)
        one = browser.switch_to.active_element
        seen.add(one.get_attribute("class") or one.tag_name)
    assert {"skip", "a", "button", "summary"} <= seen


def test_nothing_serious_for_who_cannot_see_or_point(browser: Chrome, page: Path) -> None:
    """axe-core, where it is installed: `npm install axe-core`, its script named by AXE_SCRIPT."""
    import os

    script = Path(os.environ.get("AXE_SCRIPT", "axe.min.js"))
    if not script.is_file():
        pytest.skip("no axe-core: npm install axe-core, and AXE_SCRIPT=node_modules/axe-core/axe.min.js")
    for scheme in ("light", "dark"):
        in_light(browser, scheme)
        opened(browser, page)
        # By the protocol of the browser's own tools, which the policy of the page does not hold.
        browser.execute_script(script.read_text(encoding="utf-8"))
        found = browser.execute_async_script("const done = arguments[0]; axe.run().then(done)")
        assert [one["id"] for one in found["violations"] if one["impact"] in ("serious", "critical")] == []
