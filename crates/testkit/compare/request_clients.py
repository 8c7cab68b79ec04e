"""The part `clients` of requests.py: two or three clients at one object while it is deleted, evicted, bound or changed, and the
events that watches of it see."""

import copy

from request_cases import APPLY, JSON, MERGE, STRATEGIC, TABLE, Case, Request

NAMESPACE = "requests"
POD = {"automountServiceAccountToken": False, "containers": [{"name": "c", "image": "i"}]}
TEMPLATE = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": POD["containers"]}}
WORKLOAD = {"selector": {"matchLabels": {"a": "b"}}, "template": TEMPLATE}
OBJECTS = [
    ("/api/v1", "pods", "v1", "Pod", {"spec": POD}),
    ("/api/v1", "pods", "v1", "Pod", {"spec": {**POD, "nodeName": "n"}}),
    ("/api/v1", "pods", "v1", "Pod", {"spec": {**POD, "nodeName": "n", "terminationGracePeriodSeconds": 0}}),
    ("/api/v1", "configmaps", "v1", "ConfigMap", {"data": {"a": "b"}}),
    ("/apis/apps/v1", "deployments", "apps/v1", "Deployment", {"spec": WORKLOAD}),
    ("/api/v1", "services", "v1", "Service", {"spec": {"ports": [{"port": 80}]}}),
    ("/apis/coordination.k8s.io/v1", "leases", "coordination.k8s.io/v1", "Lease", {"spec": {"holderIdentity": "a"}}),
]
FINALIZERS = [
    [],
    [],
    ["example.com/f"],
    ["example.com/f", "example.com/g"],
    ["foregroundDeletion"],
    ["orphan"],
    ["orphan", "example.com/f"],
]
DELETE_OPTIONS = [
    None,
    None,
    {},
    {"gracePeriodSeconds": 0},
    {"gracePeriodSeconds": 5},
    {"gracePeriodSeconds": 60},
    {"propagationPolicy": "Foreground"},
    {"propagationPolicy": "Orphan"},
    {"propagationPolicy": "Background"},
    {"preconditions": {"uid": "{uid}"}},
    {"preconditions": {"resourceVersion": "{rv}"}},
    {"preconditions": {"uid": "x"}},
    {"orphanDependents": True},
    {"gracePeriodSeconds": 5, "dryRun": ["All"]},
    {"gracePeriodSeconds": 0, "propagationPolicy": "Foreground"},
]


class Place:
    """An object that clients work on."""

    def __init__(self, rng, name):
        root, resource, self.version, self.kind, base = rng.choice(OBJECTS)
        self.rng, self.name, self.collection = rng, name, f"{root}/namespaces/{NAMESPACE}/{resource}"
        self.at = f"{self.collection}/{name}"
        self.obj = {
            "apiVersion": self.version,
            "kind": self.kind,
            "metadata": {"name": name, "labels": {"l": "1", "case": name}},
            **copy.deepcopy(base),
        }
        finalizers = rng.choice(FINALIZERS)
        if finalizers:
            self.obj["metadata"]["finalizers"] = finalizers

    def step(self):
        rng = self.rng
        ways = [
            "delete",
            "delete",
            "update",
            "stale",
            "label",
            "finalizers",
            "apply",
            "get",
            "create",
            "status",
            "unfinalize",
            "generation",
            "delete_all",
        ]
        if self.kind == "Pod":
            ways += ["evict", "evict", "bind", "phase", "resize", "ephemeral"]
        if self.kind == "Deployment":
            ways += ["scale"]
        return getattr(self, rng.choice(ways))()

    def delete(self):
        return Request("DELETE", self.at, self.rng.choice(DELETE_OPTIONS))

    def delete_all(self):
        """Deletes the collection of this one object."""
        return Request("DELETE", f"{self.collection}?labelSelector=case={self.name}", self.rng.choice(DELETE_OPTIONS), compared=False)

    def update(self):
        label = self.rng.choice(["2", "3"])

        def body(last):
            changed = last or copy.deepcopy(self.obj)
            changed["metadata"].setdefault("labels", {})["l"] = label
            return changed

        return Request("PUT", self.at, body)

    def stale(self):
        version = self.rng.choice(["1", "0", "", "999999999", "x"])
        return Request(
            "PUT", self.at, lambda last: {**(last or self.obj), "metadata": {**(last or self.obj)["metadata"], "resourceVersion": version}}
        )

    def label(self):
        meta = self.rng.choice(
            [
                {"labels": {"l": "2"}},
                {"labels": {"l": None}},
                {"labels": {"l": "1"}},
                {"annotations": {"a": "b"}},
                {"labels": {"l": "3"}, "resourceVersion": "{rv}"},
                {"labels": {"l": "3"}, "uid": "{uid}"},
                {"deletionTimestamp": None},
                {"deletionTimestamp": "2030-01-01T00:00:00Z"},
                {"deletionGracePeriodSeconds": 1},
            ]
        )
        return Request("PATCH", self.at, {"metadata": meta}, MERGE)

    def finalizers(self):
        finalizers = self.rng.choice(
            [["example.com/f"], ["example.com/g"], ["example.com/f", "example.com/h"], [], ["odd"], ["foregroundDeletion"], ["orphan"]]
        )
        return Request("PATCH", self.at, {"metadata": {"finalizers": finalizers}}, MERGE)

    def unfinalize(self):
        return Request("PATCH", self.at, {"metadata": {"finalizers": self.rng.choice([None, []])}}, MERGE)

    def apply(self):
        body = copy.deepcopy(self.obj)
        body["metadata"]["labels"] = {"l": self.rng.choice(["1", "4"]), "case": self.name}
        return Request("PATCH", f"{self.at}?fieldManager={self.rng.choice('mn')}{self.rng.choice(['', '&force=true'])}", body, APPLY)

    def get(self):
        return Request("GET", self.at, accept=self.rng.choice([JSON, TABLE]))

    def create(self):
        return Request("POST", self.collection, self.obj)

    def generation(self):
        change = {
            "Deployment": {"spec": {"replicas": 3}},
            "Pod": {"spec": {"activeDeadlineSeconds": 5}},
            "Job": {"spec": {"suspend": True}},
        }.get(self.kind, {"data": {"a": "c"}})
        return Request("PATCH", self.at, change, STRATEGIC)

    def status(self):
        return Request(
            "PATCH",
            f"{self.at}/status",
            {"status": {"phase": "Running"}, "metadata": {"labels": {"s": "1"}, "finalizers": self.rng.choice([None, ["example.com/f"]])}},
            MERGE,
        )

    def phase(self):
        return Request(
            "PATCH",
            f"{self.at}/status",
            {
                "status": {
                    "phase": self.rng.choice(["Running", "Succeeded", "Failed", "Pending"]),
                    "conditions": [{"type": "Ready", "status": self.rng.choice(["True", "False"])}],
                }
            },
            STRATEGIC,
        )

    def evict(self):
        body = {"metadata": {"name": self.name}, "deleteOptions": self.rng.choice(DELETE_OPTIONS)}
        return Request("POST", f"{self.at}/eviction{self.rng.choice(['', '', '?dryRun=All'])}", body)

    def bind(self):
        meta = {
            "name": self.name,
            **self.rng.choice(
                [{}, {}, {"uid": "{uid}"}, {"uid": "x"}, {"annotations": {"a": "c"}}, {"labels": {"l": "5"}}, {"resourceVersion": "1"}]
            ),
        }
        return Request("POST", f"{self.at}/binding", {"metadata": meta, "target": {"kind": "Node", "name": self.rng.choice(["n", "m"])}})

    def resize(self):
        return Request(
            "PATCH", f"{self.at}/resize", {"spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}]}}, STRATEGIC
        )

    def ephemeral(self):
        return Request(
            "PATCH", f"{self.at}/ephemeralcontainers", {"spec": {"ephemeralContainers": [{"name": "e", "image": "i"}]}}, STRATEGIC
        )

    def scale(self):
        return Request(
            "PATCH",
            f"{self.at}/scale",
            {"spec": {"replicas": self.rng.choice([1, 2])}, **self.rng.choice([{}, {"metadata": {"resourceVersion": "1"}}])},
            MERGE,
        )


def budget(rng, name):
    """Returns requests that create a disruption budget for the object, with a status that allows some evictions or none."""
    path = f"/apis/policy/v1/namespaces/{NAMESPACE}/poddisruptionbudgets"
    allowed, healthy = rng.choice([0, 1, 2]), rng.choice([0, 1, 2])
    status = {
        "disruptionsAllowed": allowed,
        "currentHealthy": healthy,
        "desiredHealthy": rng.choice([0, 1, 2]),
        "expectedPods": 2,
        "observedGeneration": rng.choice([0, 1, 1, 1, 5]),
    }
    spec = {
        "minAvailable": 1,
        "selector": {"matchLabels": {"case": name}},
        **rng.choice([{}, {}, {"unhealthyPodEvictionPolicy": "AlwaysAllow"}]),
    }
    return [
        Request("POST", path, {"metadata": {"name": name}, "spec": spec}),
        Request("PATCH", f"{path}/{name}/status", {"status": status}, MERGE),
    ]


def case(env, number):
    rng = env.random("clients", number)
    name = f"c{env.seed}-{number}"
    place = Place(rng, name)
    has_budget = place.kind == "Pod" and rng.random() < 0.4
    # The watches begin before the first write and read their events at the end.
    start = Request("GET", f"{place.collection}?limit=1&fieldSelector=metadata.name={name}", compared=False, marks="start")
    steps = [start] + (budget(rng, name) if has_budget else []) + [Request("POST", place.collection, place.obj, needed=True)]
    for _ in range(rng.choice([5, 7, 9])):
        if rng.random() < 0.5:
            # A client that has just read the object; another works on what it has known before.
            steps.append(Request("GET", place.at))
        steps.append(place.step())
    if has_budget:
        steps.append(Request("GET", f"/apis/policy/v1/namespaces/{NAMESPACE}/poddisruptionbudgets/{name}"))
        steps.append(Request("DELETE", f"/apis/policy/v1/namespaces/{NAMESPACE}/poddisruptionbudgets/{name}"))
    steps += [
        Request("PATCH", place.at, {"metadata": {"finalizers": None}}, MERGE),
        Request("DELETE", place.at, {"gracePeriodSeconds": 0}),
        Request("GET", place.at),
    ]
    selector = rng.choice(
        [
            f"fieldSelector=metadata.name={name}",
            f"labelSelector=l=1,case={name}",
            f"labelSelector=case={name},l",
            f"labelSelector=case={name},l notin (1)",
        ]
    )
    accept = rng.choice([JSON, JSON, TABLE, "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io"])
    steps.append(Request("GET", f"{place.collection}?watch=1&timeoutSeconds=1&resourceVersion={{start}}&{selector}", accept=accept))
    return Case(place.kind, steps)
