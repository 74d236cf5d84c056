# SPDX-License-Identifier: MIT
"""The HTML page in a real browser: title, rows, pictures; nothing from elsewhere."""

import html
import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from hakmem_workbench import flame, glossary, heapprofile
from hakmem_workbench.symbols import Symbols
from hakmem_workbench.text import duration

pytest.importorskip("matplotlib")
if not shutil.which("hyperfine"):
    pytest.skip("hyperfine is not installed", allow_module_level=True)

FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
)

# Runs in a copy of the page: reports the actual layout.
PROBE = """
<script>
addEventListener('load', () => {
  const boxes = [...document.querySelectorAll('svg.plot')].map(svg => {
    const box = svg.getBoundingClientRect();
    return {name: svg.dataset.plot, width: box.width, height: box.height,
            shapes: svg.querySelectorAll('path, use').length, text: svg.textContent};
  });
  const rows = Object.fromEntries([...document.querySelectorAll('table')].map(
    table => [table.id, [...table.tBodies[0].rows].map(
      row => [...row.cells].map(cell => cell.innerText))]));
  const ids = [...document.querySelectorAll('[id]')].map(element => element.id);
  const report = {title: document.title, boxes, rows,
    heading: document.querySelector('h1').innerText,
    verdicts: [...document.querySelectorAll('.verdicts li')].map(
      item => item.innerText.replaceAll('\u00a0', ' ')),
    clipped: [...document.querySelectorAll('h1, .command, .facts, li, figcaption')].filter(
      box => box.scrollWidth > box.clientWidth + 1).map(box => box.innerText),
    doubleIds: ids.filter((id, at) => ids.indexOf(id) !== at),
    overflow: document.documentElement.scrollWidth > innerWidth,
    loaded: performance.getEntriesByType('resource').length};
  const out = document.createElement('pre');
  out.id = 'probe-result';
  out.textContent = JSON.stringify(report);
  document.body.append(out);
});
</script>
"""


def chromium() -> str:
    for name in ("chromium", "chromium-browser", "google-chrome"):
        if found := shutil.which(name):
            return found
    pytest.skip("Chromium is not installed: the page is not checked")


def look_at(page: Path, folder: Path, width: int = 1100) -> dict:  # type: ignore[type-arg]
    """Opens the page in the browser and returns what the probe saw."""
    copy = folder / f"probed-{page.name}"
    policy = re.compile(r'<meta http-equiv="Content-Security-Policy"[^>]*>')
    text, forbidden = policy.subn("", page.read_text())  # it would stop the probe too
    assert forbidden == 1
    copy.write_text(text.replace("</body>", PROBE + "</body>"))
    done = subprocess.run(
        [
            chromium(),
            *FLAGS,
            f"--user-data-dir={folder / f'profile-{width}'}",
            f"--window-size={width},3000",
            f"--screenshot={folder / f'{page.stem}-{width}.png'}",
            "--dump-dom",
            copy.as_uri(),
        ],
        capture_output=True,
        text=True,
        timeout=600,
        check=True,
    )
    match = re.search(r'<pre id="probe-result">(.*?)</pre>', done.stdout, re.S)
    assert match, done.stdout[-2000:] + done.stderr[-2000:]
    return json.loads(html.unescape(match[1]))


def console_of(page: Path, folder: Path) -> tuple[str, list[str]]:
    """The page as the browser leaves it, and its console output, including refused requests."""
    flags = (*FLAGS, "--enable-logging=stderr", f"--user-data-dir={folder / 'profile-console'}")
    done = subprocess.run(
        [chromium(), *flags, "--dump-dom", page.as_uri()],
        capture_output=True,
        text=True,
        timeout=600,
        check=True,
    )
    assert "</html>" in done.stdout
    return done.stdout, [line for line in done.stderr.splitlines() if "CONSOLE" in line]


def test_flame_graph(tmp_path: Path) -> None:
    """Its script runs: a box for each frame of each stack, and one for all of them."""
    mappings = [heapprofile.Mapping(0x1000, 0x9000, 0, "[vdso]"), heapprofile.Mapping(0xA000, 0xB000, 0, "</script>")]
    profile = heapprofile.HeapProfile(1, 0, 1, 0, mappings)
    for stack in ((0x2000, 0xA001, 0x3000), (0x3000,)):
        profile.stacks[stack] = heapprofile.Amount(100, 1, 200, 2, 2)
    page = tmp_path / "flame.html"
    page.write_text(flame.page("<i>", profile, Symbols(mappings, (0x2000, 0x3000, 0xA001))), "utf-8")
    dom, said = console_of(page, tmp_path)
    assert said == []
    assert len(re.findall(r"<div [^>]*left:", dom)) == 4


@pytest.fixture(scope="module")
def seen(experiment: Path, tmp_path_factory: pytest.TempPathFactory) -> dict:  # type: ignore[type-arg]
    return look_at(experiment / "ab.html", tmp_path_factory.mktemp("browser"))


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
    assert not seen["overflow"] and seen["clipped"] == []
    assert seen["loaded"] == 0


def test_verdicts(seen: dict, experiment: Path) -> None:  # type: ignore[type-arg]
    found = json.loads((experiment / "ab.json").read_text())
    sentences = [row["judgement"]["sentence"] for row in found["variants"] if row["judgement"]]
    assert len(sentences) == 2
    assert [f"{sentence}." for sentence in sentences] == seen["verdicts"][:2]
    assert seen["verdicts"][-1].startswith("system against itself")
    medians = [duration(row["median_seconds"]) for row in found["variants"][1:]]
    assert [row[1] for row in seen["rows"]["times"][2:]] == medians


def test_narrow_window(experiment: Path, tmp_path: Path) -> None:
    seen = look_at(experiment / "ab.html", tmp_path, 500)
    assert not seen["overflow"] and seen["clipped"] == []


def test_long_names_and_commands(experiment: Path, tmp_path: Path) -> None:
    """Neither may push content off the page."""
    text = (experiment / "ab.html").read_text().replace("backend=legacy", "x" * 120)
    page = tmp_path / "long.html"
    page.write_text(re.sub(r'(class="command">)[^<]*', r"\1" + "/very/long/path" * 30, text))
    seen = look_at(page, tmp_path)
    assert not seen["overflow"] and seen["clipped"] == []


def test_console_is_silent(experiment: Path, tmp_path: Path) -> None:
    assert console_of(experiment / "ab.html", tmp_path)[1] == []
    page = tmp_path / "outside.html"
    picture = '<img src="https://example.org/x.png"><script>alert(1)</script></body>'
    page.write_text((experiment / "ab.html").read_text().replace("</body>", picture))
    _, refused = console_of(page, tmp_path)
    assert len(refused) == 2 and all("Content Security Policy" in line for line in refused)


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


def test_the_guide_has_every_word() -> None:
    """docs/tuning.md says the same as the tables."""
    guide = Path(__file__).resolve().parents[3] / "docs" / "tuning.md"
    if not guide.is_file():
        pytest.skip("not in the source tree")
    text = guide.read_text()
    for words in glossary.TABLES.values():
        for word, meaning in words.items():
            assert f"| {word} | {meaning} |" in text


def test_hostile_names_are_escaped() -> None:
    from hakmem_workbench import page

    assert "<script>" not in page.header("x", "<script>alert(1)</script>", "")
    assert "</script><b>" not in page.page("t", [], {"command": "</script><b>"})
