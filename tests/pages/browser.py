#!/usr/bin/env python3
"""browser.py - drives a headless Chromium over its DevTools pipe, for tests/cli/browser.sh:

    browser.py FOLDER <STEPS

FOLDER is one that it may fill. Each line of STEPS is a word and its arguments:

    size WIDTH HEIGHT    of the page, in CSS pixels
    scheme light|dark    what the system prefers
    open ADDRESS         and wait until it is loaded
    load FILE            runs a script in the page
    run EXPRESSION       in the page; a promise is awaited
    wait EXPRESSION      until it is true; a minute at most
    type TEXT            into what has the focus
    key NAME             pressed: Enter, Tab, Escape
    click SELECTOR       with the pointer, in the middle of the first such element
    hover SELECTOR AT    the pointer is over it, at this share of its width, and half its height
    drag SELECTOR FROM TO   from one share of its width to another
    allow NAME...        permissions, and no others: clipboardReadWrite
    file SELECTOR PATH   is chosen in a field for files
    do COMMAND           of the shell
    shot FILE            a PNG of what is to be seen
    check NAME: EXPRESSION   a case: it is true, or an empty list of what is wrong
    told NAME: TEXT      a case: the console has errors, each with TEXT; they are forgotten
    quiet NAME           a case: the console has no other error so far

Prints "ok - NAME" or "not ok - NAME" for each case; a step that fails is one, and ends it."""
import base64
import json
import os
import select
import subprocess
import sys
import time

PATIENCE = 60
KEYS = {"Enter": ("\r", 13), "Tab": ("", 9), "Escape": ("", 27)}
INSTALL = "it ended: see chromium.log; as Debian has it: apt-get install chromium"


class Failed(Exception):
    """A step, and why it fails."""


class Browser:
    """Chromium with one page; messages are JSON, each ended by a zero byte."""

    def __init__(self, folder):
        there, back = os.pipe(), os.pipe()
        self.to, self.came = there[1], back[0]
        self.bytes, self.last, self.session, self.loaded, self.errors = b"", 0, None, False, []
        words = ["chromium", "--headless", "--remote-debugging-pipe", f"--user-data-dir={folder}/profile", "--disable-gpu",
                 "--disable-dev-shm-usage", "--no-first-run", "--disable-extensions", "--disable-background-networking",
                 "--disable-sync", "--disable-component-update", "--hide-scrollbars", "--mute-audio",
                 "--force-device-scale-factor=1", "--lang=en-US", "--no-sandbox" if os.geteuid() == 0 else "about:blank"]
        log = open(f"{folder}/chromium.log", "wb")
        # its ends of the pipes are 3 and 4
        self.process = subprocess.Popen(["sh", "-c", f'exec 3<&{there[0]} 4>&{back[1]} "$@"', "sh", *words], stdin=subprocess.DEVNULL,
                                        stdout=log, stderr=log, pass_fds=(there[0], back[1]), start_new_session=True, env={**os.environ, "HOME": folder})
        os.close(there[0])
        os.close(back[1])
        page = self.command("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.command("Target.attachToTarget", targetId=page, flatten=True)["sessionId"]
        for part in ("Page", "Runtime", "Log", "DOM"):
            self.command(f"{part}.enable")

    def end(self):
        os.killpg(self.process.pid, 9)
        self.process.wait()

    def receive(self, until, step):
        """The next message."""
        while b"\0" not in self.bytes:
            if not select.select([self.came], [], [], max(0, until - time.monotonic()))[0]:
                raise Failed(step, "Chromium does not answer")
            more = os.read(self.came, 1 << 20)
            if not more:
                raise Failed("Chromium runs", INSTALL)
            self.bytes += more
        text, self.bytes = self.bytes.split(b"\0", 1)
        return json.loads(text)

    def note(self, message):
        """An event."""
        method, p = message.get("method"), message.get("params", {})
        if method == "Page.loadEventFired":
            self.loaded = True
        elif method == "Runtime.exceptionThrown":
            details = p["exceptionDetails"]
            self.errors.append(details.get("exception", {}).get("description") or details["text"])
        elif method == "Log.entryAdded" and p["entry"]["level"] in ("error", "warning"):
            self.errors.append(p["entry"]["text"])
        elif method == "Runtime.consoleAPICalled" and p["type"] in ("error", "warning", "assert"):
            self.errors += [str(a.get("value", a.get("description"))) for a in p["args"][:1]]

    def command(self, method, everywhere=False, **parameters):
        """Its result; `everywhere`: of the browser, not of its page."""
        self.last += 1
        message = {"id": self.last, "method": method, "params": parameters}
        if self.session and not everywhere:
            message["sessionId"] = self.session
        data = json.dumps(message).encode() + b"\0"
        try:
            while data:
                data = data[os.write(self.to, data):]
        except BrokenPipeError:
            raise Failed("Chromium runs", INSTALL) from None
        until = time.monotonic() + PATIENCE
        while (answer := self.receive(until, method)).get("id") != self.last:
            self.note(answer)
        if "error" in answer:
            raise Failed(method, answer["error"]["message"])
        return answer["result"]

    def value(self, expression):
        result = self.command("Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True, userGesture=True)
        if "exceptionDetails" in result:
            raise Failed(f"an expression: {expression}", result["exceptionDetails"].get("exception", {}).get("description", "throws"))
        return result["result"].get("value")

    def console(self):
        """Its errors so far: a command's answer comes after the events before it."""
        self.value("new Promise((done) => setTimeout(done, 100))")
        return self.errors

    # ---- the pointer ----

    def find(self, selector, share):
        """A place at a share of the width of the first such element, in the middle of its height."""
        at = self.value("((e) => { if (!e) return null; e.scrollIntoView({ block: 'nearest' }); const r = e.getBoundingClientRect(); "
                        f"return [r.x + r.width * {share}, r.y + r.height / 2]; }})(document.querySelector({json.dumps(selector)}))")
        if at is None:
            raise Failed("no such element", selector)
        return at

    def point(self, kind, at, held):
        moved = kind == "mouseMoved"
        self.command("Input.dispatchMouseEvent", type=kind, x=at[0], y=at[1], button="none" if moved and not held else "left",
                     buttons=int(held), clickCount=int(not moved))

    def drag(self, selector, start, end):
        self.point("mouseMoved", self.find(selector, start), False)
        self.point("mousePressed", self.find(selector, start), True)
        for i in range(1, 5 if end != start else 1):
            self.point("mouseMoved", self.find(selector, start + (end - start) * i / 4), True)
        self.point("mouseReleased", self.find(selector, end), False)

    # ---- steps ----

    def open(self, address):
        self.loaded = False
        result = self.command("Page.navigate", url=address)
        if "errorText" in result:
            raise Failed(address, result["errorText"])
        until = time.monotonic() + PATIENCE
        while not self.loaded:
            self.note(self.receive(until, f"open {address}"))

    def wait(self, expression):
        until = time.monotonic() + PATIENCE
        while self.value(expression) is not True:
            if time.monotonic() > until:
                raise Failed("wait", expression)
            time.sleep(0.02)

    def key(self, name):
        text, code = KEYS[name]
        for kind in ("keyDown" if text else "rawKeyDown", "keyUp"):
            self.command("Input.dispatchKeyEvent", type=kind, key=name, code=name, windowsVirtualKeyCode=code, text="" if kind == "keyUp" else text)

    def choose(self, selector, path):
        root = self.command("DOM.getDocument")["root"]["nodeId"]
        node = self.command("DOM.querySelector", nodeId=root, selector=selector)["nodeId"]
        self.command("DOM.setFileInputFiles", nodeId=node, files=[path])

    def shot(self, path):
        with open(path, "wb") as file:
            file.write(base64.b64decode(self.command("Page.captureScreenshot", format="png")["data"]))

    def step(self, word, rest):
        """A step; of a case None, or what is wrong."""
        words = rest.split(" ")
        if word == "size":
            self.command("Emulation.setDeviceMetricsOverride", width=int(words[0]), height=int(words[1]), deviceScaleFactor=1, mobile=False)
        elif word == "scheme":
            self.command("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": rest}])
        elif word == "load":
            with open(rest, encoding="utf-8") as file:
                self.value(file.read())
        elif word == "type":
            self.command("Input.insertText", text=rest)
        elif word == "click":
            self.drag(rest, 0.5, 0.5)
        elif word == "hover":
            self.point("mouseMoved", self.find(" ".join(words[:-1]), float(words[-1])), False)
        elif word == "drag":
            self.drag(" ".join(words[:-2]), float(words[-2]), float(words[-1]))
        elif word == "allow":
            self.command("Browser.grantPermissions", everywhere=True, permissions=words)
        elif word == "file":
            self.choose(*rest.rsplit(" ", 1))
        elif word == "do":
            if subprocess.run(rest, shell=True).returncode != 0:
                raise Failed("do", rest)
        else:
            {"open": self.open, "run": self.value, "wait": self.wait, "key": self.key, "shot": self.shot}[word](rest)

    def case(self, word, rest):
        """Its name, and what is wrong with it: None is nothing."""
        name, _, expression = rest.partition(": ")
        if word == "check":
            value = self.value(expression)
            return name, None if value is True or value == [] else f"{json.dumps(value)}\n# {expression}"
        errors = self.console()
        self.errors = [] if word == "quiet" else [e for e in errors if expression not in e]
        if word == "quiet":
            return rest, json.dumps(errors) if errors else None
        return name, None if len(self.errors) < len(errors) else expression


def main():
    failures, browser, line = 0, None, "a browser"
    try:
        browser = Browser(sys.argv[1])
        for line in sys.stdin.read().splitlines():
            word, _, rest = line.partition(" ")
            if word in ("check", "told", "quiet"):
                name, wrong = browser.case(word, rest)
                failures += wrong is not None
                print(f"ok - {name}" if wrong is None else f"not ok - {name}\n# {wrong}", flush=True)
            elif line and line[0] != "#":
                browser.step(word, rest)
    except Exception as e:  # also of a step that is written wrong
        print(f"not ok - {line}\n# {e!r}", flush=True)
        failures += 1
    finally:
        if browser is not None:
            browser.end()
    return failures > 0


if __name__ == "__main__":
    sys.exit(main())
