"""The part `versions` of requests.py: group versions and kinds in paths and bodies, of objects, subresources and options."""

import copy

from request_cases import APPLY, JSON, KINDS, MERGE, STRATEGIC, YAML, Case, Request

NAMESPACE = "requests"
VERSIONS = [
    "v1",
    "apps/v1",
    "apps/v1beta1",
    "apps/v1beta2",
    "extensions/v1beta1",
    "batch/v1",
    "batch/v1beta1",
    "policy/v1",
    "policy/v1beta1",
    "autoscaling/v1",
    "autoscaling/v2",
    "autoscaling/v2beta2",
    "meta.k8s.io/v1",
    "meta.k8s.io/v1beta1",
    "events.k8s.io/v1",
    "events.k8s.io/v1beta1",
    "authentication.k8s.io/v1",
    "authentication.k8s.io/v1beta1",
    "authorization.k8s.io/v1",
    "networking.k8s.io/v1",
    "networking.k8s.io/v1beta1",
    "discovery.k8s.io/v1",
    "discovery.k8s.io/v1beta1",
    "rbac.authorization.k8s.io/v1",
    "resource.k8s.io/v1",
    "resource.k8s.io/v1beta1",
    "resource.k8s.io/v1beta2",
    "coordination.k8s.io/v1",
    "admissionregistration.k8s.io/v1",
    "admissionregistration.k8s.io/v1beta1",
    "v2",
    "odd/v1",
    "",
    "/v1",
    "a/b/c",
    "V1",
    None,
    1,
    "apps/",
    "__internal",
    "apps/__internal",
    " v1",
]
KIND_NAMES = [
    "Pod",
    "List",
    "Status",
    "DeleteOptions",
    "Eviction",
    "Scale",
    "Binding",
    "TokenRequest",
    "ConfigMap",
    "Deployment",
    "PodList",
    "WatchEvent",
    "APIGroup",
    "CreateOptions",
    "Odd",
    "",
    None,
    1,
    "pod",
    "PartialObjectMetadata",
    "Table",
    "Event",
    "HorizontalPodAutoscaler",
    "APIVersions",
]


def type_of(rng, version, kind):
    """Returns apiVersion and kind, of which mostly one is another."""
    odd = rng.random()
    if odd < 0.15:
        return {"apiVersion": version, "kind": kind}
    if odd < 0.5:
        return {"apiVersion": rng.choice(VERSIONS), "kind": kind}
    if odd < 0.8:
        return {"apiVersion": version, "kind": rng.choice([*KIND_NAMES, kind.lower(), kind.upper(), kind + "List", kind + " "])}
    return rng.choice([{"apiVersion": rng.choice(VERSIONS), "kind": rng.choice(KIND_NAMES)}, {"kind": kind}, {"apiVersion": version}, {}])


def object_case(rng, name):
    kind = rng.choice(KINDS)
    collection, obj = kind.collection(NAMESPACE), kind.object(name)
    odd = copy.deepcopy(obj)
    del odd["apiVersion"], odd["kind"]
    odd = {**type_of(rng, kind.version, kind.kind), **odd}
    if rng.random() < 0.15:
        odd = rng.choice(
            [
                {"apiVersion": "v1", "kind": "List", "items": [obj]},
                {"apiVersion": kind.version, "kind": kind.kind + "List", "items": [obj]},
                [obj],
                {"apiVersion": kind.version, "kind": kind.kind + "List", "metadata": {}, "items": []},
            ]
        )
    if kind.dry or kind.only_create or rng.random() < 0.4:
        return [Request("POST", f"{collection}?dryRun=All", odd, rng.choice([JSON, JSON, YAML]))]
    at = f"{collection}/{name}"
    if isinstance(odd, list):
        odd = {"items": odd}
    change = rng.choice(
        [
            Request(
                "PUT",
                at,
                lambda last: {
                    **{key: value for key, value in (last or obj).items() if key not in ("apiVersion", "kind")},
                    **odd,
                    "metadata": (last or obj)["metadata"],
                },
            ),
            Request("PATCH", at, odd, MERGE),
            Request("PATCH", at, odd, STRATEGIC),
            Request("PATCH", f"{at}?fieldManager=m", odd, APPLY),
        ]
    )
    return [Request("POST", collection, obj, needed=True), change, Request("GET", at), Request("DELETE", at)]


def metadata_case(rng, name):
    """Names and namespaces of bodies that do not fit the path."""
    kind = rng.choice([kind for kind in KINDS if not kind.only_create and not kind.dry])
    collection, obj = kind.collection(NAMESPACE), kind.object(name)
    at, odd = f"{collection}/{name}", copy.deepcopy(obj)
    odd["metadata"].update(
        rng.choice(
            [
                {"name": "other"},
                {"name": ""},
                {"name": None},
                {"namespace": "other"},
                {"namespace": ""},
                {"namespace": NAMESPACE},
                {"uid": "x"},
                {"uid": ""},
                {"resourceVersion": "1"},
                {"resourceVersion": "x"},
                {"resourceVersion": "0"},
                {"resourceVersion": ""},
                {"generateName": "g-"},
                {"selfLink": "x"},
                {"generation": 5},
                {"creationTimestamp": None},
                {"creationTimestamp": "2020-01-01T00:00:00Z"},
                {"deletionTimestamp": "2020-01-01T00:00:00Z"},
                {"deletionGracePeriodSeconds": 5},
                {"managedFields": [{"manager": "m", "operation": "Update", "apiVersion": "v1", "fieldsType": "FieldsV1", "fieldsV1": {}}]},
                {"ownerReferences": [{"apiVersion": "v1", "kind": "K", "name": "n", "uid": "u"}]},
                {"finalizers": ["a"]},
                {"finalizers": ["example.com/f", "example.com/f"]},
                {"clusterName": "x"},
                {"ownerReferences": [{"apiVersion": "v1", "kind": "K", "name": "n", "uid": "u", "controller": True}] * 2},
            ]
        )
    )
    path = rng.choice([at, at, f"{collection}/other", f"{kind.collection('none')}/{name}"])
    steps = [Request("POST", collection, obj, needed=True)] if rng.random() < 0.6 else []
    steps.append(
        rng.choice(
            [
                Request("POST", collection, odd),
                Request("PUT", path, odd),
                Request("PATCH", path, odd, MERGE),
                Request("PATCH", f"{path}?fieldManager=m", odd, APPLY),
                Request("PATCH", f"{path}?fieldManager=m&force=1", odd, APPLY),
            ]
        )
    )
    return steps + [Request("GET", at), Request("DELETE", at), Request("DELETE", f"{collection}/other", compared=False)]


def subresource_case(rng, name):
    pod = {"metadata": {"name": name}, "spec": {"automountServiceAccountToken": False, "containers": [{"name": "c", "image": "i"}]}}
    pods = f"/api/v1/namespaces/{NAMESPACE}/pods"
    at = f"{pods}/{name}"
    template = {"metadata": {"labels": {"a": "b"}}, "spec": pod["spec"]}
    workload = {"metadata": {"name": name}, "spec": {"replicas": 1, "selector": {"matchLabels": {"a": "b"}}, "template": template}}
    choice = rng.choice(["eviction", "binding", "bindings", "token", "scale", "scale", "ephemeral", "resize", "delete", "status"])
    if choice == "scale":
        resource = rng.choice(["deployments", "replicasets", "statefulsets"])
        collection = f"/apis/apps/v1/namespaces/{NAMESPACE}/{resource}"
        body = {
            **type_of(rng, "autoscaling/v1", "Scale"),
            "metadata": {"name": rng.choice([name, name, name, "other", ""])},
            "spec": {"replicas": rng.choice([2, 0, -1, None])},
        }
        return [
            Request("POST", collection, workload, needed=True),
            rng.choice(
                [
                    Request("PUT", f"{collection}/{name}/scale", body),
                    Request("PATCH", f"{collection}/{name}/scale", body, MERGE),
                    Request("PATCH", f"{collection}/{name}/scale", body, STRATEGIC),
                    Request("PATCH", f"{collection}/{name}/scale?fieldManager=m&force=1", body, APPLY),
                ]
            ),
            Request("GET", f"{collection}/{name}/scale"),
            Request("GET", f"{collection}/{name}"),
            Request("DELETE", f"{collection}/{name}"),
        ]
    if choice == "token":
        body = {
            **type_of(rng, "authentication.k8s.io/v1", "TokenRequest"),
            "metadata": rng.choice([{}, {"name": "default"}, {"name": "x"}, None]),
            "spec": {"expirationSeconds": 600},
        }
        return [Request("POST", f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts/default/token", body)]
    if choice == "eviction":
        body = {
            **type_of(rng, rng.choice(["policy/v1", "policy/v1beta1"]), "Eviction"),
            "metadata": {"name": rng.choice([name, name, "x", ""]), "namespace": NAMESPACE},
            **rng.choice([{}, {"deleteOptions": {**type_of(rng, "v1", "DeleteOptions")}}]),
        }
        act = Request("POST", f"{at}/eviction", body)
    elif choice in ("binding", "bindings"):
        body = {
            **type_of(rng, "v1", "Binding"),
            "metadata": {"name": rng.choice([name, name, "x", ""])},
            "target": {"kind": "Node", "name": "n"},
        }
        act = Request("POST", f"{at}/binding" if choice == "binding" else f"/api/v1/namespaces/{NAMESPACE}/bindings", body)
    elif choice == "delete":
        act = Request("DELETE", at, {**type_of(rng, rng.choice(["v1", "meta.k8s.io/v1"]), "DeleteOptions"), "gracePeriodSeconds": 0})
    else:
        path = {"ephemeral": "ephemeralcontainers", "resize": "resize", "status": "status"}[choice]
        spec = (
            {"ephemeralContainers": [{"name": "e", "image": "i"}]}
            if choice == "ephemeral"
            else {"containers": [{"name": "c", "image": "i", "resources": {"limits": {"cpu": "1"}}}]}
        )
        body = {
            **type_of(rng, "v1", rng.choice(["Pod", "EphemeralContainers"])),
            "metadata": {"name": name},
            "spec": spec,
            "status": {"phase": "Running"},
        }
        act = Request(rng.choice(["PUT", "PATCH"]), f"{at}/{path}", body, rng.choice([MERGE, STRATEGIC, JSON]))
    return [Request("POST", pods, pod, needed=True), act, Request("GET", at), Request("DELETE", f"{at}?gracePeriodSeconds=0")]


def path_case(rng, name):
    """Objects at the paths of other versions and resources."""
    kind = rng.choice(KINDS)
    version = rng.choice([version for version in VERSIONS if isinstance(version, str) and version.count("/") < 2])
    root = rng.choice([f"/apis/{version}", f"/api/{version}", kind.root, kind.root])
    resource = rng.choice(
        [kind.resource, kind.resource, kind.resource, kind.kind, kind.kind.lower(), kind.resource[:-1], kind.resource + "/"]
    )
    where = rng.choice(
        [
            f"namespaces/{NAMESPACE}/",
            f"namespaces/{NAMESPACE}/",
            "",
            "namespaces//",
            "namespaces/none/",
            "watch/",
            f"watch/namespaces/{NAMESPACE}/",
        ]
    )
    suffix = rng.choice(
        [
            "",
            "",
            "/none",
            "/none/status",
            "/none/scale",
            "/none/odd",
            "//",
            "/none/",
            "/none/status/x",
            "/none/proxy",
            "/%20",
            "/a%2Fb",
            "/A",
        ]
    )
    method = rng.choice(["GET", "GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS", "ODD"])
    if method == "DELETE" and not suffix.startswith("/none"):
        method = "GET"
    query = "?timeoutSeconds=1" + rng.choice(["", "&dryRun=All"])
    query = "?dryRun=All" if method in ("POST", "PUT", "PATCH") else query
    return [
        Request(
            method,
            f"{root}/{where}{resource}{suffix}{query}",
            kind.object(name) if method in ("POST", "PUT", "PATCH") else None,
            MERGE if method == "PATCH" else JSON,
        )
    ]


def case(env, number):
    rng = env.random("versions", number)
    label = rng.choice(["object", "object", "object", "metadata", "metadata", "subresource", "subresource", "path"])
    maker = {"object": object_case, "metadata": metadata_case, "subresource": subresource_case, "path": path_case}[label]
    return Case(label, maker(rng, f"v{env.seed}-{number}"))
