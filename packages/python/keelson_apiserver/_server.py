"""A server as a child process."""

from __future__ import annotations

import http.client
import json
import os
import select
import ssl
import subprocess
import tempfile
import time
import urllib.parse
import uuid
from types import TracebackType
from typing import IO, Any, Callable, Mapping, Optional, Sequence, Type

from ._program import find_program
from ._simulation import WAIT_SECONDS_MAX, Simulation, is_available, wait_for

#: How long a server may take to start, and a request to be answered, in seconds.
START_SECONDS_MAX = 60.0
REQUEST_SECONDS_MAX = 30.0
#: How much of a server's log an error shows.
LOG_BYTES_SHOWN_MAX = 16 << 10
_READ_BYTES = 64 << 10
_POLL_SECONDS = 0.001
_DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


class StartError(RuntimeError):
    """The server did not start; the text has its log."""


class ApiError(RuntimeError):
    """The server refused a request."""

    def __init__(self, code: int, status: Any) -> None:
        message = status.get("message") if isinstance(status, dict) else status
        super().__init__(f"{code}: {message}")
        #: The HTTP status.
        self.code = code
        #: The object of the kind Status, or the text of the answer.
        self.status = status


class Server:
    """A server that runs. ``start()`` makes one."""

    def __init__(self, flags: Sequence[str] = (), program: Optional[str] = None) -> None:
        """Starts a process and does not wait for it; ``wait_until_ready()`` does."""
        name = f"keelson-{uuid.uuid4().hex}.kubeconfig"
        #: The path of a kubeconfig for this server; the file is gone when the server is.
        self.kubeconfig_path = os.path.join(tempfile.gettempdir(), name)
        # The file has no name: nothing is left of it, however this process ends.
        self._log: IO[bytes] = tempfile.TemporaryFile()
        self._ready = False
        self._answer = b""
        self._connection: Optional[http.client.HTTPSConnection] = None
        command = [program or find_program(), "serve", "--ephemeral"]
        command += ["--kubeconfig", self.kubeconfig_path, *flags]
        try:
            # The server stops when its standard input ends: when this process has ended, too.
            self._process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._log
            )
        except OSError:
            self._log.close()
            raise
        #: The URL: ``https://127.0.0.1:PORT``.
        self.url = ""
        #: A bearer token of an administrator.
        self.token = ""
        #: The certificate of the authority of the server's certificate, in PEM.
        self.certificate_authority = ""
        #: A kubeconfig for this server, as text.
        self.kubeconfig = ""
        #: The cluster of a server that was started with the flag ``--simulate``.
        self.simulation = Simulation(self)

    def wait_until_ready(self, seconds_max: float = START_SECONDS_MAX) -> "Server":
        """Waits until the server serves, and returns it."""
        if self._ready:
            return self
        try:
            reply = json.loads(self._read_line(time.monotonic() + seconds_max))
        except BaseException:
            self.stop()
            raise
        self.url = reply["url"]
        self.token = reply["token"]
        self.certificate_authority = reply["certificateAuthority"]
        self.kubeconfig = reply["kubeconfig"]
        self._ready = True
        return self

    def _read_line(self, deadline: float) -> bytes:
        assert self._process.stdout is not None
        output = self._process.stdout.fileno()
        poll = select.poll()
        poll.register(output, select.POLLIN | select.POLLHUP)
        while not self._answer.endswith(b"\n"):
            left = deadline - time.monotonic()
            if left <= 0 or not poll.poll(left * 1000):
                raise StartError(f"the server was not ready in time; its log:\n{self.log()}")
            read = os.read(output, _READ_BYTES)
            if not read:
                raise StartError(f"the server did not start; its log:\n{self.log()}")
            self._answer += read
        return self._answer

    def log(self) -> str:
        """Returns the end of what the server has logged."""
        if self._log.closed:
            return ""
        # The server writes at the offset of the same open file: it must not move.
        log = self._log.fileno()
        size = os.fstat(log).st_size
        start = max(0, size - LOG_BYTES_SHOWN_MAX)
        return os.pread(log, size - start, start).decode("utf-8", "replace")

    @property
    def pid(self) -> int:
        """The process id."""
        return self._process.pid

    def ssl_context(self) -> ssl.SSLContext:
        """Returns a context that trusts this server and nobody else."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.load_verify_locations(cadata=self.certificate_authority)
        return context

    def request(
        self,
        method: str,
        path: str,
        body: Any = None,
        headers: Optional[Mapping[str, str]] = None,
    ) -> Any:
        """Sends a request as an administrator and returns the object that answers it.

        An answer that is not JSON is returned as text. One with an HTTP status of 400 or above raises
        ``ApiError``. Requests of one server share a connection: use one thread.
        """
        sent = {"Authorization": f"Bearer {self.token}", "Accept": "application/json"}
        content = None
        if body is not None:
            content = json.dumps(body)
            sent["Content-Type"] = "application/json"
        sent.update(headers or {})
        if self._connection is None:
            address = urllib.parse.urlsplit(self.url)
            self._connection = http.client.HTTPSConnection(
                address.hostname or "",
                address.port,
                timeout=REQUEST_SECONDS_MAX,
                context=self.ssl_context(),
            )
        try:
            self._connection.request(method, path, content, sent)
            response = self._connection.getresponse()
            text = response.read().decode("utf-8")
        except BaseException:
            # What is left of the answer belongs to nobody: the next request has a new connection.
            self._disconnect()
            raise
        is_json = response.headers.get_content_type() == "application/json"
        answer = json.loads(text) if is_json else text
        if response.status >= 400:
            raise ApiError(response.status, answer)
        return answer

    def create_definition(self, definition: Mapping[str, Any]) -> None:
        """Creates a CustomResourceDefinition and waits until its objects are served."""
        self.request("POST", _DEFINITIONS, definition)
        spec = definition["spec"]
        served = [version["name"] for version in spec["versions"] if version["served"]]
        deadline = time.monotonic() + REQUEST_SECONDS_MAX
        for version in served:
            path = f"/apis/{spec['group']}/{version}/{spec['names']['plural']}?limit=1"
            while not self._is_served(path):
                if time.monotonic() > deadline:
                    name = definition["metadata"]["name"]
                    state = self.request("GET", f"{_DEFINITIONS}/{name}").get("status")
                    raise TimeoutError(f"{name} is not served: {state}")
                time.sleep(_POLL_SECONDS)

    def _is_served(self, path: str) -> bool:
        try:
            self.request("GET", path)
        except ApiError as error:
            if error.code != 404:
                raise
            return False
        return True

    def wait_for(
        self,
        path: str,
        condition: Callable[[Any], bool],
        seconds_max: float = WAIT_SECONDS_MAX,
    ) -> Any:
        """Reads an object or a list until a condition holds, and returns it."""
        return wait_for(self, path, condition, seconds_max)

    def wait_available(self, path: str, seconds_max: float = WAIT_SECONDS_MAX) -> Any:
        """Waits until a workload is available, a Job complete or a Pod ready, and returns it."""
        return wait_for(self, path, is_available, seconds_max)

    def client(self) -> Any:
        """Returns a ``kubernetes.client.ApiClient`` of the official client, which must be installed."""
        try:
            from kubernetes import config
        except ImportError as error:
            raise ImportError("client() needs the package `kubernetes`") from error
        return config.new_client_from_config(config_file=self.kubeconfig_path)

    def stop(self) -> None:
        """Ends the server at once. All that it stored is gone. May be called again."""
        self._disconnect()
        self._process.kill()
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout, self._log):
            if stream is not None:
                stream.close()
        try:
            os.remove(self.kubeconfig_path)
        except FileNotFoundError:
            pass

    def _disconnect(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def __enter__(self) -> "Server":
        return self

    def __exit__(
        self,
        kind: Optional[Type[BaseException]],
        error: Optional[BaseException],
        trace: Optional[TracebackType],
    ) -> None:
        self.stop()


def start(flags: Sequence[str] = (), program: Optional[str] = None) -> Server:
    """Starts a server and waits until it serves.

    ``flags`` are those of ``keelson serve``.
    """
    return Server(flags, program).wait_until_ready()
