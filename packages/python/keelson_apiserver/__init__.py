"""Starts Keelson, the Kubernetes API as one small server, for tests and tools.

    from keelson_apiserver import start

    with start() as server:
        server.request("GET", "/api/v1/namespaces")

Each server is a process of its own that keeps everything in memory. It ends with ``stop()``, at the
latest when this process ends, however that ends. Nothing but the standard library is needed.
"""

from ._pool import ServerPool
from ._program import find_program
from ._server import ApiError, Server, StartError, start
from ._simulation import Simulation, is_available

__all__ = [
    "ApiError",
    "Server",
    "ServerPool",
    "Simulation",
    "StartError",
    "find_program",
    "is_available",
    "start",
]
