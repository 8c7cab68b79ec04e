"""What the parts of requests.py share: requests and cases, servers, what is compared of an answer, and kinds with their fields."""

import collections
import copy
import gzip
import http.client
import json
import random
import re
import threading
import time
import urllib.parse

import corpus
import corpus_protobuf
import sequences

JSON = "application/json"
YAML = "application/yaml"
PROTOBUF = "application/vnd.kubernetes.protobuf"
CBOR = "application/cbor"
MERGE = "application/merge-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
JSON_PATCH = "application/json-patch+json"
APPLY = "application/apply-patch+yaml"
TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"
METADATA = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io"
PATCHES = [MERGE, STRATEGIC, JSON_PATCH, APPLY]

# Headers of answers that are compared.
HEADERS = ["Content-Type", "Content-Encoding", "Cache-Control", "Allow", "Accept-Patch", "Retry-After", "Location"]
DOCUMENTS = ("/openapi/", "/metrics", "/version")
# How often a request is sent again while a server is not ready for it.
TRIES_MAX = 100
# A walk through fields ends at this depth: some types contain themselves.
DEPTH_MAX = 14
# Managers of what a server writes by itself.
OWN_MANAGERS = ("kube-apiserver", "api-priority-and-fairness-config-consumer-v1")
# Kinds whose first update that changes nothing is a change upstream (COMPAT.md, a default that is not stored).
LATE_DEFAULTS = ("PersistentVolumeClaim", "Job")
# The resourceVersions in messages that corpus.clean leaves.
OWN_VERSION = re.compile(
    r"((?:version: <rv> \(|in record \(|in the precondition \(|in object meta: |current: |Invalid value: \"|parsing \")(?=\d{3}))\d+"
)
# The place in the source that names a scheme depends on how kube-apiserver was built.
SCHEME = re.compile(r'(in scheme \\?")[^"\\]*')
# The address that both servers advertise, with their ports.
SERVER = re.compile(r"\b10\.1\.1\.1:\d+")
# Messages quote the bytes of a body, in which a resourceVersion of another length moves all.
HEX = re.compile(r"\((?:[0-9a-f]{2}){20,} \.\.\.\)")
# Lists that have no order, or that of a Go map.
UNORDERED = ("managedFields", "causes", "conditions", "resourceRules", "nonResourceRules")
STRUCT = re.compile(r'Invalid value: \{".*\}: ')
PLACEHOLDER = re.compile(r"\{(rv|uid|continue|list|start)\}")


class Request:
    """A request. `{rv}`, `{uid}`, `{continue}` and `{list}` in its path and body stand for the resourceVersion and uid of the
    last object, and the continue token and resourceVersion of the last list that the server answered with. A body is a value
    that is written as JSON, a text, bytes, or a function of the last object. With `raw`, the body is the last answer itself."""

    def __init__(
        self,
        method,
        path,
        body=None,
        content_type=JSON,
        accept=JSON,
        headers=None,
        compared=True,
        needed=False,
        raw=False,
        marks=None,
        until=None,
        reads=None,
        pause=0,
        forgets=False,
    ):
        self.method, self.path, self.body, self.raw = method, path, body, raw
        # A name for the resourceVersion of the list that is the answer, the status that is waited for, what is read before, and a
        # pause after it, in seconds.
        self.marks, self.until, self.reads, self.pause = marks, until, reads, pause
        # Whether the last object is forgotten before.
        self.forgets = forgets
        self.headers = {"Content-Type": content_type, "Accept": accept, **(headers or {})}
        self.headers = {name: value for name, value in self.headers.items() if value is not None}
        # A case ends where a request that is needed fails.
        self.compared, self.needed = compared, needed

    def shown(self, last):
        body = self.body(copy.deepcopy(last)) if callable(self.body) else self.body
        body = "<the last answer>" if self.raw else body
        body = body.decode(errors="replace") if isinstance(body, bytes) else body if isinstance(body, str) else json.dumps(body)
        return f"{self.method} {self.path} {json.dumps(self.headers)}\n    {body[:1500]}"


class Case:
    """Requests about one thing, whose answers are compared. `label` says what they are about, for the count at the end."""

    def __init__(self, label, steps):
        self.label, self.steps = label, steps


class Server:
    """A server, with one connection and what the requests of one case must know of its answers."""

    def __init__(self, url, token):
        self.url, self.token, self.connection = urllib.parse.urlsplit(url), token, None
        self.begin()

    def begin(self):
        self.last, self.known, self.raw, self.normalizer = {}, collections.defaultdict(str), b"", Normalizer()

    def filled(self, text):
        return PLACEHOLDER.sub(lambda found: self.known[found.group(1)], text)

    def body_of(self, request):
        if request.raw:
            return self.raw
        body = request.body(copy.deepcopy(self.last)) if callable(request.body) else request.body
        if body is None or isinstance(body, bytes):
            return body
        return self.filled(body if isinstance(body, str) else json.dumps(body)).encode("utf-8", "surrogatepass")

    def send(self, request):
        """Returns status, headers, warnings and body of the answer to a request."""
        path = urllib.parse.quote(self.filled(request.path), safe="/?&=%:,;+*!()'$@~.-_[]{}|\\")
        headers = {"Authorization": f"Bearer {self.token}", **request.headers}
        body = self.body_of(request)
        for is_last in (False, True):
            try:
                if self.connection is None:
                    self.connection = http.client.HTTPSConnection(self.url.hostname, self.url.port, timeout=60, context=sequences.TLS)
                self.connection.request(request.method, path, body=body, headers=headers)
                response = self.connection.getresponse()
                data = response.read()
                if response.status == 101:
                    self.connection = None
                break
            except (http.client.HTTPException, OSError) as fault:
                self.connection = None
                if is_last:
                    return 0, {"fault": type(fault).__name__}, [], b""
        found = {name: response.headers[name] for name in HEADERS if name in response.headers}
        if found.get("Content-Encoding") == "gzip":
            data = gzip.decompress(data)
        self.remember(response.status, data)
        return response.status, found, response.headers.get_all("Warning") or [], data

    def remember(self, status, data):
        if status not in (200, 201):
            return
        self.raw = data
        try:
            value = json.loads(data)
        except ValueError:
            return
        meta = value.get("metadata") if isinstance(value, dict) else None
        if not isinstance(meta, dict):
            return
        if "items" in value or "rows" in value:
            self.known["continue"] = urllib.parse.quote(meta.get("continue", ""))
            self.known["list"] = meta.get("resourceVersion", "")
        elif meta.get("uid"):
            self.last = value
            self.known["rv"], self.known["uid"] = meta.get("resourceVersion", ""), meta["uid"]

    def answer(self, request):
        """Sends a request. Returns what is compared of the answer."""
        if request.forgets:
            self.last = {}
        if request.reads:
            self.send(Request("GET", request.reads))
        status, headers, warnings, data = self.send(request)
        for _ in range(TRIES_MAX):
            # While the storage of a resource is made anew, kube-apiserver answers 429.
            if status != 429 and request.until in (None, status) or "/eviction" in request.path:
                break
            time.sleep(0.05)
            status, headers, warnings, data = self.send(request)
        if request.marks:
            self.known[request.marks] = self.known["list"]
        warnings = sorted(corpus.clean(warning) for warning in warnings)
        return {"status": status, "headers": headers, "warnings": warnings, "body": self.body(request, status, data)}

    def body(self, request, status, data):
        if request.path.startswith(DOCUMENTS) and status == 200:
            # COMPAT.md: descriptions, and so the hashes of documents, are our own.
            return "<document>"
        if data[:4] == b"k8s\x00":
            return corpus_protobuf.object_tree(data, lambda text: "<n>" if text.isdigit() else corpus.clean(text))
        if "watch" in request.path and status == 200:
            return self.events(data)
        try:
            return self.normalizer.document(json.loads(data))
        except ValueError:
            return self.indented(data)

    def events(self, data):
        """Returns the events of a watch, without bookmarks, whose number depends on time."""
        if data[:1] != b"{":
            frames = []
            while len(data) > 4:
                size = int.from_bytes(data[:4], "big")
                frames.append(frame_event(data[4 : 4 + size]))
                data = data[4 + size :]
            return frames
        try:
            events = [json.loads(line) for line in data.splitlines() if line]
        except ValueError:
            return corpus.clean(data.decode(errors="replace"))
        return [
            [event.get("type"), self.normalizer.document(event.get("object"))]
            for event in events
            if event.get("type") != "BOOKMARK" or "initial-events-end" in json.dumps(event)
        ]

    def indented(self, data):
        """Returns indented objects: one that is no event, or the events of a watch."""
        text, found, decoder = data.decode(errors="replace").strip(), [], json.JSONDecoder()
        while text:
            try:
                value, end = decoder.raw_decode(text)
            except ValueError:
                return corpus.clean(text)
            found.append(self.normalizer.document(value))
            text = text[end:].strip()
        return found


def frame_event(frame):
    """Returns the event in a frame of a watch in protobuf: its type, and the object, which has an envelope of its own."""
    try:
        (_, kind), (_, raw) = corpus_protobuf.fields(frame)
        return [
            kind.decode(),
            corpus_protobuf.object_tree(corpus_protobuf.fields(raw)[0][1], lambda text: "<n>" if text.isdigit() else corpus.clean(text)),
        ]
    except (ValueError, IndexError, AttributeError):
        return frame.decode(errors="replace")


class Normalizer(sequences.Normalizer):
    """Replaces generated values. Equal resourceVersions of objects stay equal, so that a write that changes nothing is seen."""

    def document(self, value):
        if isinstance(value, dict) and value.get("kind") == "Table":
            value = sequences.Sequence.without_ages(value)
        if isinstance(value, dict) and value.get("kind") == "ComponentStatusList":
            # Their order is that of a Go map.
            value["items"].sort(key=lambda item: item["metadata"]["name"])
        value = self.value(value)
        if isinstance(value, dict) and value.get("kind") == "Status" and len((value.get("details") or {}).get("causes") or []) > 1:
            # The message has the causes in an order that is that of Go maps.
            value["message"] = None
        return value

    def text(self, text):
        text = OWN_VERSION.sub(r"\1<rv>", sequences.UID.sub(lambda found: self.number("uid", found.group()), text))
        text = SERVER.sub("<server>", text)
        text = HEX.sub("(<bytes>)", text)
        text = SCHEME.sub(r"\1<place>", text)
        text = corpus.DIFFERENCE.sub("\n<difference>", corpus.clean(text))
        # COMPAT.md: structs are shown as JSON.
        text = STRUCT.sub("Invalid value: <struct>: ", text)
        # kube-apiserver finds errors of a configuration in the order of a Go map, and stops at an unknown field.
        head, mark, _ = text.partition("failed to create typed patch object")
        return head + mark if mark else text

    def value(self, value, key=""):
        if isinstance(value, dict):
            meta = value.get("metadata")
            if str(value.get("kind")) in corpus.OWN_STATUS and isinstance(meta, dict):
                value = {name: inner for name, inner in value.items() if name != "status"}
            if isinstance(meta, dict) and isinstance(meta.get("resourceVersion"), str) and "items" not in value and "rows" not in value:
                is_own = str(value.get("kind")) in corpus.OWN_STATUS or str(value.get("kind")) in LATE_DEFAULTS
                value = {**value, "metadata": {**meta, "resourceVersion": "<rv>" if is_own else self.number("rv", meta["resourceVersion"])}}
            return {name: self.value(value[name], name) for name in sorted(value)}
        if isinstance(value, list) and key == "managedFields":
            value = [entry for entry in value if not isinstance(entry, dict) or entry.get("manager") not in OWN_MANAGERS]
        if isinstance(value, list):
            items = [self.value(item, key) for item in value]
            return sorted(items, key=json.dumps) if key in UNORDERED else items
        if isinstance(value, str) and key == "resourceVersion":
            return value if value.startswith("<rv") else "<rv>"
        if isinstance(value, str) and key == "continue":
            return "<continue>" if value else ""
        if isinstance(value, str) and key == "serverAddress":
            return "<address>"
        if isinstance(value, str) and key == "token" and len(value) > 100:
            return "<token>"
        if isinstance(value, str) and key in ("clusterIP", "clusterIPs") and value[:3] == "10.":
            return self.number("ip", value)
        if isinstance(value, str):
            return self.text(value)
        return "<port>" if key in ("nodePort", "healthCheckNodePort") and value else value


class Kind:
    """A kind with an object of it, and where its objects are."""

    def __init__(self, version, resource, kind, namespaced, base, status=None, only_create=False, dry=False):
        self.version, self.resource, self.kind, self.namespaced, self.base = version, resource, kind, namespaced, base
        self.status, self.only_create, self.dry = status, only_create, dry
        self.root = f"/api/{version}" if version == "v1" else f"/apis/{version}"

    def collection(self, namespace):
        return f"{self.root}/namespaces/{namespace}/{self.resource}" if self.namespaced else f"{self.root}/{self.resource}"

    def object(self, name):
        obj = {"apiVersion": self.version, "kind": self.kind, "metadata": {"name": name}, **copy.deepcopy(self.base)}
        for about in ("regarding", "involvedObject"):
            if about in obj:
                # An event is in the namespace of what it is about.
                obj[about]["namespace"] = "requests"
        return obj


SCHEMA = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
ATTRIBUTES = {"resourceAttributes": {"verb": "get", "resource": "pods"}, "user": "u"}
MORE_KINDS = [
    Kind(
        "apiregistration.k8s.io/v1",
        "apiservices",
        "APIService",
        False,
        {
            "spec": {
                "group": "a.com",
                "version": "v1",
                "groupPriorityMinimum": 1,
                "versionPriority": 1,
                "service": {"name": "n", "namespace": "m"},
                "insecureSkipTLSVerify": True,
            }
        },
        dry=True,
    ),
    Kind(
        "apiextensions.k8s.io/v1",
        "customresourcedefinitions",
        "CustomResourceDefinition",
        False,
        {
            "spec": {
                "group": "a.example.com",
                "scope": "Namespaced",
                "names": {"plural": "things", "kind": "Thing"},
                "versions": [{"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": SCHEMA}}],
            }
        },
        dry=True,
    ),
    Kind(
        "flowcontrol.apiserver.k8s.io/v1",
        "flowschemas",
        "FlowSchema",
        False,
        {"spec": {"priorityLevelConfiguration": {"name": "none"}, "matchingPrecedence": 9000}},
        dry=True,
    ),
    Kind("networking.k8s.io/v1", "servicecidrs", "ServiceCIDR", False, {"spec": {"cidrs": ["10.200.0.0/24"]}}, dry=True),
    Kind(
        "networking.k8s.io/v1",
        "ipaddresses",
        "IPAddress",
        False,
        {"spec": {"parentRef": {"resource": "services", "namespace": "default", "name": "s"}}},
        dry=True,
    ),
    Kind("v1", "events", "Event", True, {"involvedObject": {"kind": "Pod", "name": "p"}, "reason": "r", "message": "m"}, dry=True),
    Kind("authentication.k8s.io/v1", "tokenreviews", "TokenReview", False, {"spec": {"token": "t"}}, only_create=True),
    Kind("authentication.k8s.io/v1", "selfsubjectreviews", "SelfSubjectReview", False, {}, only_create=True),
    Kind("authorization.k8s.io/v1", "subjectaccessreviews", "SubjectAccessReview", False, {"spec": ATTRIBUTES}, only_create=True),
    Kind("authorization.k8s.io/v1", "localsubjectaccessreviews", "LocalSubjectAccessReview", True, {"spec": ATTRIBUTES}, only_create=True),
    Kind(
        "authorization.k8s.io/v1",
        "selfsubjectaccessreviews",
        "SelfSubjectAccessReview",
        False,
        {"spec": {"nonResourceAttributes": {"path": "/x", "verb": "get"}}},
        only_create=True,
    ),
    Kind(
        "authorization.k8s.io/v1",
        "selfsubjectrulesreviews",
        "SelfSubjectRulesReview",
        False,
        {"spec": {"namespace": "default"}},
        only_create=True,
    ),
]
KINDS = [Kind(*row[:5], status=row[6]) for row in sequences.KINDS]
for each in KINDS:
    # A namespace that is deleted stays until somebody finalizes it.
    each.dry = each.kind in ("Namespace", "CertificateSigningRequest")
KINDS += MORE_KINDS


class Schemas:
    """The fields of kinds, from the OpenAPI documents of a server."""

    def __init__(self, server):
        self.server, self.documents, self.lock = server, {}, threading.Lock()

    def document(self, root):
        with self.lock:
            if root not in self.documents:
                document = json.loads(self.server.send(Request("GET", f"/openapi/v3{root}"))[3])
                self.documents[root] = document["components"]["schemas"]
        return self.documents[root]

    def of(self, kind):
        group, _, version = kind.version.rpartition("/")
        wanted = {"group": group, "kind": kind.kind, "version": version}
        schemas = self.document(kind.root)
        return next((schema for schema in schemas.values() if wanted in schema.get("x-kubernetes-group-version-kind", [])), {})

    def resolved(self, kind, schema):
        while True:
            if "allOf" in schema:
                schema = {**schema, **schema["allOf"][0]}
                del schema["allOf"]
            elif "$ref" in schema:
                schema = self.document(kind.root)[schema["$ref"].rpartition("/")[2]]
            else:
                return schema

    def walk(self, kind, rng, to_scalar=False):
        """Returns the path of a field of the kind (names, and 0 for an item), and its schema."""
        path, schema = [], self.resolved(kind, self.of(kind))
        while len(path) < DEPTH_MAX:
            if schema.get("properties"):
                if path and not to_scalar and rng.random() < 0.2:
                    break
                names = sorted(schema["properties"])
                if not path:
                    names = [name for name in names if name not in ("apiVersion", "kind")]
                    names = [name for name in names if name not in ("metadata", "status") or rng.random() < 0.25] or names
                path.append(rng.choice(names))
                schema = schema["properties"][path[-1]]
            elif schema.get("type") == "array":
                if not to_scalar and rng.random() < 0.3:
                    break
                path.append(0)
                schema = schema["items"]
            elif isinstance(schema.get("additionalProperties"), dict):
                if not to_scalar and rng.random() < 0.4:
                    break
                path.append("a")
                schema = schema["additionalProperties"]
            else:
                break
            schema = self.resolved(kind, schema)
        return path, schema

    def sample(self, kind, schema, depth=0):
        """Returns a value of a type, with its required fields."""
        schema = self.resolved(kind, schema)
        if schema.get("enum"):
            return schema["enum"][0]
        if schema.get("properties"):
            required = schema.get("required", []) if depth < 5 else []
            return {name: self.sample(kind, schema["properties"][name], depth + 1) for name in required}
        simple = {"array": [], "object": {}, "integer": 1, "number": 1, "boolean": True}
        if schema.get("format") == "date-time":
            return "2024-01-01T00:00:00Z"
        return copy.copy(simple.get(schema.get("type"), "a"))

    def set(self, kind, obj, path, value, rng):
        """Sets a field of an object, with the required fields of the objects around it, mostly."""
        schema, target = self.resolved(kind, self.of(kind)), obj
        for at, step in enumerate(path):
            is_last = at == len(path) - 1
            if isinstance(step, int):
                schema = self.resolved(kind, schema["items"])
            else:
                schema = self.resolved(kind, schema["properties"][step] if "properties" in schema else schema["additionalProperties"])
            if is_last:
                following = value
            else:
                is_list = isinstance(path[at + 1], int)
                existing = target.get(step) if isinstance(target, dict) else target[0] if target else None
                if isinstance(existing, list if is_list else dict):
                    following = existing
                else:
                    following = [] if is_list else self.sample(kind, schema) if rng.random() < 0.75 else {}
                    following = following if isinstance(following, list if is_list else dict) else [] if is_list else {}
            if isinstance(step, int):
                target[:] = [following] + target[1:]
            else:
                target[step] = following
            target = following


class Environment:
    """What the parts know: the fields of kinds, and a random generator for each case."""

    def __init__(self, schemas, seed):
        self.schemas, self.seed = schemas, seed

    def random(self, part, number):
        return random.Random(f"{part} {self.seed}/{number}")


def pointer(path):
    """Returns a path as a JSON pointer."""
    return "".join("/" + str(step).replace("~", "~0").replace("/", "~1") for step in path)


def nested(path, value):
    """Returns a value within objects and lists, as a merge patch has it."""
    for step in reversed(path):
        value = [value] if isinstance(step, int) else {step: value}
    return value
