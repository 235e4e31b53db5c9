"""A real JupyterLab, and a headless Chromium that writes down whatever leaves the machine."""

import json
import os
import secrets
import shutil
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path
from types import SimpleNamespace

import pytest

CHROMIUM = os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("chromium-browser")
FLAGS = [
    "--no-sandbox",  # it needs rights that a container's root has not
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
START_SECONDS = 90
LOCAL = ("http://127.0.0.1", "ws://127.0.0.1", "data:", "blob:", "file:")


def missing(what):
    """Skip, or fail where the browser tests are required (``LEAKLAB_REQUIRE_BROWSER=1``)."""
    if os.environ.get("LEAKLAB_REQUIRE_BROWSER"):
        pytest.fail(what)
    pytest.skip(what)


JOURNEYS = ("test_explorer.py",)
"""Files in which a reader goes through one page: each test begins where the one before it left off."""


@pytest.hookimpl(trylast=True)  # after pytest-randomly
def pytest_collection_modifyitems(items):
    """Put the steps of each journey back in their order."""
    for name in JOURNEYS:
        places = [place for place, item in enumerate(items) if item.path.name == name]
        steps = sorted((items[place] for place in places), key=lambda item: item.reportinfo()[1])
        for place, step in zip(places, steps, strict=True):
            items[place] = step


@pytest.fixture(scope="module")  # it runs an event loop in this thread, where others may want one afterwards
def browser():
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        missing("playwright is not installed: pip install playwright")
    if not CHROMIUM:
        missing("there is no chromium: apt-get install chromium")
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield chromium
        chromium.close()


@pytest.fixture
def page(browser):
    """A page that fails the test if it asked anything outside this machine, or raised an error."""
    context = browser.new_context(viewport={"width": 1100, "height": 1400})
    page = context.new_page()
    outside, errors = [], []
    page.on("request", lambda request: request.url.startswith(LOCAL) or outside.append(request.url))
    page.on("pageerror", lambda error: errors.append(str(error)))
    yield page
    context.close()
    assert (outside, errors) == ([], [])


@pytest.fixture(scope="session")
def lab(tmp_path_factory):
    """A JupyterLab server with settings, history and files of its own."""
    if not shutil.which("jupyter-lab", path=str(Path(sys.executable).parent)):
        missing("jupyterlab is not installed: pip install jupyterlab")
    root = tmp_path_factory.mktemp("lab")
    files = root / "files"
    files.mkdir()
    settings = root / "config" / "labconfig"
    settings.mkdir(parents=True)
    announcements = {"@jupyterlab/apputils-extension:announcements": True}  # they ask the network
    (settings / "page_config.json").write_text(json.dumps({"disabledExtensions": announcements}))
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    token = secrets.token_hex(16)
    with (root / "lab.log").open("w") as log:
        server = subprocess.Popen(lab_command(port, token, files), env=environment(root), stdout=log, stderr=log)
        try:
            wait_until_up(server, f"http://127.0.0.1:{port}/api/status?token={token}", root / "lab.log")
            yield SimpleNamespace(
                files=files, url=lambda name: f"http://127.0.0.1:{port}/doc/tree/{name}?token={token}&reset"
            )
        finally:
            stop(server)


def lab_command(port, token, files):
    options = {
        "ServerApp.ip": "127.0.0.1",
        "ServerApp.port": port,
        "ServerApp.port_retries": 0,
        "ServerApp.root_dir": files,
        "IdentityProvider.token": token,
        "LabApp.extension_manager": "readonly",
    }
    flags = ["--no-browser", "--allow-root", "--expose-app-in-browser"]
    return [sys.executable, "-m", "jupyterlab", *flags, *(f"--{name}={value}" for name, value in options.items())]


def environment(root):
    places = {name: str(root / name.lower()) for name in ("JUPYTER_DATA_DIR", "JUPYTER_RUNTIME_DIR", "IPYTHONDIR")}
    kept = {name: value for name, value in os.environ.items() if name != "JUPYTER_PATH"}
    return kept | places | {"JUPYTER_CONFIG_DIR": str(root / "config"), "JUPYTER_PLATFORM_DIRS": "1"}


def wait_until_up(server, url, log):
    deadline = time.monotonic() + START_SECONDS
    while True:
        try:
            with urllib.request.urlopen(url, timeout=2):  # noqa: S310 - our own server
                return
        except (urllib.error.URLError, OSError):
            if server.poll() is not None or time.monotonic() > deadline:
                pytest.fail(f"jupyterlab did not start:\n{log.read_text()[-3000:]}")
            time.sleep(0.2)


def stop(server):
    server.terminate()  # the server shuts its kernels down
    try:
        server.wait(20)
    except subprocess.TimeoutExpired:
        server.kill()
        server.wait()
