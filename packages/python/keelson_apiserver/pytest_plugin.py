"""The pytest plugin: a fresh server for each test, and one for the session.

``keelson_server`` is a server that no other test uses; ``keelson_session_server`` is shared by all tests.
The settings ``keelson_flags`` (one flag of ``keelson serve`` a line) and ``keelson_program`` are those of the
ini file; ``--keelson-program`` of the command line goes before.
"""

from __future__ import annotations

from typing import Any, Iterator, Optional, Sequence, Tuple

import pytest

from ._pool import ServerPool
from ._server import Server, start

_SECTION = "log of the Kubernetes API server"


def pytest_addoption(parser: Any) -> None:
    """Adds the settings."""
    group = parser.getgroup("keelson", "Kubernetes API servers for tests")
    group.addoption("--keelson-program", metavar="FILE", help="program to start as a server")
    parser.addini("keelson_program", "program to start as a server")
    parser.addini("keelson_flags", "flags of `keelson serve`, one a line", type="linelist")


def _settings(config: Any) -> Tuple[Sequence[str], Optional[str]]:
    program = config.getoption("--keelson-program") or config.getini("keelson_program")
    return config.getini("keelson_flags"), program or None


@pytest.fixture(scope="session")
def keelson_pool(pytestconfig: Any) -> Iterator[ServerPool]:
    """Fresh servers; for tests that need several."""
    pool = ServerPool(*_settings(pytestconfig))
    yield pool
    pool.close()


@pytest.fixture
def keelson_server(keelson_pool: ServerPool, request: Any) -> Iterator[Server]:
    """A server of this test alone."""
    server = keelson_pool.take()
    request.node.stash[_SERVER] = server
    yield server
    server.stop()


@pytest.fixture(scope="session")
def keelson_session_server(pytestconfig: Any) -> Iterator[Server]:
    """A server that all tests of the session share."""
    with start(*_settings(pytestconfig)) as server:
        yield server


_SERVER: "pytest.StashKey[Server]" = pytest.StashKey()


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: Any, call: Any) -> Iterator[None]:
    """Shows the server's log with a test that fails."""
    outcome = yield
    report = outcome.get_result()
    server = item.stash.get(_SERVER, None)
    if call.when == "call" and report.failed and server is not None:
        report.sections.append((_SECTION, server.log()))
