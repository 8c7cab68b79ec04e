"""Compares workloads of two clusters with simulated nodes: python3 clusters.py KEELSON PEERS [--cases N] [--only N,N] [--seed N] [-v].

KEELSON is the program, PEERS a folder with kube-controller-manager and kube-scheduler 1.36. The script starts two servers
with `--simulate`. With the first one, the stock kube-controller-manager and kube-scheduler work (so that its own loops
stand aside), with the second one its own. Each case is a generated Deployment, ReplicaSet, ReplicationController,
StatefulSet, DaemonSet, Job or CronJob in a namespace and on nodes of its own, and a series of changes: updates, scale,
pauses, rollbacks, deletions, cordoned, tainted, lost and deleted nodes. After each change both sides come to rest; at the
end everything is compared: all fields of the objects with their conditions, owners, revisions, hashes and ordinals, and
the events, without uids, times, addresses, random suffixes and counts. Prints the cases that differ and how many are
equal. `--sides stock,stock` compares the stock programs with themselves: what differs then as well depends on chance.
Needs only the standard library; `python3 workloads.py` and `jobs.py` compare each step without nodes.
"""

import argparse
import collections
import concurrent.futures
import copy
import json
import pathlib
import random
import re
import subprocess
import tempfile
import time

from access import Server
from workloads import KINDS, SUFFIX, differences, workload

MERGE = "application/merge-patch+json"
# How long nothing must change before a side is at rest, and how long that may take.
REST_SECONDS = 3
STEP_SECONDS_MAX = 120
LISTS = dict(
    KINDS, Pod="/api/v1/namespaces/{}/pods", ControllerRevision="/apis/apps/v1/namespaces/{}/controllerrevisions",
    Job="/apis/batch/v1/namespaces/{}/jobs", CronJob="/apis/batch/v1/namespaces/{}/cronjobs",
    PersistentVolumeClaim="/api/v1/namespaces/{}/persistentvolumeclaims")
OWNED = {"Deployment": ["ReplicaSet"], "StatefulSet": ["ControllerRevision", "PersistentVolumeClaim"],
         "DaemonSet": ["ControllerRevision"], "CronJob": ["Job"]}
HIDDEN = {"uid", "resourceVersion", "creationTimestamp", "deletionTimestamp", "managedFields", "lastTransitionTime",
          "lastUpdateTime", "startTime", "completionTime", "startedAt", "finishedAt", "containerID", "podIP", "podIPs",
          "hostIP", "hostIPs", "lastScheduleTime", "lastSuccessfulTime", "lastProbeTime", "volumeName", "renewTime",
          "batch.kubernetes.io/cronjob-scheduled-timestamp", "volume.kubernetes.io/selected-node"}
# Messages that depend on how many pods were ready when a controller looked.
STEPWISE = {"ScalingReplicaSet", "FailedScheduling", "SuccessfulRescale"}
# Reasons of events of pods that depend on what came first, or say nothing any more once the pod runs.
PASSING = {"FailedMount", "FailedScheduling", "NodeNotReady"}


def job_spec(rng):
    """Generates the spec of a Job, whose pods end soon."""
    command = rng.choice([["true"], ["true"], ["false"], ["sleep", "1"], ["sh", "-c", "sleep 1; exit 3"], ["sh", "-c", "exit 42"]])
    spec = {"restartPolicy": "Never", "terminationGracePeriodSeconds": 1, "automountServiceAccountToken": False,
            "containers": [{"name": "c", "image": "a:1", "command": command}]}
    made = {"template": {"spec": spec}, "backoffLimit": rng.choice([0, 0, 1])}
    if rng.random() < 0.7:
        made["completions"] = rng.randint(1, 4)
    # Which of several pods still runs when a Job fails depends on chance.
    succeeds = command[0] in ("true", "sleep")
    if rng.random() < 0.5 and succeeds:
        made["parallelism"] = rng.randint(1, 3)
    if "completions" in made and rng.random() < 0.4:
        made["completionMode"] = "Indexed"
        if rng.random() < 0.4:
            made["backoffLimitPerIndex"] = rng.choice([0, 1])
            made["maxFailedIndexes"] = rng.choice([0, 1, 4])
            made["maxFailedIndexes"] = min(made["maxFailedIndexes"], made["completions"])
    if rng.random() < 0.3:
        action = rng.choice(["FailJob", "Ignore"])
        made["podFailurePolicy"] = {"rules": [{"action": action, "onExitCodes": {"operator": "In", "values": [42]}}]}
        if action == "Ignore":
            command[:] = ["false"]
            made.pop("parallelism", None)
    if rng.random() < 0.15:
        made["suspend"] = True
    return made


def generate(rng, number):
    """Generates an object."""
    kinds = ["Deployment"] * 6 + ["StatefulSet"] * 4 + ["DaemonSet"] * 3 + ["Job"] * 4 + ["ReplicaSet", "ReplicationController"]
    kind = rng.choice(kinds) if rng.random() > 0.03 else "CronJob"
    if kind in KINDS:
        made = workload(rng, kind, number)
    else:
        made = {"apiVersion": "batch/v1", "kind": kind, "metadata": {"name": "w"}, "spec": job_spec(rng)}
        if kind == "CronJob":
            made["spec"].pop("suspend", None)
            made["spec"] = {"schedule": "* * * * *", "jobTemplate": {"spec": made["spec"]}}
    pods = made["spec"]["jobTemplate"]["spec"] if kind == "CronJob" else made["spec"]
    spec = pods["template"]["spec"]
    spec["nodeSelector"] = {"case": str(number)}
    # Among equally good nodes a scheduler chooses at random: no two nodes are equally good.
    spec.setdefault("affinity", {}).setdefault("nodeAffinity", {})["preferredDuringSchedulingIgnoredDuringExecution"] = [
        {"weight": weight, "preference": {"matchExpressions": [{"key": "rank", "operator": "In", "values": [rank]}]}}
        for rank, weight in (("0", 100), ("1", 99), ("2", 98))]
    spec["terminationGracePeriodSeconds"] = 1
    # Pods leave lost nodes soon.
    spec.setdefault("tolerations", []).extend(
        {"key": f"node.kubernetes.io/{key}", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 1}
        for key in ("not-ready", "unreachable"))
    return made


def steps(rng, made):
    """Generates changes."""
    kind, actions = made["kind"], []
    rolls = kind in ("Deployment", "StatefulSet", "DaemonSet")
    scales = kind in ("Deployment", "StatefulSet", "ReplicaSet", "ReplicationController")
    for _ in range(rng.randint(1, 5)):
        roll = rng.random()
        if roll < 0.2 and scales:
            actions.append(("patch", {"spec": {"replicas": rng.choice([0, 1, 2, 3, 4, 6])}}))
        elif roll < 0.2 and kind == "Job":
            actions.append(("patch", {"spec": rng.choice([{"suspend": True}, {"suspend": False}])}))
        elif roll < 0.45 and rolls:
            actions.append(("image", rng.choice(["a:1", "a:2", "a:3", "a:4", "bad:1"])))
        elif roll < 0.53 and rolls:
            actions.append(("rollback", rng.randint(0, 3)))
        elif roll < 0.58 and kind == "Deployment":
            actions.append(("patch", {"spec": {"paused": rng.random() < 0.5}}))
        elif roll < 0.62:
            actions.append(("patch", {"metadata": {"annotations": {"note": rng.choice(["2", "3"])}}}))
        elif roll < 0.70:
            actions.append(("delete-pod", rng.randint(0, 3)))
        elif roll < 0.74 and kind not in ("Job", "CronJob"):
            actions.append(("relabel-pod", rng.randint(0, 3)))
        elif roll < 0.79:
            actions.append(("node", {"spec": {"unschedulable": rng.random() < 0.6}}))
        elif roll < 0.87:
            taints = [{"key": "t", "effect": rng.choice(["NoSchedule", "NoExecute"])}] if rng.random() < 0.7 else None
            actions.append(("node", {"spec": {"taints": taints}}))
        # Which pods of a Job have ended on a node that goes depends on chance.
        elif roll < 0.90 and kind in KINDS:
            actions.append(("lose-node",))
        elif roll < 0.92 and kind in KINDS:
            actions.append(("delete-node",))
        elif roll < 0.95 and kind == "StatefulSet":
            actions.append(("patch", {"spec": {"updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"partition": rng.randint(0, 3)}}}}))
        elif roll < 0.95 and kind == "Deployment":
            actions.append(("patch", {"spec": {"strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 1}}}}))
        elif roll < 0.98 and kind in KINDS:
            actions.append(("orphan",))
    if rng.random() < 0.15:
        actions.append(("end", rng.choice(["Background", "Foreground", "Orphan"])))
    return actions


def is_ending(pod):
    return "deletionTimestamp" in pod["metadata"] and not pod["metadata"].get("finalizers")


def pulls(pod):
    """Returns whether an image could not be pulled just now: ten seconds later the node reports that it backs off."""
    states = [status["state"].get("waiting", {}).get("reason") for status in pod["status"].get("containerStatuses", [])]
    return "ErrImagePull" in states


class Side:
    """One server, with the objects of one case."""

    def __init__(self, server, number, made):
        self.server, self.number, self.made = server, number, made
        self.namespace, self.kind = f"c-{number}", made["kind"]
        self.collection = LISTS[self.kind].format(self.namespace)
        self.path = self.collection + "/w"
        self.nodes = [f"n{number}-{place}" for place in range(3)]
        self.templates = [] if self.kind in ("Job", "CronJob") else [copy.deepcopy(made["spec"]["template"])]
        # Deletions of which a StatefulSet may tell or not: its pods whose node was deleted fail, and are gone a moment later.
        self.untold = set()

    def list(self, kind):
        return self.server.call("GET", LISTS[kind].format(self.namespace))[2].get("items", [])

    def patch(self, path, patch):
        return self.server.call("PATCH", path, patch, MERGE)

    def create(self):
        for place, name in enumerate(self.nodes):
            rank = str((self.number + place) % len(self.nodes))
            metadata = {"name": name, "labels": {"case": str(self.number), "kubernetes.io/hostname": name, "rank": rank},
                        "annotations": {"kwok.x-k8s.io/node": "fake"}}
            self.server.must("POST", "/api/v1/nodes", {"metadata": metadata})
        self.server.must("POST", "/api/v1/namespaces", {"metadata": {"name": self.namespace}})
        self.until(lambda: self.server.call("GET", f"/api/v1/namespaces/{self.namespace}/serviceaccounts/default")[0] == 200)
        self.until(lambda: all(self.is_ready(name) for name in self.nodes))
        self.server.must("POST", f"/api/v1/namespaces/{self.namespace}/configmaps", {"metadata": {"name": "m"}})
        self.server.must("POST", self.collection, self.made)
        if self.kind == "CronJob":
            self.until(lambda: self.server.call("GET", self.path)[2].get("status", {}).get("lastScheduleTime"))
            self.patch(self.path, {"spec": {"suspend": True}})

    def is_ready(self, name):
        node = self.server.call("GET", f"/api/v1/nodes/{name}")[2]
        ready = [one for one in node.get("status", {}).get("conditions", []) if one["type"] == "Ready"]
        return bool(ready) and ready[0]["status"] == "True" and not node["spec"].get("taints")

    @staticmethod
    def until(holds):
        end = time.time() + STEP_SECONDS_MAX
        while not holds():
            if time.time() > end:
                return
            time.sleep(0.2)

    def settle(self):
        """Waits until nothing changes any more."""
        end, since, known = time.time() + STEP_SECONDS_MAX, time.time(), None
        while time.time() < end:
            kinds = ["Pod", self.kind, *OWNED.get(self.kind, [])]
            now = [sorted((one["metadata"]["uid"], one["metadata"]["resourceVersion"]) for one in self.list(kind)) for kind in kinds]
            # kube-controller-manager waits a second between two looks at a Job.
            rest = REST_SECONDS + (1.5 if self.kind in ("Job", "CronJob") or "minReadySeconds" in self.made["spec"] else 0)
            if now != known:
                known, since = now, time.time()
            elif time.time() - since > rest and not self.is_under_way():
                return
            time.sleep(0.4)

    def is_under_way(self):
        # kube-controller-manager may be late.
        code, _, made = self.server.call("GET", self.path)
        observed = made.get("status", {}).get("observedGeneration") if code == 200 else None
        if observed is not None and observed < made["metadata"]["generation"]:
            return True
        lost = self.lost_nodes()
        pods = [pod for pod in self.list("Pod") if pod["spec"].get("nodeName") not in lost]
        return any(is_ending(pod) or pulls(pod) for pod in pods)

    def lost_nodes(self):
        nodes = self.server.call("GET", f"/api/v1/nodes?labelSelector=case={self.number}")[2]["items"]
        return {node["metadata"]["name"] for node in nodes if "simulation.keelson.dev/failed" in node["metadata"]["annotations"]}

    def act(self, action):
        verb = action[0]
        if verb == "patch":
            self.patch(self.path, action[1])
        elif verb in ("image", "rollback"):
            if verb == "image":
                new = copy.deepcopy(self.templates[-1])
                new["spec"]["containers"][0]["image"] = action[1]
                fails = "true" if action[1].startswith("bad") else None
                new["metadata"].setdefault("annotations", {})["simulation.keelson.dev/image-pull-error"] = fails
            else:
                new = copy.deepcopy(self.templates[action[1] % len(self.templates)])
                new["metadata"].setdefault("annotations", {}).setdefault("simulation.keelson.dev/image-pull-error", None)
            self.templates.append(new)
            changed = {"metadata": {"annotations": new["metadata"]["annotations"]}, "spec": {"containers": new["spec"]["containers"]}}
            self.patch(self.path, {"spec": {"template": changed}})
        elif verb == "node":
            self.patch(f"/api/v1/nodes/{self.nodes[0]}", action[1])
        elif verb == "lose-node":
            path = f"/api/v1/nodes/{self.nodes[1]}"
            self.patch(path, {"metadata": {"annotations": {"simulation.keelson.dev/failed": "true"}}})
            effects = {"NoSchedule", "NoExecute"}
            def is_tainted():
                taints = self.server.call("GET", path)[2].get("spec", {"taints": None}).get("taints") or []
                return effects <= {taint["effect"] for taint in taints if taint["key"] == "node.kubernetes.io/unreachable"}
            if self.server.call("GET", path)[0] == 200:
                self.until(is_tainted)
                time.sleep(2)
        elif verb == "delete-node":
            bound = [pod["metadata"]["name"] for pod in self.list("Pod") if pod["spec"].get("nodeName") == self.nodes[2]]
            self.untold |= {f"Delete Pod {name} in StatefulSet w successful" for name in bound}
            self.server.call("DELETE", f"/api/v1/nodes/{self.nodes[2]}")
            self.until(lambda: not any(pod["spec"].get("nodeName") == self.nodes[2] for pod in self.list("Pod")))
        elif verb == "orphan":
            self.delete("Orphan")
            spec = dict(self.made["spec"], template=self.templates[-1])
            self.server.call("POST", self.collection, dict(self.made, spec=spec))
        elif verb == "end":
            self.delete(action[1])
        else:
            self.act_on_pod(verb, action[1])

    def act_on_pod(self, verb, place):
        pods = [pod for pod in self.list("Pod") if "deletionTimestamp" not in pod["metadata"]]
        # Ordinals, revisions and nodes decide, not random names.
        def place_of(pod):
            return SUFFIX.sub("", pod["metadata"]["name"]), str(pod["status"].get("phase")), str(pod["spec"].get("nodeName"))
        pods.sort(key=place_of)
        if not pods:
            return
        path = f"{LISTS['Pod'].format(self.namespace)}/{pods[place % len(pods)]['metadata']['name']}"
        if verb == "delete-pod":
            self.server.call("DELETE", path)
        else:
            self.patch(path, {"metadata": {"labels": {"app": "other"}}})

    def delete(self, propagation):
        self.server.call("DELETE", self.path, {"propagationPolicy": propagation})
        self.until(lambda: self.server.call("GET", self.path)[0] != 200)

    def everything(self):
        uids = {}
        objects = {kind: self.list(kind) for kind in LISTS}
        for kind, items in objects.items():
            for item in items:
                uids[item["metadata"]["uid"]] = f"{kind} {self.plain(item['metadata']['name'])}"
        shown = {}
        for kind, items in objects.items():
            made = [self.shown(item, uids) for item in items]
            shown[kind] = sorted(made, key=lambda one: json.dumps(one, sort_keys=True))
        running = {pod["metadata"]["uid"] for pod in objects["Pod"] if pod["spec"].get("nodeName") and pod["status"].get("podIP")}
        events, by_reason = set(), collections.defaultdict(list)
        for event in self.server.call("GET", f"/api/v1/namespaces/{self.namespace}/events")[2].get("items", []):
            about, reason = event["involvedObject"], event["reason"]
            # Pods that are gone may have come and gone at any time.
            if about["kind"] not in LISTS or (about["kind"] in ("Pod", "PersistentVolumeClaim") and about.get("uid") not in uids):
                continue
            # So may volumes that were bound, and nodes that were free, a moment later.
            if "the object has been modified" in event["message"] or (about.get("uid") in running and reason in PASSING):
                continue
            words = [about["kind"], about.get("apiVersion"), self.plain(about["name"]), about.get("fieldPath", ""), event["type"],
                     reason, event["source"].get("component") or event.get("reportingComponent")]
            by_reason[" | ".join(map(str, words))].append(event)
        for words, group in by_reason.items():
            # Which of many similar events are combined depends on chance.
            are_many = any(event["message"].startswith("(combined") for event in group)
            for event in group:
                message = "" if are_many or event["reason"] in STEPWISE else self.plain(event["message"])
                events.add(f"{words} | {message}")
        shown["Event"] = {event: True for event in sorted(events)}
        # Which condition was written last depends on whether a controller saw that pods were missing for a moment.
        for made in shown["Deployment"]:
            made.get("status", {}).get("conditions", []).sort(key=lambda condition: condition["type"])
        # A ReplicaSet shrinks by as many pods at a time as others have become ready.
        for made in shown["ReplicaSet"] if self.kind == "Deployment" else ():
            made["metadata"].pop("generation", None)
            made.get("status", {}).pop("observedGeneration", None)
        return shown

    def has_conflict(self):
        """Returns whether a write for a StatefulSet came too late: then it is not told which pods were made."""
        events = self.server.call("GET", f"/api/v1/namespaces/{self.namespace}/events")[2].get("items", [])
        return any(event["involvedObject"]["kind"] == "StatefulSet" and "the object has been modified" in event["message"] for event in events)

    def plain(self, text):
        text = re.sub(rf"\bn{self.number}-\d\b", "node-N", SUFFIX.sub("-*", text))
        text = re.sub(r"\bw-2\d{7}\b", "w-MINUTE", text)
        return re.sub(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}", "UID", text)

    def shown(self, value, uids):
        if isinstance(value, dict):
            made = {key: self.shown(item, uids) for key, item in value.items() if key not in HIDDEN}
            if "uid" in value and "kind" in value:
                made["uid"] = uids.get(value["uid"], "gone")
            return made
        if isinstance(value, list):
            return [self.shown(item, uids) for item in value]
        return self.plain(value) if isinstance(value, str) else value

    def remove(self):
        self.server.call("DELETE", f"/api/v1/namespaces/{self.namespace}")
        for name in self.nodes:
            self.server.call("DELETE", f"/api/v1/nodes/{name}")


def run(number, args, servers):
    """Runs one case. Returns its number, kind, changes and differences."""
    rng = random.Random(args.seed * 100_000 + number)
    made = generate(rng, number)
    actions = steps(rng, made)

    def play(server):
        side = Side(server, number, made)
        side.create()
        side.settle()
        for action in actions:
            side.act(action)
            side.settle()
        shown = side.everything(), side.has_conflict(), side.untold
        side.remove()
        return shown

    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        (want, late, untold), (got, also_late, also_untold) = pool.map(play, servers)
    left_out = [f"| {message}" for message in untold | also_untold]
    if late or also_late:
        left_out += ["| SuccessfulCreate |", "| SuccessfulUpdate |"]
    for shown in (want, got):
        shown["Event"] = {event: True for event in shown["Event"] if not any(words in event for words in left_out)}
    return number, made, actions, list(differences(want, got))


def start(args, folder, stock):
    """Starts a server, and the stock programs if wanted. Returns the processes and the server."""
    folder.mkdir()
    kubeconfig = folder / "kubeconfig"
    command = [args.keelson, "serve", "--ephemeral", "--simulate", "--simulate-nodes=0", f"--kubeconfig={kubeconfig}"]
    with open(folder / "server.log", "wb") as log:
        server = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log)
    told = json.loads(server.stdout.readline())
    processes = [server]
    programs = {
        "kube-controller-manager": ["--leader-elect=true", "--node-monitor-period=2s", "--concurrent-deployment-syncs=5"],
        "kube-scheduler": ["--leader-elect=true", f"--authentication-kubeconfig={kubeconfig}", f"--authorization-kubeconfig={kubeconfig}"],
    }
    for name, flags in programs.items() if stock else ():
        flags = [f"--kubeconfig={kubeconfig}", "--secure-port=0", "--kube-api-qps=500", "--kube-api-burst=1000", *flags]
        with open(folder / f"{name}.log", "wb") as log:
            processes.append(subprocess.Popen([pathlib.Path(args.peers) / name, *flags], stdout=log, stderr=log))
    client = Server(told["url"], told["token"])
    for name in programs if stock else ():
        path = f"/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/{name}"
        Side.until(lambda path=path: client.call("GET", path)[2].get("spec", {}).get("holderIdentity"))
    return processes, client


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("keelson")
    parser.add_argument("peers")
    parser.add_argument("--cases", type=int, default=100)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--only", help="numbers of cases, such as 26,35")
    parser.add_argument("--sides", default="stock,own", help="whose loops work on both sides")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--threads", type=int, default=10)
    parser.add_argument("-v", action="store_true")
    args = parser.parse_args()
    processes, equal, everyone = [], collections.Counter(), collections.Counter()
    with tempfile.TemporaryDirectory() as folder:
        try:
            servers = []
            for name, loops in zip(("want", "got"), args.sides.split(",")):
                more, server = start(args, pathlib.Path(folder) / name, loops == "stock")
                processes += more
                servers.append(server)
            numbers = map(int, args.only.split(",")) if args.only else range(args.first, args.first + args.cases)
            with concurrent.futures.ThreadPoolExecutor(args.threads) as pool:
                for number, made, actions, found in pool.map(lambda number: run(number, args, servers), numbers):
                    everyone[made["kind"]] += 1
                    equal[made["kind"]] += not found
                    if found:
                        print(f"case {number} {made['kind']} differs after {actions}", flush=True)
                        for line in found[:20 if args.v else 5]:
                            print("   ", line)
                        if args.v:
                            print("   ", json.dumps(made["spec"]))
        finally:
            for process in processes:
                process.terminate()
    for kind in sorted(everyone):
        print(f"{kind}: {equal[kind]} of {everyone[kind]} cases are equal")
    print(f"{sum(equal.values())} of {sum(everyone.values())} cases are equal (seed {args.seed})")


if __name__ == "__main__":
    main()
