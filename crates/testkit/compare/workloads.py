"""Compares the controllers of workloads of two servers: python3 workloads.py WANT_URL GOT_URL TOKEN [--cases N] [--kind K] [-v].

WANT_URL is a server with a kube-controller-manager, GOT_URL one that runs its own loops (`--simulate`). Both without
scheduler, simulated nodes and the loops node-lifecycle, taint-eviction and pod-garbage-collector: this script binds pods,
makes them ready and removes them. Each case is a generated Deployment, ReplicaSet, ReplicationController, StatefulSet or
DaemonSet and a series of changes, applied on both sides in steps; after each step both sides come to rest and everything
in the namespace is compared, field by field, with conditions and events, without uids, times and random suffixes. A case
ends at the first difference. Prints how many cases were equal. Needs only the standard library.
"""

import argparse
import collections
import concurrent.futures
import copy
import json
import random
import re
import time

from access import Server

THREADS = 12
# How long nothing must change before a side is at rest.
REST_SECONDS = {"want": 0.9, "got": 0.5}
STEP_SECONDS_MAX = 60
# Namespaces of another run may still exist.
RUN = int(time.time()) % 100_000
NODES = ["node-1", "node-2", "node-3"]
KINDS = {
    "Deployment": "/apis/apps/v1/namespaces/{}/deployments",
    "ReplicaSet": "/apis/apps/v1/namespaces/{}/replicasets",
    "ReplicationController": "/api/v1/namespaces/{}/replicationcontrollers",
    "StatefulSet": "/apis/apps/v1/namespaces/{}/statefulsets",
    "DaemonSet": "/apis/apps/v1/namespaces/{}/daemonsets",
}
LISTS = dict(KINDS, Pod="/api/v1/namespaces/{}/pods", ControllerRevision="/apis/apps/v1/namespaces/{}/controllerrevisions",
             PersistentVolumeClaim="/api/v1/namespaces/{}/persistentvolumeclaims")
API_VERSIONS = {"ReplicationController": "v1"}
SUFFIX = re.compile(r"-[bcdfghjklmnpqrstvwxz2456789]{5}\b(?!-)")
HIDDEN = {"uid", "resourceVersion", "creationTimestamp", "deletionTimestamp", "managedFields", "lastTransitionTime",
          "lastUpdateTime", "firstTimestamp", "lastTimestamp", "startTime"}


def template(rng, image=None):
    """Generates a template of pods. Pods with the image `bad` never become ready."""
    container = {"name": "c", "image": image or rng.choice(["a:1", "a:2", "a:3"])}
    if rng.random() < 0.3:
        container["resources"] = {"requests": {"cpu": rng.choice(["100m", "1", "1500m"]), "memory": rng.choice(["64Mi", "1Gi", "7Mi"])}}
    if rng.random() < 0.2:
        container["env"] = [{"name": "A", "value": "<x> & y"}]
    if rng.random() < 0.2:
        container["readinessProbe"] = {"httpGet": {"port": rng.choice([80, "http"]), "path": "/"}}
    spec = {"containers": [container], "automountServiceAccountToken": False, "terminationGracePeriodSeconds": 30}
    if rng.random() < 0.2:
        spec["volumes"] = [{"name": "v", "emptyDir": {}}, {"name": "w", "configMap": {"name": "m"}}]
    if rng.random() < 0.2:
        spec["tolerations"] = [{"key": "a", "operator": "Exists", "effect": "NoSchedule"}]
    made = {"metadata": {"labels": {"app": "x"}}, "spec": spec}
    if rng.random() < 0.3:
        made["metadata"]["annotations"] = {"k": "v"}
    if rng.random() < 0.2:
        made["metadata"]["labels"]["tier"] = "t"
    return made


def workload(rng, kind, number):
    """Generates an object."""
    spec = {"selector": {"matchLabels": {"app": "x"}}, "template": template(rng)}
    made = {"apiVersion": API_VERSIONS.get(kind, "apps/v1"), "kind": kind, "metadata": {"name": "w"}, "spec": spec}
    if rng.random() < 0.3:
        made["metadata"]["annotations"] = {"note": "1", "kubernetes.io/change-cause": "c"}
    if kind != "DaemonSet":
        spec["replicas"] = rng.choice([0, 1, 2, 3, 3, 4, 5])
    if rng.random() < 0.15:
        spec["minReadySeconds"] = 1
    if kind == "ReplicationController":
        spec["selector"] = {"app": "x"}
    if kind == "Deployment":
        if rng.random() < 0.25:
            spec["strategy"] = {"type": "Recreate"}
        elif rng.random() < 0.7:
            surge, unavailable = rng.choice([(1, 0), (0, 1), ("25%", "25%"), ("50%", 0), (2, 2), ("100%", "100%"), (0, "1%")])
            spec["strategy"] = {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": surge, "maxUnavailable": unavailable}}
        if rng.random() < 0.4:
            spec["revisionHistoryLimit"] = rng.choice([0, 1, 2])
        if rng.random() < 0.1:
            spec["paused"] = True
        if rng.random() < 0.2:
            spec["progressDeadlineSeconds"] = rng.choice([2147483647, 500])
    if kind == "StatefulSet":
        spec["serviceName"] = "s"
        spec["podManagementPolicy"] = rng.choice(["OrderedReady", "Parallel"])
        if rng.random() < 0.3:
            spec["updateStrategy"] = {"type": "OnDelete"}
        elif rng.random() < 0.5:
            spec["updateStrategy"] = {"type": "RollingUpdate", "rollingUpdate": {"partition": rng.choice([0, 1, 2, 9])}}
        if rng.random() < 0.3:
            spec["ordinals"] = {"start": rng.choice([1, 5])}
        if rng.random() < 0.5:
            claim = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
            spec["volumeClaimTemplates"] = [{"metadata": {"name": "data", "labels": {"l": "1"}}, "spec": claim}]
            policy = {"whenDeleted": rng.choice(["Retain", "Delete"]), "whenScaled": rng.choice(["Retain", "Delete"])}
            if rng.random() < 0.7:
                spec["persistentVolumeClaimRetentionPolicy"] = policy
        if rng.random() < 0.4:
            spec["revisionHistoryLimit"] = rng.choice([0, 1, 2])
    if kind == "DaemonSet":
        spec["template"]["spec"]["nodeSelector"] = {f"case-{number}": "y"}
        if rng.random() < 0.2:
            spec["updateStrategy"] = {"type": "OnDelete"}
        elif rng.random() < 0.6:
            surge, unavailable = rng.choice([(1, 0), (0, 1), (0, "50%"), ("100%", 0), (0, 3)])
            spec["updateStrategy"] = {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": surge, "maxUnavailable": unavailable}}
        if rng.random() < 0.4:
            spec["revisionHistoryLimit"] = rng.choice([0, 1, 2])
    return made


def steps(rng, made, number):
    """Generates what happens: actions, each followed by a number of pods that move (None: all that can)."""
    kind, actions = made["kind"], []
    rolls = kind in ("Deployment", "StatefulSet", "DaemonSet")
    for _ in range(rng.randint(2, 6)):
        moves = rng.choice([None, None, None, 0, 1, 2])
        roll = rng.random()
        if roll < 0.25 and kind != "DaemonSet":
            actions.append(("patch", {"spec": {"replicas": rng.choice([0, 1, 2, 3, 4, 6])}}, moves))
        elif roll < 0.25:
            actions.append(("label", rng.choice(NODES), rng.random() < 0.6, moves))
        elif roll < 0.5 and rolls:
            actions.append(("image", rng.choice(["a:1", "a:2", "a:3", "a:4", "bad:1"]), moves))
        elif roll < 0.58 and rolls:
            actions.append(("rollback", rng.randint(0, 3), moves))
        elif roll < 0.66 and kind == "Deployment":
            actions.append(("patch", {"spec": {"paused": rng.random() < 0.5}}, moves))
        elif roll < 0.70:
            actions.append(("patch", {"metadata": {"annotations": {"note": rng.choice(["2", "3"])}}}, moves))
        elif roll < 0.76:
            actions.append(("delete-pod", rng.randint(0, 3), moves))
        elif roll < 0.82:
            actions.append(("fail-pod", rng.randint(0, 3), rng.choice(["Failed", "Succeeded"]), moves))
        elif roll < 0.87:
            actions.append(("relabel-pod", rng.randint(0, 3), moves))
        elif roll < 0.90:
            actions.append(("patch", {"spec": {"minReadySeconds": rng.choice([0, 1])}}, moves))
        elif roll < 0.94 and kind == "StatefulSet":
            actions.append(("patch", {"spec": {"updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"partition": rng.randint(0, 3)}}}}, moves))
        elif roll < 0.94 and kind == "Deployment":
            actions.append(("patch", {"spec": {"strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 1}}}}, moves))
        elif roll < 0.97:
            actions.append(("orphan", moves))
        else:
            actions.append(("orphaned-pod", moves))
    if rng.random() < 0.25:
        actions.append(("end", rng.choice(["Background", "Foreground", "Orphan"]), None))
    return actions


class Side:
    """One server, with the objects of one case."""

    def __init__(self, name, server, number, made):
        self.name, self.server, self.number, self.made = name, server, number, made
        self.namespace = f"w-{RUN}-{number}"
        self.kind = made["kind"]
        self.path = KINDS[self.kind].format(self.namespace) + "/w"
        self.templates = [made["spec"]["template"]]
        self.rest = REST_SECONDS[name]
        self.nudges = 0

    def list(self, kind):
        return self.server.call("GET", LISTS[kind].format(self.namespace))[2].get("items", [])

    def pods(self):
        def order(pod):
            metadata, status = pod["metadata"], pod["status"]
            labels = sorted(metadata.get("labels", {}).items())
            return SUFFIX.sub("-*", metadata["name"]), str(labels), "deletionTimestamp" in metadata, str(status.get("phase")), self.node_of(pod) or ""

        return sorted(self.list("Pod"), key=order)

    @staticmethod
    def node_of(pod):
        affinity = pod["spec"].get("affinity", {}).get("nodeAffinity", {})
        terms = affinity.get("requiredDuringSchedulingIgnoredDuringExecution", {}).get("nodeSelectorTerms", [])
        return pod["spec"].get("nodeName") or (terms and terms[0]["matchFields"][0]["values"][0])

    def create(self):
        self.server.must("POST", "/api/v1/namespaces", {"metadata": {"name": self.namespace}})
        self.server.call("POST", f"/api/v1/namespaces/{self.namespace}/serviceaccounts", {"metadata": {"name": "default"}})
        if self.kind == "DaemonSet":
            for node in NODES[:2]:
                self.label(node, True)
        self.server.must("POST", KINDS[self.kind].format(self.namespace), self.made)

    def label(self, node, is_on):
        patch = {"metadata": {"labels": {f"case-{self.number}": "y" if is_on else None}}}
        self.patch(f"/api/v1/nodes/{node}", patch)

    def patch(self, path, patch):
        return self.server.call("PATCH", path, patch, "application/merge-patch+json")

    def signature(self):
        # Not all kinds: the others change with these.
        kinds = ["Pod", self.kind] + (["ReplicaSet"] if self.kind == "Deployment" else []) + (
            ["PersistentVolumeClaim"] if self.kind == "StatefulSet" else [])
        return [sorted((one["metadata"]["uid"], one["metadata"]["resourceVersion"]) for one in self.list(kind)) for kind in kinds]

    def settle(self):
        """Waits until nothing changes any more."""
        end, since, known = time.time() + STEP_SECONDS_MAX, time.time(), None
        while time.time() < end:
            now = self.signature()
            if now != known:
                known, since = now, time.time()
            elif time.time() - since > self.rest:
                return
            time.sleep(0.15)

    def move(self, moves):
        """Binds pods and makes them ready, and removes pods that are being deleted, until all did, or `moves` of them."""
        left = 10**6 if moves is None else moves
        for _ in range(80):
            self.settle()
            pods = self.pods()
            going = [pod for pod in pods if "deletionTimestamp" in pod["metadata"]]
            going = [pod for pod in going if not pod["metadata"].get("finalizers")]
            if left > 0 and going:
                # When the last old pod of a Deployment goes soon after others, kube-controller-manager loses a condition.
                for pod in going[:1] if self.made["spec"].get("strategy", {}).get("type") == "Recreate" else going:
                    self.server.call("DELETE", f"{LISTS['Pod'].format(self.namespace)}/{pod['metadata']['name']}", {"gracePeriodSeconds": 0})
                if self.kind == "StatefulSet" and any(not pod["metadata"].get("ownerReferences") for pod in going):
                    # A name that a released pod had is free: nobody tells the set, whose next try may be seconds away.
                    self.nudges += 1
                    self.patch(self.path, {"metadata": {"annotations": {"nudges": str(self.nudges)}}})
                continue
            waiting = [pod for pod in pods if self.can_start(pod)]
            if not waiting or left <= 0:
                return
            owners = {json.dumps(pod["metadata"].get("ownerReferences")) for pod in pods}
            is_single = len(owners) == 1 and self.kind in ("Deployment", "ReplicaSet", "ReplicationController")
            for pod in waiting[:left] if is_single else waiting[:1]:
                self.start(pod)
                left -= 1

    @staticmethod
    def can_start(pod):
        if "deletionTimestamp" in pod["metadata"] or pod["spec"]["containers"][0]["image"].startswith("bad"):
            return False
        return pod["status"].get("phase") == "Pending"

    def start(self, pod):
        path = f"{LISTS['Pod'].format(self.namespace)}/{pod['metadata']['name']}"
        if not pod["spec"].get("nodeName"):
            node = self.node_of(pod) or "node-1"
            self.server.call("POST", path + "/binding", {"metadata": {"name": pod["metadata"]["name"]}, "target": {"kind": "Node", "name": node}})
        now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        ready = {"type": "Ready", "status": "True", "lastTransitionTime": now}
        self.patch(path + "/status", {"status": {"phase": "Running", "conditions": [ready], "podIP": "10.0.0.1", "podIPs": [{"ip": "10.0.0.1"}]}})

    def act(self, action):
        verb = action[0]
        if verb == "patch":
            self.patch(self.path, action[1])
        elif verb == "label":
            self.label(action[1], action[2])
        elif verb in ("image", "rollback"):
            new = copy.deepcopy(self.templates[-1])
            if verb == "image":
                new["spec"]["containers"][0]["image"] = action[1]
            else:
                new = copy.deepcopy(self.templates[action[1] % len(self.templates)])
            self.templates.append(new)
            self.patch(self.path, {"spec": {"template": {"spec": {"containers": new["spec"]["containers"]}}}})
        elif verb == "orphan":
            self.delete("Orphan")
            self.server.call("POST", KINDS[self.kind].format(self.namespace), dict(self.made, spec=dict(self.made["spec"], template=self.templates[-1])))
        elif verb == "orphaned-pod":
            owner = {"metadata": {"name": "w-7", "labels": {"app": "x"}}, "spec": self.templates[-1]["spec"]}
            self.server.call("POST", LISTS["Pod"].format(self.namespace), owner)
        elif verb == "end":
            self.delete(action[1])
        else:
            pods = [pod for pod in self.pods() if "deletionTimestamp" not in pod["metadata"]]
            if pods:
                self.act_on_pod(action, pods[action[1] % len(pods)])

    def act_on_pod(self, action, pod):
        path = f"{LISTS['Pod'].format(self.namespace)}/{pod['metadata']['name']}"
        if action[0] == "delete-pod":
            self.server.call("DELETE", path)
        elif action[0] == "fail-pod":
            self.patch(path + "/status", {"status": {"phase": action[2], "conditions": []}})
        else:
            self.patch(path, {"metadata": {"labels": {"app": "other"}}})

    def delete(self, propagation):
        self.server.call("DELETE", self.path, {"propagationPolicy": propagation})
        end = time.time() + STEP_SECONDS_MAX
        while time.time() < end and self.server.call("GET", self.path)[0] == 200:
            if propagation == "Foreground":
                for pod in self.pods():
                    if "deletionTimestamp" in pod["metadata"]:
                        self.server.call("DELETE", f"{LISTS['Pod'].format(self.namespace)}/{pod['metadata']['name']}", {"gracePeriodSeconds": 0})
            time.sleep(0.1)

    def everything(self):
        """Returns all objects, and events with their numbers."""
        uids = {}
        objects = {kind: self.list(kind) for kind in LISTS}
        for kind, items in objects.items():
            for item in items:
                uids[item["metadata"]["uid"]] = f"{kind} {SUFFIX.sub('-*', item['metadata']['name'])}"
        shown = {kind: sorted((self.shown(item, uids) for item in items), key=lambda one: json.dumps(one, sort_keys=True)) for kind, items in objects.items()}
        events, by_group = collections.Counter(), collections.defaultdict(list)
        for event in self.server.call("GET", f"/api/v1/namespaces/{self.namespace}/events")[2].get("items", []):
            about = event["involvedObject"]
            if about["kind"] in ("PersistentVolumeClaim", "Namespace"):
                continue
            if "the object has been modified" in event["message"]:
                continue
            words = [about["kind"], about.get("apiVersion"), self.plain(about["name"]), event["type"], event["reason"],
                     event["source"].get("component")]
            by_group[" | ".join(map(str, words))].append(event)
        for words, group in by_group.items():
            # Which of many similar events are combined depends on chance.
            is_combined = any(event["message"].startswith("(combined") for event in group)
            for event in group:
                more = ["many"] if is_combined else [self.plain(event["message"]), event.get("reportingComponent")]
                events[" | ".join([words, *map(str, more)])] += event.get("count", 1)
        shown["Event"] = dict(sorted(events.items()))
        return shown

    @staticmethod
    def plain(text):
        # Which nodes are updated first depends on chance.
        text = re.sub(r"\bnode-\d", "node-N", SUFFIX.sub("-*", text))
        return re.sub(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}", "UID", text)

    def shown(self, value, uids, name=None):
        if isinstance(value, dict):
            made = {key: self.shown(item, uids, key) for key, item in value.items() if key not in HIDDEN}
            if "uid" in value and "kind" in value:
                made["uid"] = uids.get(value["uid"], "gone")
            return made
        if isinstance(value, list):
            return [self.shown(item, uids) for item in value]
        if value in NODES:
            return "node-N"
        if name == "name" and isinstance(value, str):
            return SUFFIX.sub("-*", value)
        return value


def differences(want, got, path=""):
    """Yields the paths where two values differ."""
    if isinstance(want, dict) and isinstance(got, dict):
        for key in sorted(set(want) | set(got)):
            yield from differences(want.get(key), got.get(key), f"{path}/{key}")
    elif isinstance(want, list) and isinstance(got, list) and len(want) == len(got):
        for index, (one, other) in enumerate(zip(want, got)):
            yield from differences(one, other, f"{path}[{index}]")
    elif want != got:
        yield f"{path}: want {json.dumps(want)[:600]}, got {json.dumps(got)[:600]}"


def run(number, args):
    """Runs one case and returns its kind, the number of equal steps and the differences."""
    rng = random.Random(args.seed * 100_000 + number)
    kind = args.kind or rng.choice(["Deployment"] * 4 + ["StatefulSet"] * 3 + ["DaemonSet"] * 2 + ["ReplicaSet", "ReplicationController"])
    made = workload(rng, kind, number)
    actions = [("create", None)] + steps(rng, made, number)
    sides = [Side("want", Server(args.want, args.token), number, made), Side("got", Server(args.got, args.token), number, made)]
    if "minReadySeconds" in json.dumps([made, actions]):
        for side in sides:
            side.rest += 1.3
    done = []
    for action in actions:
        def work(side):
            side.create() if action[0] == "create" else side.act(action)
            side.move(action[-1])
            return side.everything()

        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            want, got = pool.map(work, sides)
        done.append(action)
        found = list(differences(want, got))
        if found:
            return number, kind, done, found, made
    for side in sides:
        side.server.call("DELETE", f"/api/v1/namespaces/{side.namespace}")
    return number, kind, done, [], made


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("want")
    parser.add_argument("got")
    parser.add_argument("token")
    parser.add_argument("--cases", type=int, default=100)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--kind", choices=sorted(KINDS))
    parser.add_argument("-v", action="store_true")
    args = parser.parse_args()
    for url in (args.want, args.got):
        server = Server(url, args.token)
        for node in NODES:
            server.call("POST", "/api/v1/nodes", {"metadata": {"name": node}})
            # Nobody reports that these nodes are ready.
            server.call("PATCH", f"/api/v1/nodes/{node}", {"spec": {"taints": None}}, "application/merge-patch+json")
    equal, all_cases, steps_done = collections.Counter(), collections.Counter(), 0
    numbers = range(args.first, args.first + args.cases)
    with concurrent.futures.ThreadPoolExecutor(THREADS) as pool:
        for number, kind, done, found, made in pool.map(lambda number: run(number, args), numbers):
            all_cases[kind] += 1
            equal[kind] += not found
            steps_done += len(done)
            if found:
                print(f"case {number} {kind} differs after {done}")
                for line in found[:12 if args.v else 4]:
                    print("   ", line)
                if args.v:
                    print("   ", json.dumps(made["spec"]))
    for kind in sorted(all_cases):
        print(f"{kind}: {equal[kind]} of {all_cases[kind]} cases are equal")
    print(f"{sum(equal.values())} of {sum(all_cases.values())} cases are equal, {steps_done} steps")


if __name__ == "__main__":
    main()
