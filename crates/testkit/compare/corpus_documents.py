"""The documents of the corpus: manifests found in folders of packages, and copies with one broken field. Used by corpus.py."""

import copy
import json
import pathlib
import random
import re

import yaml

FILE_BYTES_MAX = 2 << 20
# Kinds that act on other requests: they are compared last, and removed at once.
INTRUSIVE = {"MutatingWebhookConfiguration", "ValidatingWebhookConfiguration", "ValidatingAdmissionPolicy", "MutatingAdmissionPolicy",
             "ValidatingAdmissionPolicyBinding", "MutatingAdmissionPolicyBinding", "ResourceQuota", "LimitRange", "APIService",
             "FlowSchema", "PriorityLevelConfiguration"}
FIRST = {"Namespace": 0, "CustomResourceDefinition": 1, "PriorityClass": 2, "ServiceAccount": 3}
SEPARATOR = re.compile(r"^---(?:[ \t].*)?$", re.MULTILINE)
# Members whose values only one place reads, and those that say where an object belongs.
DULL = {"description"}
FIXED = {("kind",), ("apiVersion",), ("metadata",), ("metadata", "name"), ("metadata", "namespace")}
WRONG = {
    str: [5, True, [], {}, ["a"], {"a": "b"}],
    bool: ["true", 1, [], {}],
    int: ["7x", "5", True, 1.5, [], {}],
    float: ["x", [], {}],
    list: ["x", {}, {"a": "b"}, 7],
    dict: ["x", [], ["a"], 7],
    type(None): [7],
}
EDGES = {
    str: ["", "a" * 300, "Not Valid!", "-", " ", "a.b/c/d", "1e3", "0", "é", "10%", "2020-13-01T00:00:00Z", "1h1", "5.5.5.5.5"],
    int: [-1, 0, 1, 65536, 2**31, 2**40, 2**63 - 1, -(2**31) - 1],
    float: [-1.5, 0.0, 1e300],
}


class Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):
    """YAML as a server reads it: dates stay texts, and yes and no are booleans only where YAML 1.1 says so."""


Loader.yaml_implicit_resolvers = {
    letter: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:timestamp"]
    for letter, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


class Document:
    """A manifest: its text as it was found, its value, and the file."""

    def __init__(self, text, value, file):
        self.text, self.value, self.file = text, value, file
        self.version, self.kind = value["apiVersion"], value["kind"]
        self.name = value["metadata"]["name"]
        self.namespace = value["metadata"].get("namespace") or "default"

    @property
    def identity(self):
        return self.version, self.kind, self.namespace, self.name

    @property
    def label(self):
        return f"{self.file}: {self.kind} {self.name}"


def is_manifest(value):
    """Returns whether a value is an object with a name."""
    if not isinstance(value, dict) or not all(isinstance(value.get(key), str) for key in ("apiVersion", "kind")):
        return False
    metadata = value.get("metadata")
    if not isinstance(metadata, dict) or not isinstance(metadata.get("name"), str):
        return False
    return re.fullmatch(r"[-a-zA-Z0-9_.:]+", metadata["name"]) is not None and isinstance(metadata.get("namespace") or "", str)


def documents_of(text, file):
    """Yields the manifests of a file. What is no YAML, most often because it is a template, is skipped."""
    for part in SEPARATOR.split(text):
        try:
            value = yaml.load(part, Loader)
            json.dumps(value)
        except (yaml.YAMLError, ValueError, TypeError, RecursionError):
            continue
        if is_manifest(value):
            yield Document(part, value, file)
        elif isinstance(value, dict) and value.get("kind") == "List" and isinstance(value.get("items"), list):
            for item in value["items"]:
                if is_manifest(item):
                    yield Document(json.dumps(item), item, file)


def read(folder, globs, objects_max):
    """Returns the documents of a package, each object once, in the order in which they are created."""
    folder, found, kinds = pathlib.Path(folder), {}, {}
    paths = sorted({path for pattern in globs for path in folder.glob(pattern) if path.suffix in (".yaml", ".yml", ".json")})
    for path in paths:
        if not path.is_file() or path.stat().st_size > FILE_BYTES_MAX:
            continue
        text = path.read_text(errors="replace")
        for document in documents_of(text, str(path.relative_to(folder))):
            found.setdefault(document.identity, document)
    chosen = []
    # Of each kind some, so that one kind with hundreds of objects hides no other.
    for document in found.values():
        kinds[document.kind] = kinds.get(document.kind, 0) + 1
        if document.kind in FIRST or kinds[document.kind] <= objects_max:
            chosen.append(document)
    return sorted(chosen, key=lambda document: 9 if document.kind in INTRUSIVE else FIRST.get(document.kind, 5))


def places(value, path=()):
    """Lists the places of all members and items that may be broken."""
    members = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for name, inner in members:
        here = path + (name,)
        if name in DULL and isinstance(inner, str):
            continue
        if here not in FIXED:
            yield here
        if here != ("metadata", "name"):
            yield from places(inner, here)


def break_one(value, rng):
    """Returns what was done, and a copy of a manifest with one broken field; `None` if there is no field to break."""
    broken = copy.deepcopy(value)
    found = list(places(broken))
    if not found:
        return None
    path = rng.choice(found)
    parent = broken
    for name in path[:-1]:
        parent = parent[name]
    last, old = path[-1], parent[path[-1]]
    how = rng.choice(["type", "type", "unknown", "removed", "edge", "edge", "null", "doubled"])
    if how == "unknown" and isinstance(parent, dict):
        parent[f"{last}X"] = old
    elif how == "removed":
        del parent[last]
    elif how == "null":
        parent[last] = None
    elif how == "doubled" and isinstance(parent, list):
        parent.append(copy.deepcopy(old))
    elif how == "edge" and type(old) in EDGES:
        parent[last] = rng.choice(EDGES[type(old)])
    elif how in ("edge", "doubled") and isinstance(old, (list, dict)):
        parent[last] = type(old)()
    else:
        how, parent[last] = "type", copy.deepcopy(rng.choice(WRONG[type(old)]))
    return f"{how} {'.'.join(map(str, path))}", broken


def broken_copies(document, seed, count):
    """Yields copies of a document with one broken field each; the same for the same seed."""
    rng = random.Random(f"{seed}/{document.identity}")
    for _ in range(count):
        copied = break_one(document.value, rng)
        if copied is not None:
            yield copied
