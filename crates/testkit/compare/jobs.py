"""Compares the job and cronjob controllers of two servers: python3 jobs.py WANT_URL GOT_URL TOKEN [--cases N] [-v].

WANT_URL is a server with a kube-controller-manager, GOT_URL one that runs its own loops (`--simulate`, without scheduler
and nodes: this script writes what pods do). Each case is a generated Job and a series of changes and results of its pods,
applied on both sides in steps; between steps, each side comes to rest. Compared are the Job, its pods and its events,
field by field, without uids, times and random suffixes. Prints how many cases were equal. Needs only the standard library.
"""

import argparse
import concurrent.futures
import copy
import json
import random
import re
import time

from access import Server

THREADS = 16
# How long nothing must change before a side is at rest. kube-controller-manager collects changes for a second.
REST_SECONDS = {"want": 2.6, "got": 0.7}
STEP_SECONDS_MAX = 40
PAST = "2026-01-01T00:00:00Z"
CODES = [1, 2, 3, 42, 137]


def template(rng, is_indexed):
    """Generates a template of pods."""
    spec = {"restartPolicy": rng.choice(["Never", "Never", "OnFailure"]), "containers": [{"name": "main", "image": "job:1"}]}
    if rng.random() < 0.3:
        spec["initContainers"] = [{"name": "init", "image": "init:1"}]
    if rng.random() < 0.2:
        spec["containers"][0]["env"] = [{"name": rng.choice(["JOB_COMPLETION_INDEX", "A"]), "value": "7"}]
    made = {"spec": spec}
    if rng.random() < 0.3:
        made["metadata"] = {"labels": {"a": "b"}, "annotations": {"c": "d"}}
        if is_indexed and rng.random() < 0.5:
            made["metadata"]["finalizers"] = ["example.com/keep"]
    return made


def policy(rng, is_indexed, has_per_index):
    """Generates a failure policy."""
    rules = []
    for _ in range(rng.randint(1, 3)):
        actions = ["Ignore", "Count", "FailJob"] + (["FailIndex", "FailIndex"] if has_per_index else [])
        rule = {"action": rng.choice(actions)}
        if rng.random() < 0.6:
            codes = {"operator": rng.choice(["In", "NotIn"]), "values": sorted(rng.sample(CODES, rng.randint(1, 3)))}
            if rng.random() < 0.3:
                codes["containerName"] = "main"
            rule["onExitCodes"] = codes
        else:
            rule["onPodConditions"] = [{"type": rng.choice(["DisruptionTarget", "Odd"]), "status": "True"}]
        rules.append(rule)
    return {"rules": rules}


def job(rng, name):
    """Generates a Job."""
    spec = {"parallelism": rng.choice([0, 1, 1, 2, 3, 3, 5]), "backoffLimit": rng.choice([0, 1, 2, 6])}
    is_indexed = rng.random() < 0.5
    if is_indexed or rng.random() < 0.6:
        spec["completions"] = rng.randint(1, 6)
    if is_indexed:
        spec["completionMode"] = "Indexed"
    spec["template"] = template(rng, is_indexed)
    is_never = spec["template"]["spec"]["restartPolicy"] == "Never"
    if is_indexed and is_never and rng.random() < 0.4:
        spec["backoffLimitPerIndex"] = rng.randint(0, 2)
        if rng.random() < 0.4:
            spec["maxFailedIndexes"] = rng.randint(0, spec["completions"])
        if rng.random() < 0.7:
            del spec["backoffLimit"]
    if is_never and rng.random() < 0.35:
        spec["podFailurePolicy"] = policy(rng, is_indexed, "backoffLimitPerIndex" in spec)
        spec["podReplacementPolicy"] = "Failed"
    elif rng.random() < 0.3:
        spec["podReplacementPolicy"] = rng.choice(["Failed", "TerminatingOrFailed"])
    if is_indexed and rng.random() < 0.3:
        rules = [{"succeededCount": rng.randint(1, spec["completions"])}]
        if rng.random() < 0.6:
            rules.insert(0, {"succeededIndexes": rng.choice(["0", "0-1", "1,3"])})
            if rng.random() < 0.4 and rules[0]["succeededIndexes"] != "0":
                rules[0]["succeededCount"] = 1
        spec["successPolicy"] = {"rules": rules}
    if rng.random() < 0.15:
        spec["suspend"] = True
    if rng.random() < 0.06:
        spec["activeDeadlineSeconds"] = 6
    if rng.random() < 0.03:
        spec["managedBy"] = "example.com/other"
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name}, "spec": spec}


def steps(rng, made):
    """Generates what happens to a Job: actions with numbers that choose pods. Only one pod ends in a step, because
    kube-controller-manager would look at several at once."""
    actions = []
    for _ in range(rng.randint(2, 8)):
        roll = rng.random()
        if roll < 0.30:
            actions.append(("succeed", rng.randint(0, 4), 1))
        elif roll < 0.55:
            actions.append(("fail", rng.randint(0, 4), 1, rng.choice(CODES), rng.random() < 0.25))
        elif roll < 0.65:
            actions.append(("run", rng.randint(0, 4), rng.randint(1, 3)))
        elif roll < 0.72:
            actions.append(("restart", rng.randint(0, 4), rng.randint(1, 3)))
        elif roll < 0.80:
            actions.append(("delete", rng.randint(0, 4)))
        elif roll < 0.87:
            actions.append(("patch", {"parallelism": rng.choice([0, 1, 2, 4])}))
        elif roll < 0.93:
            actions.append(("patch", {"suspend": rng.random() < 0.5}))
        elif roll < 0.97 and made["spec"].get("completionMode"):
            count = rng.randint(1, 6)
            actions.append(("patch", {"completions": count, "parallelism": count}))
        else:
            actions.append(("orphan", rng.randint(0, 4)))
    if rng.random() < 0.1:
        actions.append(("end", rng.choice(["Background", "Orphan", "Foreground"])))
    return actions


class Side:
    """One server, with the objects of one case."""

    def __init__(self, name, server, namespace):
        self.name, self.server, self.namespace = name, server, namespace
        self.jobs = f"/apis/batch/v1/namespaces/{namespace}/jobs"
        self.pods = f"/api/v1/namespaces/{namespace}/pods"

    def create_namespace(self):
        self.server.must("POST", "/api/v1/namespaces", {"metadata": {"name": self.namespace}})
        account = {"metadata": {"name": "default"}}
        self.server.must("POST", f"/api/v1/namespaces/{self.namespace}/serviceaccounts", account)

    def state(self):
        jobs = self.server.call("GET", self.jobs)[2]["items"]
        pods = self.server.call("GET", self.pods)[2]["items"]
        return jobs, pods

    def rest(self, is_long=False):
        """Waits until nothing changes."""
        last, since, begun = None, time.time(), time.time()
        seconds = REST_SECONDS[self.name]
        while time.time() - begun < STEP_SECONDS_MAX:
            jobs, pods = self.state()
            seen = sorted((one["metadata"]["uid"], one["metadata"]["resourceVersion"]) for one in jobs + pods)
            if seen != last:
                last, since = seen, time.time()
            elif time.time() - since > seconds:
                break
            time.sleep(0.15)
        return self.state()

    def active(self):
        """Returns pods that have not ended, in an order that both sides share."""
        pods = [pod for pod in self.state()[1] if pod.get("status", {}).get("phase") not in ("Succeeded", "Failed")
                and "deletionTimestamp" not in pod["metadata"]]
        return sorted(pods, key=sort_key)

    def set_status(self, pod, status):
        path = f"{self.pods}/{pod['metadata']['name']}/status"
        self.server.call("PATCH", path, {"status": status}, "application/strategic-merge-patch+json")

    def act(self, action):
        kind, arguments = action[0], action[1:]
        if kind == "patch":
            for one in self.state()[0]:
                path = f"{self.jobs}/{one['metadata']['name']}"
                return self.server.call("PATCH", path, {"spec": arguments[0]}, "application/merge-patch+json")[0]
            return None
        if kind == "end":
            for one in self.state()[0]:
                body = {"propagationPolicy": arguments[0]}
                self.server.call("DELETE", f"{self.jobs}/{one['metadata']['name']}", body)
            return None
        pods = self.active()
        if not pods:
            return "none"
        first = arguments[0] % len(pods)
        chosen = pods[first:first + (arguments[1] if len(arguments) > 1 else 1)]
        for pod in chosen:
            self.result(kind, pod, arguments)
        return len(chosen)

    def result(self, kind, pod, arguments):
        if kind == "succeed":
            self.set_status(pod, {"phase": "Succeeded", "containerStatuses": [container("main", 0)]})
        elif kind == "fail":
            code, is_disrupted = arguments[2], arguments[3]
            status = {"phase": "Failed", "containerStatuses": [container("main", code)]}
            if is_disrupted:
                status["conditions"] = [{"type": "DisruptionTarget", "status": "True", "reason": "X", "lastTransitionTime": PAST}]
            self.set_status(pod, status)
        elif kind == "run":
            ready = {"type": "Ready", "status": "True", "lastTransitionTime": PAST}
            self.set_status(pod, {"phase": "Running", "conditions": [ready]})
        elif kind == "restart":
            running = {"name": "main", "image": "job:1", "imageID": "", "ready": True, "restartCount": arguments[1],
                       "state": {"running": {"startedAt": PAST}}}
            self.set_status(pod, {"phase": "Running", "containerStatuses": [running]})
        elif kind == "delete":
            self.server.call("DELETE", f"{self.pods}/{pod['metadata']['name']}")
        elif kind == "orphan":
            patch = {"metadata": {"labels": {"batch.kubernetes.io/controller-uid": None, "controller-uid": None}}}
            self.server.call("PATCH", f"{self.pods}/{pod['metadata']['name']}", patch, "application/merge-patch+json")


def container(name, code):
    reason = "Completed" if code == 0 else "Error"
    ended = {"exitCode": code, "reason": reason, "finishedAt": PAST, "startedAt": PAST}
    return {"name": name, "image": "job:1", "imageID": "", "ready": False, "restartCount": 0, "state": {"terminated": ended}}


def sort_key(pod):
    """Orders pods by what both sides have in common."""
    annotations = pod["metadata"].get("annotations", {})
    index = annotations.get("batch.kubernetes.io/job-completion-index", "")
    return (index, json.dumps(normalized(pod), sort_keys=True))


TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)")
UID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
SUFFIX = re.compile(r"\b(job[a-z0-9]*(?:-\d+)?-)[bcdfghjklmnpqrstvwxz2456789]{5}\b")


def normalized(value):
    """Removes what differs between any two servers."""
    value = copy.deepcopy(value)
    metadata = value.get("metadata", {})
    for name in ["managedFields", "resourceVersion", "uid", "creationTimestamp", "selfLink"]:
        metadata.pop(name, None)
    text = json.dumps(value, sort_keys=True)
    text = re.sub(r"kube-api-access-[a-z0-9]{5}", "kube-api-access", text)
    text = SUFFIX.sub(r"\1<random>", UID.sub("<uid>", TIME.sub("<time>", text)))
    return json.loads(re.sub(r"-\d{8}\b", "-<minute>", text))


def summary(side):
    jobs, pods = side.state()
    events = side.server.call("GET", f"/api/v1/namespaces/{side.namespace}/events")[2]["items"]
    counted = {}
    for event in events:
        facts = normalized({"event": [event["involvedObject"]["kind"], event["type"], event["reason"], event["message"],
                                      event["source"], event.get("reportingComponent")]})
        key = json.dumps(facts["event"])
        counted[key] = counted.get(key, 0) + event.get("count", 1)
        # With a cache that lags behind, kube-controller-manager sees the end of a Job more than once.
        if event["reason"] == "SawCompletedJob":
            counted[key] = 1
        elif event["reason"] == "MissingJob":
            del counted[key]
    return {"jobs": [normalized(one) for one in jobs], "pods": sorted((normalized(pod) for pod in pods), key=str),
            "events": counted}


def differences(want, got, path=""):
    """Returns the differing paths."""
    if isinstance(want, dict) and isinstance(got, dict):
        for name in sorted(set(want) | set(got)):
            if name not in want:
                yield f"{path}.{name}: got {json.dumps(got[name])[:300]}"
            elif name not in got:
                yield f"{path}.{name}: want {json.dumps(want[name])[:300]}"
            else:
                yield from differences(want[name], got[name], f"{path}.{name}")
    elif isinstance(want, list) and isinstance(got, list) and len(want) == len(got):
        for place, (one, two) in enumerate(zip(want, got)):
            yield from differences(one, two, f"{path}[{place}]")
    elif want != got:
        yield f"{path}: want {json.dumps(want)[:400]} got {json.dumps(got)[:400]}"


def run_case(servers, seed, prefix):
    rng = random.Random(seed)
    made = job(rng, f"job{seed}")
    actions = steps(rng, made)
    sides = [Side(name, server, f"{prefix}-{seed}") for name, server in servers.items()]
    codes = []
    for side in sides:
        side.create_namespace()
        codes.append(side.server.call("POST", side.jobs, made)[0])
    if codes[0] != codes[1]:
        return seed, made, actions, [f"created: {codes}"]
    if codes[0] != 201:
        return seed, made, actions, None
    log = []
    rest(sides)
    for action in actions:
        results = [side.act(action) for side in sides]
        if results[0] != results[1]:
            log.append(f"{action}: {results}")
        rest(sides)
    if "activeDeadlineSeconds" in made["spec"]:
        time.sleep(6)
        rest(sides)
    want, got = (summary(side) for side in sides)
    return seed, made, actions, log + list(differences(want, got))


def rest(sides):
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda side: side.rest(), sides))


def cron_job(rng, name):
    """Generates a CronJob that runs at every minute."""
    spec = {"schedule": rng.choice(["* * * * *", "*/1 * * * ?", "0-59 * ? * *"]),
            "concurrencyPolicy": rng.choice(["Allow", "Forbid", "Replace"]),
            "jobTemplate": {"metadata": {"labels": {"l": "1"}, "annotations": {"a": "2"}}, "spec": {
                "suspend": rng.random() < 0.3, "backoffLimit": 0,
                "template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "main", "image": "job:1"}]}}}}}
    if rng.random() < 0.4:
        spec["timeZone"] = rng.choice(["Asia/Tokyo", "Europe/Berlin", "America/St_Johns", "UTC"])
    if rng.random() < 0.4:
        spec["startingDeadlineSeconds"] = rng.choice([5, 30, 200])
    if rng.random() < 0.5:
        spec["successfulJobsHistoryLimit"], spec["failedJobsHistoryLimit"] = rng.randint(0, 2), rng.randint(0, 1)
    if rng.random() < 0.1:
        spec["suspend"] = True
    return {"apiVersion": "batch/v1", "kind": "CronJob", "metadata": {"name": name}, "spec": spec}


def run_cron_cases(servers, count, prefix, minutes):
    """Runs all CronJobs side by side for some minutes; their Jobs end as a number says."""
    cases = []
    for seed in range(count):
        rng = random.Random(seed + 1_000_000)
        made, ends = cron_job(rng, f"job{seed}"), [rng.choice(["succeed", "fail", "run"]) for _ in range(minutes)]
        sides = [Side(name, server, f"{prefix}-cron-{seed}") for name, server in servers.items()]
        cases.append((seed, made, sides, ends))
    while not 20 < time.time() % 60 < 30:
        time.sleep(1)
    for seed, made, sides, _ in cases:
        for side in sides:
            side.create_namespace()
            path = f"/apis/batch/v1/namespaces/{side.namespace}/cronjobs"
            code, _, body = side.server.call("POST", path, made)
            assert code == 201, body
    for minute in range(minutes):
        time.sleep(60 - time.time() % 60 + 12)
        for _, _, sides, ends in cases:
            for side in sides:
                side.act((ends[minute], 0, 9, 1, False))
    time.sleep(8)
    for seed, made, sides, ends in cases:
        summaries = []
        for side in sides:
            found = summary(side)
            path = f"/apis/batch/v1/namespaces/{side.namespace}/cronjobs"
            found["cronjobs"] = [normalized(one) for one in side.server.call("GET", path)[2]["items"]]
            for one in found["cronjobs"]:
                for reference in one.get("status", {}).get("active", []):
                    reference.pop("resourceVersion")
            summaries.append(found)
        yield seed, made, ends, list(differences(*summaries))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("want")
    parser.add_argument("got")
    parser.add_argument("token")
    parser.add_argument("--cases", type=int, default=100)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--cron", type=int, default=0)
    parser.add_argument("-v", action="store_true")
    options = parser.parse_args()
    servers = {"want": Server(options.want, options.token), "got": Server(options.got, options.token)}
    prefix = f"jobs{int(time.time()) % 100000}"
    equal = total = 0
    seeds = range(options.first, options.first + options.cases)
    if options.cron:
        for seed, made, actions, found in run_cron_cases(servers, options.cron, prefix, 3):
            total, equal = total + 1, equal + (not found)
            if found:
                print(f"cron {seed}: {json.dumps(made['spec'])} {actions}")
                print("".join(f"    {line}\n" for line in found))
        print(f"{equal} of {total} CronJobs are equal")
        return
    with concurrent.futures.ThreadPoolExecutor(THREADS) as pool:
        for seed, made, actions, found in pool.map(lambda seed: run_case(servers, seed, prefix), seeds):
            if found is None:
                continue
            total, equal = total + 1, equal + (not found)
            if found or options.v:
                print(f"case {seed}: {json.dumps(made['spec'])} {actions}")
                print("".join(f"    {line}\n" for line in found), flush=True)
    print(f"{equal} of {total} Jobs are equal")


if __name__ == "__main__":
    main()
