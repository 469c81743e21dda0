"""Headless Chromium through its pipe: what a page does on a screen, without any other package."""

from __future__ import annotations

import base64
import json
import os
import select
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


class Browser:
    """One headless browser; ``look`` opens a page at a width."""

    def __enter__(self) -> Browser:
        self.home = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        read_here, write_there = os.pipe()
        read_there, write_here = os.pipe()
        flags = [
            "--headless=new",
            "--no-sandbox",
            "--disable-gpu",
            "--remote-debugging-pipe",
            "--no-first-run",
        ]
        flags += ["--disable-dev-shm-usage", "--hide-scrollbars", f"--user-data-dir={self.home.name}"]
        # the browser reads from 3 and writes to 4
        shell = f'exec 3<&{read_there} 4>&{write_there}; exec "$0" "$@"'
        self.process = subprocess.Popen(
            ["/bin/bash", "-c", shell, str(CHROMIUM), *flags],
            pass_fds=(read_there, write_there),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(read_there)
        os.close(write_there)
        self.read, self.write = os.fdopen(read_here, "rb"), os.fdopen(write_here, "wb")
        self.count, self.rest = 0, b""
        self.events: list[dict[str, Any]] = []
        target = self.ask("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.ask("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.ask(f"{domain}.enable", here=True)
        return self

    def __exit__(self, *error: object) -> None:
        self.process.kill()
        self.process.wait()
        self.read.close()
        self.write.close()
        self.home.cleanup()

    def ask(self, method: str, here: bool = False, **params: Any) -> Any:
        """The answer to one command; what is told meanwhile goes to ``events``."""
        self.count += 1
        command = {"id": self.count, "method": method, "params": params}
        if here:
            command["sessionId"] = self.session
        self.write.write(json.dumps(command).encode() + b"\0")
        self.write.flush()
        while True:
            told = self._next()
            if told.get("id") == self.count:
                assert "error" not in told, told
                return told["result"]
            self.events.append(told)

    def _next(self) -> dict[str, Any]:
        while b"\0" not in self.rest:
            assert select.select([self.read], [], [], 60.0)[0], "the browser does not answer"
            more = os.read(self.read.fileno(), 1 << 16)
            assert more, "the browser ended"
            self.rest += more
        told, _, self.rest = self.rest.partition(b"\0")
        found: dict[str, Any] = json.loads(told)
        return found

    def value(self, script: str) -> Any:
        """What an expression is on the page."""
        told = self.ask("Runtime.evaluate", here=True, expression=script, returnByValue=True)
        return told["result"]["value"]

    def look(self, path: Path, width: int, picture: Path | None = None) -> dict[str, Any]:
        """How wide the page is, what overflows, and what it complained of or asked the network for."""
        self.events.clear()
        screen = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 700}
        self.ask("Emulation.setDeviceMetricsOverride", here=True, **screen)
        self.ask("Page.navigate", here=True, url=path.resolve().as_uri())
        while not any(one.get("method") == "Page.loadEventFired" for one in self.events):
            self.events.append(self._next())
        found = {
            "width": self.value("document.documentElement.scrollWidth"),
            # letters of a picture beyond its edge, and boxes beyond the screen that do not scroll
            "beyond": self.value(
                "[...document.querySelectorAll('body *')].filter(e => !e.closest('.scroll') && "
                "(e.getBoundingClientRect().right > innerWidth + 1 || e.getBoundingClientRect().left < -1))"
                ".map(e => e.outerHTML.slice(0, 80))"
            ),
            "complaints": [one for one in self.events if one.get("method") in _COMPLAINTS],
            "asked": [
                one["params"]["request"]["url"]
                for one in self.events
                if one.get("method") == "Network.requestWillBeSent"
            ],
        }
        if picture is not None:
            whole = {"format": "png", "captureBeyondViewport": True}
            told = self.ask("Page.captureScreenshot", here=True, **whole)
            picture.write_bytes(base64.b64decode(told["data"]))
        return found


_COMPLAINTS = (
    "Log.entryAdded",
    "Runtime.exceptionThrown",
    "Runtime.consoleAPICalled",
    "Page.javascriptDialogOpening",
)
