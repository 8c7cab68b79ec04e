"""Compares admission policies on two servers: python3 policies.py WANT_URL GOT_URL TOKEN [--cases N] [--seed S] [-v].

Generates batches of validating and mutating policies with bindings and parameters, each for its own namespace, and sends
generated objects to both servers. Compares status codes, messages, reasons, causes, warnings and the resulting objects.
Prints how many responses were equal. Needs only the standard library.
"""

import argparse
import collections
import concurrent.futures
import http.client
import json
import random
import re
import ssl
import time
import urllib.parse

GROUP = "/apis/admissionregistration.k8s.io/v1"
VERSION = "admissionregistration.k8s.io/v1"
BATCH = 24
OBJECTS = 8

NAMES = ["a", "web", "db-1", "x"]
VALUES = ["", "a", "prod", "dev", "blue", "1"]

# Expressions over `object`, `oldObject`, `request`, `namespaceObject`, `params`, `variables` and `authorizer`.
CONDITIONS = [
    "true",
    "false",
    "object != null && has(object.data) && 'a' in object.data",
    "object.data.a == 'prod'",
    "has(object.metadata.labels) && object.metadata.labels.exists(k, k == 'team')",
    "object.metadata.labels['team'] == 'blue'",
    "object.metadata.name.startsWith('web')",
    "oldObject == null || oldObject.data.a == object.data.a",
    "request.operation in ['CREATE', 'UPDATE']",
    "request.operation != 'DELETE' || oldObject.metadata.name != 'x'",
    "request.userInfo.username == 'admin'",
    "request.resource.resource == 'configmaps'",
    "request.kind.kind == request.requestKind.kind",
    "request.dryRun == true",
    "request.name != 'web'",
    "request.namespace.size() > 3",
    "has(request.options.fieldManager)",
    "'system:masters' in request.userInfo.groups",
    "namespaceObject.metadata.name.startsWith('vap')",
    "namespaceObject.metadata.labels['env'] == 'prod'",
    "has(namespaceObject.status.phase) && namespaceObject.status.phase == 'Active'",
    "authorizer.group('').resource('configmaps').namespace('default').check('create').allowed()",
    "authorizer.requestResource.check('update').allowed()",
    "!authorizer.path('/healthz').check('get').errored()",
    "authorizer.serviceAccount('default', 'default').resource('secrets').check('get').allowed()",
    "quantity(object.data.a).isGreaterThan(quantity('1'))",
    "object.data.all(k, object.data[k].size() < 4)",
    "object.?data.?zz.orValue('n') == 'n'",
    "object.metadata.annotations['n'].matches('^[a-z]+$')",
    "int(object.data.x) < 5",
    "[1, 2, 3].sum() == 6",
    "dyn(object).kind == 'ConfigMap'",
    "object.metadata.generation == 1",
    "type(object.data) == map",
    "object.data.a + 1 == 2",
    "has(object.metadata.uid)",
    "has(object.metadata.creationTimestamp)",
]
VARIABLES = [
    "object.metadata.name",
    "has(object.data) ? object.data : {}",
    "object.data.a == 'prod'",
    "object.metadata.labels['team']",
    "request.operation + ':' + request.name",
    "[1, 2, 3].map(x, x * 2)",
    "namespaceObject.metadata.name",
    "{'a': 1, 'b': 2}",
    "int(object.data.x)",
    "quantity('1Gi')",
    "oldObject",
]
WITH_PARAMS = [
    "params == null || has(params.data)",
    "params.data.limit == object.data.a",
    "int(params.data.limit) > 1",
    "params.kind == 'ConfigMap'",
    "object.data.a in params.data",
]
MESSAGES = [
    "'name ' + object.metadata.name",
    "'op ' + request.operation + ' by ' + request.userInfo.username",
    "'labels %s'.format([object.metadata.labels])",
    "string(object.data.x)",
    "' '",
    "'two\\nlines'",
    "'ns ' + namespaceObject.metadata.name",
    "'%d'.format([size(object.data)])",
]
AUDITS = ["'value'", "string(object.data.a)", "null", "object.metadata.name", "''"]
CONFIGURATIONS = [
    "Object{}",
    "Object{metadata: Object.metadata{labels: {'added': 'yes'}}}",
    "Object{metadata: Object.metadata{labels: Object.metadata.labels{team: 'red'}}}",
    "Object{metadata: Object.metadata{annotations: {'n': object.metadata.name}}}",
    "Object{data: {'b': request.operation}}",
    "Object{data: Object.data{a: object.data.x}}",
    "Object{data: Object.data{a: 1}}",
    "Object{data: Object.wrong{a: 'x'}}",
    "Object{immutable: false}",
    "Object{immutable: 'no'}",
    "Object{other: 'x'}",
    "Object{metadata: Object.metadata{finalizers: ['example.org/f']}}",
    "Object{data: {?'z': object.?data.?a}}",
    "object.metadata.name == 'x' ? Object{data: {'z': '1'}} : Object{}",
]
PATCHES = [
    "[]",
    "[JSONPatch{op: 'add', path: '/data', value: {'p': 'q'}}]",
    "[JSONPatch{op: 'add', path: '/data/b', value: 'c'}]",
    "[JSONPatch{op: 'replace', path: '/data/a', value: 'new'}]",
    "[JSONPatch{op: 'remove', path: '/data/a'}]",
    "[JSONPatch{op: 'test', path: '/data/a', value: 'prod'}, JSONPatch{op: 'remove', path: '/data/a'}]",
    "[JSONPatch{op: 'add', path: '/metadata/labels', value: {'team': 'p'}}]",
    "[JSONPatch{op: 'add', path: '/metadata/labels/' + jsonpatch.escapeKey('a.io/b'), value: 'c'}]",
    "[JSONPatch{op: 'add', path: '/data/n', value: 1}]",
    "[JSONPatch{op: 'add', path: '/nope', value: 'x'}]",
    "[JSONPatch{op: 'copy', from: '/data/a', path: '/data/c'}]",
    "[JSONPatch{op: 'move', from: '/data/a', path: '/data/d'}]",
    "[JSONPatch{op: 'bad', path: '/data'}]",
    "[JSONPatch{op: 'add', path: '/data/x/y', value: 'z'}]",
    "has(object.data) ? [JSONPatch{op: 'add', path: '/data/has', value: 'yes'}] : []",
]


class Server:
    """One API server."""

    def __init__(self, url, token):
        self.host = urllib.parse.urlsplit(url).netloc
        self.token = token
        self.connection = None

    def call(self, method, path, body=None, content_type="application/json"):
        """Sends a request; returns code, warnings and body."""
        headers = {"Authorization": f"Bearer {self.token}", "Accept": "application/json", "Content-Type": content_type}
        data = None if body is None else json.dumps(body)
        for is_last_try in (False, True):
            if self.connection is None:
                context = ssl._create_unverified_context()
                self.connection = http.client.HTTPSConnection(self.host, context=context, timeout=60)
            try:
                self.connection.request(method, path, data, headers)
                response = self.connection.getresponse()
                text = response.read().decode()
                break
            except (http.client.HTTPException, OSError):
                self.connection = None
                if is_last_try:
                    raise
        return response.status, response.headers.get_all("Warning") or [], json.loads(text) if text[:1] == "{" else text


def some(rng, choices, most):
    return [rng.choice(choices) for _ in range(rng.randint(0, most))]


def rule(rng, mutating):
    operations = ["CREATE", "UPDATE"] if mutating else ["CREATE", "UPDATE", "DELETE"]
    rule_operations = rng.choice([["*"], ["*"], operations, [rng.choice(operations)]])
    if mutating and rule_operations == ["*"]:
        rule_operations = operations
    generated = {
        "operations": rule_operations,
        "apiGroups": rng.choice([["*"], [""], ["", "apps"], ["apps"]]),
        "apiVersions": rng.choice([["*"], ["v1"], ["v1", "v1beta1"]]),
        "resources": rng.choice([["configmaps"], ["configmaps", "secrets"], ["*"], ["*/*"], ["secrets"]]),
    }
    if rng.random() < 0.2:
        generated["scope"] = rng.choice(["*", "Namespaced", "Cluster"])
    if rng.random() < 0.1:
        generated["resourceNames"] = some(rng, NAMES, 2) or ["a"]
        generated["resourceNames"] = sorted(set(generated["resourceNames"]))
    return generated


def selector(rng, key):
    return rng.choice([
        {},
        {"matchLabels": {key: rng.choice(["prod", "blue"])}},
        {"matchExpressions": [{"key": key, "operator": rng.choice(["Exists", "DoesNotExist"])}]},
        {"matchExpressions": [{"key": key, "operator": "NotIn", "values": ["dev"]}]},
    ])


def resources(rng, mutating, namespace, is_binding):
    generated = {}
    if not is_binding or rng.random() < 0.5:
        generated["resourceRules"] = [rule(rng, mutating) for _ in range(rng.randint(1, 2))]
    if rng.random() < 0.15:
        generated["excludeResourceRules"] = [rule(rng, mutating)]
    if rng.random() < 0.3:
        generated["objectSelector"] = selector(rng, "team")
    if rng.random() < 0.2:
        generated["matchPolicy"] = rng.choice(["Exact", "Equivalent"])
    # Each policy matches one namespace, so that the policies of a batch are independent.
    by_name = {"key": "kubernetes.io/metadata.name", "operator": "In", "values": [namespace]}
    generated["namespaceSelector"] = {"matchExpressions": [by_name]}
    if rng.random() < 0.2:
        generated["namespaceSelector"]["matchExpressions"].append(
            {"key": "env", "operator": rng.choice(["Exists", "DoesNotExist"])})
    return generated


def policy(rng, namespace, name, mutating):
    """Generates the spec of a policy and its bindings."""
    spec = {"matchConstraints": resources(rng, mutating, namespace, False)}
    conditions = list(CONDITIONS)
    if rng.random() < 0.5:
        spec["failurePolicy"] = rng.choice(["Fail", "Ignore"])
    if rng.random() < 0.35:
        spec["paramKind"] = rng.choice([
            {"apiVersion": "v1", "kind": "ConfigMap"}, {"apiVersion": "v1", "kind": "ConfigMap"},
            {"apiVersion": "v1", "kind": "Namespace"}, {"apiVersion": "example.org/v1", "kind": "Nothing"}])
        conditions += WITH_PARAMS * 4
    if rng.random() < 0.4:
        spec["variables"] = [{"name": f"v{i}", "expression": text} for i, text in enumerate(some(rng, VARIABLES, 3))]
        conditions += [f"variables.v{i} == variables.v{i}" for i in range(len(spec["variables"]))] * 3
    if rng.random() < 0.3:
        spec["matchConditions"] = [
            {"name": f"c{i}", "expression": text}
            for i, text in enumerate(some(rng, [c for c in conditions if "variables" not in c], 2))]
    if mutating:
        spec["reinvocationPolicy"] = rng.choice(["Never", "IfNeeded"])
        spec["mutations"] = []
        for _ in range(rng.randint(1, 2)):
            if rng.random() < 0.5:
                form = {"patchType": "JSONPatch", "jsonPatch": {"expression": rng.choice(PATCHES)}}
            else:
                text = rng.choice(CONFIGURATIONS)
                form = {"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": text}}
            spec["mutations"].append(form)
    else:
        validations = []
        for text in some(rng, conditions, 3) or ["object != null"]:
            generated = {"expression": text}
            if rng.random() < 0.3:
                generated["message"] = rng.choice(["no", " said so ", "because"])
            if rng.random() < 0.4:
                generated["messageExpression"] = rng.choice(MESSAGES)
            if rng.random() < 0.3:
                generated["reason"] = rng.choice(["Forbidden", "Invalid", "RequestEntityTooLarge"])
            validations.append(generated)
        spec["validations"] = validations
        if rng.random() < 0.2:
            spec["auditAnnotations"] = [{"key": "k", "valueExpression": rng.choice(AUDITS)}]
    bindings = []
    for number in range(rng.choice([1, 1, 1, 2])):
        bound = {"policyName": name}
        if rng.random() < 0.25:
            bound["matchResources"] = resources(rng, mutating, namespace, True)
        if not mutating:
            bound["validationActions"] = rng.choice([["Deny"], ["Deny"], ["Warn"], ["Audit"], ["Warn", "Audit"]])
        if "paramKind" in spec and rng.random() < 0.85:
            params = {"parameterNotFoundAction": rng.choice(["Deny", "Allow"])}
            if rng.random() < 0.6:
                params["name"] = rng.choice(["p1", "p1", "missing", namespace])
            else:
                params["selector"] = rng.choice([{"matchLabels": {"param": "yes"}}, {"matchLabels": {"param": "no"}}])
            if rng.random() < 0.2:
                params["namespace"] = rng.choice([namespace, "default"])
            bound["paramRef"] = params
        bindings.append((f"{name}-b{number}", bound))
    return spec, bindings


def objects(rng):
    """Generates requests: verb, name, body."""
    generated = []
    for _ in range(OBJECTS):
        labels = {key: rng.choice(VALUES[1:]) for key in some(rng, ["team", "env"], 2)}
        body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {}}
        if labels:
            body["metadata"]["labels"] = labels
        if rng.random() < 0.3:
            body["metadata"]["annotations"] = {"n": rng.choice(VALUES)}
        if rng.random() < 0.8:
            body["data"] = {key: rng.choice(VALUES) for key in some(rng, ["a", "x", "limit"], 3)}
        verb = rng.choice(["POST", "POST", "POST", "PUT", "PATCH", "DELETE", "GENERATE"])
        name = rng.choice(NAMES)
        generated.append((verb, name, body))
    return generated


def send(server, namespace, request):
    verb, name, body = request
    base = f"/api/v1/namespaces/{namespace}/configmaps"
    body = json.loads(json.dumps(body))
    if verb in ("POST", "GENERATE"):
        key = "generateName" if verb == "GENERATE" else "name"
        body["metadata"][key] = f"{name}-" if verb == "GENERATE" else f"new-{name}"
        return server.call("POST", f"{base}?dryRun=All&fieldManager=m", body)
    if verb == "PUT":
        body["metadata"]["name"] = name
        return server.call("PUT", f"{base}/{name}?dryRun=All", body)
    if verb == "PATCH":
        return server.call("PATCH", f"{base}/{name}?dryRun=All", body, "application/merge-patch+json")
    return server.call("DELETE", f"{base}/{name}?dryRun=All", {"kind": "DeleteOptions", "apiVersion": "v1"})


def normalized(response):
    """Returns a response without values that always differ between servers."""
    code, warnings, body = response
    if isinstance(body, dict):
        body = json.loads(json.dumps(body))
        metadata = body.get("metadata") or {}
        for name in ("uid", "resourceVersion", "creationTimestamp", "managedFields", "generation"):
            metadata.pop(name, None)
        if "name" in metadata and metadata.get("generateName"):
            metadata["name"] = metadata["generateName"]
        if body.get("kind") == "Status":
            (body.get("details") or {}).pop("uid", None)
    text = json.dumps([code, sorted(warnings), body], sort_keys=True)
    text = re.sub(r"((?:a|web|db-1|x)-)[bcdfghjklmnpqrstvwxz2456789]{5}\b", r"\1GEN", text)
    # The bindings of a policy are evaluated in any order.
    text = re.sub(r"-b\d\b", "-bN", text)
    return re.sub(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", "TIME", text)


def on_both(servers, work):
    with concurrent.futures.ThreadPoolExecutor(len(servers)) as pool:
        return list(pool.map(work, servers))


def create_batch(server, number, batch):
    """Creates the namespaces, parameters and policies of a batch; returns the responses to the policies."""
    responses = []
    for namespace, spec, bindings, mutating in batch:
        labels = {"env": "prod"} if number % 2 else {}
        server.call("POST", "/api/v1/namespaces", {"metadata": {"name": namespace, "labels": labels}})
        base = f"/api/v1/namespaces/{namespace}/configmaps"
        param = {"metadata": {"name": "p1", "labels": {"param": "yes"}}, "data": {"limit": "3"}}
        server.call("POST", base, param)
        for name in NAMES:
            generated = {"metadata": {"name": name, "labels": {"team": "blue"}}, "data": {"a": "prod", "x": "4"}}
            server.call("POST", base, generated)
    # A kube-apiserver that has not seen a parameter yet takes it for absent.
    time.sleep(1.5)
    for namespace, spec, bindings, mutating in batch:
        kind = "Mutating" if mutating else "Validating"
        plural = kind.lower() + "admissionpolicies"
        body = {"apiVersion": VERSION, "kind": kind + "AdmissionPolicy", "metadata": {"name": namespace}, "spec": spec}
        response = server.call("POST", f"{GROUP}/{plural}", body)
        responses.append(normalized(response))
        for name, bound in bindings:
            body = {"apiVersion": VERSION, "kind": kind + "AdmissionPolicyBinding", "metadata": {"name": name}, "spec": bound}
            response = server.call("POST", f"{GROUP}/{kind.lower()}admissionpolicybindings", body)
            responses.append(normalized(response))
    return responses


def keep_informers(server):
    """Policies that match nothing. A kube-apiserver 1.36 that has once stopped to follow a kind of parameters, for no
    policy named it any more, never sees its objects again: it must be a new one, and these must stay."""
    for number, kind in enumerate(["ConfigMap", "Namespace"]):
        rules = [{"apiGroups": ["none"], "apiVersions": ["*"], "operations": ["*"], "resources": ["*"]}]
        for prefix in ("Mutating", "Validating"):
            name = f"keep-{number}"
            spec = {"paramKind": {"apiVersion": "v1", "kind": kind}, "matchConstraints": {"resourceRules": rules}}
            bound = {"policyName": name, "paramRef": {"selector": {}, "parameterNotFoundAction": "Allow"}}
            if prefix == "Mutating":
                rules[0]["operations"] = ["CREATE"]
                spec["reinvocationPolicy"] = "Never"
                patch = {"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": "Object{}"}}
                spec["mutations"] = [patch]
            else:
                spec["validations"] = [{"expression": "true"}]
                bound["validationActions"] = ["Deny"]
            for plural, suffix, body in (("policies", "Policy", spec), ("policybindings", "PolicyBinding", bound)):
                body = {"apiVersion": VERSION, "kind": f"{prefix}Admission{suffix}",
                        "metadata": {"name": name, "labels": {"keep": "yes"}}, "spec": body}
                response = server.call("POST", f"{GROUP}/{prefix.lower()}admission{plural}", body)
                assert response[0] in (201, 409), response


def delete_all(server):
    for kind in ("mutating", "validating"):
        for plural in ("admissionpolicybindings", "admissionpolicies"):
            server.call("DELETE", f"{GROUP}/{kind}{plural}?labelSelector=!keep")


def run(args):
    servers = [Server(args.want, args.token), Server(args.got, args.token)]
    rng = random.Random(args.seed)
    equal, total, by_kind = 0, 0, collections.Counter()
    number = 0
    on_both(servers, delete_all)
    on_both(servers, keep_informers)
    time.sleep(3)
    while total < args.cases:
        number += 1
        batch = []
        for index in range(BATCH):
            mutating = rng.random() < 0.4
            namespace = f"vap{args.seed}-{number}-{index}"
            batch.append((namespace, *policy(rng, namespace, namespace, mutating), mutating))
        batch_requests = [objects(rng) for _ in batch]
        generated = on_both(servers, lambda server: create_batch(server, number, batch))
        for want, got in zip(*generated):
            if want != got:
                print("POLICY\n  want", want, "\n  got ", got)
        # A kube-apiserver looks for changed policies each second.
        time.sleep(2.6)
        work = lambda server: [
            [normalized(send(server, entry[0], request)) for request in requests_of_policy]
            for entry, requests_of_policy in zip(batch, batch_requests)]
        want_batch, got_batch = on_both(servers, work)
        for entry, requests_of_policy, want_responses, got_responses in zip(batch, batch_requests, want_batch, got_batch):
            for request, want, got in zip(requests_of_policy, want_responses, got_responses):
                total += 1
                kind = "mutating" if entry[3] else "validating"
                same = want == got
                equal += same
                by_kind[kind, same] += 1
                if not same and args.verbose:
                    print("DIFFERS", entry[0], json.dumps(entry[1]), json.dumps(entry[2]), *request)
                    print("  want", want, "\n  got ", got)
        on_both(servers, delete_all)
        time.sleep(1.2)
    for kind in ("validating", "mutating"):
        print(f"{kind}: {by_kind[kind, True]} of {by_kind[kind, True] + by_kind[kind, False]}")
    print(f"alike: {equal} of {total} ({100 * equal / total:.1f} %), seed {args.seed}")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("want")
    parser.add_argument("got")
    parser.add_argument("token")
    parser.add_argument("--cases", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("-v", "--verbose", action="store_true")
    run(parser.parse_args())


if __name__ == "__main__":
    main()
