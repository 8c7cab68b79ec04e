"""The part `definitions` of requests.py: custom resources while their definition changes."""

import copy

from request_cases import APPLY, JSON, JSON_PATCH, MERGE, TABLE, Case, Request

DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
NAMESPACE = "requests"
LEAVES = {
    "text": {"type": "string"},
    "number": {"type": "integer"},
    "float": {"type": "number"},
    "flag": {"type": "boolean"},
    "list": {"type": "array", "items": {"type": "string"}},
    "map": {"type": "object", "additionalProperties": {"type": "string"}},
    "inner": {"type": "object", "properties": {"a": {"type": "string"}, "b": {"type": "integer"}}},
    "items": {
        "type": "array",
        "items": {"type": "object", "required": ["name"], "properties": {"name": {"type": "string"}, "v": {"type": "integer"}}},
    },
    "any": {"x-kubernetes-preserve-unknown-fields": True},
    "either": {"x-kubernetes-int-or-string": True},
    "moment": {"type": "string", "format": "date-time"},
    "choice": {"type": "string", "enum": ["a", "b"]},
    "maybe": {"type": "string", "nullable": True},
    "replicas": {"type": "integer"},
}
VALUES = {
    "text": ["a", "abc", "", None, 1, True, "1", "é" * 5],
    "number": [1, 0, -1, 5, None, 1.5, 1.0, "1", 2147483648, 9223372036854775807, 1e3],
    "float": [1, 1.5, 0, 1e10, None, "1", -0.0, 1.0],
    "flag": [True, False, None, "true", 1],
    "list": [["a"], [], None, ["a", "a"], [1], "a", [None], ["b", "c", "d"]],
    "map": [{"a": "b"}, {}, None, {"a": 1}, {"a": None}, [], {"": "x"}],
    "inner": [{"a": "x"}, {}, None, {"a": None}, {"a": "x", "b": 1, "odd": 1}, {"b": "1"}, "a", [], {"odd": {"deep": 1}}],
    "items": [
        [{"name": "a"}],
        [],
        None,
        [{"v": 1}],
        [{"name": "a"}, {"name": "a"}],
        [{"name": "a", "odd": 1}],
        [None],
        [{"name": None}],
        [{}],
        {},
    ],
    "any": [1, "a", None, {"x": [1, {"y": None}]}, [], {}],
    "either": [1, "a", "50%", None, 1.5, True],
    "moment": ["2024-01-01T00:00:00Z", "x", "", None, "2024-01-01", "2024-01-01T00:00:00.5+01:00"],
    "choice": ["a", "b", "c", "", None, "A"],
    "maybe": [None, "a", "", 1],
    "replicas": [1, 0, -1, None, "1"],
    "odd": [1, None, {"a": 1}],
}
RULES = [
    {"text": {"maxLength": 2}},
    {"text": {"minLength": 1}},
    {"text": {"pattern": "^a"}},
    {"number": {"maximum": 3}},
    {"number": {"minimum": 0, "exclusiveMinimum": True}},
    {"list": {"maxItems": 1}},
    {"list": {"x-kubernetes-list-type": "set"}},
    {"list": {"minItems": 1}},
    {"map": {"maxProperties": 0}},
    {"items": {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]}},
    {"text": {"format": "ipv4"}},
    {"text": {"format": "byte"}},
    {"number": {"format": "int32"}},
    {"number": {"multipleOf": 2}},
    {"inner": {"required": ["a"]}},
    {"inner": {"x-kubernetes-map-type": "atomic"}},
    {"inner": {"x-kubernetes-preserve-unknown-fields": True}},
    {"number": {"enum": [1, 2]}},
    {"text": {"x-kubernetes-validations": [{"rule": "self == oldSelf", "message": "text is immutable"}]}},
    {"number": {"x-kubernetes-validations": [{"rule": "self >= oldSelf", "optionalOldSelf": False}]}},
    {"number": {"x-kubernetes-validations": [{"rule": "!oldSelf.hasValue() || self >= oldSelf.value()", "optionalOldSelf": True}]}},
    {
        "inner": {
            "x-kubernetes-validations": [
                {"rule": "has(self.a) || has(self.b)", "messageExpression": "'a or b of ' + string(size(self.a))", "fieldPath": ".a"}
            ]
        }
    },
    {"list": {"x-kubernetes-validations": [{"rule": "self.all(x, x in oldSelf)", "reason": "FieldValueForbidden"}]}},
    {"items": {"maxItems": 5}},
    {"map": {"x-kubernetes-validations": [{"rule": "self.all(k, k != '')"}]}},
]
DEFAULTS = {
    "text": ["d", "abc"],
    "number": [7],
    "flag": [True],
    "list": [["d"], []],
    "map": [{"d": "d"}, {}],
    "inner": [{}, {"a": "d"}],
    "choice": ["a"],
    "maybe": ["d", None],
    "any": [{"x": 1}],
    "either": [1, "1"],
    "float": [1.5],
    "moment": ["2024-01-01T00:00:00Z"],
}
COLUMNS = [
    ("text", "string"),
    ("number", "integer"),
    ("number", "string"),
    ("flag", "boolean"),
    ("list", "string"),
    ("list[0]", "string"),
    ("inner", "string"),
    ("inner.a", "string"),
    ("moment", "date"),
    ("text", "date"),
    ("float", "number"),
    ("items[*].name", "string"),
    ("items[?(@.v==1)].name", "string"),
    ("map.a", "string"),
    ("any", "string"),
    ("either", "integer"),
    ("none", "string"),
    ("maybe", "string"),
    ("text", "integer"),
]


class Definition:
    """A definition, and the changes that it goes through."""

    def __init__(self, rng, group):
        self.rng, self.group = rng, group
        self.namespaced = rng.random() < 0.7
        self.names = ["v1", "v2"] if rng.random() < 0.4 else ["v1"]
        self.fields = {name: copy.deepcopy(LEAVES[name]) for name in rng.sample(sorted(LEAVES), 8)}
        self.required, self.versions_served = [], {name: True for name in self.names}
        self.status, self.scale, self.pruned = rng.random() < 0.5, rng.random() < 0.4, rng.random() < 0.8
        self.columns, self.selectable = [], []
        for _ in range(rng.choice([0, 1, 2])):
            self.change()

    def change(self):
        rng = self.rng
        name = rng.choice(sorted(self.fields))
        choice = rng.choice(
            [
                "rule",
                "rule",
                "rule",
                "default",
                "default",
                "drop",
                "type",
                "required",
                "prune",
                "served",
                "status",
                "scale",
                "columns",
                "selectable",
                "nullable",
                "add",
            ]
        )
        if choice == "rule":
            fitting = [rule for rule in RULES if set(rule) <= set(self.fields)]
            for field, facts in (rng.choice(fitting) if fitting else {}).items():
                self.fields[field].update(copy.deepcopy(facts))
        elif choice == "default" and name in DEFAULTS:
            self.fields[name]["default"] = rng.choice(DEFAULTS[name])
            self.fields[name]["nullable"] = self.fields[name].get("nullable", False) or self.fields[name]["default"] is None
        elif choice == "drop":
            del self.fields[name]
            self.required = [field for field in self.required if field != name]
        elif choice == "type":
            self.fields[name] = copy.deepcopy(LEAVES[rng.choice(sorted(LEAVES))])
        elif choice == "required":
            self.required = [name] if rng.random() < 0.7 else []
        elif choice == "prune":
            self.pruned = not self.pruned
        elif choice == "served" and len(self.names) > 1:
            self.versions_served[self.names[1]] = not self.versions_served[self.names[1]]
        elif choice == "status":
            self.status = not self.status
        elif choice == "scale":
            self.scale = not self.scale
        elif choice == "columns":
            self.columns = rng.sample(COLUMNS, rng.choice([1, 2, 4]))
        elif choice == "selectable":
            self.selectable = [f".spec.{field}" for field in ("text", "number", "flag") if field in self.fields][: rng.choice([1, 2])]
        elif choice == "nullable":
            self.fields[name]["nullable"] = True
        elif choice == "add":
            added = rng.choice(sorted(LEAVES))
            self.fields[added] = copy.deepcopy(LEAVES[added])
        self.selectable = [
            path
            for path in self.selectable
            if path[6:] in self.fields and self.fields[path[6:]].get("type") in ("string", "integer", "boolean")
        ]

    def spec(self):
        spec = {"type": "object", "properties": copy.deepcopy(self.fields)}
        if self.required:
            spec["required"] = self.required
        if not self.pruned:
            spec["x-kubernetes-preserve-unknown-fields"] = True
        schema = {
            "type": "object",
            "properties": {
                "spec": spec,
                "status": {
                    "type": "object",
                    "properties": {"text": {"type": "string"}, "replicas": {"type": "integer"}, "selector": {"type": "string"}},
                },
            },
        }
        versions = []
        for name in self.names:
            version = {
                "name": name,
                "served": self.versions_served[name],
                "storage": name == "v1",
                "schema": {"openAPIV3Schema": schema},
                "subresources": {},
            }
            if self.status:
                version["subresources"]["status"] = {}
            if self.scale:
                version["subresources"]["scale"] = {
                    "specReplicasPath": ".spec.replicas",
                    "statusReplicasPath": ".status.replicas",
                    "labelSelectorPath": ".status.selector",
                }
            if self.columns:
                version["additionalPrinterColumns"] = [
                    {"name": f"C{at}", "type": kind, "jsonPath": f".spec.{path}"} for at, (path, kind) in enumerate(self.columns)
                ]
            if self.selectable:
                version["selectableFields"] = [{"jsonPath": path} for path in self.selectable]
            versions.append(version)
        return {
            "group": self.group,
            "scope": "Namespaced" if self.namespaced else "Cluster",
            "names": {"plural": "things", "kind": "Thing", "shortNames": []},
            "versions": versions,
        }

    def object(self, version, name):
        rng = self.rng
        obj = {"apiVersion": f"{self.group}/{version}", "kind": "Thing", "metadata": {"name": name}}
        names = sorted(set(self.fields) | {"odd"})
        spec = {
            field: rng.choice(VALUES[field][:3] if rng.random() < 0.6 else VALUES[field])
            for field in rng.sample(names, min(len(names), rng.choice([1, 2, 4])))
        }
        obj["spec"] = spec if rng.random() < 0.95 else rng.choice([None, {}, [], "a"])
        if rng.random() < 0.2:
            obj["status"] = rng.choice([{"text": "s"}, {"replicas": 1}, None, {}, {"odd": 1}])
        return obj


def requests_about(definition, rng, path, version, name):
    """Returns a request about an object that exists, mostly."""
    at = f"{path}/{name}"
    field = rng.choice(sorted(set(definition.fields) | {"odd"}))
    value = rng.choice(VALUES[field])
    choice = rng.choice(
        [
            "get",
            "table",
            "list",
            "select",
            "same",
            "same",
            "put",
            "merge",
            "merge",
            "json",
            "apply",
            "apply",
            "create",
            "status",
            "scale",
            "labels",
        ]
    )
    query = rng.choice(["", "", "", "?fieldValidation=Strict", "?dryRun=All"])
    more = query.replace("?", "&")
    if choice in ("get", "table"):
        return Request("GET", at, accept=TABLE if choice == "table" else JSON)
    if choice in ("list", "select"):
        field = rng.choice(["text", "number", "flag"])
        return Request(
            "GET",
            path + (f"?fieldSelector=spec.{field}={rng.choice(['a', '1', 'true', ''])}" if choice == "select" else ""),
            accept=rng.choice([JSON, TABLE]),
        )
    if choice == "same":
        return Request("PUT", at, lambda last: {**last, "apiVersion": f"{definition.group}/{version}", "kind": "Thing"})
    if choice == "put":
        return Request(
            "PUT",
            at + query,
            lambda last: {
                **last,
                "apiVersion": f"{definition.group}/{version}",
                "kind": "Thing",
                "spec": {**(last.get("spec") or {}), field: value},
            },
        )
    if choice == "merge":
        return Request("PATCH", at + query, {"spec": {field: value}}, MERGE)
    if choice == "labels":
        return Request("PATCH", at, {"metadata": {"labels": {"l": rng.choice(["1", "2", None])}}}, MERGE)
    if choice == "json":
        return Request(
            "PATCH",
            at + query,
            [{"op": rng.choice(["add", "replace", "remove", "test"]), "path": f"/spec/{field}", "value": value}],
            JSON_PATCH,
        )
    if choice == "apply":
        return Request(
            "PATCH",
            f"{at}?fieldManager={rng.choice('mn')}&force={rng.choice(['true', 'false'])}{more}",
            definition.object(version, name),
            APPLY,
        )
    if choice == "create":
        return Request("POST", path + query, definition.object(version, f"{name}x"))
    if choice == "status":
        return Request(
            "PATCH",
            f"{at}/status{query}",
            {"status": rng.choice([{"text": "s"}, {"replicas": 2}, {"odd": 1}, None, {"text": 1}]), "spec": {field: value}},
            MERGE,
        )
    return rng.choice(
        [Request("GET", f"{at}/scale"), Request("PATCH", f"{at}/scale", {"spec": {"replicas": rng.choice([2, 0, -1, None, "1"])}}, MERGE)]
    )


def case(env, number):
    rng = env.random("definitions", number)
    group = f"d{env.seed}-{number}.example.com"
    definition = Definition(rng, group)
    where = f"namespaces/{NAMESPACE}/" if definition.namespaced else ""
    paths = {version: f"/apis/{group}/{version}/{where}things" for version in definition.names}
    at = f"{DEFINITIONS}/things.{group}"
    steps = [
        Request("POST", DEFINITIONS, {"metadata": {"name": f"things.{group}"}, "spec": definition.spec()}, compared=False, needed=True)
    ]
    steps += [Request("GET", paths["v1"], compared=False, until=200)]
    known = [name for name in ("a", "b", "c")]
    for name in known:
        version = rng.choice([version for version in definition.names if definition.versions_served[version]])
        steps.append(Request("POST", paths[version], definition.object(version, name)))
    for _ in range(rng.choice([2, 3, 4])):
        definition.change()
        spec = definition.spec()
        # Objects are about the definition of now, not about a later one.
        steps.append(Request("PUT", at, fresh(at, spec), compared=False, reads=at, pause=0.6))
        for _ in range(8):
            version, name = rng.choice(definition.names), rng.choice(known)
            # An update is one of what this answers with, if anything.
            steps.append(Request("GET", f"{paths[version]}/{name}", compared=False, forgets=True))
            steps.append(requests_about(definition, rng, paths[version], version, name))
    return Case("definition", steps + [Request("DELETE", at, compared=False)])


def fresh(at, spec):
    """Returns the body of an update of the definition that was just read."""
    return lambda last: {"metadata": {"name": at.rpartition("/")[2], "resourceVersion": last["metadata"]["resourceVersion"]}, "spec": spec}
