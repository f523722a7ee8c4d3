"""Chromium without a window, through its DevTools protocol: JSON messages that end with a zero
byte, over two pipes. No port is opened and no package is needed."""

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

EXECUTABLE = shutil.which("chromium") or shutil.which("google-chrome")


class Page:
    """A new tab of a new browser that opens `file`, as wide as a device, in dark or light.

    requests: addresses of everything that the page asked for, the first of them its own.
    errors: what its console says, also about what its Content-Security-Policy stopped.
    """

    def __init__(self, file: Path, profile: Path, width: int = 1400, scheme: str = "light") -> None:
        self.requests: list[str] = []
        self.errors: list[str] = []
        self.number = 0
        self.loaded: set[str] = set()  # the loaders whose page is complete
        self.session: str | None = None
        theirs_in, self.to = os.pipe()
        self.back, theirs_out = os.pipe()
        command = [EXECUTABLE, "--headless", "--no-sandbox", "--disable-gpu"]
        command += ["--remote-debugging-pipe", f"--user-data-dir={profile}"]
        # Chromium reads from descriptor 3 and writes to 4.
        pipes = f'exec "$@" 3<&{theirs_in} 4>&{theirs_out}'
        self.process = subprocess.Popen(
            ["bash", "-c", pipes, "bash", *command],
            pass_fds=(theirs_in, theirs_out),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(theirs_in)
        os.close(theirs_out)
        self.answers = os.fdopen(self.back, "rb")
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        attached = self.call("Target.attachToTarget", targetId=target, flatten=True)
        self.session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network", "DOM"):
            self.call(f"{domain}.enable")
        self.call("Page.setLifecycleEventsEnabled", enabled=True)
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=900,
            deviceScaleFactor=1,
            mobile=width < 700,
        )
        feature = {"name": "prefers-color-scheme", "value": scheme}
        self.call("Emulation.setEmulatedMedia", features=[feature])
        loader = self.call("Page.navigate", url=file.absolute().as_uri())["loaderId"]
        while loader not in self.loaded:  # about:blank's own event may come late
            self.receive()

    def close(self) -> None:
        """End the browser."""
        self.session = None
        self.call("Browser.close")
        self.process.wait(60)
        os.close(self.to)
        self.answers.close()

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """The result of a DevTools command; what the page reports meanwhile is noted."""
        self.number += 1
        message = {"id": self.number, "method": method, "params": parameters}
        if self.session:
            message["sessionId"] = self.session
        os.write(self.to, json.dumps(message).encode() + b"\0")
        while (answer := self.receive()).get("id") != self.number:
            pass
        if "error" in answer:
            raise ValueError(f"{method}: {answer['error']}")
        return answer["result"]

    def receive(self) -> dict[str, Any]:
        """The next message."""
        text = bytearray()
        while (byte := self.answers.read(1)) != b"\0":
            if not byte:
                raise EOFError("the browser ended")
            text += byte
        message = json.loads(text)
        method, parameters = message.get("method"), message.get("params", {})
        if method == "Network.requestWillBeSent":
            self.requests.append(parameters["request"]["url"])
        elif method == "Runtime.exceptionThrown":
            self.errors.append(str(parameters["exceptionDetails"]))
        elif method == "Runtime.consoleAPICalled":
            self.errors.append(str(parameters["args"]))
        elif method == "Log.entryAdded":
            self.errors.append(parameters["entry"]["text"])
        elif method == "Page.lifecycleEvent" and parameters["name"] == "load":
            self.loaded.add(parameters["loaderId"])
        return message

    def value(self, expression: str) -> Any:
        """What an expression of JavaScript is in the page."""
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True)
        if "exceptionDetails" in answer:
            raise ValueError(f"{expression}: {answer['exceptionDetails']}")
        return answer["result"].get("value")

    def press(self, key: str, text: str = "") -> None:
        """A key of the keyboard, down and up."""
        codes = {"Tab": 9, "Enter": 13, " ": 32}
        same = {"key": key, "windowsVirtualKeyCode": codes[key]}
        self.call("Input.dispatchKeyEvent", type="keyDown", text=text, **same)
        self.call("Input.dispatchKeyEvent", type="keyUp", **same)

    def picture(self) -> str:
        """The whole page as PNG, in base64."""
        return self.call("Page.captureScreenshot", captureBeyondViewport=True)["data"]
