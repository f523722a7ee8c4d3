"""The page of scripts/report.py in a real browser, on a phone and a desk, in dark and light."""

import base64
import contextlib
import io

import pytest
from matplotlib.image import imread

from tests.commands.test_report import HOSTILE, NAME, made, run_folder
from tests.nightly import browser

pytestmark = pytest.mark.skipif(
    browser.EXECUTABLE is None, reason="needs a browser: apt-get install chromium"
)

# Sizes in px of texts, drawn and written, and their contrast with what lies behind them.
LOOK = r"""
const numbers = (colour) => colour.match(/[\d.]+/g).map(Number);
const luminance = (colour) => {
  const [red, green, blue] = numbers(colour).map((c) => ((c / 255 + .055) / 1.055) ** 2.4);
  return .2126 * red + .7152 * green + .0722 * blue;
};
const behind = (node) => {
  const colour = getComputedStyle(node).backgroundColor;
  return numbers(colour)[3] === 0 ? behind(node.parentElement) : colour;
};
const contrast = (node) => {
  const lights = [getComputedStyle(node).color, behind(node)].map(luminance);
  return (Math.max(...lights) + .05) / (Math.min(...lights) + .05);
};
const scale = (svg) => svg.getBoundingClientRect().width / svg.viewBox.baseVal.width;
const size = (node) => {
  const svg = node.closest("svg");
  return parseFloat(getComputedStyle(node).fontSize) * (svg ? scale(svg) : 1);
};
const holds = (node) => [...node.childNodes].some((c) => c.nodeType === 3 && c.data.trim());
const texts = [...document.querySelectorAll("body :not(script)")].filter(holds);
const [drawn, written] = [true, false].map(
  (is) => texts.filter((node) => node.checkVisibility() && is === !!node.closest("svg"))
);
({
  texts: [drawn.length, written.length],
  drawn: Math.min(...drawn.map(size)),
  written: Math.min(...written.map(size)),
  contrast: Math.min(...written.map(contrast)),
  scrolls: document.documentElement.scrollWidth,
  width: innerWidth,
});
"""
CONTROL = """function (listeners) {
  const control = listeners || this.matches("summary, select, input, button, a, .scroll");
  return this.checkVisibility() && control ? this.dataset.place : null;
}"""


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    """The page of a run with hostile completions."""
    folder = tmp_path_factory.mktemp("run")
    run_folder(folder, NAME, steps=5)
    with contextlib.chdir(folder):
        made(f"run={NAME}", NAME)
    return folder / "reports" / f"{NAME}.html"


@pytest.fixture
def opened(file, tmp_path):
    """A function that opens the page; nothing may be asked for or complained of."""
    pages = []

    def start(**device):
        pages.append(browser.Page(file, tmp_path / f"profile{len(pages)}", **device))
        return pages[-1]

    yield start
    for page in pages:
        page.close()
        assert (page.requests, page.errors) == ([file.as_uri()], [])


def controls(page):
    """The places of the elements that take a click or a choice."""
    page.value("document.querySelectorAll('body *').forEach((e, i) => { e.dataset.place = i; })")
    found = page.call("Runtime.evaluate", expression="[...document.querySelectorAll('body *')]")
    listed = page.call("Runtime.getProperties", objectId=found["result"]["objectId"])["result"]
    places = set()
    for element in (entry["value"]["objectId"] for entry in listed if entry["name"].isdigit()):
        heard = page.call("DOMDebugger.getEventListeners", objectId=element)["listeners"]
        asked = {"objectId": element, "arguments": [{"value": len(heard)}]}
        answer = page.call("Runtime.callFunctionOn", functionDeclaration=CONTROL, **asked)
        places.add(answer["result"].get("value"))
    return places - {None}


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1400])
def test_it_is_readable(width, scheme, opened):
    """WCAG asks for a contrast of 4.5. The drawings have no background of their own to compare
    with: a dark page is dark on the whole."""
    page = opened(width=width, scheme=scheme)
    page.value("document.querySelectorAll('details').forEach((item) => { item.open = true; })")
    look = page.value(LOOK)
    assert look["width"] == width
    assert look["scrolls"] <= width, "the page itself scrolls to the side"
    assert min(look["texts"]) > 20
    assert look["drawn"] >= 9
    assert look["written"] >= 13
    assert look["contrast"] >= 4.5
    brightness = imread(io.BytesIO(base64.b64decode(page.picture())))[..., :3].mean()
    assert brightness < 0.25 if scheme == "dark" else brightness > 0.75


@pytest.mark.parametrize("width", [390, 1400])
def test_the_keyboard_reaches_every_control(width, opened):
    page = opened(width=width)
    page.value("at('query').value = 'onerror'; search()")  # with results, which are controls
    wanted = controls(page)
    assert len(wanted) > 20
    reached = set()
    for _ in range(2 * len(wanted)):
        page.press("Tab")
        reached.add(page.value("document.activeElement.dataset.place"))
    assert wanted <= reached


def focus(page, selector):
    page.value(f"document.querySelector({selector!r}).focus()")


def test_keys_sort_search_and_open(opened):
    page = opened()
    first = "document.querySelector('#rollouts summary').textContent[0]"
    focus(page, ".head button")
    page.press("Enter", "\r")
    assert page.value(first) == "0"
    page.press("Enter", "\r")  # the focus stays on the head
    assert page.value(first) == "7"
    focus(page, "#query")
    page.call("Input.insertText", text="ONERROR")
    page.press("Enter", "\r")
    assert page.value("at('hits').children.length") == 10
    focus(page, "#hits button")
    page.press(" ", " ")
    assert page.value("at('step').value") == "1"
    assert page.value("document.querySelectorAll('#rollouts details[open]').length") == 1
    assert page.value("document.activeElement.parentNode.open"), "the rollout has the focus"
    page.value("at('show').value = 'kept'; at('show').dispatchEvent(new Event('change'))")
    assert page.value("document.querySelectorAll('#rollouts details').length") == 2


def test_completions_stay_text(opened):
    page = opened()
    assert page.value("typeof window.hacked") == "undefined"
    assert page.value("document.querySelectorAll('img, b, think, answer, i').length") == 0
    shown = page.value("[...document.querySelectorAll('#rollouts pre')].map((p) => p.textContent)")
    assert sorted(shown) == sorted(HOSTILE * 2)


def test_the_browser_sees_requests_and_errors(tmp_path):
    """Else the tests above would prove nothing."""
    file = tmp_path / "bad.html"
    asks = "<img src=http://127.0.0.1:9/a.png><script>console.error('no'); throw 1</script>"
    file.write_text(asks)
    page = browser.Page(file, tmp_path / "profile")
    page.close()
    assert "http://127.0.0.1:9/a.png" in page.requests
    assert len(page.errors) >= 3
