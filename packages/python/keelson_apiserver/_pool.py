"""Servers that are started before they are needed."""

from __future__ import annotations

from collections import deque
from typing import Deque, Optional, Sequence

from ._server import Server

#: How many servers are being started, or wait, at most.
WAITING_SERVERS = 2


class ServerPool:
    """Hands out fresh servers. The next ones start meanwhile, so that nobody waits for them."""

    def __init__(
        self,
        flags: Sequence[str] = (),
        program: Optional[str] = None,
        waiting: int = WAITING_SERVERS,
    ) -> None:
        self._flags = tuple(flags)
        self._program = program
        self._waiting_max = max(waiting, 1)
        self._waiting: Deque[Server] = deque()

    def take(self) -> Server:
        """Returns a server that nobody has used. The caller stops it."""
        server = self._waiting.popleft() if self._waiting else self._start()
        try:
            server.wait_until_ready()
            while len(self._waiting) < self._waiting_max:
                self._waiting.append(self._start())
        except BaseException:
            server.stop()
            raise
        return server

    def _start(self) -> Server:
        return Server(self._flags, self._program)

    def close(self) -> None:
        """Ends the servers that nobody has taken."""
        while self._waiting:
            self._waiting.popleft().stop()
