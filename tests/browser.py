"""A headless browser for tests: opens a page, runs scripts in it, and takes pictures of it."""

import base64
import io
import itertools
import json
import shutil
import subprocess
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from PIL import Image
from websockets.sync.client import connect

CHROMIUM = shutil.which("chromium")

_FLAGS = [
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--use-angle=swiftshader",
    "--enable-unsafe-swiftshader",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-extensions",
    "--mute-audio",
    "--hide-scrollbars",
    "--remote-debugging-port=0",
]


class Page:
    """One page. Software draws it: pictures take their time."""

    def __init__(self, address: str):
        self._socket = connect(address, max_size=None)
        self._ids = itertools.count(1)

    def open(self, url: str) -> None:
        self("Page.navigate", url=url)

    def evaluate(self, expression: str) -> Any:
        result = self("Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True)
        if "exceptionDetails" in result:
            raise RuntimeError(str(result["exceptionDetails"]))
        return result["result"].get("value")

    def picture(self) -> np.ndarray:
        """What is seen, uint8 (H, W, 3)."""
        png = base64.b64decode(self("Page.captureScreenshot", format="png")["data"])
        return np.array(Image.open(io.BytesIO(png)).convert("RGB"))

    def show(self) -> None:
        """Bring the page to the front; a new one takes a moment to come there."""
        deadline = time.monotonic() + 20.0
        while True:
            self("Page.bringToFront")
            try:
                self.picture()
            except RuntimeError:
                assert time.monotonic() < deadline, "the page never came to the front"
                time.sleep(0.1)
            else:
                return

    def wait_for(self, is_right: Callable[[np.ndarray], Any], timeout: float = 40.0) -> np.ndarray:
        """The first picture that is right, the last one where none is."""
        deadline = time.monotonic() + timeout
        while True:
            picture = self.picture()
            if is_right(picture) or time.monotonic() > deadline:
                return picture
            time.sleep(0.1)

    def wait_until(self, expression: str, timeout: float = 40.0) -> Any:
        """Value of a script once it is true; AssertionError where it does not become so."""
        deadline = time.monotonic() + timeout
        while not (value := self.evaluate(expression)):
            assert time.monotonic() < deadline, f"never true: {expression}"
            time.sleep(0.1)
        return value

    def close(self) -> None:
        self._socket.close()

    def __call__(self, method: str, **parameters: Any) -> dict[str, Any]:
        number = next(self._ids)
        self._socket.send(json.dumps({"id": number, "method": method, "params": parameters}))
        while True:
            answer = json.loads(self._socket.recv(timeout=60))
            if answer.get("id") == number:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']['message']}")
                return answer["result"]


class Browser:
    """A browser of its own, without memory of any before it."""

    def __init__(self, width: int = 960, height: int = 640):
        assert CHROMIUM is not None
        self._folder = TemporaryDirectory(ignore_cleanup_errors=True)
        flags = [*_FLAGS, f"--window-size={width},{height}", f"--user-data-dir={self._folder.name}", "about:blank"]
        self._process = subprocess.Popen([CHROMIUM, *flags], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        address = Path(self._folder.name, "DevToolsActivePort")
        deadline = time.monotonic() + 30.0
        while not (address.exists() and address.read_text().count("\n")):
            assert time.monotonic() < deadline, "the browser did not start"
            time.sleep(0.05)
        self._port = int(address.read_text().split()[0])
        self._size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}

    def page(self, url: str) -> Page:
        request = urllib.request.Request(f"http://127.0.0.1:{self._port}/json/new?about:blank", method="PUT")
        with urllib.request.urlopen(request, timeout=30) as answer:
            page = Page(json.load(answer)["webSocketDebuggerUrl"])
        page("Emulation.setDeviceMetricsOverride", **self._size)
        page.show()
        page.open(url)
        return page

    def close(self) -> None:
        self._process.terminate()
        self._process.wait(10)
        self._folder.cleanup()
