# SPDX-License-Identifier: MIT
"""The HTML pages in a real browser, wide, narrow and dark: what they show; nothing from elsewhere."""

import html
import json
import os
import re
import shutil
import time
from pathlib import Path

import pytest
from browser import Browser

from hakmem_workbench import flame, heapprofile
from hakmem_workbench.symbols import Symbols
from hakmem_workbench.text import duration

pytest.importorskip("matplotlib")
if not shutil.which("hyperfine"):
    pytest.skip("hyperfine is not installed", allow_module_level=True)

# What a page shows, as it is laid out.
PROBE = """(() => {
  const boxes = [...document.querySelectorAll('svg.plot')].map(svg => {
    const box = svg.getBoundingClientRect();
    return {name: svg.dataset.plot, width: box.width, height: box.height,
            shapes: svg.querySelectorAll('path, use').length, text: svg.textContent};
  });
  const rows = Object.fromEntries([...document.querySelectorAll('table')].map(
    table => [table.id, [...table.tBodies[0].rows].map(
      row => [...row.cells].map(cell => cell.innerText))]));
  const ids = [...document.querySelectorAll('[id]')].map(element => element.id);
  return {title: document.title, boxes, rows,
    heading: document.querySelector('h1').innerText,
    verdicts: [...document.querySelectorAll('.verdicts li')].map(
      item => item.innerText.replaceAll('\u00a0', ' ')),
    clipped: [...document.querySelectorAll('h1, .command, .facts, li, figcaption')].filter(
      box => box.scrollWidth > box.clientWidth + 1).map(box => box.innerText),
    doubleIds: ids.filter((id, at) => ids.indexOf(id) !== at),
    overflow: document.documentElement.scrollWidth > innerWidth,
    loaded: performance.getEntriesByType('resource').length};
})()"""
# The least contrast between a text and what lies behind it, by WCAG's formula, and that text.
CONTRAST = """(() => {
  const canvas = document.createElement('canvas').getContext('2d', {willReadFrequently: true});
  const parts = colour => { canvas.clearRect(0, 0, 1, 1); canvas.fillStyle = colour; canvas.fillRect(0, 0, 1, 1);
    return [...canvas.getImageData(0, 0, 1, 1).data] };
  const light = colour => { const [r, g, b] = parts(colour).map(
    c => (c /= 255) <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b };
  const root = getComputedStyle(document.documentElement).colorScheme;
  const dark = root.includes('dark') && matchMedia('(prefers-color-scheme: dark)').matches;
  const behind = element => { for (let at = element; at; at = at.parentElement) {
    const colour = getComputedStyle(at).backgroundColor; if (parts(colour)[3] > 250) return colour }
    return dark ? '#121212' : '#ffffff' };
  let least = [22, ''];
  for (const element of document.querySelectorAll('body *')) {
    const text = [...element.childNodes].filter(node => node.nodeType === 3).map(node => node.data.trim()).join('');
    if (!text || !element.checkVisibility() || element.closest('svg, script, style')) continue;
    const [a, b] = [light(getComputedStyle(element).color), light(behind(element))].sort((x, y) => y - x);
    const contrast = (a + 0.05) / (b + 0.05);
    if (contrast < least[0]) least = [contrast, text];
  }
  return least;
})()"""


def look_at(browser: Browser, page: Path, width: int = 1100, dark: bool = False) -> dict:  # type: ignore[type-arg]
    """Opens the page; its console must be empty, nothing cut off, and each text legible."""
    browser.open(page, width, dark)
    seen = browser.run(PROBE)
    assert browser.console == []
    assert not seen["overflow"] and seen["clipped"] == []
    least = browser.run(CONTRAST)
    assert least[0] >= 4.5, least
    return seen  # type: ignore[no-any-return]


WORLDS = pytest.mark.parametrize(("width", "dark"), [(1100, False), (400, False), (1100, True)], ids=str)


@WORLDS
def test_flame_graph(browser: Browser, tmp_path: Path, width: int, dark: bool) -> None:
    """A box for each frame of each stack, and one for all of them; a click zooms, a word is found."""
    mappings = [heapprofile.Mapping(0x1000, 0x9000, 0, "[vdso]"), heapprofile.Mapping(0xA000, 0xB000, 0, "</script>")]
    profile = heapprofile.HeapProfile(1, 0, 1, 0, mappings)
    for stack in ((0x2000, 0xA001, 0x3000), (0x3000,)):
        profile.sites[heapprofile.Site(stack)] = heapprofile.Amount(100, 1, 200, 2, 150, 1, 2)
    page = tmp_path / "flame.html"
    page.write_text(flame.page("<i>", profile, Symbols(mappings, (0x2000, 0x3000, 0xA001))), "utf-8")
    assert look_at(browser, page, width, dark)["heading"] == "<i>"
    boxes = "[...document.querySelectorAll('#graph div')]"
    assert browser.run("getComputedStyle(document.body).color") == ("rgb(255, 255, 255)" if dark else "rgb(0, 0, 0)")
    names = browser.run(f"{boxes}.map(box => box.innerText)")
    assert names == ["all", "[vdso]", "</script>", "[vdso]"]
    assert browser.run(f"{boxes}.every(box => box.clientWidth > {0.4 * width} && box.clientHeight > 10)")
    browser.run(f"{boxes}[2].click()")
    assert browser.run(f"{boxes}[2].clientWidth > {0.9 * width}")
    browser.run("search.value = 'script'; search.oninput()")
    assert browser.run("[...document.querySelectorAll('.found')].map(box => box.innerText)") == ["</script>"]
    browser.run("document.querySelector('[value=\"1\"]').click()")
    assert browser.run(f"{boxes}[0].title") == "all \n400 B, 100.0 %"
    browser.run("document.querySelector('[value=\"2\"]').click()")
    assert browser.run(f"{boxes}[0].title") == "all \n300 B, 100.0 %"
    assert browser.run("went.offsetWidth") == 0
    assert browser.console == []


def test_flame_graph_of_what_went(browser: Browser, tmp_path: Path) -> None:
    """A difference without a byte that came; on a narrow screen, a choice is beside its words."""
    profile = heapprofile.HeapProfile(1, 0, 1, 0, [])
    profile.sites[heapprofile.Site((0x2000,))] = heapprofile.Amount(-100, -1, -100, -1, -100, -1, -1)
    page = tmp_path / "flame.html"
    page.write_text(flame.page("less", profile, Symbols([], (0x2000,))), "utf-8")
    browser.open(page, 360)
    assert browser.run("document.querySelector(':checked').parentElement.innerText").strip() == "live bytes that went"
    titles = browser.run("[...document.querySelectorAll('#graph div')].map(box => box.title)")
    assert titles == ["all \n100 B, 100.0 %", "(code of no known file) \n100 B, 100.0 %"]
    assert browser.run("[...document.querySelectorAll('label')].every(label => label.getClientRects().length === 1)")
    assert browser.run("document.documentElement.scrollWidth <= innerWidth") and browser.console == []


@pytest.mark.parametrize("name", ["index.html", "docs/settings.html", "man/hakmem.1.html"])
@WORLDS
def test_site(browser: Browser, name: str, width: int, dark: bool) -> None:
    if not (site := os.environ.get("TEST_SITE")):
        pytest.skip("stage site of tools/test.sh makes it")
    browser.open(Path(site, name), width, dark)
    assert browser.console == []
    assert browser.run("document.documentElement.scrollWidth <= innerWidth")
    heading = browser.run("document.querySelector('article h1').getBoundingClientRect().toJSON()")
    assert 100 < heading["width"] < width and heading["height"] > 15
    script = "localStorage.clear(), getComputedStyle(document.body).backgroundColor == 'rgb(255, 255, 255)'"
    until = time.monotonic() + 10  # the theme's script may come later, and its colours fade
    while browser.run(script) == dark and time.monotonic() < until:
        time.sleep(0.05)
    assert browser.run(script) != dark


@pytest.fixture(scope="module")
def seen(browser: Browser, experiment: Path) -> dict:  # type: ignore[type-arg]
    return look_at(browser, experiment / "ab.html")


def test_title(seen: dict) -> None:  # type: ignore[type-arg]
    assert seen["title"] == "hakmem A/B: system vs hakmem vs backend=legacy"
    assert seen["heading"]


def test_rows(seen: dict) -> None:  # type: ignore[type-arg]
    names = [row[0] for row in seen["rows"]["times"]]
    assert names == ["system", "system (again)", "hakmem", "backend=legacy"]
    assert all(re.fullmatch(r"[\d.]+ m?s", row[1]) for row in seen["rows"]["times"])
    assert "peak memory" in [row[0] for row in seen["rows"]["beside"]]
    assert ["hakmem", "partial_release"] in [row[:2] for row in seen["rows"]["ledger"]]
    assert "kernel" in [row[0] for row in seen["rows"]["machine"]]
    assert len(seen["rows"]["variants"]) == 3


def test_pictures(seen: dict) -> None:  # type: ignore[type-arg]
    boxes = {box["name"]: box for box in seen["boxes"]}
    assert {"ratios", "times", "order", "memory", "memory-over-time", "causes"} <= boxes.keys()
    for box in boxes.values():
        assert box["width"] > 600 and box["height"] > 80, box["name"]
        assert box["shapes"] > 5, box["name"]
    assert "backend=legacy" in boxes["ratios"]["text"]


def test_clean(seen: dict) -> None:  # type: ignore[type-arg]
    assert seen["doubleIds"] == []
    assert seen["loaded"] == 0


def test_verdicts(seen: dict, experiment: Path) -> None:  # type: ignore[type-arg]
    found = json.loads((experiment / "ab.json").read_text())
    sentences = [row["judgement"]["sentence"] for row in found["variants"] if row["judgement"]]
    assert len(sentences) == 2
    assert [f"{sentence}." for sentence in sentences] == seen["verdicts"][:2]
    assert seen["verdicts"][-1].startswith("system against itself")
    medians = [duration(row["median_seconds"]) for row in found["variants"][1:]]
    assert [row[1] for row in seen["rows"]["times"][2:]] == medians


def test_narrow_and_dark(browser: Browser, experiment: Path) -> None:
    look_at(browser, experiment / "ab.html", 400)
    look_at(browser, experiment / "ab.html", dark=True)


def test_long_names_and_commands(browser: Browser, experiment: Path, tmp_path: Path) -> None:
    """Neither may push content off the page."""
    text = (experiment / "ab.html").read_text().replace("backend=legacy", "x" * 120)
    page = tmp_path / "long.html"
    page.write_text(re.sub(r'(class="command">)[^<]*', r"\1" + "/very/long/path" * 30, text))
    look_at(browser, page)


def test_nothing_else_is_loaded_or_run(browser: Browser, experiment: Path, tmp_path: Path) -> None:
    page = tmp_path / "outside.html"
    picture = '<img src="https://example.org/x.png"><script>alert(1)</script></body>'
    page.write_text((experiment / "ab.html").read_text().replace("</body>", picture))
    browser.open(page)
    assert len(browser.console) == 2 and all("Content Security Policy" in line for line in browser.console)


def test_self_contained(experiment: Path) -> None:
    """No reference leads out of the file; names of XML dialects are no references."""
    page = (experiment / "ab.html").read_text()
    outside = re.findall(r'(?:src|href|url\()\s*=?\s*["\']?(?!#)(https?:|//|file:)', page)
    assert outside == []


def test_data_travels_along(experiment: Path) -> None:
    page = (experiment / "ab.html").read_text()
    match = re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.S)
    assert match
    assert json.loads(match[1]) == json.loads((experiment / "ab.json").read_text())


def explained_in(page: str) -> list[tuple[set[str], set[str]]]:
    """(names of columns, explained words) of each section."""
    sections = re.findall(r"<section>(.*?)</section>", page, re.S)
    return [
        tuple(  # type: ignore[misc]
            {html.unescape(word) for word in re.findall(rf"<{tag}(?: [^>]*)?>(.*?)</{tag}>", part)}
            for tag in ("th", "dt")
        )
        for part in sections
    ]


def test_every_word_of_a_table_is_explained_below_it(experiment: Path) -> None:
    """Names of variants need no explanation, nor does the machine's table."""
    variants = {"", "system", "hakmem", "backend=legacy", "state"}
    found = explained_in((experiment / "ab.html").read_text())
    assert sum(bool(words) for _, words in found) >= 4
    for columns, words in found:
        assert columns - variants <= words


def test_hostile_names_are_escaped() -> None:
    from hakmem_workbench import page

    assert "<script>" not in page.header("x", "<script>alert(1)</script>", "")
    assert "</script><b>" not in page.page("t", [], {"command": "</script><b>"})
