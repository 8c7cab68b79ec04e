"""The part `options` of requests.py: parameters and options of every verb, right, wrong, empty, doubled and misspelt."""

import base64
import json

from request_cases import APPLY, JSON, JSON_PATCH, KINDS, MERGE, METADATA, STRATEGIC, TABLE, Case, Kind, Request

# Nothing changes in this namespace, so that lists can be compared.
FIXED = "requests-fixed"
NAMESPACE = "requests"
MAPS = f"/api/v1/namespaces/{FIXED}/configmaps"


def token(**fields):
    return base64.urlsafe_b64encode(json.dumps(fields, separators=(",", ":")).encode()).decode().rstrip("=")


BOOLEANS = ["true", "false", "1", "0", "", "True", "FALSE", "t", "yes", "2", "abc"]
NUMBERS = ["0", "1", "2", "-1", "", "abc", "1.5", "9223372036854775807", "9223372036854775808", "+1", "0x1", "01", "1e1"]
VERSIONS = ["", "0", "1", "{rv}", "{list}", "abc", "-1", "1.5", "01", "{rv}a", "18446744073709551616", "00"]
SELECTORS = [
    "a",
    "a=1",
    "a==1",
    "a!=1",
    "!a",
    "a in (1,2)",
    "a in (1,,2)",
    "a notin (1)",
    "a,!b",
    "a=1,a=2",
    ",",
    "a,",
    "a=",
    "a!=",
    "a in ()",
    "a in",
    "a in (",
    "a>0",
    "a<2",
    "a>x",
    "a>0,a<5",
    "=1",
    "a b",
    "a/b/c=1",
    "A/=1",
    "a=%",
    "a=1 ",
    " a = 1 ",
    "a=b c",
    "(a)",
    "!a=1",
    "! a",
    "a in 1",
    "in in (in)",
    "notin",
    "a=" + "x" * 64,
    "x" * 64,
    "",
    "a===1",
    "a=!1",
    "!",
    "a\n=1",
    '"a"=1',
    "a=é",
]
FIELDS = [
    "metadata.name=a",
    "metadata.name==a",
    "metadata.name!=a",
    "metadata.namespace=requests-fixed",
    "metadata.namespace=default",
    "metadata.name",
    "metadata.name=",
    "=a",
    "status.phase=Pending",
    "spec.nodeName=",
    "spec.nodeName!=n",
    "status.phase!=Running",
    "odd=1",
    "metadata.uid=1",
    "metadata.name=a,metadata.name=b",
    "metadata.name=a,",
    ",",
    "metadata.name=a\\,b",
    "metadata.name=a\\",
    "metadata.name in (a)",
    "",
    "metadata.name=a=b",
    "spec.restartPolicy=Always",
    "metadata.labels.a=1",
    "type=Opaque",
    "spec.unschedulable=false",
    " metadata.name=a",
    "metadata.name = a",
    "metadata.name<a",
    "reason=r",
    "involvedObject.kind=Pod",
    "status.successful=0",
    "spec.replicas=1",
    "!metadata.name",
]
MANAGERS = ["m", "", "a" * 128, "a" * 129, "a b", "é", "a\tb", "a/b", "kubectl", "%00", "😀", "a%0Ab", "\u00ad"]
VALIDATIONS = ["Strict", "Warn", "Ignore", "", "strict", "Odd", "All"]
TOKENS = [
    "{continue}",
    "abc",
    "",
    "a",
    "%%%",
    token(v="meta.k8s.io/v1", rv=1, start="a\0"),
    token(v="meta.k8s.io/v1", rv=-1, start="a\0"),
    token(v="meta.k8s.io/v1", rv=0, start="a\0"),
    token(v="meta.k8s.io/v2", rv=1, start="a"),
    token(v="meta.k8s.io/v1", rv=1, start=""),
    token(v="meta.k8s.io/v1", rv=-1, start="../b\0"),
    token(rv=1),
    token(v="meta.k8s.io/v1"),
    token(v="meta.k8s.io/v1", rv=-1, start="zz"),
    token(v="meta.k8s.io/v1", rv=99999999, start="a\0"),
    token(v="meta.k8s.io/v1", rv="1", start="a"),
    "e30",
    "{continue}=",
]

LIST = {
    "labelSelector": SELECTORS,
    "fieldSelector": FIELDS,
    "limit": NUMBERS,
    "continue": TOKENS,
    "resourceVersion": VERSIONS,
    "resourceVersionMatch": ["Exact", "NotOlderThan", "", "exact", "Odd"],
    "timeoutSeconds": ["1", "5", "", "abc", "1.5", "0"],
    "sendInitialEvents": BOOLEANS,
    "allowWatchBookmarks": BOOLEANS,
    "watch": ["false", "0", "", "abc"],
    "pretty": BOOLEANS,
    "includeObject": ["None", "Metadata", "Object", "", "Odd", "none"],
    "shardSelector": ["", "a"],
}
GET = {
    "resourceVersion": VERSIONS,
    "pretty": BOOLEANS,
    "export": BOOLEANS,
    "exact": BOOLEANS,
    "includeObject": ["None", "Object", "Odd"],
    "timeout": ["1s", "abc", "0", "-1s", "34s", "1", "999h"],
    "name": ["b"],
}
WRITE = {
    "dryRun": ["All", "", "all", "None", "true", "All,All"],
    "fieldManager": MANAGERS,
    "fieldValidation": VALIDATIONS,
    "pretty": BOOLEANS,
    "force": BOOLEANS,
    "timeout": ["1s", "abc", "0", "34s", "1"],
    "kind": ["x"],
    "apiVersion": ["x", "v1", "meta.k8s.io/v1"],
}
DELETE = {
    "gracePeriodSeconds": NUMBERS,
    "propagationPolicy": ["Orphan", "Background", "Foreground", "", "orphan", "Odd"],
    "orphanDependents": BOOLEANS,
    "dryRun": WRITE["dryRun"],
    "preconditions": ["", "{}"],
    "preconditions.uid": ["x", "{uid}"],
    "uid": ["x"],
    "resourceVersion": VERSIONS,
    "ignoreStoreReadErrorWithClusterBreakingPotential": BOOLEANS,
    "pretty": BOOLEANS,
    "kind": ["DeleteOptions", "x"],
    "apiVersion": ["v1", "x"],
}
LOG = {
    "container": ["c", "", "d", "c,d"],
    "follow": BOOLEANS,
    "previous": BOOLEANS,
    "sinceSeconds": NUMBERS,
    "sinceTime": ["2024-01-01T00:00:00Z", "abc", ""],
    "timestamps": BOOLEANS,
    "tailLines": NUMBERS,
    "limitBytes": NUMBERS,
    "insecureSkipTLSVerifyBackend": BOOLEANS,
    "stream": ["Stdout", "All", "", "x"],
}
EXEC = {"stdin": BOOLEANS, "stdout": BOOLEANS, "stderr": BOOLEANS, "tty": BOOLEANS, "container": ["c", "d", ""], "command": ["ls", ""]}
FORWARD = {"ports": ["80", "0", "abc", "80,81", ""]}
PROXY = {"path": ["a", "/a", "", "../a", "a?b=c"]}

DELETE_BODY = {
    "gracePeriodSeconds": [0, 1, -1, None, "1", 1.5, 1.0, 9223372036854775807, 9223372036854775808, True],
    "propagationPolicy": ["Orphan", "Background", "Foreground", "", "odd", None, 1],
    "orphanDependents": [True, False, None, "true"],
    "preconditions": [
        {},
        None,
        {"uid": "x"},
        {"uid": "{uid}"},
        {"uid": ""},
        {"resourceVersion": "{rv}"},
        {"resourceVersion": "1"},
        {"resourceVersion": ""},
        {"uid": None},
        {"odd": 1},
        [],
        "x",
        {"uid": "{uid}", "resourceVersion": "{rv}"},
    ],
    "dryRun": [["All"], [], ["all"], "All", None, ["All", "All"], [""], [None]],
    "odd": [1],
    "kind": ["DeleteOptions", "Odd", "", None],
    "apiVersion": ["v1", "meta.k8s.io/v1", "apps/v1", "policy/v1", "odd/v1", "", None, "batch/v1"],
    "metadata": [{}, {"name": "a"}],
    "ignoreStoreReadErrorWithClusterBreakingPotential": [True, False, None, "true"],
}

WRITABLE = [kind for kind in KINDS if not kind.only_create and not kind.dry]
# Lists whose objects no other case changes.
LISTS = [
    MAPS,
    MAPS,
    MAPS,
    f"/api/v1/namespaces/{FIXED}/pods",
    f"/api/v1/namespaces/{FIXED}/secrets",
    f"/apis/apps/v1/namespaces/{FIXED}/deployments",
    f"/api/v1/namespaces/{FIXED}/events",
    f"/apis/events.k8s.io/v1/namespaces/{FIXED}/events",
    "/api/v1/componentstatuses/etcd-0",
    "/api/v1/componentstatuses",
    "/api/v1/namespaces/none/configmaps",
    f"/apis/batch/v1/namespaces/{FIXED}/jobs",
    f"/apis/options.example.com/v1/namespaces/{FIXED}/things",
]
DEFINITION = {
    "metadata": {"name": "things.options.example.com"},
    "spec": {
        "group": "options.example.com",
        "scope": "Namespaced",
        "names": {"plural": "things", "kind": "Thing"},
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "subresources": {"status": {}},
                "selectableFields": [{"jsonPath": ".spec.replicas"}],
                "schema": {
                    "openAPIV3Schema": {
                        "type": "object",
                        "properties": {
                            "spec": {"type": "object", "properties": {"replicas": {"type": "integer"}}},
                            "status": {"type": "object"},
                        },
                    }
                },
            }
        ],
    },
}
THING = Kind("options.example.com/v1", "things", "Thing", True, {"spec": {"replicas": 1}})


def preparation():
    pod = {"spec": {"automountServiceAccountToken": False, "containers": [{"name": "c", "image": "i"}]}}
    template = {"metadata": {"labels": {"a": "b"}}, **pod}
    workload = {"metadata": {"name": "a", "labels": {"a": "1"}}, "spec": {"selector": {"matchLabels": {"a": "b"}}, "template": template}}
    job = {"metadata": {"name": "a"}, "spec": {"template": {"spec": {**pod["spec"], "restartPolicy": "Never"}}}}
    event = {"involvedObject": {"kind": "Pod", "name": "p", "namespace": FIXED}, "reason": "r", "metadata": {"name": "a"}}
    definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
    created = [
        (MAPS, {"metadata": {"name": name, "labels": labels}, "data": {"a": name}})
        for name, labels in (("a", {"a": "1"}), ("b", {"a": "2", "b": "1"}), ("c", {}), ("d", {"a": "1", "in": "in"}))
    ]
    created += [
        (LISTS[3], {"metadata": {"name": "p", "labels": {"a": "1"}}, **pod}),
        (LISTS[3], {"metadata": {"name": "q"}, **pod}),
        (LISTS[4], {"metadata": {"name": "a"}}),
        (LISTS[5], workload),
        (LISTS[6], event),
        (LISTS[10], job),
    ]
    requests = [Request("POST", definitions, DEFINITION)] + [Request("POST", path, body) for path, body in created]
    requests.append(Request("GET", f"{definitions}/{DEFINITION['metadata']['name']}"))
    return requests + [
        Request("POST", LISTS[11], {**THING.object(name), "metadata": {"name": name, "labels": {"a": "1"}}}) for name in ("a", "b")
    ]


def escaped(value):
    """Escapes what would end a value; values with escapes stay as they are."""
    if "%0" in value:
        return value
    return value.replace("%", "%25").replace("&", "%26").replace("+", "%2B").replace("#", "%23")


def query(rng, fields, always=None):
    """Returns a query of some parameters; few are repeated, misspelt or those of another verb."""
    parts = list(always or [])
    for _ in range(rng.choice([0, 1, 1, 1, 2, 2, 3])):
        every = fields if rng.random() < 0.93 else {**LIST, **GET, **WRITE, **DELETE, **LOG, **EXEC}
        name = rng.choice(sorted(every))
        value, other = rng.choice(every[name]), rng.choice(every[name])
        name = rng.choice([name.lower(), name.capitalize(), name + "s"]) if rng.random() < 0.04 else name
        parts.append(name if value == "" and rng.random() < 0.3 else f"{name}={escaped(value)}")
        if rng.random() < 0.08:
            parts.append(f"{name}={escaped(other)}")
    rng.shuffle(parts)
    if any(part.startswith("watch") for part in parts):
        # The first of several counts.
        parts = ["timeoutSeconds=1"] + [part for part in parts if not part.startswith("timeoutSeconds")]
    if any(part.startswith("follow") for part in parts):
        parts.append("timeout=5s")
    return "?" + "&".join(parts) if parts else ""


def list_case(rng):
    path = rng.choice(LISTS)
    accept = JSON if path.endswith("componentstatuses") else rng.choice([JSON, JSON, JSON, TABLE, METADATA])
    first = Request("GET", f"{path}?limit=1", compared=False)
    return [first, Request("GET", path + query(rng, LIST), accept=accept)]


def watch_case(rng):
    path, always = rng.choice(LISTS[:-4]), ["watch=" + rng.choice(["1", "true", "true", "T", "yes"])]
    fields = {name: values for name, values in LIST.items() if name not in ("watch", "timeoutSeconds")}
    return [
        Request("GET", f"{path}?limit=1", compared=False),
        Request("GET", path + query(rng, fields, always), accept=rng.choice([JSON, JSON, TABLE])),
    ]


def get_case(rng):
    path = rng.choice(
        [
            f"{MAPS}/a",
            f"{MAPS}/none",
            f"{LISTS[3]}/p",
            f"{LISTS[3]}/p/status",
            f"{LISTS[5]}/a/scale",
            f"{LISTS[5]}/a",
            f"{LISTS[11]}/a",
            "/api/v1/namespaces/default",
            f"/api/v1/namespaces/{FIXED}/pods/p/ephemeralcontainers",
            f"{LISTS[11]}/a/status",
        ]
    )
    return [
        Request("GET", path, compared=False),
        Request(rng.choice(["GET", "GET", "GET", "HEAD"]), path + query(rng, GET), accept=rng.choice([JSON, TABLE])),
    ]


def write_case(rng, name):
    kind = rng.choice([*WRITABLE, THING])
    collection = kind.collection(FIXED if kind is THING else NAMESPACE).replace(FIXED, NAMESPACE)
    obj, at = kind.object(name), f"{collection}/{name}"
    verb = rng.choice(["create", "update", "apply", "apply", "merge", "strategic", "json", "status", "generate"])
    extra = rng.choice([{}, {}, {"odd": 1}])
    if verb in ("create", "generate"):
        obj.update(extra)
        return [Request("POST", collection + query(rng, WRITE), obj), Request("GET", at), Request("DELETE", at)]
    steps = [Request("POST", collection, obj, needed=True)] if verb != "apply" or rng.random() < 0.5 else []
    labels = {"metadata": {"labels": {"l": "1"}}, **extra}
    path, patch = at + query(rng, WRITE), JSON_PATCH if verb == "json" else MERGE if verb == "merge" else STRATEGIC
    if verb == "update":
        steps.append(Request("PUT", path, lambda last: {**(last or obj), **extra}))
    elif verb == "apply":
        steps += [Request("PATCH", at + query(rng, WRITE, ["fieldManager=m"] if rng.random() < 0.8 else []), {**obj, **extra}, APPLY)] * 2
    elif verb == "status":
        steps.append(
            Request(
                rng.choice(["PUT", "PATCH"]),
                f"{at}/status" + query(rng, WRITE),
                lambda last: last or obj,
                rng.choice([JSON, MERGE, STRATEGIC]),
            )
        )
    else:
        steps.append(
            Request("PATCH", path, [{"op": "add", "path": "/metadata/labels", "value": {"l": "1"}}] if verb == "json" else labels, patch)
        )
    return steps + [Request("GET", at), Request("DELETE", at)]


def delete_case(rng, name):
    kind = rng.choice([*WRITABLE, THING])
    collection = kind.collection(NAMESPACE)
    obj, at = kind.object(name), f"{collection}/{name}"
    if rng.random() < 0.3:
        obj["metadata"]["finalizers"] = ["example.com/f"]
    body = None
    if rng.random() < 0.75:
        body = {field: rng.choice(DELETE_BODY[field]) for field in rng.sample(sorted(DELETE_BODY), rng.choice([0, 1, 1, 2]))}
    options = query(rng, DELETE) if rng.random() < 0.5 else ""
    steps = [
        Request("POST", collection, obj, needed=True),
        Request("DELETE", at + options, body),
        Request("GET", at),
        Request("DELETE", at),
    ]
    return steps + [Request("PATCH", at, {"metadata": {"finalizers": None}}, MERGE), Request("GET", at)]


def delete_collection_case(rng, name):
    kind = rng.choice([kind for kind in WRITABLE if kind.namespaced])
    collection = kind.collection(name)
    steps = [Request("POST", "/api/v1/namespaces", {"metadata": {"name": name}}, needed=True)]
    for item in ("a", "b"):
        obj = kind.object(item)
        obj["metadata"].update({"namespace": name, "labels": {"a": item}})
        for about in ("regarding", "involvedObject"):
            if about in obj:
                obj[about]["namespace"] = name
        steps.append(Request("POST", collection, obj, needed=True))
    body = (
        {field: rng.choice(DELETE_BODY[field]) for field in rng.sample(sorted(DELETE_BODY), rng.choice([0, 1, 1]))}
        if rng.random() < 0.5
        else None
    )
    fields = {
        **DELETE,
        **{
            field: LIST[field]
            for field in ("labelSelector", "fieldSelector", "limit", "continue", "resourceVersion", "resourceVersionMatch")
        },
    }
    steps += [
        Request("DELETE", collection + query(rng, fields), body),
        Request("GET", collection),
        Request("DELETE", f"/api/v1/namespaces/{name}"),
    ]
    return steps


def subresource_case(rng, name):
    pod = f"/api/v1/namespaces/{FIXED}/pods/{rng.choice(['p', 'p', 'none'])}"
    node = f"/api/v1/nodes/{rng.choice(['none'])}/proxy"
    choice = rng.choice(["log", "exec", "attach", "portforward", "proxy", "node", "eviction", "binding", "token", "scale", "service"])
    if choice in ("log", "exec", "attach", "portforward", "proxy"):
        fields = {"log": LOG, "exec": EXEC, "attach": EXEC, "portforward": FORWARD, "proxy": PROXY}[choice]
        return [
            Request(
                rng.choice(["GET", "GET", "POST", "PUT", "DELETE"] if choice != "log" else ["GET"]), f"{pod}/{choice}" + query(rng, fields)
            )
        ]
    if choice in ("node", "service"):
        path = (
            node
            if choice == "node"
            else f"/api/v1/namespaces/{FIXED}/services/{rng.choice(['none', 'http:none:80', 'a:b:c:d', 'odd:none:1'])}/proxy"
        )
        return [Request("GET", path + rng.choice(["", "/", "/a"]) + query(rng, PROXY))]
    if choice == "token":
        body = {
            "spec": rng.choice(
                [
                    {},
                    {"expirationSeconds": 600},
                    {"expirationSeconds": 1},
                    {"audiences": ["a"]},
                    {"boundObjectRef": {"kind": "Pod", "name": "p", "apiVersion": "v1"}},
                ]
            )
        }
        return [Request("POST", f"/api/v1/namespaces/{FIXED}/serviceaccounts/default/token" + query(rng, WRITE), body)]
    if choice == "scale":
        always = ["dryRun=All"]
        body = rng.choice([{"spec": {"replicas": 1}}, {"spec": {"replicas": -1}}, {"spec": {"replicas": None}}, {"spec": None}, {}])
        return [
            Request("GET", f"{LISTS[5]}/a/scale"),
            Request("PATCH", f"{LISTS[5]}/a/scale" + query(rng, WRITE, always), body, rng.choice([MERGE, STRATEGIC])),
        ]
    first = [
        Request(
            "POST",
            f"/api/v1/namespaces/{NAMESPACE}/pods",
            {"metadata": {"name": name}, "spec": {"automountServiceAccountToken": False, "containers": [{"name": "c", "image": "i"}]}},
            needed=True,
        )
    ]
    at = f"/api/v1/namespaces/{NAMESPACE}/pods/{name}"
    if choice == "binding":
        body = {"metadata": {"name": name}, "target": rng.choice([{"name": "n"}, {"name": ""}, {"name": "n", "kind": "Odd"}, {}, None])}
    else:
        options = {field: rng.choice(DELETE_BODY[field]) for field in rng.sample(sorted(DELETE_BODY), rng.choice([0, 1, 1, 2]))}
        body = {"metadata": {"name": rng.choice([name, name, "other", ""])}, "deleteOptions": rng.choice([options, options, options, None])}
    return first + [
        Request("POST", f"{at}/{choice}" + query(rng, WRITE), body),
        Request("GET", at),
        Request("DELETE", at + "?gracePeriodSeconds=0"),
    ]


def case(env, number):
    rng = env.random("options", number)
    name = f"o{env.seed}-{number}"
    makers = {"list": list_case, "watch": watch_case, "get": get_case}
    label = rng.choice(["list", "list", "list", "watch", "get", "write", "write", "write", "delete", "delete", "collection", "subresource"])
    if label in makers:
        return Case(label, makers[label](rng))
    named = {"write": write_case, "delete": delete_case, "collection": delete_collection_case, "subresource": subresource_case}
    return Case(label, named[label](rng, name))
