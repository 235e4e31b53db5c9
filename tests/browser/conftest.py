"""A real JupyterLab, a real Notebook 7, and a headless Chromium that writes down whatever leaves the machine."""

import importlib.util
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
from contextlib import contextmanager
from importlib import resources
from types import SimpleNamespace

import pytest
from jupyter_pages import LOCAL, new_context

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


def missing(what):
    """Skip, or fail where the browser tests are required (``LEAKLAB_REQUIRE_BROWSER=1``)."""
    if os.environ.get("LEAKLAB_REQUIRE_BROWSER"):
        pytest.fail(what)
    pytest.skip(what)


JOURNEYS = ("test_explorer.py", "test_notebook7.py")
"""Files in which a reader goes through one page: each test begins where the one before it left off."""


@pytest.hookimpl(trylast=True)  # after pytest-randomly
def pytest_collection_modifyitems(items):
    """Put the steps of each journey back in their order."""
    for name in JOURNEYS:
        places = [place for place, item in enumerate(items) if item.path.name == name]
        steps = sorted((items[place] for place in places), key=lambda item: item.reportinfo()[1])
        for place, step in zip(places, steps, strict=True):
            items[place] = step


@pytest.fixture(scope="package")  # it runs an event loop in this thread, where others may want one afterwards
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
    context = new_context(browser, 1100, 1400)
    page = context.new_page()
    outside, errors = [], []
    page.on("request", lambda request: request.url.startswith(LOCAL) or outside.append(request.url))
    page.on("pageerror", lambda error: errors.append(str(error)))
    yield page
    context.close()
    assert (outside, errors) == ([], [])


@pytest.fixture(scope="package")
def pages(tmp_path_factory):
    """The file of a page of each kind."""
    from kinds_of_pages import write_pages

    return write_pages(tmp_path_factory.mktemp("pages"))


@pytest.fixture(scope="session")
def axe():
    """The script of axe, which a page runs to say what of it some readers cannot use."""
    try:
        return resources.files("axe_playwright_python").joinpath("axe.min.js").read_text("utf-8")
    except ImportError:
        missing("axe is not installed: pip install axe-playwright-python")


@pytest.fixture(scope="session")
def lab(tmp_path_factory):
    """JupyterLab, with one notebook in a page."""
    with served("jupyterlab", "doc/tree", tmp_path_factory.mktemp("lab")) as server:
        yield server


@pytest.fixture(scope="session")
def notebook7(tmp_path_factory):
    """Notebook 7."""
    with served("notebook", "notebooks", tmp_path_factory.mktemp("notebook7")) as server:
        yield server


@contextmanager
def served(module, place, root):
    """Run the server that ``python -m module`` is, with settings, history and files of its own below *root*.

    *place* is where its page for one notebook has its address.
    """
    if not importlib.util.find_spec(module):
        missing(f"{module} is not installed: pip install {module}")
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
    base = f"http://127.0.0.1:{port}"
    with (root / "server.log").open("w") as log:
        command = server_command(module, port, token, files)
        server = subprocess.Popen(command, env=environment(root), stdout=log, stderr=log)
        try:
            wait_until_up(server, f"{base}/api/status?token={token}", root / "server.log")
            yield SimpleNamespace(files=files, url=lambda name: f"{base}/{place}/{name}?token={token}&reset")
        finally:
            stop(server)


def server_command(module, port, token, files):
    options = {
        "ServerApp.ip": "127.0.0.1",
        "ServerApp.port": port,
        "ServerApp.port_retries": 0,
        "ServerApp.root_dir": files,
        "IdentityProvider.token": token,
        "LabApp.extension_manager": "readonly",
    }
    flags = ["--no-browser", "--allow-root", "--expose-app-in-browser"]
    return [sys.executable, "-m", module, *flags, *(f"--{name}={value}" for name, value in options.items())]


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
                pytest.fail(f"the server did not start:\n{log.read_text()[-3000:]}")
            time.sleep(0.2)


def stop(server):
    server.terminate()  # the server shuts its kernels down
    try:
        server.wait(20)
    except subprocess.TimeoutExpired:
        server.kill()
        server.wait()
