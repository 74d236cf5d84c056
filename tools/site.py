#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The documents as a static site: build-site/site/index.html, which needs no server.

  tools/setup.sh site && tools/site.py

mkdocs makes it, with the theme of Material. Each page has the path of its file in the checkout, so links work
unchanged; files to which pages link are copied beside them. Ends with an error at a warning of mkdocs, or at a link
within the site that leads nowhere.
"""
import argparse
import html.parser
import json
import re
import shutil
import subprocess
import sys
import urllib.parse
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
OUT = ROOT / "build-site"
SOURCE, SITE = OUT / "source", OUT / "site"
# Chapters, each with its first files, and the chapter of all other files in a folder.
CHAPTERS = {
    "Guides": ["docs/should-i-use-it.md", "docs/tuning.md", "docs/production.md", "docs/memory.md", "docs/caches.md",
               "tools/hakmem/README.md", "docs/write-your-own-part.md", "bindings/rust/README.md"],
    "Settings": ["docs/settings.md"],
    "Man pages": [],
    "Performance": ["docs/performance.md", "docs/experiments.md", "bench/README.md"],
    "Promises": ["SECURITY.md", "docs/misuse.md", "docs/limits.md", "docs/testing.md", "NEWS.md"],
    "Inside": ["ARCHITECTURE.md", "HACKING.md", "docs/decisions.md"],
}
REST = "Inside"
LINK = re.compile(r"\]\((?!https?:|mailto:|#)([^)#\s]+)")
THEME = {
    "name": "material", "font": False, "features": ["navigation.tabs", "navigation.indexes", "content.code.copy"],
    "palette": [
        {"media": "(prefers-color-scheme: light)", "scheme": "default", "primary": "blue grey",
         "toggle": {"icon": "material/weather-night", "name": "Dark"}},
        {"media": "(prefers-color-scheme: dark)", "scheme": "slate", "primary": "blue grey",
         "toggle": {"icon": "material/weather-sunny", "name": "Light"}},
    ],
}
STYLE = """\
.md-grid { max-width: 72rem }
.md-typeset table:not([class]) { font-size: .62rem }
.md-typeset table:not([class]) td, .md-typeset table:not([class]) th { min-width: 0; padding: .4em .7em }
.md-typeset img { background: white }
.md-typeset td code { word-break: normal; overflow-wrap: normal }
.man .head, .man .foot { display: none }
.md-typeset .man h1 { font-size: 1.3em; margin: 1.2em 0 .4em }
.man dt { font-weight: bold }
[data-md-color-scheme="slate"] { --md-typeset-a-color: #8ab4f8 }
"""


def fail(message):
    sys.exit(f"site.py: {message}")


def said(*command):
    return subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout


def tracked(pattern):
    return said("git", "ls-files", "--cached", "--others", "--exclude-standard", pattern).split()


def copy(name):
    (SOURCE / name).parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(ROOT / name, SOURCE / name)


def copy_linked(page):
    """Files that the page links to; a folder is its README, or else a page that lists its files."""
    text = (SOURCE / page).read_text()
    for link in set(LINK.findall(text)):
        target = (ROOT / page).parent.joinpath(link).resolve()
        if not target.is_relative_to(ROOT) or not target.exists():
            fail(f"{page}: {link} leads nowhere")
        name = target.relative_to(ROOT)
        if target.is_dir():
            if not (SOURCE / name / "README.md").exists():
                files = [Path(file) for file in tracked(f"{name}/*")]
                for file in files:
                    copy(file)
                rows = [f"- [{file.relative_to(name)}]({file.relative_to(name)})" for file in files]
                (SOURCE / name / "README.md").write_text("\n".join([f"# {name}", "", *rows, ""]))
            text = text.replace(f"]({link})", f"]({link.rstrip('/')}/README.md)")
        elif not (SOURCE / name).exists():
            copy(name)
    (SOURCE / page).write_text(text)


def man_pages():
    """{title: file}; as HTML by mandoc, below the title that mkdocs needs."""
    version = re.search(r"version: '(.*)'", (ROOT / "meson.build").read_text())[1]
    tables = [word for name in ["src/core/options.def"] for word in ("--table", ROOT / name)]
    pages = {}
    for source in [*sorted(ROOT.glob("tools/install/*.[1-8]")), *sorted(ROOT.glob("docs/*.[1-8].in"))]:
        if source.suffix == ".in":
            text = said(sys.executable, "docs/settings.py", "--man", source, "--version", version, *tables)
            name = source.stem
        else:
            text, name = source.read_text(), source.name
        body = subprocess.run(["mandoc", "-T", "html", "-O", "fragment"], input=text, capture_output=True, text=True,
                              check=True).stdout
        title = re.sub(r"(\w+)\.(\d)", r"\1(\2)", name)
        (SOURCE / "man").mkdir(exist_ok=True)
        # Markdown does not treat an indented line as code without a blank line before it.
        lines = "\n".join(line.lstrip() if "<pre" not in body else line for line in body.splitlines() if line.strip())
        (SOURCE / "man" / f"{name}.md").write_text(f"# {title}\n\n<div class=\"man\">\n{lines}\n</div>\n")
        pages[title] = f"man/{name}.md"
    return pages


def title_of(name):
    return re.search(r"^# (.*)", (SOURCE / name).read_text(), re.MULTILINE)[1].replace("`", "")


def navigation(pages, manual):
    left, result = [page for page in pages if page != "README.md"], [{"hakmem": "README.md"}]
    for chapter, patterns in CHAPTERS.items():
        mine = list(dict.fromkeys(page for pattern in patterns for page in sorted(left) if Path(page).match(pattern)))
        left = [page for page in left if page not in mine]
        titled = manual.items() if chapter == "Man pages" else [(title_of(page), page) for page in mine]
        result.append({chapter: [{title: page} for title, page in titled]})
    for chapter in result:
        if REST in chapter:
            chapter[REST] += [{title_of(page): page} for page in left]
    return [chapter for chapter in result if list(chapter.values())[0]]


class Page(html.parser.HTMLParser):
    """The links of a page, and its anchors."""

    def __init__(self, path):
        super().__init__()
        self.links, self.names = [], set()
        self.feed(path.read_text())

    def handle_starttag(self, tag, attributes):
        values = dict(attributes)
        self.names |= {values[key] for key in ("id", "name") if values.get(key)}
        self.links += [values[key] for key in ("href", "src") if values.get(key)]


def dead_links():
    pages = {path: Page(path) for path in SITE.rglob("*.html")}
    for path, page in pages.items():
        for link in page.links:
            url = urllib.parse.urlsplit(link)
            if url.scheme or url.netloc or path.name == "404.html":
                continue
            target = (path.parent / urllib.parse.unquote(url.path)).resolve() if url.path else path
            target = target / "index.html" if target.is_dir() else target
            if not target.exists():
                yield f"{path.relative_to(SITE)}: {link} leads nowhere"
            elif url.fragment and target in pages and url.fragment not in pages[target].names | {"__skip"}:
                yield f"{path.relative_to(SITE)}: {link}: no such place in that page"


def main():
    argparse.ArgumentParser(usage=argparse.SUPPRESS, description=__doc__,
                            formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    for program in "mkdocs", "mandoc":
        if not shutil.which(program):
            fail(f"{program} is missing: tools/setup.sh site")
    shutil.rmtree(OUT, ignore_errors=True)
    pages = [name for name in tracked("*.md") if not name.startswith("tests/")]
    for page in pages:
        copy(page)
    for page in pages:
        copy_linked(page)
    (SOURCE / "style.css").write_text(STYLE)
    config = {
        "site_name": "hakmem", "site_url": "", "docs_dir": str(SOURCE), "site_dir": str(SITE),
        "use_directory_urls": False, "theme": THEME, "extra_css": ["style.css"],
        "plugins": [],  # a browser refuses to fetch the index of `search` from a file
        "nav": navigation(pages, man_pages()),
        "markdown_extensions": ["tables", "fenced_code", "sane_lists",
                                {"toc": {"permalink": True, "slugify": "@SLUG@"}}],
    }
    # JSON is YAML.
    text = json.dumps(config, indent=1).replace('"@SLUG@"', "!!python/name:pymdownx.slugs.gfm")
    (OUT / "mkdocs.yml").write_text(text)
    run = subprocess.run(["mkdocs", "build", "--strict", "--quiet", "-f", OUT / "mkdocs.yml"], capture_output=True,
                         text=True)
    if run.returncode or "WARNING" in run.stderr:
        fail(f"mkdocs:\n{run.stdout}{run.stderr}")
    problems = list(dead_links())
    if problems:
        fail("\n".join([f"{len(problems)} dead links:", *problems]))
    print(f"site.py: {len(list(SITE.rglob('*.html')))} pages, no dead link: {(SITE / 'index.html').relative_to(ROOT)}")


if __name__ == "__main__":
    main()
