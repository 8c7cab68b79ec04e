"""A simulated cluster in a server: ``start(["--simulate"])``."""

from __future__ import annotations

import datetime
import time
from typing import TYPE_CHECKING, Any, Callable, Optional, Union
from urllib.parse import quote

if TYPE_CHECKING:
    from ._server import Server

_STATUS = "/keelson/simulation"
_CLOCK = "/keelson/simulation/clock"
_MERGE = {"Content-Type": "application/merge-patch+json"}
#: A node without power: it reports nothing about itself and its pods.
_FAILED = "simulation.keelson.dev/failed"
#: Pods, or some of their containers, that run and are not ready.
_UNREADY = "simulation.keelson.dev/unready"
#: How long a state is waited for, in seconds.
WAIT_SECONDS_MAX = 30.0
_POLL_SECONDS = 0.001


class Simulation:
    """The cluster of a server: its time, and what goes wrong in it. ``Server.simulation`` is one."""

    def __init__(self, server: "Server") -> None:
        self._server = server

    def time(self) -> datetime.datetime:
        """Returns the time in the cluster."""
        text = self._server.request("GET", _STATUS)["time"]
        return datetime.datetime.fromisoformat(text.replace("Z", "+00:00"))

    def step(self, by: Union[datetime.timedelta, str]) -> None:
        """Moves the time forward, by a timedelta or a text such as ``"36h"``.

        What waits for a time before the new one happens now: a CronJob, a deadline, a lease.
        """
        if isinstance(by, datetime.timedelta):
            by = f"{by.total_seconds():f}s"
        self._server.request("POST", f"{_CLOCK}?step={quote(by)}")

    def set_rate(self, rate: float) -> None:
        """Sets how many seconds pass in the cluster in one second."""
        self._server.request("POST", f"{_CLOCK}?rate={rate}")

    def fail_node(self, name: str) -> None:
        """Takes the power of a node away."""
        self._annotate(f"/api/v1/nodes/{name}", _FAILED, "true")

    def recover_node(self, name: str) -> None:
        """Gives a node its power back."""
        self._annotate(f"/api/v1/nodes/{name}", _FAILED, None)

    def cut_off_pod(self, name: str, namespace: str = "default") -> None:
        """Makes a running pod unready, as if nobody reached it any more."""
        self._annotate(f"/api/v1/namespaces/{namespace}/pods/{name}", _UNREADY, "true")

    def reconnect_pod(self, name: str, namespace: str = "default") -> None:
        """Ends what ``cut_off_pod`` did."""
        self._annotate(f"/api/v1/namespaces/{namespace}/pods/{name}", _UNREADY, None)

    def drain_node(self, name: str, seconds_max: float = WAIT_SECONDS_MAX) -> None:
        """Cordons a node and evicts its pods, but those of daemon sets; waits until they are gone.

        Budgets that forbid an eviction are waited for.
        """
        from ._server import ApiError

        self._server.request("PATCH", f"/api/v1/nodes/{name}", {"spec": {"unschedulable": True}}, _MERGE)
        deadline = time.monotonic() + seconds_max
        while True:
            left = [pod["metadata"] for pod in self._pods_of(name) if not _is_of_daemon_set(pod)]
            if not left:
                return
            if time.monotonic() > deadline:
                names = ", ".join(sorted(f"{one['namespace']}/{one['name']}" for one in left))
                raise TimeoutError(f"{name} still has {names}")
            for pod in left:
                if "deletionTimestamp" in pod:
                    continue
                meta = {"name": pod["name"], "namespace": pod["namespace"]}
                eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": meta}
                path = f"/api/v1/namespaces/{pod['namespace']}/pods/{pod['name']}/eviction"
                try:
                    self._server.request("POST", path, eviction)
                except ApiError as error:
                    # 429: a budget forbids it for now.
                    if error.code not in (404, 429):
                        raise
            time.sleep(_POLL_SECONDS)

    def _pods_of(self, node: str) -> Any:
        path = f"/api/v1/pods?fieldSelector=spec.nodeName%3D{quote(node)}"
        return self._server.request("GET", path)["items"]

    def _annotate(self, path: str, key: str, value: Optional[str]) -> None:
        self._server.request("PATCH", path, {"metadata": {"annotations": {key: value}}}, _MERGE)


def _is_of_daemon_set(pod: Any) -> bool:
    owners = pod["metadata"].get("ownerReferences", [])
    return any(owner["kind"] == "DaemonSet" and owner.get("controller") for owner in owners)


def is_available(workload: Any) -> bool:
    """Whether the controller of a workload has made all that its spec asks for, ready.

    ``workload`` is a Deployment, ReplicaSet, StatefulSet, ReplicationController, DaemonSet, Job or Pod.
    """
    spec, status = workload.get("spec", {}), workload.get("status", {})
    kind = workload["kind"]
    conditions = {one["type"]: one["status"] for one in status.get("conditions", [])}
    if kind == "Pod":
        return conditions.get("Ready") == "True"
    if kind == "Job":
        return conditions.get("Complete") == "True"
    if status.get("observedGeneration") != workload["metadata"].get("generation"):
        return False
    if kind == "DaemonSet":
        wanted = status.get("desiredNumberScheduled", 0)
        counts = [status.get(name, 0) for name in ("updatedNumberScheduled", "numberAvailable")]
        return all(count == wanted for count in counts)
    wanted = spec.get("replicas", 1)
    names = ["replicas", "availableReplicas"]
    if kind in ("Deployment", "StatefulSet"):
        names.append("updatedReplicas")
    return all(status.get(name, 0) == wanted for name in names)


def wait_for(
    server: "Server",
    path: str,
    condition: Callable[[Any], bool],
    seconds_max: float = WAIT_SECONDS_MAX,
) -> Any:
    """Reads an object or a list until a condition holds, and returns it."""
    deadline = time.monotonic() + seconds_max
    while True:
        last = server.request("GET", path)
        if condition(last):
            return last
        if time.monotonic() > deadline:
            raise TimeoutError(f"{path} is not as expected; its status: {last.get('status')}")
        time.sleep(_POLL_SECONDS)
