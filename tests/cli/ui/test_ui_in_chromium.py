"""The slide rule in a real browser: a drag changes what is shown, to what the command of it answers."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import pytest

from slipstick.cli.ui.dragged_server import Point, choices, read_point
from slipstick.cli.ui.rule import SlideRule
from slipstick.cli.ui.server import RuleServer, page_of
from tests.chromium import chromium, complaints, in_light, requests, until
from tests.cli.ui.test_dragged import START
from tests.cli.ui.test_dragged_server import SERVER

if TYPE_CHECKING:
    from selenium.webdriver import Chrome

STARTS = {"phase": "train", "train": {**START, "phase": "train"}, "serve": SERVER}


@pytest.fixture(scope="module")
def rule() -> SlideRule:
    return SlideRule()


@pytest.fixture(scope="module")
def page(rule: SlideRule, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chrome]:
    with (
        chromium(tmp_path_factory.mktemp("profile")) as browser,
        RuleServer(rule, *page_of(STARTS, choices())) as server,
    ):
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        browser.get(server.address)
        yield browser
        server.shutdown()
        thread.join()


def shown(page: Chrome) -> dict[str, str]:
    tiles = page.find_elements("css selector", "#tiles div")
    return {one.find_element("tag name", "dt").text: one.find_element("tag name", "dd").text for one in tiles}


def settled(page: Chrome) -> None:
    until(page, "document.documentElement.dataset.serial && !running && !waiting && !answer.warming", 60)


def point(page: Chrome) -> Point:
    return read_point(page.execute_script("return state"))


@pytest.fixture
def serving(page: Chrome) -> Iterator[Chrome]:
    for phase in ("serve", "train"):
        page.execute_script(
            "const one = document.getElementById('phase'); one.value = arguments[0]; "
            "one.dispatchEvent(new Event('change'))",
            phase,
        )
        settled(page)
        if phase == "serve":
            yield page


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_opens_without_complaint_and_asks_its_own_server_alone(page: Chrome, scheme: str) -> None:
    in_light(page, scheme)
    settled(page)
    assert complaints(page) == []
    assert {urlsplit(url).hostname for url in requests(page) if url.startswith("http")} <= {"127.0.0.1"}
    assert len(page.find_elements("css selector", "#curves svg")) == 4


def test_a_drag_by_keyboard_changes_the_answer_to_that_of_its_command(page: Chrome, rule: SlideRule) -> None:
    from selenium.webdriver.common.keys import Keys

    settled(page)
    before = shown(page)
    page.find_element("id", "hbm").send_keys(Keys.ARROW_RIGHT, Keys.ARROW_RIGHT)
    settled(page)
    assert dict(point(page).factors)["hbm"] == 1.25
    found = rule.answer(point(page))
    tiles, command = found["tiles"], found["command"]
    assert isinstance(tiles, list)
    assert shown(page) == {one["name"]: one["value"] for one in tiles}
    assert shown(page)["step time"] != before["step time"]
    assert page.find_element("id", "copied").text == command
    assert "--set chip.memory.hbm.bandwidth=4.1875e+12B/s" in str(command)


def test_the_best_plan_is_taken(page: Chrome) -> None:
    page.find_element("id", "tp").send_keys("\ue014")
    settled(page)
    page.find_element("id", "take").click()
    settled(page)
    assert page.find_element("id", "best").text.startswith("This one: ")


def test_a_plan_that_is_not_legal_is_said_to_be_none(page: Chrome) -> None:
    page.execute_script("steps.tp.input.value = 3; steps.tp.input.dispatchEvent(new Event('input'))")
    settled(page)
    assert "tp=8 does not divide the 12 heads" in page.find_element("id", "error").text
    page.execute_script("steps.tp.input.value = 1; steps.tp.input.dispatchEvent(new Event('input'))")
    settled(page)
    assert not page.find_element("id", "error").is_displayed()


def test_it_is_copied_as_python_and_as_a_plan_file(page: Chrome) -> None:
    settled(page)
    page.find_element("css selector", "[data-copy=python]").click()
    assert page.find_element("id", "copied").text.startswith("import slipstick")
    page.find_element("css selector", "[data-copy=plan]").click()
    until(page, "!document.getElementById('copied').textContent.startsWith('import')", 60)
    assert page.find_element("id", "copied").text.startswith("schema: slipstick/plan/1")


def test_a_server_is_dragged_and_shows_what_its_command_answers(serving: Chrome, rule: SlideRule) -> None:
    from selenium.webdriver.common.keys import Keys

    assert complaints(serving) == []
    assert not serving.find_element("id", "zero").is_displayed()
    assert not serving.find_element("id", "clients").is_displayed()
    before = shown(serving)
    serving.find_element("id", "isl").send_keys(Keys.ARROW_RIGHT)
    settled(serving)
    found = rule.answer(point(serving))
    tiles = found["tiles"]
    assert isinstance(tiles, list)
    assert shown(serving) == {one["name"]: one["value"] for one in tiles}
    assert shown(serving)["TTFT"] != before["TTFT"]
    assert "--phase serve" in str(found["command"])
    assert "--isl 512" in str(found["command"])
    captions = [one.text for one in serving.find_elements("css selector", "#curves figcaption")]
    assert captions == ["TTFT over requests/s", "TPOT over requests/s", "tokens/s/GPU over tokens/s/user"]
    keys = serving.find_elements("css selector", "#curves figure:first-child .key li")
    assert [one.text for one in keys] == ["mean", "p50", "p90", "p99"]
    assert "requests/s within the limits" in serving.find_element("id", "best").text


def test_a_load_by_concurrency_has_its_own_slider(serving: Chrome) -> None:
    serving.execute_script(
        "const one = document.getElementById('load'); one.value = 'concurrency'; one.dispatchEvent(new Event('change'))"
    )
    settled(serving)
    assert serving.find_element("id", "clients").is_displayed()
    assert not serving.find_element("id", "rate").is_displayed()
    assert shown(serving)["concurrency"] == "16"


@pytest.mark.parametrize("phase", ["train", "serve"])
def test_nothing_serious_for_who_cannot_see_or_point(page: Chrome, phase: str, request: pytest.FixtureRequest) -> None:
    import os

    script = Path(os.environ.get("AXE_SCRIPT", "axe.min.js"))
    if not script.is_file():
        pytest.skip("no axe-core: npm install axe-core, and AXE_SCRIPT=node_modules/axe-core/axe.min.js")
    if phase == "serve":
        request.getfixturevalue("serving")
    for scheme in ("light", "dark"):
        in_light(page, scheme)
        settled(page)
        page.execute_script(script.read_text(encoding="utf-8"))
        found = page.execute_async_script("const done = arguments[0]; axe.run().then(done)")
        serious = [one for one in found["violations"] if one["impact"] in ("serious", "critical")]
        assert [(one["id"], one["nodes"][0]["html"]) for one in serious] == []
