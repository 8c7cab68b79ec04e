"""Compares further control loops of two servers: python3 loops.py WANT_URL GOT_URL TOKEN [--part P] [--cases N] [-v].

WANT_URL is a server with a kube-controller-manager (`--horizontal-pod-autoscaler-sync-period=1s`), GOT_URL one that runs its
own loops, both without scheduler and kubelets: this script writes what those would. Parts: `volumes` binds generated claims
and volumes and deletes some; `taints` evicts pods with generated tolerations; `health` loses nodes, `claims` makes claims of
pods from templates; `scale` autoscales Deployments by generated metrics. Compared are the final objects and the kinds of
events, without uids, times and random suffixes. Prints how many cases were equal. Needs only the standard library.
"""

import argparse
import concurrent.futures
import json
import random
import re
import time

import jobs
from access import Server

THREADS = 12
PV = "/api/v1/persistentvolumes"
NODES = "/api/v1/nodes"
CLASSES = "/apis/storage.k8s.io/v1/storageclasses"
CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


class Side(jobs.Side):
    """One server, with the objects of one case."""

    def claims_path(self):
        return f"/api/v1/namespaces/{self.namespace}/persistentvolumeclaims"

    def list(self, path):
        return self.server.call("GET", path)[2].get("items", [])

    def mine(self, path):
        """Returns the cluster-scoped objects of this case."""
        return [one for one in self.list(path) if one["metadata"]["name"].startswith(f"{self.namespace}-")]

    def post(self, path, body):
        code, _, answer = self.server.call("POST", path, body)
        return code, answer

    def merge(self, path, body):
        return self.server.call("PATCH", path, body, "application/merge-patch+json")[0]


def text_of(value):
    return json.dumps(value, sort_keys=True)


def cleaned(one, side):
    made = jobs.normalized(one)
    made.get("spec", {}).get("claimRef", {}).pop("resourceVersion", None)
    # The two loops that taint nodes do so independently.
    made.get("spec", {}).get("taints", []).sort(key=text_of)
    text = text_of(made).replace(side.namespace, "<case>")
    text = re.sub(r"\b(web-<?[a-z0-9]+-|pod-\d+-[a-z]+-)[bcdfghjklmnpqrstvwxz2456789]{5}\b", r"\1<random>", text)
    return json.loads(re.sub(r"\bweb-[a-z0-9]{6,10}\b", "web-<hash>", text))


def events_of(side, object_names=None):
    """Returns the kinds of events. kube-controller-manager repeats some at every resync, so their number does not count."""
    kinds = set()
    namespaces = [side.namespace, "default"]
    for namespace in namespaces:
        for event in side.list(f"/api/v1/namespaces/{namespace}/events"):
            about = event["involvedObject"]
            if namespace == "default" and not about["name"].startswith(f"{side.namespace}-"):
                continue
            facts = cleaned({"event": [about["kind"], event["type"], event["reason"], event["message"], event["source"]]}, side)
            kinds.add(text_of(facts["event"]))
    return sorted(kinds)


def volume(rng, name, namespace):
    spec = {"capacity": {"storage": rng.choice(["1Gi", "2Gi", "5Gi"])}, "hostPath": {"path": rng.choice(["/tmp/x", "/var/x"])},
            "accessModes": rng.choice([["ReadWriteOnce"], ["ReadWriteOnce", "ReadOnlyMany"], ["ReadWriteMany"]]),
            "persistentVolumeReclaimPolicy": rng.choice(["Retain", "Delete"]),
            "storageClassName": rng.choice(["", "fast", "fast", "later", "nothing"])}
    if rng.random() < 0.2:
        spec["claimRef"] = {"name": f"c{rng.randint(0, 3)}", "namespace": namespace}
    metadata = {"name": name}
    if rng.random() < 0.3:
        metadata["labels"] = {"disk": rng.choice(["a", "b"])}
    return {"metadata": metadata, "spec": spec}


def claim(rng, name, volumes):
    spec = {"accessModes": rng.choice([["ReadWriteOnce"], ["ReadWriteOnce"], ["ReadOnlyMany"]]),
            "resources": {"requests": {"storage": rng.choice(["1Gi", "2Gi", "4Gi"])}},
            "storageClassName": rng.choice(["", "fast", "fast", "later", "gone", "remote", "nothing"])}
    if rng.random() < 0.2:
        spec["volumeName"] = rng.choice(volumes)
    elif rng.random() < 0.2:
        spec["selector"] = {"matchLabels": {"disk": rng.choice(["a", "b"])}}
    return {"metadata": {"name": name}, "spec": spec}


def volumes_case(sides, rng):
    case = sides[0].namespace
    names = [f"{case}-v{number}" for number in range(rng.randint(1, 4))]
    # Volumes are of classes of their own, so that cases do not take those of others.
    def own(made):
        name = made["spec"]["storageClassName"]
        if name:
            made["spec"]["storageClassName"] = f"{case}-{name}"
        return made
    made = [own(volume(rng, name, case)) for name in names]
    asked = [own(claim(rng, f"c{number}", names)) for number in range(rng.randint(1, 4))]
    steps = [rng.choice(["volume", "claim", "claim", "none"]) for _ in range(2)]
    chosen = [rng.randint(0, 3) for _ in steps]
    # Claims and volumes without a class would be bound across cases.
    made = [one for one in made if one["spec"]["storageClassName"]]
    asked = [one for one in asked if one["spec"]["storageClassName"]]
    for side in sides:
        for name, provisioner, mode in [("fast", "kubernetes.io/no-provisioner", "Immediate"),
                                        ("later", "kubernetes.io/no-provisioner", "WaitForFirstConsumer"),
                                        ("remote", "example.com/disks", "Immediate")]:
            side.post(CLASSES, {"metadata": {"name": f"{case}-{name}"}, "provisioner": provisioner, "volumeBindingMode": mode})
        time.sleep(0.3)
        for one in made:
            side.post(PV, one)
        time.sleep(1)
        for one in asked:
            side.post(side.claims_path(), one)
            time.sleep(0.4)
    time.sleep(3)
    for step, number in zip(steps, chosen):
        for side in sides:
            if step == "claim":
                side.server.call("DELETE", f"{side.claims_path()}/c{number}")
            elif step == "volume" and made:
                side.server.call("DELETE", f"{PV}/{made[number % len(made)]['metadata']['name']}")
        time.sleep(3)
    time.sleep(16)
    for side in sides:
        found = {"volumes": side.mine(PV), "claims": side.list(side.claims_path())}
        yield {name: [cleaned(one, side) for one in all] for name, all in found.items()} | {"events": events_of(side)}


def pod(rng, name, node=None):
    spec = {"containers": [{"name": "main", "image": "a:1"}]}
    if node:
        spec["nodeName"] = node
    return {"metadata": {"name": name}, "spec": spec}


def taints_case(sides, rng):
    case = sides[0].namespace
    taints = [{"key": key, "value": rng.choice(["1", "2"]), "effect": rng.choice(["NoExecute", "NoExecute", "NoSchedule"])}
              for key in rng.sample(["a", "b", "c"], rng.randint(1, 2))]
    pods = []
    for number in range(4):
        one = pod(rng, f"pod-{number}", f"{case}-n")
        tolerations = []
        for _ in range(rng.randint(0, 3)):
            toleration = {"operator": rng.choice(["Exists", "Equal"]), "key": rng.choice(["a", "b", "c"])}
            if toleration["operator"] == "Equal":
                toleration["value"] = rng.choice(["1", "2"])
            if rng.random() < 0.8:
                toleration["effect"] = "NoExecute"
                if rng.random() < 0.5:
                    toleration["tolerationSeconds"] = rng.choice([0, 2, 600])
            tolerations.append(toleration)
        one["spec"]["tolerations"] = tolerations
        pods.append(one)
    is_removed = rng.random() < 0.3
    for side in sides:
        side.post(NODES, {"metadata": {"name": f"{case}-n"}})
        make_ready(side, f"{case}-n")
        for one in pods:
            side.post(side.pods, one)
    time.sleep(2)
    for side in sides:
        side.merge(f"{NODES}/{case}-n", {"spec": {"taints": taints}})
    time.sleep(1)
    if is_removed:
        for side in sides:
            side.merge(f"{NODES}/{case}-n", {"spec": {"taints": []}})
    time.sleep(6)
    for side in sides:
        found = {"nodes": side.mine(NODES), "pods": side.list(side.pods)}
        yield {name: [cleaned(one, side) for one in all] for name, all in found.items()} | {"events": events_of(side)}
        side.server.call("DELETE", f"{NODES}/{case}-n")


def make_ready(side, name, status="True"):
    now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    conditions = [{"type": kind, "status": value, "reason": "Kubelet", "message": "m", "lastHeartbeatTime": now,
                   "lastTransitionTime": now} for kind, value in
                  [("Ready", status), ("MemoryPressure", "False"), ("DiskPressure", "False"), ("PIDPressure", "False")]]
    return side.merge(f"{NODES}/{name}/status", {"status": {"conditions": conditions}})


def health_case(sides, rng):
    """Nodes that never report, that stop to, and that report trouble, beside one that stays ready."""
    case = sides[0].namespace
    states = {"never": None, "stops": "True", "unready": "False", "pressed": "True", "labelled": "True"}
    for side in sides:
        for name, status in states.items():
            metadata = {"name": f"{case}-{name}"}
            if name == "labelled":
                metadata["labels"] = {"kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64"}
            side.post(NODES, {"metadata": metadata, "spec": {"unschedulable": name == "pressed"}})
            if status:
                make_ready(side, f"{case}-{name}", status)
            one = pod(rng, f"pod-{name}", f"{case}-{name}")
            one["spec"]["tolerations"] = [{"operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 4}]
            side.post(side.pods, one)
            ready = {"type": "Ready", "status": "True", "lastTransitionTime": jobs.PAST}
            status = {"phase": "Running", "conditions": [ready]}
            side.server.call("PATCH", f"{side.pods}/pod-{name}/status", {"status": status}, "application/strategic-merge-patch+json")
    begun = time.time()
    while time.time() - begun < 100:
        time.sleep(5)
        for side in sides:
            for name in ["pressed", "labelled"]:
                make_ready(side, f"{case}-{name}")
    for side in sides:
        found = {"nodes": side.mine(NODES), "pods": side.list(side.pods)}
        yield {name: [cleaned(one, side) for one in all] for name, all in found.items()} | {"events": events_of(side)}
        for name in states:
            side.server.call("DELETE", f"{NODES}/{case}-{name}")


def claims_case(sides, rng):
    """Pods with generic ephemeral volumes and claims from templates."""
    case = sides[0].namespace
    group = f"/apis/resource.k8s.io/v1/namespaces/{case}"
    pods = []
    for number in range(3):
        one = pod(rng, f"pod-{number}", f"{case}-n" if rng.random() < 0.5 else None)
        if rng.random() < 0.6:
            template = {"metadata": {"labels": {"l": "1"}}, "spec": {"accessModes": ["ReadWriteOnce"], "storageClassName": "none",
                                                                     "resources": {"requests": {"storage": "1Gi"}}}}
            one["spec"]["volumes"] = [{"name": "v", "ephemeral": {"volumeClaimTemplate": template}}]
        if rng.random() < 0.7:
            entries = [{"name": "gpu", "resourceClaimTemplateName": rng.choice(["t", "t", "missing"])}]
            if rng.random() < 0.4:
                entries.append({"name": "nic", "resourceClaimName": "shared"})
            one["spec"]["resourceClaims"] = entries
        pods.append(one)
    ends = [rng.choice(["Succeeded", "Running", "deleted"]) for _ in pods]
    for side in sides:
        request = {"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": "d"}}]}}
        metadata = {"annotations": {"x": "y"}, "labels": {"k": "v"}}
        side.post(f"{group}/resourceclaimtemplates", {"metadata": {"name": "t"}, "spec": {"metadata": metadata, "spec": request}})
        side.post(f"{group}/resourceclaims", {"metadata": {"name": "shared"}, "spec": request})
        for one in pods:
            side.post(side.pods, one)
    time.sleep(4)
    for side in sides:
        allocation = {"allocation": {"devices": {"results": [{"request": "r", "driver": "d.io", "pool": "p", "device": "1"}]}}}
        claims = sorted(side.list(f"{group}/resourceclaims"), key=text_of)
        for one in claims:
            path = f"{group}/resourceclaims/{one['metadata']['name']}"
            side.merge(f"{path}/status", {"status": allocation})
        for number in range(3):
            side.merge(f"{side.pods}/pod-{number}", {"metadata": {"labels": {"touched": "1"}}})
    time.sleep(3)
    for side in sides:
        for number, end in enumerate(ends):
            if end == "deleted":
                side.server.call("DELETE", f"{side.pods}/pod-{number}", {"gracePeriodSeconds": 0})
            else:
                side.merge(f"{side.pods}/pod-{number}/status", {"status": {"phase": end}})
    time.sleep(5)
    for side in sides:
        found = {"claims": side.list(f"{group}/resourceclaims"), "pods": side.list(side.pods), "pvcs": side.list(side.claims_path())}
        found = {name: sorted((cleaned(one, side) for one in all), key=text_of) for name, all in found.items()}
        yield found | {"events": events_of(side)}


def scaler(rng):
    kinds = []
    for _ in range(rng.randint(1, 2)):
        target = rng.choice([{"type": "Utilization", "averageUtilization": rng.choice([30, 50, 80])},
                             {"type": "AverageValue", "averageValue": rng.choice(["50m", "120m"])}])
        kind = rng.choice(["resource", "resource", "container", "memory", "pods", "external", "object"])
        if kind == "resource":
            kinds.append({"type": "Resource", "resource": {"name": "cpu", "target": target}})
        elif kind == "memory":
            kinds.append({"type": "Resource", "resource": {"name": "memory", "target": {"type": "AverageValue", "averageValue": "1Gi"}}})
        elif kind == "container":
            name = rng.choice(["main", "main", "other"])
            kinds.append({"type": "ContainerResource", "containerResource": {"name": "cpu", "container": name, "target": target}})
        else:
            metric = {"name": "hits"}
            if rng.random() < 0.4:
                metric["selector"] = {"matchLabels": {"a": "b"}}
            target = {"type": "AverageValue", "averageValue": "10"}
            described = {"apiVersion": "v1", "kind": "Service", "name": "s"}
            made = {"metric": metric, "target": target}
            if kind == "object":
                made["describedObject"] = described
            kinds.append({"type": kind.capitalize(), kind: made})
    spec = {"minReplicas": rng.choice([1, 2]), "maxReplicas": rng.choice([2, 4, 10]), "metrics": kinds,
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": rng.choice(["web"] * 8 + ["gone"])}}
    if rng.random() < 0.7:
        rules = {"stabilizationWindowSeconds": 0, "policies": [{"type": "Pods", "value": rng.choice([1, 100]), "periodSeconds": 60}]}
        spec["behavior"] = {"scaleUp": rules, "scaleDown": dict(rules, selectPolicy=rng.choice(["Max", "Disabled"]))}
    return {"metadata": {"name": "web"}, "spec": spec}


def scale_case(sides, rng):
    case = sides[0].namespace
    requests = rng.choice([{"cpu": "100m", "memory": "1Gi"}, {"cpu": "100m"}, {}])
    replicas, made = rng.choice([0, 1, 2, 3]), scaler(rng)
    template = {"metadata": {"labels": {"app": "web"}},
                "spec": {"containers": [{"name": "main", "image": "a:1", "resources": {"requests": requests}}]}}
    usages = [rng.choice([5, 40, 60, 90, 300, None]) for _ in range(2)]
    ready = [rng.choice([True, True, True, False]) for _ in range(12)]
    for side in sides:
        side.post(f"/apis/apps/v1/namespaces/{case}/deployments", {"metadata": {"name": "web"}, "spec": {
            "replicas": replicas, "selector": {"matchLabels": {"app": "web"}}, "template": template}})
    time.sleep(3)
    for number, usage in enumerate(usages):
        for side in sides:
            report(side, usage, ready)
            if number == 0:
                side.post(f"/apis/autoscaling/v2/namespaces/{case}/horizontalpodautoscalers", made)
        time.sleep(6)
    for side in sides:
        scalers = side.list(f"/apis/autoscaling/v2/namespaces/{case}/horizontalpodautoscalers")
        web = side.server.call("GET", f"/apis/apps/v1/namespaces/{case}/deployments/web")[2]
        # The fall-back of missing conditions and the order of looks decide which intermediate events there are.
        events = [one for one in events_of(side) if "HorizontalPodAutoscaler" in one]
        yield {"scalers": [cleaned(one, side) for one in scalers], "replicas": web["spec"]["replicas"], "events": events}


def report(side, usage, ready):
    """Makes pods run and reports their usage in thousandths of a core."""
    pods = sorted(side.list(side.pods), key=lambda one: one["metadata"]["creationTimestamp"])
    for number, one in enumerate(pods):
        name = one["metadata"]["name"]
        path = f"/apis/metrics.k8s.io/v1beta1/namespaces/{side.namespace}/pods"
        side.server.call("DELETE", f"{path}/{name}")
        if usage is not None:
            now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
            containers = [{"name": "main", "usage": {"cpu": f"{usage}m", "memory": f"{usage}Mi"}}]
            side.post(path, {"apiVersion": "metrics.k8s.io/v1beta1", "kind": "PodMetrics", "timestamp": now, "window": "0s",
                             "metadata": {"name": name, "labels": one["metadata"]["labels"]}, "containers": containers})
        # Last, because a pod that runs without metrics counts.
        condition = {"type": "Ready", "status": "True" if ready[number] else "False", "lastTransitionTime": jobs.PAST}
        status = {"phase": "Running", "startTime": jobs.PAST, "conditions": [condition]}
        side.server.call("PATCH", f"{side.pods}/{name}/status", {"status": status}, "application/strategic-merge-patch+json")


def define_metrics(server):
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    versions = [{"name": "v1beta1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}]
    names = {"plural": "pods", "singular": "podmetrics", "kind": "PodMetrics"}
    metadata = {"name": "pods.metrics.k8s.io", "annotations": {"api-approved.kubernetes.io": "unapproved, for a test"}}
    spec = {"group": "metrics.k8s.io", "scope": "Namespaced", "versions": versions, "names": names}
    server.must("POST", CRDS, {"metadata": metadata, "spec": spec})


PARTS = {"volumes": volumes_case, "taints": taints_case, "health": health_case, "claims": claims_case, "scale": scale_case}


def run_case(servers, part, seed, prefix):
    sides = [Side(name, server, f"{prefix}-{part}-{seed}") for name, server in servers.items()]
    for side in sides:
        side.create_namespace()
    want, got = PARTS[part](sides, random.Random(f"{part} {seed}"))
    return part, seed, list(jobs.differences(want, got))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("want")
    parser.add_argument("got")
    parser.add_argument("token")
    parser.add_argument("--part", choices=list(PARTS))
    parser.add_argument("--cases", type=int, default=24)
    parser.add_argument("--first", type=int, default=0)
    options = parser.parse_args()
    servers = {"want": Server(options.want, options.token), "got": Server(options.got, options.token)}
    for server in servers.values():
        define_metrics(server)
    prefix = f"l{int(time.time()) % 100000}"
    for part in [options.part] if options.part else list(PARTS):
        seeds = range(1) if part == "health" else range(options.first, options.first + options.cases)
        equal = 0
        with concurrent.futures.ThreadPoolExecutor(THREADS) as pool:
            for _, seed, found in pool.map(lambda seed: run_case(servers, part, seed, prefix), seeds):
                equal += not found
                if found:
                    print(f"{part} {seed}:\n" + "".join(f"    {line}\n" for line in found), flush=True)
        print(f"{part}: {equal} of {len(seeds)} cases are equal", flush=True)


if __name__ == "__main__":
    main()
