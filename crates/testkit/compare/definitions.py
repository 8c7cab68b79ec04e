"""Compares CustomResourceDefinitions on two servers: python3 definitions.py WANT_URL GOT_URL TOKEN [--cases N] [--seed S] [-v].

Sends generated definitions, valid and invalid ones, to both servers (dry run). Compares status codes, messages, reasons,
causes, warnings and the resulting definitions. With --live N, also creates N definitions, stores objects of them, changes
the definitions and reads the objects. Prints how many responses were equal. Needs only the standard library.
"""

import argparse
import collections
import concurrent.futures
import copy
import http.client
import json
import random
import re
import ssl
import time
import urllib.parse

PATH = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
JSON = "application/json"
TYPES = ["string", "integer", "number", "boolean", "object", "array"]
FORMATS = ["date-time", "int32", "int64", "byte", "ipv4", "uri", "double", "password", "made-up", "duration", ""]
PATTERNS = ["^[a-z]+$", "a{2,3}", "[", "(", "a**", "\\d+", "(?=a)", "[[:alpha:]]", "\\", "x{2000}", "[z-a]"]
RULES = [
    "true", "self == self", "has(self.a)", "self.a == 'x'", "self.size() < 5", "size(self) > 0", "self > 1", "self.all(x, x)",
    "oldSelf == self", "nope", "self.", "", "1", "self.b.exists(k, k == 'a')", "self.startsWith('a')", "self in ['a', 'b']",
    "!has(self.c) || self.c > 0", "self.a.matches('[')", "self.d.map(x, x + 1).size() == 1", "quantity(self).isInteger()",
]
VALUES = [None, "", "x", "aaa", 0, 1, -5, 1.5, True, False, {}, [], {"a": "x"}, ["a"], ["a", "a"], [{"a": "b"}], {"zz": 1}, 2**31]


class DefinitionGenerator:
    """Makes definitions of one case."""

    def __init__(self, seed):
        self.random = random.Random(seed)

    def one(self, probability):
        return self.random.random() < probability

    def pick(self, of):
        return self.random.choice(of)

    def name(self):
        return self.pick(["a", "b", "c", "d", "kind", "metadata", "status", "spec", "x-y", "$ref", "size"])

    def schema(self, depth, root=False):
        r = self.random
        kind = "object" if root or (depth < 3 and self.one(0.35)) else self.pick(TYPES)
        schema = {"type": kind}
        if self.one(0.04):
            schema["type"] = self.pick(["", "null", "date", "Object"] + TYPES)
        if self.one(0.02):
            del schema["type"]
        if kind == "object":
            self.object(schema, depth)
        elif kind == "array":
            if self.one(0.95):
                schema["items"] = self.schema(depth + 1)
            if self.one(0.3):
                schema["x-kubernetes-list-type"] = self.pick(["atomic", "set", "map", "map", "odd"])
            if schema.get("x-kubernetes-list-type") == "map" or self.one(0.03):
                schema["x-kubernetes-list-map-keys"] = self.pick([["a"], ["a", "b"], [], ["a", "a"], ["zz"]])
            for name in ["minItems", "maxItems"]:
                if self.one(0.2):
                    schema[name] = self.pick([0, 1, 2, 5, 100])
            if self.one(0.03):
                schema["uniqueItems"] = self.pick([True, False])
        elif kind == "string":
            if self.one(0.2):
                schema["format"] = self.pick(FORMATS)
            if self.one(0.15):
                schema["pattern"] = self.pick(PATTERNS)
            for name in ["minLength", "maxLength"]:
                if self.one(0.2):
                    schema[name] = self.pick([0, 1, 3, 10, 1000])
            if self.one(0.15):
                schema["enum"] = self.pick([["x", "aaa"], ["x"], [], ["x", "x"], [1], [""]])
        elif kind in ("integer", "number"):
            if self.one(0.2):
                schema["format"] = self.pick(FORMATS)
            for name in ["minimum", "maximum", "multipleOf"]:
                if self.one(0.15):
                    schema[name] = self.pick([0, 1, -1, 2.5, 5, 100])
            if self.one(0.05):
                schema[self.pick(["exclusiveMinimum", "exclusiveMaximum"])] = True
        self.more(schema, depth, root)
        return schema

    def object(self, schema, depth):
        probability = self.random.random()
        if probability < 0.75:
            count = self.random.randrange(1, 4)
            schema["properties"] = {self.name(): self.schema(depth + 1) for _ in range(count)}
        if probability > 0.7 and self.one(0.8):
            schema["additionalProperties"] = self.schema(depth + 1) if self.one(0.8) else self.pick([True, False])
        if self.one(0.2):
            schema["required"] = self.pick([["a"], ["a", "b"], ["zz"], [], ["a", "a"]])
        if self.one(0.1):
            schema["x-kubernetes-preserve-unknown-fields"] = self.one(0.9)
        if self.one(0.05):
            schema["x-kubernetes-embedded-resource"] = True
        if self.one(0.05):
            schema["x-kubernetes-map-type"] = self.pick(["atomic", "granular", "odd"])
        for name in ["minProperties", "maxProperties"]:
            if self.one(0.08):
                schema[name] = self.pick([0, 1, 3])

    def more(self, schema, depth, root):
        if self.one(0.12) and not (root and self.one(0.7)):
            schema["default"] = self.pick(VALUES)
        if self.one(0.08):
            schema["nullable"] = True
        if self.one(0.1):
            schema["description"] = "text"
        if self.one(0.04):
            schema["x-kubernetes-int-or-string"] = True
            if self.one(0.7):
                schema.pop("type", None)
                schema["anyOf"] = [{"type": "integer"}, {"type": "string"}]
        if self.one(0.08) and depth < 4:
            name = self.pick(["allOf", "anyOf", "oneOf", "not"])
            inner = [self.condition(depth) for _ in range(self.random.randrange(1, 3))]
            schema[name] = inner[0] if name == "not" else inner
        if self.one(0.12):
            schema["x-kubernetes-validations"] = [self.rule() for _ in range(self.random.randrange(1, 3))]
        if self.one(0.015):
            schema.update(self.pick([
                {"$ref": "#/a"}, {"definitions": {"a": {}}}, {"patternProperties": {"a": {}}}, {"title": "t"},
                {"dependencies": {"a": ["b"]}}, {"additionalItems": True}, {"id": "a"}, {"example": 1},
                {"externalDocs": {"url": "a"}}, {"unknown": 1}]))

    def condition(self, depth):
        condition = self.pick([
            {"required": ["a"]}, {"minLength": 2}, {"enum": ["x"]}, {"pattern": "^a"}, {"type": "string"}, {"format": "ipv4"},
            {"properties": {"a": {"minimum": 1}}}, {"description": "d"}, {"default": 1}, {"nullable": True}, {}, {"maximum": 3},
            {"additionalProperties": True}, {"items": {"minLength": 1}}, {"x-kubernetes-list-type": "set"}])
        return dict(condition)

    def rule(self):
        rule = {"rule": self.pick(RULES)}
        if self.one(0.4):
            rule["message"] = self.pick(["must be so", "", "two\nlines", " "])
        if self.one(0.15):
            rule["messageExpression"] = self.pick(["'a' + 'b'", "self.a", "1", "nope", "", "'x'"])
        if self.one(0.15):
            rule["reason"] = self.pick(["FieldValueInvalid", "FieldValueRequired", "FieldValueForbidden", "Odd"])
        if self.one(0.15):
            rule["fieldPath"] = self.pick([".a", ".zz", "a", ".a.b", ".a[0]", "['a']", ".a['b']", ""])
        if self.one(0.1):
            rule["optionalOldSelf"] = self.one(0.7)
        return rule

    def version(self, name, storage):
        schema = self.schema(0, root=True)
        if self.one(0.6):
            schema.setdefault("properties", {})["spec"] = self.schema(1)
        version = {"name": name, "served": self.one(0.9), "storage": storage, "schema": {"openAPIV3Schema": schema}}
        if self.one(0.25):
            version["subresources"] = {}
            if self.one(0.7):
                version["subresources"]["status"] = {}
            if self.one(0.5):
                version["subresources"]["scale"] = {
                    "specReplicasPath": self.pick([".spec.replicas", ".spec.a", "spec.a", ".status.a", "", ".spec"]),
                    "statusReplicasPath": self.pick([".status.replicas", ".spec.a", "", ".status.a"])}
                if self.one(0.3):
                    version["subresources"]["scale"]["labelSelectorPath"] = self.pick([".status.s", ".spec.s", "a", ".x"])
        if self.one(0.25):
            version["additionalPrinterColumns"] = [self.column() for _ in range(self.random.randrange(1, 3))]
        if self.one(0.15):
            paths = [".spec.a", ".spec.b", ".a", "spec", ".metadata.name", ".spec.zz", ".spec.a[0]", "", ".spec.a.b"]
            version["selectableFields"] = [
                {"jsonPath": self.pick(paths)} for _ in range(self.random.randrange(1, 3))]
        if self.one(0.08):
            version["deprecated"] = self.one(0.8)
        if self.one(0.06):
            version["deprecationWarning"] = self.pick(["old", "", "a" * 300, "two\nlines"])
        if self.one(0.03):
            version["schema"] = self.pick([{}, None, {"openAPIV3Schema": None}])
        return version

    def column(self):
        column = {
            "name": self.pick(["A", "Age", "", "a b"]), "type": self.pick(["string", "integer", "date", "odd", "number"]),
            "jsonPath": self.pick([".spec.a", ".metadata.creationTimestamp", "spec", "", ".spec.a[?(@.b)]", ".spec[", "{.a}"])}
        if self.one(0.2):
            column["format"] = self.pick(["int32", "odd", "", "date"])
        if self.one(0.2):
            column["priority"] = self.pick([0, 1, -1])
        return column

    def conversion(self):
        client = {}
        if self.one(0.6):
            client["url"] = self.pick(["https://a.b/c", "http://a", "https://u@a/b?c#d", "", "::", "https://"])
        if self.one(0.45):
            client["service"] = {"name": self.pick(["a", ""]), "namespace": self.pick(["b", ""])}
            if self.one(0.4):
                client["service"]["port"] = self.pick([443, 0, 70000, 8443])
            if self.one(0.3):
                client["service"]["path"] = self.pick(["/a", "a", "//", "/a//b", "/"])
        webhook = {"clientConfig": client, "conversionReviewVersions": self.pick([["v1"], ["v2"], [], ["v1", "v1"], ["v1beta1"]])}
        if self.one(0.05):
            del webhook["clientConfig"]
        conversion = {"strategy": self.pick(["Webhook", "Webhook", "Webhook", "None", "Odd", ""]), "webhook": webhook}
        if self.one(0.15):
            del conversion["webhook"]
        return conversion

    def definition(self, name, group):
        """Generates a definition, which may be invalid in several places."""
        plural = name
        count = self.pick([1, 1, 1, 2, 3])
        names = ["v1", "v1beta1", "v2alpha1"][:count]
        storage = self.random.randrange(count)
        versions = [self.version(version, i == storage) for i, version in enumerate(names)]
        if count > 1 and self.one(0.4):
            for version in versions[1:]:
                version["schema"] = versions[0]["schema"]
        kind = plural.capitalize().rstrip("s") or "K"
        spec = {"group": group, "names": {"plural": plural, "kind": kind}, "scope": self.pick(["Namespaced", "Cluster"]),
                "versions": versions}
        definition = {"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
                      "metadata": {"name": f"{plural}.{group}"}, "spec": spec}
        if self.one(0.15):
            spec["conversion"] = self.conversion()
        if self.one(0.3):
            self.make_invalid(definition, spec)
        return definition

    def make_invalid(self, definition, spec):
        names, versions = spec["names"], spec["versions"]
        self.pick([
            lambda: names.update(singular=self.pick(["a", "", "A", "a_b"])),
            lambda: names.update(listKind=self.pick(["L", names["kind"], "a b", ""])),
            lambda: names.update(shortNames=self.pick([["a"], ["A"], [], ["a", "a"], ["a", "b"]])),
            lambda: names.update(categories=self.pick([["all"], ["A b"], []])),
            lambda: names.update(kind=self.pick(["", "a b", "lower", "K1"])),
            lambda: names.update(plural=self.pick(["", "A", "other"])),
            lambda: spec.update(scope=self.pick(["", "Odd", "cluster"])),
            lambda: spec.update(group=self.pick(["", "nodots", "A.b", "a..b"])),
            lambda: spec.update(preserveUnknownFields=self.pick([True, False])),
            lambda: spec.update(versions=self.pick([[], None, versions + versions])),
            lambda: versions[0].update(name=self.pick(["", "V1", "v1.1", "v10"])),
            lambda: [version.update(storage=self.pick([True, False])) for version in versions],
            lambda: [version.update(served=False) for version in versions],
            lambda: definition["metadata"].update(name=self.pick(["other.example.com", "", "a"])),
            lambda: definition["metadata"].update(annotations={"a": "b"}, labels={"a": self.pick(["b", "b c"])}),
            lambda: spec.update(odd=1),
        ])()


class Server:
    def __init__(self, url, token):
        parts = urllib.parse.urlsplit(url)
        self.host, self.port, self.token = parts.hostname, parts.port, token
        self.connection = None

    def call(self, method, path, body=None, content_type=JSON):
        headers = {"Authorization": f"Bearer {self.token}", "Content-Type": content_type, "Accept": JSON}
        data = None if body is None else json.dumps(body)
        for last in (False, True):
            try:
                if self.connection is None:
                    context = ssl._create_unverified_context()
                    self.connection = http.client.HTTPSConnection(self.host, self.port, context=context, timeout=60)
                self.connection.request(method, path, data, headers)
                response = self.connection.getresponse()
                text = response.read()
                warnings = sorted(response.headers.get_all("Warning") or [])
                break
            except (http.client.HTTPException, OSError):
                self.connection = None
                if last:
                    return 0, "no answer", []
        try:
            body = json.loads(text)
        except ValueError:
            body = text.decode(errors="replace")
        return response.status, body, warnings


def normalized_value(value, key=""):
    """Returns a body without values that differ from run to run, with sorted causes."""
    if isinstance(value, dict):
        value = {name: normalized_value(inner, name) for name, inner in value.items()}
        if "causes" in value:
            value["causes"] = sorted(value["causes"], key=lambda cause: json.dumps(cause, sort_keys=True))
        return value
    if isinstance(value, list):
        return [normalized_value(inner) for inner in value]
    if key in ("uid", "resourceVersion", "creationTimestamp", "time", "lastTransitionTime") and isinstance(value, str):
        return "*"
    if key == "message" and isinstance(value, str):
        # The message repeats the causes. Type names of `self` contain the time.
        value = re.sub(r"selfType\d+", "selfType", value)
        # Keelson does not distinguish an empty list from an absent one.
        value = re.sub(r'("(Required|Enum|AllOf|AnyOf|OneOf|XListMapKeys)"):\[\]', r"\1:null", value)
        return re.sub(r" is invalid: \[.*", " is invalid", value, flags=re.S)
    return value


def comparable(response):
    status, body, warnings = response
    return {"status": status, "warnings": warnings, "body": normalized_value(body)}


def differences(want, got, path=""):
    if type(want) is not type(got):
        return [f"{path}: want {json.dumps(want)[:300]} got {json.dumps(got)[:300]}"]
    if isinstance(want, dict):
        out = []
        for name in sorted(set(want) | set(got)):
            if name not in want or name not in got:
                given = json.dumps(want.get(name, got.get(name)))[:300]
                out.append(f"{path}.{name}: {'missing' if name in want else 'unexpected'} {given}")
            else:
                out += differences(want[name], got[name], f"{path}.{name}")
        return out
    if isinstance(want, list):
        if len(want) != len(got):
            differing = [[item for item in one if item not in other] for one, other in ((want, got), (got, want))]
            return [f"{path}: missing {json.dumps(differing[0])[:1500]} unexpected {json.dumps(differing[1])[:1500]}"]
        return [line for i, pair in enumerate(zip(want, got)) for line in differences(*pair, f"{path}[{i}]")]
    return [] if want == got else [f"{path}: want {json.dumps(want)[:300]} got {json.dumps(got)[:300]}"]


def dry_case(servers, seed, number):
    definition = DefinitionGenerator(f"{seed}/{number}").definition("things", f"g{number}.example.com")
    responses = [comparable(server.call("POST", f"{PATH}?dryRun=All", definition)) for server in servers]
    if responses[0]["status"] == 0:
        # kube-apiserver panics on some definitions and closes the connection.
        return []
    return [(f"case {number}", definition, differences(*responses))]


def send_with_retries(server, method, path, body, content_type):
    """Retries while a kube-apiserver recreates the storage of a resource (429)."""
    for _ in range(100):
        response = server.call(method, path, body, content_type)
        if response[0] != 429:
            break
        time.sleep(0.1)
    return response


def wait(server, path):
    for _ in range(200):
        if server.call("GET", path)[0] == 200:
            return True
        time.sleep(0.05)
    return False


def live_case(servers, seed, number):
    """A definition, objects, changes of it, and the objects again."""
    generator = DefinitionGenerator(f"live {seed}/{number}")
    plural, group = "things", f"l{seed}-{number}.example.com"
    while True:
        definition = generator.definition(plural, group)
        definition["spec"].pop("conversion", None)
        status = [server.call("POST", f"{PATH}?dryRun=All", definition)[0] for server in servers]
        if status == [201, 201] and definition["metadata"]["name"] == f"{plural}.{group}":
            break
    spec, results = definition["spec"], []
    served = [version["name"] for version in spec["versions"] if version["served"]]
    namespace = "namespaces/default/" if spec["scope"] == "Namespaced" else ""
    paths = [f"/apis/{group}/{version}/{namespace}{plural}" for version in served]

    def send_to_both(step, method, path, body=None, content_type=JSON):
        responses = [comparable(send_with_retries(server, method, path, body, content_type)) for server in servers]
        results.append((f"live {number}: {step}", copy.deepcopy([definition, path, body]), differences(*responses)))
        return responses

    for server in servers:
        server.call("POST", PATH, definition)
        for path in paths:
            wait(server, path)
    kind = spec["names"]["kind"]
    for i in range(4):
        for version, path in zip(served, paths):
            body = {"apiVersion": f"{group}/{version}", "kind": kind, "metadata": {"name": f"o{i}-{version}"}}
            for name in ("spec", "a", "b", "c"):
                if generator.one(0.6):
                    body[name] = generator.pick(VALUES)
            send_to_both("create", "POST", path, body)
    for _ in range(3):
        version = generator.pick(spec["versions"])
        version["schema"] = {"openAPIV3Schema": generator.schema(0, root=True)}
        if len(spec["versions"]) > 1 and generator.one(0.4):
            storage = generator.pick(spec["versions"])
            for version in spec["versions"]:
                version["storage"] = version is storage
        content_type = "application/merge-patch+json"
        changed = send_to_both("change", "PATCH", f"{PATH}/{plural}.{group}", {"spec": {"versions": spec["versions"]}}, content_type)
        if changed[0]["status"] == 200:
            time.sleep(1.2)
        for path in paths:
            send_to_both("list", "GET", path)
    for server in servers:
        server.call("DELETE", f"{PATH}/{plural}.{group}")
    return results


def requests(options):
    """Writes the requests as a transcript, for `cargo xtask record`."""
    with open(options.requests, "w", encoding="utf-8") as file:
        file.write("# Generated CustomResourceDefinitions, most of them broken in several places.\n#! any order\n")
        for number in range(options.cases):
            definition = DefinitionGenerator(f"{options.seed}/{number}").definition("things", f"g{number}.example.com")
            body = json.dumps(definition, separators=(",", ":"), ensure_ascii=False)
            file.write(f"\nsend POST {PATH}?dryRun=All&fieldManager=m\n{body}\n")


def run(options):
    if options.requests:
        return requests(options)
    cases = [(dry_case, number) for number in range(options.cases)]
    cases += [(live_case, number) for number in range(options.live)]

    def work(case):
        servers = [Server(url, options.token) for url in (options.want, options.got)]
        return case[0](servers, options.seed, case[1])

    equal, total, difference_counts = 0, 0, collections.Counter()
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        for results in pool.map(work, cases):
            for what, sent, lines in results:
                total += 1
                equal += not lines
                if lines and options.verbose:
                    print(what, json.dumps(sent)[:4000])
                    print("\n".join(f"  {line}" for line in lines[:6]))
                difference_counts.update(re.sub(r"\[\d+\]", "[]", line.split(":")[0]) for line in lines[:1])
    for path_of_difference, count in difference_counts.most_common(10):
        print(f"{count:6} {path_of_difference}")
    print(f"alike: {equal} of {total} ({100 * equal / max(total, 1):.1f} %), seed {options.seed}")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("want")
    parser.add_argument("got")
    parser.add_argument("token")
    parser.add_argument("--cases", type=int, default=1000)
    parser.add_argument("--live", type=int, default=0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=4)
    parser.add_argument("--requests", metavar="FILE", help="only write the requests, for cargo xtask record")
    parser.add_argument("-v", "--verbose", action="store_true")
    run(parser.parse_args())


if __name__ == "__main__":
    main()
