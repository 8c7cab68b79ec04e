"""What a server is for a Python program."""

import http.client
import os
import select
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path
from typing import Any

import pytest
from keelson_apiserver import ApiError, StartError, start

CONFIG_MAPS = "/api/v1/namespaces/default/configmaps"
MAP = {"metadata": {"name": "a"}, "data": {"k": "v"}}

# Starts a server, tells where it is, and is killed: nothing is stopped in an orderly way.
ABANDONS = """
import sys, time
from keelson_apiserver import start
server = start()
print(server.pid, server.kubeconfig_path, flush=True)
time.sleep(600)
"""


def test_an_object_is_created_and_read(keelson_server: Any) -> None:
    keelson_server.request("POST", CONFIG_MAPS, MAP)
    assert keelson_server.request("GET", f"{CONFIG_MAPS}/a")["data"] == {"k": "v"}
    with pytest.raises(ApiError) as refused:
        keelson_server.request("POST", CONFIG_MAPS, MAP)
    assert (refused.value.code, refused.value.status["reason"]) == (409, "AlreadyExists")
    assert keelson_server.request("GET", "/readyz") == "ok"


def test_the_session_has_one_server(keelson_session_server: Any, request: Any) -> None:
    again = request.getfixturevalue("keelson_session_server")
    assert again is keelson_session_server
    assert again.request("GET", "/version")["major"] == "1"


def test_attributes_are_enough_for_other_clients(keelson_server: Any) -> None:
    request = urllib.request.Request(f"{keelson_server.url}/api/v1/namespaces/default")
    request.add_header("Authorization", f"Bearer {keelson_server.token}")
    context = keelson_server.ssl_context()
    with urllib.request.urlopen(request, context=context) as response:
        assert response.status == http.client.OK
    assert Path(keelson_server.kubeconfig_path).read_text() == keelson_server.kubeconfig


def test_the_official_client_lists_objects(keelson_server: Any) -> None:
    kubernetes = pytest.importorskip("kubernetes")
    core = kubernetes.client.CoreV1Api(keelson_server.client())
    keelson_server.request("POST", CONFIG_MAPS, MAP)
    names = [item.metadata.name for item in core.list_namespaced_config_map("default").items]
    assert "a" in names


def test_a_stopped_server_is_gone_with_its_kubeconfig() -> None:
    with start() as server:
        assert os.path.exists(server.kubeconfig_path)
    assert not os.path.exists(server.kubeconfig_path)
    with pytest.raises(OSError):
        server.request("GET", "/readyz")
    server.stop()


def test_flags_are_passed_on_and_a_failed_start_has_the_log() -> None:
    with start(["--runtime-config=apps/v1=false"]) as server:
        with pytest.raises(ApiError):
            server.request("GET", "/apis/apps/v1")
    with pytest.raises(StartError, match="unknown flag: --nothing"):
        start(["--nothing"])


def test_a_server_does_not_outlive_a_killed_process() -> None:
    process = subprocess.Popen([sys.executable, "-c", ABANDONS], stdout=subprocess.PIPE)
    assert process.stdout is not None
    pid, kubeconfig = process.stdout.readline().decode().split()
    # Whoever polls this is told when the server has ended.
    server = os.pidfd_open(int(pid))
    process.send_signal(signal.SIGKILL)
    process.wait()
    process.stdout.close()
    assert _ends(server)
    assert not os.path.exists(kubeconfig)


def _ends(pidfd: int) -> bool:
    poll = select.poll()
    poll.register(pidfd, select.POLLIN)
    ended = bool(poll.poll(30_000))
    os.close(pidfd)
    return ended
