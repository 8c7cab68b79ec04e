"""Compares schedulers on two servers: python3 scheduler.py WANT_URL GOT_URL TOKEN [--cases N] [--seed S] [--log F] [-v].

Each case creates nodes, pods that are bound to them, and one pod without a node, and waits until that pod is bound or
reported as unschedulable. Compared are the node, or the condition PodScheduled with its message and the nominated node,
and which pods were preempted with their condition. Where several nodes have the best score, kube-scheduler chooses at
random: then any of the nodes that the log of the second server (`--log`, written with --v=4) names as equally good will
do. Neither server may run other control loops of nodes or pods, nor the admission of service accounts. Prints how many
cases were equal. Needs only the standard library.
"""

import argparse
import collections
import json
import random
import re
import time

from access import Server

ZONES = ["z1", "z2", "z3"]
APPS = ["a", "b", "c"]
TAINTS = [("t1", "v1", "NoSchedule"), ("t1", "v2", "NoSchedule"), ("t2", "", "NoExecute"), ("t3", "x", "PreferNoSchedule"),
          ("t4", "", "PreferNoSchedule")]
IMAGES = [("registry.k8s.io/big:1", 700 << 20), ("docker.io/library/mid:latest", 250 << 20), ("small:1", 1 << 20)]
HOSTNAME = "kubernetes.io/hostname"
ZONE = "topology.kubernetes.io/zone"
WAIT_SECONDS = 20
# How long the schedulers' watches may take to see the objects of a case.
SETTLE_SECONDS = 0.15


class Case:
    """The objects of a generated case."""

    def __init__(self, seed, number):
        self.rng = random.Random(f"{seed}/{number}")
        self.number = number
        self.nodes = [self.node(i) for i in range(self.rng.choice([1, 2, 3, 4, 5, 8, 12]))]
        self.names = [node["metadata"]["name"] for node in self.nodes]
        self.claims, self.volumes, self.classes = [], [], []
        self.budgets = []
        self.created = set()
        self.bound = [self.bound_pod(i) for i in range(self.rng.choice([0, 2, 5, 10, 20]))]
        if self.rng.random() < 0.3:
            self.budgets.append(self.budget())
        self.pod = self.new_pod()
        self.services, self.sets = [], []
        namespace = self.pod["metadata"]["namespace"]
        if self.chance(0.2):
            self.services.append({"metadata": {"name": f"svc{number}", "namespace": namespace}, "spec": {
                "ports": [{"port": 80}], "selector": {"run": str(number), "app": self.rng.choice(APPS)}}})
        if self.chance(0.3):
            self.sets.append(self.replica_set())

    def chance(self, probability):
        return self.rng.random() < probability

    def node(self, index):
        rng, name = self.rng, f"n{self.number}-{index}"
        labels = {HOSTNAME: name}
        if not self.chance(0.1):
            labels[ZONE] = rng.choice(ZONES)
        if self.chance(0.5):
            labels["disk"] = rng.choice(["ssd", "hdd"])
        if self.chance(0.3):
            labels["size"] = str(rng.choice([1, 5, 9]))
        spec, status = {}, {}
        taints = [{"key": k, "value": v, "effect": e} for k, v, e in TAINTS if self.chance(0.05 if e != "PreferNoSchedule" else 0.2)]
        keys = set()
        spec["taints"] = [t for t in taints if not ((t["key"], t["effect"]) in keys or keys.add((t["key"], t["effect"])))]
        if self.chance(0.08):
            spec["unschedulable"] = True
        capacity = {"cpu": rng.choice(["1", "2", "4", "4"]), "memory": rng.choice(["1Gi", "4Gi", "8Gi"]),
                    "pods": rng.choice(["110", "110", "110", "3"]), "ephemeral-storage": "10Gi"}
        if self.chance(0.3):
            capacity["example.org/gpu"] = rng.choice(["1", "2"])
        status["capacity"] = status["allocatable"] = capacity
        if self.chance(0.4):
            status["images"] = [{"names": [n], "sizeBytes": s} for n, s in rng.sample(IMAGES, rng.choice([1, 2]))]
        status["conditions"] = [{"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "ready",
                                 "lastHeartbeatTime": "2026-01-01T00:00:00Z", "lastTransitionTime": "2026-01-01T00:00:00Z"}]
        return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels}, "spec": spec,
                "status": status}

    def container(self, name, generous):
        rng, requests = self.rng, {}
        if self.chance(0.6):
            requests["cpu"] = rng.choice(["100m", "250m", "500m", "1"] + (["2", "3"] if generous else []))
        if self.chance(0.5):
            requests["memory"] = rng.choice(["64Mi", "256Mi", "1Gi"] + (["3Gi"] if generous else []))
        if generous and self.chance(0.05):
            requests["ephemeral-storage"] = rng.choice(["1Gi", "20Gi"])
        container = {"name": name, "image": rng.choice([n for n, _ in IMAGES] + ["mid", "none"])}
        if generous and self.chance(0.1):
            requests["example.org/gpu"] = rng.choice(["1", "2"])
            container["resources"] = {"limits": {"example.org/gpu": requests["example.org/gpu"]}}
        container.setdefault("resources", {})["requests"] = requests
        if self.chance(0.15):
            port = {"containerPort": 80, "hostPort": rng.choice([8080, 8081]), "protocol": rng.choice(["TCP", "TCP", "UDP"])}
            if self.chance(0.3):
                port["hostIP"] = rng.choice(["127.0.0.1", "0.0.0.0", "10.0.0.1"])
            container["ports"] = [port]
        return container

    def base(self, name, generous):
        rng = self.rng
        spec = {"containers": [self.container(f"c{i}", generous) for i in range(rng.choice([1, 1, 2]))]}
        if self.chance(0.15):
            init = self.container("init", generous)
            if self.chance(0.5):
                init["restartPolicy"] = "Always"
            spec["initContainers"] = [init]
        if generous and self.chance(0.08):
            spec["resources"] = {"requests": {"cpu": rng.choice(["4", "6"])}}
        labels = {"app": rng.choice(APPS), "run": str(self.number)}
        namespace = rng.choice(["s1", "s1", "s2"])
        return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": namespace, "labels": labels},
                "spec": spec}

    def selector(self):
        rng = self.rng
        mine = {"run": str(self.number)}
        if self.chance(0.7):
            return {"matchLabels": {"app": rng.choice(APPS), **mine}}
        return {"matchLabels": mine, "matchExpressions": [
            {"key": "app", "operator": rng.choice(["In", "NotIn"]), "values": rng.sample(APPS, 2)}]}

    def term(self):
        term = {"labelSelector": self.selector(), "topologyKey": self.rng.choice([HOSTNAME, ZONE, ZONE, "disk"])}
        if self.chance(0.2):
            term["namespaces"] = self.rng.choice([["s2"], ["s1", "s2"]])
        if self.chance(0.2):
            term["namespaceSelector"] = self.rng.choice([{}, {"matchLabels": {"team": "x"}}])
        return term

    def terms(self, required, preferred):
        affinity = {}
        if self.chance(required):
            affinity["requiredDuringSchedulingIgnoredDuringExecution"] = [self.term() for _ in range(self.rng.choice([1, 1, 2]))]
        if self.chance(preferred):
            affinity["preferredDuringSchedulingIgnoredDuringExecution"] = [
                {"weight": self.rng.randint(1, 100), "podAffinityTerm": self.term()} for _ in range(self.rng.choice([1, 2]))]
        return affinity

    def bound_pod(self, index):
        pod = self.base(f"old{self.number}-{index}", False)
        pod["spec"]["nodeName"] = self.rng.choice(self.names)
        pod["spec"]["priority"] = 0
        pod["spec"].pop("priority")
        if self.chance(0.4):
            pod["spec"]["priorityClassName"] = self.rng.choice(["low", "mid"])
        affinity = {"podAffinity": self.terms(0.1, 0.15), "podAntiAffinity": self.terms(0.15, 0.15)}
        pod["spec"]["affinity"] = affinity
        return pod

    def replica_set(self):
        """Returns the owner of the new pod."""
        labels = self.pod["metadata"]["labels"]
        return {"metadata": {"name": f"rs{self.number}", "namespace": self.pod["metadata"]["namespace"]}, "spec": {
            "replicas": 3, "selector": {"matchLabels": labels}, "template": {
                "metadata": {"labels": labels}, "spec": {"containers": [{"name": "c", "image": "i"}]}}}}

    def budget(self):
        return {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget",
                "metadata": {"name": f"b{self.number}", "namespace": "s1"},
                "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": self.rng.choice(APPS)}}}}

    def node_requirement(self):
        rng = self.rng
        return rng.choice([
            {"key": "disk", "operator": rng.choice(["In", "NotIn"]), "values": [rng.choice(["ssd", "hdd"])]},
            {"key": "size", "operator": rng.choice(["Gt", "Lt"]), "values": ["4"]},
            {"key": "disk", "operator": rng.choice(["Exists", "DoesNotExist"])},
            {"key": ZONE, "operator": "In", "values": rng.sample(ZONES, 2)}])

    def new_pod(self):
        rng = self.rng
        pod = self.base(f"new{self.number}", True)
        spec = pod["spec"]
        affinity = {"podAffinity": self.terms(0.1, 0.2), "podAntiAffinity": self.terms(0.15, 0.2)}
        node_affinity = {}
        if self.chance(0.2):
            required = [{"matchExpressions": [self.node_requirement()]} for _ in range(rng.choice([1, 2]))]
            if self.chance(0.3):
                required = [{"matchFields": [{"key": "metadata.name", "operator": "In",
                                              "values": [rng.choice(self.names + ["absent"])]}]}]
            node_affinity["requiredDuringSchedulingIgnoredDuringExecution"] = {"nodeSelectorTerms": required}
        if self.chance(0.25):
            node_affinity["preferredDuringSchedulingIgnoredDuringExecution"] = [
                {"weight": rng.randint(1, 100), "preference": {"matchExpressions": [self.node_requirement()]}}
                for _ in range(rng.choice([1, 2]))]
        if node_affinity:
            affinity["nodeAffinity"] = node_affinity
        spec["affinity"] = affinity
        if self.chance(0.15):
            spec["nodeSelector"] = {"disk": rng.choice(["ssd", "hdd"])}
        if self.chance(0.4):
            spec["tolerations"] = [rng.choice([
                {"operator": "Exists"}, {"key": "t1", "operator": "Exists"}, {"key": "t1", "value": "v1"},
                {"key": "t3", "value": "x", "effect": "PreferNoSchedule"},
                {"key": "t2", "operator": "Exists", "effect": "NoExecute"}]) for _ in range(rng.choice([1, 2]))]
        if self.chance(0.3):
            spec["topologySpreadConstraints"] = [self.constraint(key) for key in rng.sample([HOSTNAME, ZONE, "disk"], rng.choice([1, 1, 2]))]
        if self.chance(0.6):
            spec["priorityClassName"] = rng.choice(["low", "mid", "high", "high", "high", "polite"])
        if self.chance(0.1):
            spec["volumes"] = [{"name": "v", "persistentVolumeClaim": {"claimName": rng.choice(["absent", "immediate"])}}]
        elif self.chance(0.15):
            self.add_volumes(pod)
        return pod

    def constraint(self, key):
        rng = self.rng
        constraint = {"maxSkew": rng.choice([1, 1, 2]), "topologyKey": key, "labelSelector": self.selector(),
                      "whenUnsatisfiable": rng.choice(["DoNotSchedule", "ScheduleAnyway"])}
        if constraint["whenUnsatisfiable"] == "DoNotSchedule" and self.chance(0.3):
            constraint["minDomains"] = rng.choice([2, 4])
        if self.chance(0.3):
            constraint["nodeAffinityPolicy"] = rng.choice(["Honor", "Ignore"])
        if self.chance(0.3):
            constraint["nodeTaintsPolicy"] = rng.choice(["Honor", "Ignore"])
        if self.chance(0.2):
            constraint["matchLabelKeys"] = [rng.choice(["version", "tier"])]
        return constraint

    def add_volumes(self, pod):
        """Adds a claim of a class that waits, and volumes of single nodes or zones."""
        rng, namespace = self.rng, pod["metadata"]["namespace"]
        for index in range(rng.choice([0, 1, 2])):
            key, value = rng.choice([(HOSTNAME, rng.choice(self.names)), (ZONE, rng.choice(ZONES))])
            self.volumes.append({
                "apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": f"pv{self.number}-{index}"},
                "spec": {"capacity": {"storage": rng.choice(["1Gi", "5Gi"])}, "accessModes": ["ReadWriteOnce"],
                         "storageClassName": "waits", "hostPath": {"path": "/x"}, "nodeAffinity": {"required": {
                             "nodeSelectorTerms": [{"matchExpressions": [{"key": key, "operator": "In", "values": [value]}]}]}}},
                "status": {"phase": "Available"}})
        name = f"claim{self.number}"
        self.claims.append({"apiVersion": "v1", "kind": "PersistentVolumeClaim",
                            "metadata": {"name": name, "namespace": namespace},
                            "spec": {"accessModes": ["ReadWriteOnce"], "storageClassName": "waits",
                                     "resources": {"requests": {"storage": rng.choice(["1Gi", "3Gi"])}}}})
        pod["spec"]["volumes"] = [{"name": "v", "persistentVolumeClaim": {"claimName": name}}]


def prepare(server):
    """Creates what all cases share."""
    for name, labels in (("s1", {"team": "x"}), ("s2", {})):
        server.must("POST", "/api/v1/namespaces", {"metadata": {"name": name, "labels": labels}})
        server.must("POST", f"/api/v1/namespaces/{name}/persistentvolumeclaims", {
            "metadata": {"name": "immediate"}, "spec": {"accessModes": ["ReadWriteOnce"], "storageClassName": "",
                                                        "resources": {"requests": {"storage": "1Gi"}}}})
    for name, value, policy in (("low", 10, None), ("mid", 100, None), ("high", 1000, None), ("polite", 1000, "Never")):
        body = {"metadata": {"name": name}, "value": value}
        if policy:
            body["preemptionPolicy"] = policy
        server.must("POST", "/apis/scheduling.k8s.io/v1/priorityclasses", body)
    server.must("POST", "/apis/storage.k8s.io/v1/storageclasses", {
        "metadata": {"name": "waits"}, "provisioner": "kubernetes.io/no-provisioner",
        "volumeBindingMode": "WaitForFirstConsumer"})


def pod_path(pod):
    return f"/api/v1/namespaces/{pod['metadata']['namespace']}/pods/{pod['metadata']['name']}"


def create(server, obj, path):
    """Creates an object. Returns whether it is valid: some generated pods use a port twice."""
    response = server.call("POST", path, obj)
    assert response[0] in (200, 201, 422), (path, obj, response)
    return response[0] != 422


def create_node(server, node):
    create(server, node, "/api/v1/nodes")
    # Admission adds a taint, which the node lifecycle controller would remove.
    taints = json.dumps({"spec": {"taints": node["spec"].get("taints") or None}}).encode()
    path = f"/api/v1/nodes/{node['metadata']['name']}"
    response = server.call("PATCH", path, json.loads(taints), "application/merge-patch+json")
    assert response[0] == 200, response
    body = {"status": node["status"]}
    response = server.call("PATCH", f"{path}/status", body, "application/merge-patch+json")
    assert response[0] == 200, response


def outcome(server, case):
    """Runs a case and returns what the scheduler did."""
    for node in case.nodes:
        create_node(server, node)
    for volume in case.volumes:
        create(server, volume, "/api/v1/persistentvolumes")
        path = f"/api/v1/persistentvolumes/{volume['metadata']['name']}/status"
        server.call("PATCH", path, {"status": volume["status"]}, "application/merge-patch+json")
    for claim in case.claims:
        create(server, claim, f"/api/v1/namespaces/{claim['metadata']['namespace']}/persistentvolumeclaims")
    for budget in case.budgets:
        create(server, budget, f"/apis/policy/v1/namespaces/{budget['metadata']['namespace']}/poddisruptionbudgets")
    for pod in case.bound:
        if not create(server, pod, f"/api/v1/namespaces/{pod['metadata']['namespace']}/pods"):
            continue
        case.created.add(pod["metadata"]["name"])
        body = {"status": {"phase": "Running", "startTime": f"2026-01-01T00:00:{case.bound.index(pod):02}Z"}}
        server.call("PATCH", pod_path(pod) + "/status", body, "application/merge-patch+json")
    for service in case.services:
        create(server, service, f"/api/v1/namespaces/{service['metadata']['namespace']}/services")
    for owner in case.sets:
        path = f"/apis/apps/v1/namespaces/{owner['metadata']['namespace']}/replicasets"
        made = server.call("POST", path, owner)
        assert made[0] == 201, made
        case.pod["metadata"]["ownerReferences"] = [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "controller": True,
                                                    "name": owner["metadata"]["name"], "uid": made[2]["metadata"]["uid"]}]
    time.sleep(SETTLE_SECONDS)
    if not create(server, case.pod, f"/api/v1/namespaces/{case.pod['metadata']['namespace']}/pods"):
        return {"invalid": True}
    deadline, found = time.time() + WAIT_SECONDS, {}
    while time.time() < deadline:
        pod = server.call("GET", pod_path(case.pod))[2]
        found = {"node": pod["spec"].get("nodeName")}
        conditions = {c["type"]: c for c in pod.get("status", {}).get("conditions", [])}
        if found["node"]:
            break
        if case.claims and claimed(server, case):
            found["node"] = claimed(server, case)
            found["nominated"] = server.call("GET", pod_path(case.pod))[2]["status"].get("nominatedNodeName")
            break
        if conditions.get("PodScheduled", {}).get("reason"):
            time.sleep(SETTLE_SECONDS)
            pod = server.call("GET", pod_path(case.pod))[2]
            condition = next(c for c in pod["status"]["conditions"] if c["type"] == "PodScheduled")
            found = {"node": pod["spec"].get("nodeName"), "nominated": pod["status"].get("nominatedNodeName"),
                     "condition": {k: v for k, v in condition.items() if not k.endswith("Time")}}
            found["preempted"] = preempted(server, case)
            break
        time.sleep(0.01)
    return found


def claimed(server, case):
    """Returns the volume that a claim of the case gets."""
    for volume in case.volumes:
        known = server.call("GET", f"/api/v1/persistentvolumes/{volume['metadata']['name']}")[2]
        if known["spec"].get("claimRef"):
            return f"volume {volume['metadata']['name']}"
    return None


def preempted(server, case):
    ended = {}
    for pod in case.bound:
        code, _, known = server.call("GET", pod_path(pod))
        if code == 404 and pod["metadata"]["name"] not in case.created:
            continue
        if code == 404 or known["metadata"].get("deletionTimestamp"):
            conditions = known.get("status", {}).get("conditions", []) if code == 200 else []
            ended[pod["metadata"]["name"]] = [{k: v for k, v in c.items() if not k.endswith("Time")} for c in conditions
                                              if c["type"] == "DisruptionTarget"]
    return ended


def clean(server, case):
    now = {"gracePeriodSeconds": 0}
    for pod in [case.pod, *case.bound]:
        server.call("DELETE", pod_path(pod), now)
    for budget in case.budgets:
        server.call("DELETE", "/apis/policy/v1/namespaces/s1/poddisruptionbudgets/" + budget["metadata"]["name"])
    for service in case.services:
        server.call("DELETE", f"/api/v1/namespaces/{service['metadata']['namespace']}/services/{service['metadata']['name']}")
    for owner in case.sets:
        server.call("DELETE", f"/apis/apps/v1/namespaces/{owner['metadata']['namespace']}/replicasets/{owner['metadata']['name']}")
    for claim in case.claims:
        path = f"/api/v1/namespaces/{claim['metadata']['namespace']}/persistentvolumeclaims/{claim['metadata']['name']}"
        server.call("PATCH", path, {"metadata": {"finalizers": None}}, "application/merge-patch+json")
        server.call("DELETE", path)
    for volume in case.volumes:
        path = f"/api/v1/persistentvolumes/{volume['metadata']['name']}"
        server.call("PATCH", path, {"metadata": {"finalizers": None}}, "application/merge-patch+json")
        server.call("DELETE", path)
    for node in case.nodes:
        server.call("DELETE", f"/api/v1/nodes/{node['metadata']['name']}")


def equally_good(log, case):
    """Returns the nodes that the second server had to choose from at random."""
    if not log:
        return []
    name = case.pod["metadata"]["name"]
    with open(log, encoding="utf-8", errors="replace") as lines:
        for line in lines:
            line = re.sub(r"\x1b\[[0-9;]*m", "", line)
            if "equally good nodes" in line and re.search(rf"\bpod=\"?{name}\b", line):
                return re.findall(rf"n{case.number}-\d+", line)
    return []


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("want")
    parser.add_argument("got")
    parser.add_argument("token")
    parser.add_argument("--cases", type=int, default=300)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--seed", default="1")
    parser.add_argument("--log")
    parser.add_argument("-v", action="store_true")
    args = parser.parse_args()
    servers = [Server(args.want, args.token), Server(args.got, args.token)]
    for server in servers:
        prepare(server)
    counts = collections.Counter()
    for number in range(args.first, args.first + args.cases):
        case = Case(args.seed, number)
        want, got = [outcome(server, case) for server in servers]
        is_equal = want == got
        kind = "invalid" if want.get("invalid") else "placed" if want.get("node") else "nominated" if want.get("nominated") else "unschedulable"
        if not is_equal and want.get("node") and got.get("node"):
            chosen = want.get("nominated") or want["node"]
            is_equal = chosen in equally_good(args.log, case)
        counts[kind, is_equal] += 1
        if not is_equal:
            print(f"case {number}: want {json.dumps(want)}\n           got {json.dumps(got)}")
            if args.v:
                print(json.dumps({"nodes": case.nodes, "bound": case.bound, "pod": case.pod, "volumes": case.volumes,
                                  "claims": case.claims, "budgets": case.budgets}))
        for server in servers:
            clean(server, case)
    equal = sum(count for (_, is_equal), count in counts.items() if is_equal)
    print(f"{equal} of {args.cases} equal:", dict(sorted((f"{kind} {'equal' if e else 'DIFFERENT'}", n) for (kind, e), n in counts.items())))


if __name__ == "__main__":
    main()
