"""The part `media` of requests.py: the forms in which answers are asked for and bodies are sent, also of watches."""

import json

from request_cases import APPLY, CBOR, JSON, JSON_PATCH, KINDS, MERGE, PROTOBUF, STRATEGIC, YAML, Case, Request

# Nothing but `preparation` changes this namespace.
NAMESPACE = "requests-media"
MAPS = f"/api/v1/namespaces/{NAMESPACE}/configmaps"
TARGETS = [
    MAPS,
    f"{MAPS}/a",
    f"{MAPS}/none",
    f"{MAPS}/big",
    f"/api/v1/namespaces/{NAMESPACE}/pods",
    f"/api/v1/namespaces/{NAMESPACE}/pods/p",
    f"/api/v1/namespaces/{NAMESPACE}/pods/p/status",
    f"/api/v1/namespaces/{NAMESPACE}/pods/p/log",
    "/api/v1/namespaces/default",
    "/api",
    "/apis",
    "/apis/apps",
    "/apis/apps/v1",
    "/api/v1",
    "/version",
    "/healthz",
    "/livez",
    "/readyz",
    "/openapi/v2",
    "/openapi/v3",
    "/openapi/v3/version",
    "/metrics/slis",
    "/",
    "/none",
    "/apis/none/v1",
    "/apis/apps/v1/none",
    f"/apis/media.example.com/v1/namespaces/{NAMESPACE}/things",
    f"/apis/media.example.com/v1/namespaces/{NAMESPACE}/things/a",
    f"/apis/media.example.com/v1/namespaces/{NAMESPACE}/things/a/scale",
    "/apis/media.example.com",
    "/apis/media.example.com/v1",
]
WATCHED = [MAPS, f"/api/v1/namespaces/{NAMESPACE}/pods", f"/apis/media.example.com/v1/namespaces/{NAMESPACE}/things"]
RANGES = [
    JSON,
    JSON,
    YAML,
    PROTOBUF,
    CBOR,
    "*/*",
    "application/*",
    "text/plain",
    "text/html",
    "application/xml",
    "application/yml",
    "text/yaml",
    "application/json-seq",
    "application/cbor-seq",
    "*",
    "",
    "json",
    "application/",
    "/json",
    "application/json/x",
    "text/*",
    "APPLICATION/JSON",
    "application/com.github.proto-openapi.spec.v2@v1.0+protobuf",
    "application/com.github.proto-openapi.spec.v2.v1.0+protobuf",
]
AS = ["Table", "PartialObjectMetadata", "PartialObjectMetadataList", "APIGroupDiscoveryList", "Odd", "table", "", "Status"]
PARAMETERS = [
    "charset=utf-8",
    "charset=utf-16",
    "stream=watch",
    "stream=odd",
    "pretty=1",
    "pretty=0",
    "profile=nopeer",
    "odd=1",
    "export=1",
    "q=x",
    "indent=2",
    "version=1",
    "type=x",
    "v=v1",
    "g=meta.k8s.io",
    "as=Table",
]
DEFINITION = {
    "metadata": {"name": "things.media.example.com"},
    "spec": {
        "group": "media.example.com",
        "scope": "Namespaced",
        "names": {"plural": "things", "kind": "Thing"},
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "additionalPrinterColumns": [{"name": "A", "type": "string", "jsonPath": ".spec.a"}],
                "subresources": {"scale": {"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas"}},
                "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}},
            }
        ],
    },
}


def preparation():
    pod = {"metadata": {"name": "p"}, "spec": {"automountServiceAccountToken": False, "containers": [{"name": "c", "image": "i"}]}}
    thing = {"apiVersion": "media.example.com/v1", "kind": "Thing", "metadata": {"name": "a"}, "spec": {"replicas": 1, "a": "b"}}
    definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
    return [
        Request("POST", definitions, DEFINITION),
        Request("POST", MAPS, {"metadata": {"name": "a"}, "data": {"a": "b", "c": "true", "d": "1\n2\n"}}),
        Request("POST", MAPS, {"metadata": {"name": "big"}, "data": {"a": "lorem ipsum " * 20000}}),
        Request("POST", TARGETS[4], pod),
        Request("GET", "/apis/media.example.com/v1"),
        Request("GET", f"{definitions}/things.media.example.com"),
        Request("POST", WATCHED[2], thing),
    ]


def media_range(rng):
    parts = [rng.choice(RANGES)]
    if rng.random() < 0.5:
        parts += [f"as={rng.choice(AS[:4] if rng.random() < 0.8 else AS)}"]
        parts += [f"v={rng.choice(['v1', 'v1', 'v1', 'v1beta1', 'v2', 'v2beta1', 'v3', ''])}"]
        parts += [f"g={rng.choice(['meta.k8s.io', 'meta.k8s.io', 'meta.k8s.io', 'apidiscovery.k8s.io', 'odd', ''])}"]
        if rng.random() < 0.2:
            parts.pop(rng.randrange(1, len(parts)))
    if rng.random() < 0.2:
        parts.append(rng.choice(PARAMETERS))
    if rng.random() < 0.25:
        parts.append(f"q={rng.choice(['0.5', '0.9', '1', '0', '1.5', '0.1234', '-1', ''])}")
    if rng.random() < 0.1:
        rng.shuffle(parts)
    return rng.choice([";", ";", "; "]).join(parts)


def accept(rng):
    return rng.choice([",", ",", ", "]).join(media_range(rng) for _ in range(rng.choice([1, 1, 1, 2, 2, 3])))


def read_case(rng):
    headers = {}
    if rng.random() < 0.25:
        headers["Accept-Encoding"] = rng.choice(["gzip", "gzip, deflate", "deflate", "*", "gzip;q=0", "identity", "GZIP", "br"])
    query = rng.choice(["", "", "", "?pretty=1", "?pretty=0", "?limit=1", "?includeObject=Object", "?fieldManager=m"])
    target = rng.choice(TARGETS)
    method = rng.choice(["GET"] * 12 + ["HEAD", "POST", "DELETE", "OPTIONS"])
    if "requests" not in target:
        # COMPAT.md: kube-apiserver answers any method like GET on some of the other paths.
        method = "GET"
    if method in ("POST", "DELETE") and "media" in target:
        method = "GET"
    return [Request(method, target + query, accept=accept(rng) if rng.random() < 0.97 else None, headers=headers)]


def watch_case(rng):
    query = rng.choice(
        [
            "",
            "&resourceVersion=0",
            "&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true",
            "&includeObject=Object",
            "&fieldSelector=metadata.name=a",
            "&pretty=1",
        ]
    )
    return [Request("GET", f"{rng.choice(WATCHED)}?watch=1&timeoutSeconds=1{query}", accept=accept(rng))]


def as_yaml(value):
    """Writes a value as YAML: lists and scalars as JSON has them, which YAML reads too."""
    return "\n".join(f"{name}: {json.dumps(inner)}" for name, inner in value.items()) + "\n"


def write_case(rng, name):
    kind = rng.choice([kind for kind in KINDS if not kind.only_create and not kind.dry])
    collection = kind.collection("requests")
    obj, at = kind.object(name), f"{collection}/{name}"
    media = rng.choice(
        [
            JSON,
            YAML,
            PROTOBUF,
            CBOR,
            "application/json;charset=utf-8",
            "application/json; charset=utf-16",
            "text/plain",
            "text/json",
            "",
            None,
            "application/yml",
            "text/yaml",
            "application/json,application/yaml",
            "APPLICATION/JSON",
            "application/json;",
            "*/*",
            "a",
            "application/json;stream=watch",
            "application/x-www-form-urlencoded",
            MERGE,
            "application/vnd.kubernetes.protobuf;type=x",
        ]
    )
    text = rng.choice(
        [
            json.dumps(obj),
            json.dumps(obj),
            as_yaml(obj),
            json.dumps(obj) + rng.choice(["x", " ", "{}", "\n---\n"]),
            "\ufeff" + json.dumps(obj),
            json.dumps(obj)[:-1],
            "",
            "null",
            "[]",
            '"a"',
            "1",
            "---\n" + as_yaml(obj),
            as_yaml(obj) + "---\n" + as_yaml(obj),
            "{}",
            json.dumps(obj, indent=1),
            json.dumps(obj)[:-1] + ',"kind":"Odd"}',
            json.dumps(obj)[:-1] + ",}",
            as_yaml(obj) + "odd: *a\n",
            "# a\n" + json.dumps(obj),
            json.dumps(obj).replace('"kind"', '"Kind"'),
            "%YAML 1.1\n---\n" + as_yaml(obj),
            "k8s\x00abc",
        ]
    )
    return [
        Request("POST", f"{collection}?dryRun=All", text, media, accept(rng) if rng.random() < 0.4 else JSON),
        Request("POST", collection, text, media),
        Request("GET", at, accept=rng.choice([JSON, YAML, PROTOBUF])),
        Request("DELETE", at),
    ]


def encoded_case(rng, name):
    """An object in protobuf or YAML, as the server has written it, comes back in an update."""
    kind = rng.choice([kind for kind in KINDS if not kind.only_create and not kind.dry])
    collection = kind.collection("requests")
    at, media = f"{collection}/{name}", rng.choice([PROTOBUF, PROTOBUF, YAML, "application/json"])
    sent = media if rng.random() < 0.85 else rng.choice([JSON, YAML, PROTOBUF, APPLY])
    steps = [
        Request("POST", collection, kind.object(name), needed=True),
        Request("GET", at, accept=media),
        Request("PUT", at, content_type=sent, accept=rng.choice([JSON, media]), raw=True),
    ]
    if rng.random() < 0.3:
        steps += [
            Request("GET", at, accept=media, compared=False),
            Request("POST", f"{collection}?dryRun=All", content_type=media, raw=True),
        ]
    return steps + [Request("DELETE", at, accept=rng.choice([JSON, YAML, PROTOBUF]))]


def patch_case(rng, name):
    kind = rng.choice([kind for kind in KINDS if not kind.only_create and not kind.dry])
    collection = kind.collection("requests")
    at, obj = f"{collection}/{name}", kind.object(name)
    media = rng.choice(
        [
            MERGE,
            STRATEGIC,
            JSON_PATCH,
            APPLY,
            "application/apply-patch+json",
            "application/apply-patch+cbor",
            JSON,
            YAML,
            "",
            None,
            "*/*",
            "application/json-patch",
            MERGE + ";charset=utf-8",
            "text/plain",
            APPLY + "; charset=utf-8",
            "Application/Merge-Patch+JSON",
        ]
    )
    labels = {"metadata": {"labels": {"l": "1"}}}
    operations = [{"op": "add", "path": "/metadata/labels", "value": {"l": "1"}}]
    odd = [
        [
            {
                "op": rng.choice(["add", "remove", "replace", "move", "copy", "test", "odd", "", None]),
                "path": rng.choice(
                    [
                        "/metadata/labels/l",
                        "/metadata/odd",
                        "",
                        "/",
                        "metadata",
                        "/metadata/labels/-",
                        "/metadata/finalizers/-",
                        "/metadata/finalizers/5",
                        "/metadata/~1",
                        "/metadata/~2",
                        "/metadata/name",
                    ]
                ),
                **rng.choice([{"value": "a"}, {"value": None}, {}, {"from": "/metadata/name"}, {"from": "odd"}]),
            }
            for _ in range(rng.choice([1, 1, 2]))
        ]
    ]
    strategic = [
        {"metadata": {"labels": {"$patch": "replace", "l": "1"}}},
        {"metadata": {"labels": {"$patch": "odd"}}},
        {"$patch": "delete"},
        {"metadata": {"$setElementOrder/finalizers": ["a"], "finalizers": ["example.com/a"]}},
        {"metadata": {"$deleteFromPrimitiveList/finalizers": ["a"]}},
        {"metadata": {"$retainKeys": ["name"]}},
        {"$patch": "replace", **obj},
        {"metadata": {"$odd": 1}},
        {"metadata": {"$deleteFromPrimitiveList/finalizers": "a"}},
    ]
    body = rng.choice(
        [
            labels,
            operations,
            obj,
            *odd,
            *odd,
            *strategic,
            [],
            {},
            None,
            "text",
            "",
            "{",
            "[}",
            1,
            [None],
            [{}],
            {"metadata": None},
            {"metadata": []},
            {"kind": "Odd"},
            {"apiVersion": "odd/v1"},
            {"metadata": {"name": "other"}},
            {"metadata": {"resourceVersion": "1"}},
            {"metadata": {"resourceVersion": "{rv}"}},
            {"metadata": {"uid": "x"}},
            {"metadata": {"managedFields": []}},
            {"metadata": {"managedFields": [{}]}},
        ]
    )
    query = "?fieldManager=m" if media and "apply" in media.lower() else rng.choice(["", "?fieldManager=m", "?force=true"])
    patch = Request("PATCH", at + query, body, media, accept(rng) if rng.random() < 0.2 else JSON)
    return [Request("POST", collection, obj, needed=True), patch, Request("GET", at), Request("DELETE", at)]


def case(env, number):
    rng = env.random("media", number)
    label = rng.choice(["read", "read", "read", "watch", "write", "encoded", "patch", "patch"])
    if label in ("read", "watch"):
        return Case(label, (read_case if label == "read" else watch_case)(rng))
    named = {"write": write_case, "encoded": encoded_case, "patch": patch_case}
    return Case(label, named[label](rng, f"m{env.seed}-{number}"))
