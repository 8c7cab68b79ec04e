"""A simulated cluster for a Python program."""

import datetime
from typing import Any, Iterator, Optional, Tuple

import pytest
from keelson_apiserver import Server, start

DEPLOYMENTS = "/apis/apps/v1/namespaces/default/deployments"
JOBS = "/apis/batch/v1/namespaces/default/jobs"
PODS = "/api/v1/namespaces/default/pods"


@pytest.fixture
def server() -> Iterator[Server]:
    """A cluster of two nodes."""
    with start(["--simulate", "--simulate-nodes=2"]) as server:
        yield server


def deployment(replicas: int) -> Any:
    """Returns a Deployment."""
    labels = {"app": "web"}
    containers = [{"name": "c", "image": "nginx"}]
    template = {"metadata": {"labels": labels}, "spec": {"containers": containers}}
    spec = {"replicas": replicas, "selector": {"matchLabels": labels}, "template": template}
    return {"metadata": {"name": "web"}, "spec": spec}


def test_a_deployment_becomes_available_and_survives_a_drain(server: Server) -> None:
    server.request("POST", DEPLOYMENTS, deployment(3))
    made = server.wait_available(f"{DEPLOYMENTS}/web")
    assert made["status"]["readyReplicas"] == 3
    pod = server.request("GET", PODS)["items"][0]["metadata"]["name"]
    server.simulation.cut_off_pod(pod)
    server.wait_for(f"{DEPLOYMENTS}/web", lambda got: got["status"].get("readyReplicas") == 2)
    server.simulation.reconnect_pod(pod)
    server.wait_available(f"{DEPLOYMENTS}/web")
    nodes = [one["metadata"]["name"] for one in server.request("GET", "/api/v1/nodes")["items"]]
    server.simulation.drain_node(nodes[0])
    # Evicted pods are gone before the Deployment's status says so: the pods tell when it is over.
    moved = [(nodes[1], "True")] * 3
    server.wait_for(PODS, lambda got: [_place(one) for one in got["items"]] == moved)
    server.wait_available(f"{DEPLOYMENTS}/web")


def test_an_hour_of_work_and_a_lost_node_take_no_time(server: Server) -> None:
    containers = [{"name": "c", "image": "busybox", "command": ["sleep", "3600"]}]
    template = {"spec": {"restartPolicy": "Never", "containers": containers}}
    server.request("POST", JOBS, {"metadata": {"name": "hour"}, "spec": {"template": template}})
    server.wait_for(f"{JOBS}/hour", lambda got: got["status"].get("ready") == 1)
    before = server.simulation.time()
    server.simulation.step(datetime.timedelta(hours=1, seconds=5))
    server.wait_available(f"{JOBS}/hour")
    assert server.simulation.time() - before >= datetime.timedelta(hours=1)
    node = server.request("GET", "/api/v1/nodes")["items"][0]["metadata"]["name"]
    server.simulation.fail_node(node)
    server.simulation.set_rate(1000)
    server.wait_for(f"/api/v1/nodes/{node}", lambda got: _ready(got) == "Unknown")
    server.simulation.recover_node(node)
    server.wait_for(f"/api/v1/nodes/{node}", lambda got: _ready(got) == "True")


def _place(pod: Any) -> Tuple[Optional[str], Optional[str]]:
    """Returns the node of a pod and whether it is ready."""
    return pod["spec"].get("nodeName"), _ready(pod)


def _ready(owner: Any) -> Optional[str]:
    """Returns the status of the condition Ready of a node or pod."""
    conditions = {one["type"]: one["status"] for one in owner["status"].get("conditions", [])}
    return conditions.get("Ready")
