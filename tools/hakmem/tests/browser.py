# SPDX-License-Identifier: MIT
"""One headless Chromium for all pages, driven through its DevTools pipe: opens files, and tells layout and console."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--remote-debugging-pipe",
)
PATIENCE = 120  # seconds for one answer


def found() -> str | None:
    return next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)


@dataclass
class Browser:
    """Messages are JSON with a NUL behind it; the browser reads descriptor 3 and writes 4."""

    folder: Path
    console: list[str] = field(default_factory=list)  # of the page opened last: messages, errors, refused requests
    loaded: bool = False
    session: str | None = None
    rest: bytes = b""
    number: int = 0

    def __enter__(self) -> Browser:
        theirs, self.sends = os.pipe()
        self.hears, other = os.pipe()
        start = 'exec 3<&"$1" 4>&"$2" && shift 2 && exec "$@"'
        words = [found() or "", *FLAGS, f"--user-data-dir={self.folder}", "about:blank"]
        self.process = subprocess.Popen(
            ["bash", "-c", start, "bash", str(theirs), str(other), *words],
            pass_fds=(theirs, other),
            stderr=subprocess.DEVNULL,
        )
        os.close(theirs)
        os.close(other)
        page = next(one for one in self("Target.getTargets")["targetInfos"] if one["type"] == "page")
        self.session = self("Target.attachToTarget", targetId=page["targetId"], flatten=True)["sessionId"]
        for part in "Page", "Runtime", "Log":
            self(f"{part}.enable")
        return self

    def __exit__(self, *_: object) -> None:
        self.session = None
        self("Browser.close")
        self.process.wait(PATIENCE)
        os.close(self.sends)
        os.close(self.hears)

    def __call__(self, method: str, **parameters: object) -> dict[str, Any]:
        self.number += 1
        message: dict[str, object] = {"id": self.number, "method": method, "params": parameters}
        if self.session:
            message["sessionId"] = self.session
        os.write(self.sends, json.dumps(message).encode() + b"\0")
        while (answer := self._next()).get("id") != self.number:
            pass
        assert "error" not in answer, (method, answer)
        return answer["result"]  # type: ignore[no-any-return]

    def _next(self) -> dict[str, Any]:
        until = time.monotonic() + PATIENCE
        while b"\0" not in self.rest:
            assert time.monotonic() < until, "the browser does not answer"
            more = os.read(self.hears, 1 << 16)
            assert more, "the browser ended"
            self.rest += more
        data, _, self.rest = self.rest.partition(b"\0")
        event: dict[str, Any] = json.loads(data)
        what = event.get("params", {})
        match event.get("method"):
            case "Page.loadEventFired":
                self.loaded = True
            case "Runtime.consoleAPICalled":
                self.console.append(" ".join(str(word.get("value")) for word in what["args"]))
            case "Runtime.exceptionThrown":
                details = what["exceptionDetails"]
                self.console.append(details.get("exception", {}).get("description", details["text"]))
            case "Log.entryAdded":
                self.console.append(what["entry"]["text"])
        return event

    def open(self, page: Path, width: int = 1100, dark: bool = False) -> None:
        self("Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=False)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self("Emulation.setEmulatedMedia", features=[scheme])
        for url in "about:blank", page.as_uri():
            self.console.clear()
            self.loaded = False
            self("Page.navigate", url=url)
            while not self.loaded:
                self._next()

    def run(self, script: str) -> Any:
        """The value of an expression; the page's policy does not forbid it."""
        done = self("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in done, done
        return done["result"].get("value")
