"""A headless Chromium, driven over the WebDriver protocol with the standard library alone."""

from __future__ import annotations

import base64
import json
import re
import subprocess
from pathlib import Path
from types import TracebackType
from typing import Any
from urllib.request import Request, urlopen

# Without these, Chromium looks for its maker's hosts at every start; a test needs no network.
QUIET = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--hide-scrollbars",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
KEYS = {
    "ArrowLeft": "\ue012",
    "ArrowRight": "\ue014",
    "Home": "\ue011",
    "End": "\ue010",
    "Tab": "\ue004",
    "Enter": "\ue007",
}


class Browser:
    """A browser window; leaving the context ends it and its driver."""

    def __init__(self, profile: Path, chromedriver: str = "chromedriver") -> None:
        self._driver = subprocess.Popen(
            [chromedriver, "--port=0"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        self._session = ""
        assert self._driver.stdout is not None
        for said in self._driver.stdout:
            if found := re.search(r"started successfully on port (\d+)", said):
                self._base = f"http://127.0.0.1:{found.group(1)}"
                break
        else:
            raise RuntimeError("chromedriver did not start")
        options = {"args": [*QUIET, f"--user-data-dir={profile}"]}
        answer = self._call(
            "POST",
            "/session",
            {"capabilities": {"alwaysMatch": {"goog:chromeOptions": options, "goog:loggingPrefs": {"browser": "ALL"}}}},
        )
        self._session = f"/session/{answer['sessionId']}"

    def __enter__(self) -> Browser:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if self._session:
                self._call("DELETE", self._session)
        finally:
            self._driver.terminate()
            self._driver.wait(10)
            if self._driver.stdout is not None:
                self._driver.stdout.close()

    def _call(self, method: str, path: str, body: dict[str, Any] | None = None) -> Any:
        data = None if method != "POST" else json.dumps(body or {}).encode()
        request = Request(self._base + path, data, {"Content-Type": "application/json"}, method=method)
        with urlopen(request, timeout=60) as answer:
            return json.load(answer)["value"]

    def open(self, page: Path, fragment: str = "") -> None:
        """Load a file; its scripts have run when this returns."""
        self._call("POST", f"{self._session}/url", {"url": "about:blank"})
        self._call("POST", f"{self._session}/url", {"url": page.resolve().as_uri() + fragment})

    def run(self, script: str) -> Any:
        """The value that a function body of JavaScript returns."""
        return self._call("POST", f"{self._session}/execute/sync", {"script": script, "args": []})

    def press(self, *keys: str) -> None:
        """Press keys one after the other, wherever the focus is."""
        actions = [{"type": kind, "value": KEYS.get(key, key)} for key in keys for kind in ("keyDown", "keyUp")]
        self._call("POST", f"{self._session}/actions", {"actions": [{"type": "key", "id": "keys", "actions": actions}]})

    def screen(self, width: int, height: int, dark: bool = False) -> None:
        """Act as a screen of this size (CSS pixels) that prefers dark or light."""
        self._devtools(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self._devtools("Emulation.setEmulatedMedia", features=[scheme])

    def _devtools(self, command: str, **params: Any) -> Any:
        return self._call("POST", f"{self._session}/goog/cdp/execute", {"cmd": command, "params": params})

    def picture(self, path: Path, whole: bool = False) -> None:
        """Save what the screen shows, or the whole page, as PNG."""
        answer = self._devtools("Page.captureScreenshot", captureBeyondViewport=whole)
        path.write_bytes(base64.b64decode(answer["data"]))

    def complaints(self) -> list[str]:
        """Messages on the console since the last call, with script errors and blocked content."""
        return [entry["message"] for entry in self._call("POST", f"{self._session}/se/log", {"type": "browser"})]
