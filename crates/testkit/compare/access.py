"""Compares authorization on two servers: python3 access.py WANT_URL GOT_URL TOKEN [--part P] [--cases N] [-v].

Parts: `rbac` creates roles, aggregated roles and bindings and sends access reviews of random requests; `escalate` writes
roles and bindings as users with some permissions; `node` creates pods, claims and volumes and reviews the permissions of
nodes; `impersonate` sends impersonation headers as users with permission to impersonate some users. Compared are the
decision, the reason, status codes and messages. Prints how many responses were equal. Needs only the standard library.
"""

import argparse
import collections
import concurrent.futures
import http.client
import json
import random
import re
import ssl
import threading
import time
import urllib.parse

RBAC = "/apis/rbac.authorization.k8s.io/v1"
REVIEWS = "/apis/authorization.k8s.io/v1"
THREADS = 6
# How long kube-apiserver's watches may take to receive a write.
SETTLE_SECONDS = 1.5

VERBS = ["get", "list", "watch", "create", "update", "patch", "delete", "deletecollection", "*", "use", "bind", "escalate",
         "impersonate", "GET", ""]
GROUPS = ["", "", "apps", "batch", "*", "rbac.authorization.k8s.io", "example.org", "extensions"]
RESOURCES = ["pods", "pods/log", "pods/*", "*/log", "*/status", "*", "deployments", "deployments/scale", "secrets",
             "configmaps", "nodes", "services/proxy", "widgets", "jobs", "roles", "clusterroles", "Pods", "pods/", "/log"]
NAMES = ["a", "b", "web-1", "*", ""]
PATHS = ["/healthz", "/healthz/*", "/api", "/api/*", "*", "/metrics", "/logs/*", "/apis*", "/", "/*"]
REVIEWED_PATHS = ["/healthz", "/healthz/etcd", "/healthzz", "/api", "/api/", "/api/v1", "/apis", "/apis/apps", "/metrics", "/",
                  "", "/logs", "/logs/x/y", "*", "/version", "/openapi/v2"]
USERS = ["u1", "u2", "u3", "system:serviceaccount:ns1:robot", "system:serviceaccount:ns2:robot", "u:4"]
USER_GROUPS = ["g1", "g2", "system:authenticated", "system:serviceaccounts", "system:serviceaccounts:ns1", "g:3"]
NAMESPACES = ["ns1", "ns2", "ns3"]


class Server:
    """A server, with a connection for each thread."""

    def __init__(self, url, token):
        self.url, self.token, self.thread_local = urllib.parse.urlsplit(url), token, threading.local()

    def call(self, method, path, body=None, content_type="application/json", headers=()):
        """Sends a request; returns code, warnings and body."""
        sent = [("Authorization", f"Bearer {self.token}"), ("Content-Type", content_type), *headers]
        text = None if body is None else json.dumps(body).encode()
        for attempt in range(3):
            try:
                if getattr(self.thread_local, "connection", None) is None:
                    context = ssl._create_unverified_context()
                    self.thread_local.connection = http.client.HTTPSConnection(
                        self.url.hostname, self.url.port, context=context, timeout=60)
                connection = self.thread_local.connection
                connection.putrequest(method, path)
                for name, value in sent:
                    connection.putheader(name, value)
                connection.putheader("Content-Length", str(len(text or b"")))
                connection.endheaders(text)
                response = connection.getresponse()
                response_body = response.read()
                break
            except (http.client.HTTPException, OSError):
                self.thread_local.connection = None
                if attempt == 2:
                    raise
        try:
            parsed = json.loads(response_body)
        except ValueError:
            parsed = response_body.decode(errors="replace")
        return response.status, response.headers.get_all("Warning") or [], parsed

    def must(self, method, path, body, content_type="application/json"):
        response = self.call(method, path, body, content_type)
        assert response[0] in (200, 201, 409), (method, path, body, response)
        return response


def some(rng, values, count_max, count_min=1):
    return [rng.choice(values) for _ in range(rng.randint(count_min, count_max))]


def rule(rng, is_cluster):
    """Generates a rule of a role."""
    if is_cluster and rng.random() < 0.2:
        return {"nonResourceURLs": some(rng, PATHS, 2), "verbs": some(rng, ["get", "post", "*", "put"], 2)}
    generated = {"apiGroups": some(rng, GROUPS, 2), "resources": some(rng, RESOURCES, 3), "verbs": some(rng, VERBS[:-1], 3)}
    if rng.random() < 0.3:
        generated["resourceNames"] = some(rng, NAMES[:4], 2)
    return generated


def subject(rng):
    kind = rng.choice(["User", "User", "Group", "ServiceAccount"])
    if kind == "ServiceAccount":
        return {"kind": kind, "name": "robot", "namespace": rng.choice(NAMESPACES)}
    name = rng.choice(USERS if kind == "User" else USER_GROUPS)
    return {"kind": kind, "name": name, "apiGroup": "rbac.authorization.k8s.io"}


def labels(text):
    return {"generated": "yes", "batch": text}


def configuration(rng, batch):
    """Generates objects: path and body of each."""
    generated, cluster_roles = [], []
    for number in range(8):
        name = f"{batch}-c{number}"
        cluster_roles.append(name)
        cluster_role_labels = {**labels(batch), f"aggregate-{rng.randint(0, 2)}": "true"}
        rules = [rule(rng, True) for _ in range(rng.randint(0, 3))]
        generated.append((f"{RBAC}/clusterroles", {"metadata": {"name": name, "labels": cluster_role_labels}, "rules": rules}))
    for number in range(rng.randint(0, 2)):
        name = f"{batch}-agg{number}"
        cluster_roles.append(name)
        selectors = [{"matchLabels": {f"aggregate-{rng.randint(0, 2)}": "true", "batch": batch}}
                     for _ in range(rng.randint(1, 2))]
        generated.append((f"{RBAC}/clusterroles", {"metadata": {"name": name, "labels": {"generated": "yes"}},
                                                   "aggregationRule": {"clusterRoleSelectors": selectors}}))
    cluster_roles.append("no-such-role")
    roles = collections.defaultdict(list)
    for number in range(6):
        namespace_name, name = rng.choice(NAMESPACES), f"{batch}-r{number}"
        roles[namespace_name].append(name)
        rules = [rule(rng, False) for _ in range(rng.randint(0, 3))]
        path = f"{RBAC}/namespaces/{namespace_name}/roles"
        generated.append((path, {"metadata": {"name": name, "labels": labels(batch)}, "rules": rules}))
    for number in range(5):
        subjects = [subject(rng) for _ in range(rng.randint(0, 2))]
        refers = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": rng.choice(cluster_roles)}
        generated.append((f"{RBAC}/clusterrolebindings", {"metadata": {"name": f"{batch}-cb{number}", "labels": labels(batch)},
                                                          "subjects": subjects, "roleRef": refers}))
    for number in range(8):
        namespace_name = rng.choice(NAMESPACES)
        kind, names = ("Role", roles[namespace_name] + ["no-such"]) if rng.random() < 0.6 else ("ClusterRole", cluster_roles)
        subjects = [subject(rng) for _ in range(rng.randint(0, 2))]
        refers = {"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": rng.choice(names)}
        generated.append((f"{RBAC}/namespaces/{namespace_name}/rolebindings", {
            "metadata": {"name": f"{batch}-b{number}", "labels": labels(batch)}, "subjects": subjects, "roleRef": refers}))
    return generated


def attributes(rng):
    if rng.random() < 0.2:
        return {"nonResourceAttributes": {"path": rng.choice(REVIEWED_PATHS), "verb": rng.choice(["get", "post", "put", "*", ""])}}
    resource, _, subresource = rng.choice(RESOURCES).partition("/")
    generated = {"verb": rng.choice(VERBS), "group": rng.choice(GROUPS), "resource": resource}
    if subresource or rng.random() < 0.1:
        generated["subresource"] = subresource or "log"
    if rng.random() < 0.7:
        generated["namespace"] = rng.choice(NAMESPACES)
    if rng.random() < 0.4:
        generated["name"] = rng.choice(NAMES)
    if rng.random() < 0.05:
        generated["version"] = rng.choice(["v1", "*"])
    if rng.random() < 0.05:
        generated["labelSelector"] = {"rawSelector": rng.choice(["a=b", "a in (b,c)", "!a", "=bad="])}
    if rng.random() < 0.05:
        generated["fieldSelector"] = {"requirements": [{"key": "spec.nodeName", "operator": rng.choice(["In", "Exists", "NotIn"]),
                                                        "values": ["n1"]}]}
    return {"resourceAttributes": generated}


def user_of(rng):
    generated = {"user": rng.choice(USERS)}
    if rng.random() < 0.5:
        generated["groups"] = some(rng, USER_GROUPS, 2)
    if rng.random() < 0.03:
        generated.pop("user")
    return generated


def random_review(rng):
    """Generates a review: method, path, body, headers."""
    sort = rng.random()
    if sort < 0.75:
        return "POST", f"{REVIEWS}/subjectaccessreviews", {"spec": {**attributes(rng), **user_of(rng)}}, ()
    if sort < 0.85:
        namespace_name = rng.choice(NAMESPACES)
        return "POST", f"{REVIEWS}/namespaces/{namespace_name}/localsubjectaccessreviews", {
            "metadata": {"namespace": namespace_name}, "spec": {**attributes(rng), **user_of(rng)}}, ()
    impersonation = [("Impersonate-User", rng.choice(USERS))]
    impersonation += [("Impersonate-Group", user_group) for user_group in some(rng, USER_GROUPS, 2, 0)]
    if sort < 0.95:
        return "POST", f"{REVIEWS}/selfsubjectaccessreviews", {"spec": attributes(rng)}, impersonation
    return "POST", f"{REVIEWS}/selfsubjectrulesreviews", {"spec": {"namespace": rng.choice(NAMESPACES)}}, impersonation


def sorted_rules(status):
    for name in ("resourceRules", "nonResourceRules"):
        status[name] = sorted(status.get(name) or [], key=lambda one: json.dumps(one, sort_keys=True))


def normalized(response, keep=("status", "message", "reason", "details", "code", "roleRef", "subjects", "rules")):
    """Returns a response without values that always differ between servers."""
    code, warnings, body = response
    if not isinstance(body, dict):
        return json.dumps([code, body])
    body = json.loads(json.dumps({name: value for name, value in body.items() if name in keep}))
    status = body.get("status")
    if isinstance(status, dict):
        sorted_rules(status) if "resourceRules" in status else None
        # If several bindings allow a request, the reason may name any of them.
        status["reason"] = re.sub(r"^RBAC: allowed by .*", "RBAC: allowed", status.get("reason", ""))
    (body.get("details") or {}).pop("uid", None)
    text = json.dumps([code, sorted(warnings), body], sort_keys=True)
    return re.sub(r'(clusterrole|role)\S* \\"no-such-?r?o?l?e?\\" not found', "NOT FOUND", text)


def reason_of(response):
    body = response[2]
    return (body.get("status") or {}).get("reason", "") if isinstance(body, dict) and isinstance(body.get("status"), dict) else ""


class Tally:
    def __init__(self, args):
        self.args, self.equal, self.total, self.printed = args, 0, 0, 0

    def compare(self, review, want, got, show=normalized):
        want_text, got_text = show(want), show(got)
        self.total += 1
        self.equal += want_text == got_text
        if want_text != got_text and self.args.verbose and self.printed < self.args.show:
            self.printed += 1
            print("DIFFERS", json.dumps(review), "\n  want", want_text, "\n  got ", got_text, flush=True)

    def end(self, part):
        print(f"{part}: {self.equal} of {self.total} alike ({100 * self.equal / max(self.total, 1):.2f} %), "
              f"seed {self.args.seed}", flush=True)


def on_both(servers, work):
    with concurrent.futures.ThreadPoolExecutor(len(servers)) as pool:
        return list(pool.map(work, servers))


def send_reviews(servers, reviews):
    """Returns each review with the responses of both servers."""
    def work(server):
        with concurrent.futures.ThreadPoolExecutor(THREADS) as pool:
            return list(pool.map(lambda review: server.call(review[0], review[1], review[2], "application/json", review[3]), reviews))
    return zip(reviews, *on_both(servers, work))


def clean(server):
    for path in ["clusterrolebindings", "clusterroles"] + [f"namespaces/{s}/{k}" for s in NAMESPACES for k in ("rolebindings", "roles")]:
        server.call("DELETE", f"{RBAC}/{path}?labelSelector=generated")


def namespaces(server):
    for namespace_name in NAMESPACES:
        server.must("POST", "/api/v1/namespaces", {"metadata": {"name": namespace_name}})


def rbac(servers, rng, tally):
    batch = 0
    while tally.total < tally.args.cases:
        batch += 1
        objects = configuration(rng, f"s{tally.args.seed}x{batch}")
        def make(server):
            clean(server)
            return [server.call("POST", path, body) for path, body in objects]
        for (path, body), want, got in zip(objects, *on_both(servers, make)):
            tally.compare([path, body], want, got, lambda response: normalized(response, ("message", "reason", "code", "rules")))
        # Aggregated roles are updated by a control loop.
        time.sleep(SETTLE_SECONDS)
        reasons = sum(1 for review, want, got in send_reviews(servers, [random_review(rng) for _ in range(1000)])
                      if tally.compare(review, want, got) or reason_of(want) != reason_of(got))
        if tally.args.verbose:
            print(f"batch {batch}: {reasons} answers name another binding or have another reason", flush=True)


def escalate(servers, rng, tally):
    """Writes roles and bindings as users with permission to write them and some rules."""
    batch = 0
    while tally.total < tally.args.cases:
        batch += 1
        name = f"e{tally.args.seed}x{batch}"
        objects = configuration(rng, name)
        may = {"apiGroups": ["rbac.authorization.k8s.io"], "resources": ["roles", "rolebindings", "clusterroles", "clusterrolebindings"],
               "verbs": ["get", "create", "update", "patch"]}
        extra = [[{**may, "resources": ["roles", "clusterroles"], "verbs": ["escalate"]}],
                 [{**may, "resources": ["roles", "clusterroles"], "verbs": ["bind"], "resourceNames": [f"{name}-c0", f"{name}-r1"]}],
                 [], [], [rule(rng, True), rule(rng, False)]]
        for number, user in enumerate(USERS):
            rules = [may, *(extra[number] if number < len(extra) else [])]
            role = f"{name}-may{number}"
            objects.append((f"{RBAC}/clusterroles", {"metadata": {"name": role, "labels": labels(name)}, "rules": rules}))
            objects.append((f"{RBAC}/clusterrolebindings", {
                "metadata": {"name": role, "labels": labels(name)},
                "subjects": [{"kind": "User", "name": user, "apiGroup": "rbac.authorization.k8s.io"}],
                "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role}}))
        def make(server):
            clean(server)
            for path, body in objects:
                server.call("POST", path, body)
        on_both(servers, make)
        time.sleep(SETTLE_SECONDS)
        known = [(path, body) for path, body in objects if path != "none"]
        for _ in range(200):
            method, path, body, content_type = written(rng, known, name)
            impersonation = [("Impersonate-User", rng.choice(USERS))]
            impersonation += [("Impersonate-Group", user_group) for user_group in some(rng, USER_GROUPS, 2, 0)]
            want, got = on_both(servers, lambda server: server.call(method, path, body, content_type, impersonation))
            tally.compare([method, path, body, content_type, impersonation], want, got)


def written(rng, known, batch):
    """Generates a write of a role or binding: method, path, body, media type."""
    path, old = rng.choice(known)
    body = json.loads(json.dumps(old))
    if "roleRef" in body:
        if rng.random() < 0.7:
            body["subjects"] = [subject(rng) for _ in range(rng.randint(0, 2))]
        if rng.random() < 0.4:
            body["roleRef"]["name"] = rng.choice([f"{batch}-c{rng.randint(0, 7)}", f"{batch}-r{rng.randint(0, 5)}", "view", "none"])
    elif rng.random() < 0.8:
        body["rules"] = [rule(rng, "cluster" in path) for _ in range(rng.randint(0, 3))]
        if "cluster" in path and rng.random() < 0.2:
            body["aggregationRule"] = {"clusterRoleSelectors": [{"matchLabels": {"x": "y"}}]}
    kind = {"clusterroles": "ClusterRole", "roles": "Role", "rolebindings": "RoleBinding",
            "clusterrolebindings": "ClusterRoleBinding"}[path.rsplit("/", 1)[1]]
    body.update(apiVersion="rbac.authorization.k8s.io/v1", kind=kind)
    if rng.random() < 0.3:
        body["metadata"]["name"] = f"{batch}-new{rng.randint(0, 5)}"
    name = urllib.parse.quote(body["metadata"]["name"])
    dry_run = "?dryRun=All"
    sort = rng.choice(["create", "update", "merge", "json", "apply"])
    if sort == "create":
        body["metadata"]["name"] += "-n" if rng.random() < 0.8 else ""
        return "POST", path + dry_run, body, "application/json"
    if sort == "update":
        return "PUT", f"{path}/{name}{dry_run}", body, "application/json"
    if sort == "merge":
        body["metadata"].pop("name", None)
        return "PATCH", f"{path}/{name}{dry_run}", body, "application/merge-patch+json"
    if sort == "json":
        field = "subjects" if "roleRef" in body else "rules"
        return "PATCH", f"{path}/{name}{dry_run}", [{"op": "add", "path": f"/{field}", "value": body.get(field)}], "application/json-patch+json"
    return "PATCH", f"{path}/{name}{dry_run}&fieldManager=m&force=true", body, "application/apply-patch+yaml"


def graph(rng, batch):
    """Nodes, pods, claims and volumes: path and body, and further writes."""
    generated = [("/api/v1/nodes", {"metadata": {"name": f"{batch}-n{n}"}}) for n in range(3)]
    namespace_name = rng.choice(NAMESPACES)
    for number in range(4):
        claims = {"kind": "PersistentVolumeClaim", "name": f"{batch}-pvc{rng.randint(0, 3)}", "namespace": rng.choice(NAMESPACES)}
        spec = {"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "claimRef": claims}
        source = rng.choice(["csi", "hostPath", "azureFile", "cephfs", "flexVolume"])
        secret = {"name": f"s{rng.randint(0, 4)}", "namespace": rng.choice(NAMESPACES)}
        spec[source] = {
            "csi": {"driver": "d", "volumeHandle": "h", rng.choice(["nodePublishSecretRef", "nodeStageSecretRef",
                    "controllerPublishSecretRef", "nodeExpandSecretRef"]): secret},
            "hostPath": {"path": "/x"},
            "azureFile": {"shareName": "s", "secretName": secret["name"], "secretNamespace": secret["namespace"]},
            "cephfs": {"monitors": ["m"], "secretRef": secret},
            "flexVolume": {"driver": "d", "secretRef": secret}}[source]
        generated.append(("/api/v1/persistentvolumes", {"metadata": {"name": f"{batch}-pv{number}", "labels": labels(batch)}, "spec": spec}))
        generated.append((f"/api/v1/namespaces/{namespace_name}/persistentvolumeclaims", {
            "metadata": {"name": f"{batch}-pvc{number}", "labels": labels(batch)}, "spec": {
                "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}, "volumeName": f"{batch}-pv{number}"}}))
    for number in range(6):
        container = {"name": "c", "image": "i"}
        if rng.random() < 0.4:
            container["envFrom"] = [rng.choice([{"secretRef": {"name": f"s{rng.randint(0, 4)}"}},
                                                {"configMapRef": {"name": f"m{rng.randint(0, 4)}"}}])]
        if rng.random() < 0.4:
            source = rng.choice([{"secretKeyRef": {"name": f"s{rng.randint(0, 4)}", "key": "k"}},
                                 {"configMapKeyRef": {"name": f"m{rng.randint(0, 4)}", "key": "k"}}])
            container["env"] = [{"name": "E", "valueFrom": source}]
        volumes = []
        for index in range(rng.randint(0, 3)):
            volumes.append({"name": f"v{index}", **rng.choice([
                {"secret": {"secretName": f"s{rng.randint(0, 4)}"}}, {"configMap": {"name": f"m{rng.randint(0, 4)}"}},
                {"persistentVolumeClaim": {"claimName": f"{batch}-pvc{rng.randint(0, 4)}"}},
                {"projected": {"sources": [{"secret": {"name": f"s{rng.randint(0, 4)}"}}, {"configMap": {"name": f"m{rng.randint(0, 4)}"}}]}},
                {"csi": {"driver": "d", "nodePublishSecretRef": {"name": f"s{rng.randint(0, 4)}"}}},
                {"ephemeral": {"volumeClaimTemplate": {"spec": {"accessModes": ["ReadWriteOnce"],
                                                                "resources": {"requests": {"storage": "1Gi"}}}}}}])})
        spec = {"containers": [container], "volumes": volumes, "serviceAccountName": "robot", "automountServiceAccountToken": False}
        if rng.random() < 0.3:
            spec["imagePullSecrets"] = [{"name": f"s{rng.randint(0, 4)}"}]
        if rng.random() < 0.3:
            spec["resourceClaims"] = [{"name": "r", "resourceClaimName": f"{batch}-rc{rng.randint(0, 1)}"}]
        if rng.random() < 0.85:
            spec["nodeName"] = f"{batch}-n{rng.randint(0, 3)}"
        generated.append((f"/api/v1/namespaces/{namespace_name}/pods", {"metadata": {"name": f"{batch}-p{number}", "labels": labels(batch)}, "spec": spec}))
    return namespace_name, generated


def random_node_review(rng, batch, namespace_name):
    node = f"{batch}-n{rng.randint(0, 3)}"
    group, resource, names = rng.choice([
        ("", "secrets", [f"s{n}" for n in range(5)]), ("", "secrets", [f"s{n}" for n in range(5)]),
        ("", "configmaps", [f"m{n}" for n in range(5)]), ("", "pods", [f"{batch}-p{n}" for n in range(6)]),
        ("", "persistentvolumeclaims", [f"{batch}-pvc{n}" for n in range(5)] + [f"{batch}-p1-v0"]),
        ("", "persistentvolumes", [f"{batch}-pv{n}" for n in range(5)]), ("", "nodes", [f"{batch}-n{n}" for n in range(4)]),
        ("", "serviceaccounts", ["robot", "default"]), ("", "services", ["x"]), ("", "events", ["x"]),
        ("resource.k8s.io", "resourceclaims", [f"{batch}-rc0", f"{batch}-rc1"]), ("resource.k8s.io", "resourceslices", ["x"]),
        ("storage.k8s.io", "volumeattachments", ["x"]), ("storage.k8s.io", "csinodes", [node, f"{batch}-n0"]),
        ("storage.k8s.io", "csidrivers", ["d"]), ("coordination.k8s.io", "leases", [node, "x"]),
        ("certificates.k8s.io", "certificatesigningrequests", ["x"]), ("apps", "deployments", ["x"])])
    generated = {"verb": rng.choice(["get", "get", "get", "list", "watch", "create", "update", "patch", "delete"]), "group": group,
                 "resource": resource}
    if rng.random() < 0.85:
        generated["name"] = rng.choice(names)
    if resource not in ("nodes", "persistentvolumes", "volumeattachments", "csinodes", "csidrivers", "resourceslices",
                        "certificatesigningrequests") and rng.random() < 0.95:
        generated["namespace"] = "kube-node-lease" if resource == "leases" and rng.random() < 0.7 else \
            namespace_name if rng.random() < 0.8 else rng.choice(NAMESPACES)
    if rng.random() < 0.15:
        generated["subresource"] = rng.choice(["status", "token", "eviction", "log", "proxy"])
    if rng.random() < 0.1:
        generated["fieldSelector"] = {"requirements": [{"key": rng.choice(["spec.nodeName", "metadata.name"]), "operator": "In",
                                                        "values": [rng.choice([node, f"{batch}-n0"])]}]}
    user = {"user": f"system:node:{node}", "groups": ["system:nodes"]}
    if rng.random() < 0.05:
        user = rng.choice([{"user": "system:node:", "groups": ["system:nodes"]}, {"user": f"system:node:{node}"},
                           {"user": "kubelet", "groups": ["system:nodes"]}])
    return "POST", f"{REVIEWS}/subjectaccessreviews", {"spec": {"resourceAttributes": generated, **user}}, ()


def node(servers, rng, tally):
    for server in servers:
        for namespace_name in NAMESPACES:
            server.must("POST", f"/api/v1/namespaces/{namespace_name}/serviceaccounts", {"metadata": {"name": "robot"}})
    batch = 0
    while tally.total < tally.args.cases:
        batch += 1
        name = f"g{tally.args.seed}x{batch}"
        namespace_name, objects = graph(rng, name)
        def make(server):
            return [server.call("POST", path, body) for path, body in objects]
        for (path, body), want, got in zip(objects, *on_both(servers, make)):
            tally.compare([path, body], want, got, lambda response: normalized(response, ("message", "reason", "code")))
        deleted = rng.sample(range(6), 2)
        bound = rng.randint(0, 3)
        def change(server):
            for number in deleted:
                server.call("DELETE", f"/api/v1/namespaces/{namespace_name}/pods/{name}-p{number}?gracePeriodSeconds=0")
            server.call("DELETE", f"/api/v1/persistentvolumes/{name}-pv{bound}")
        time.sleep(SETTLE_SECONDS)
        for review, want, got in send_reviews(servers, [random_node_review(rng, name, namespace_name) for _ in range(500)]):
            tally.compare(review, want, got)
        on_both(servers, change)
        time.sleep(SETTLE_SECONDS)
        for review, want, got in send_reviews(servers, [random_node_review(rng, name, namespace_name) for _ in range(300)]):
            tally.compare(review, want, got)


IMPERSONATED = [("", "users"), ("", "groups"), ("", "serviceaccounts"), ("authentication.k8s.io", "uids"),
                ("authentication.k8s.io", "userextras/reason"), ("authentication.k8s.io", "userextras/*"), ("*", "*"),
                ("authentication.k8s.io", "userextras"), ("authentication.k8s.io", "users"), ("authentication.k8s.io", "serviceaccounts"),
                ("authentication.k8s.io", "nodes"), ("authentication.k8s.io", "groups")]


def impersonate(servers, rng, tally):
    """Service accounts that may impersonate some. Each batch has its own: kube-apiserver remembers for ten seconds whom
    a sender could impersonate, and for longer how."""
    def prepare(server, batch):
        tokens = []
        for number in range(6):
            path = "/api/v1/namespaces/ns1/serviceaccounts"
            server.must("POST", path, {"metadata": {"name": f"{batch}-imp{number}"}})
            generated = server.must("POST", f"{path}/{batch}-imp{number}/token", {"spec": {}})
            tokens.append(generated[2]["status"]["token"])
        return [Server(server.url.geturl(), token) for token in tokens]
    batch = 0
    while tally.total < tally.args.cases:
        batch += 1
        name = f"i{tally.args.seed}x{batch}"
        user_names = on_both(servers, lambda server: prepare(server, name))
        objects = []
        for number in range(6):
            rules = []
            for group, resource in rng.sample(IMPERSONATED, rng.randint(1, 4)):
                verbs = some(rng, ["impersonate", "impersonate", "impersonate:user-info", "impersonate:serviceaccount",
                                   "impersonate:arbitrary-node", "impersonate:associated-node", "*"], 2)
                generated = {"apiGroups": [group], "resources": [resource], "verbs": verbs}
                if rng.random() < 0.4:
                    generated["resourceNames"] = some(rng, ["u1", "g1", "robot", "uid1", "because", "n1", "u2"], 3)
                rules.append(generated)
            if rng.random() < 0.5:
                rules.append({"apiGroups": ["*"], "resources": ["*"], "verbs": some(rng, [
                    "impersonate-on:user-info:create", "impersonate-on:serviceaccount:create", "impersonate-on:arbitrary-node:create",
                    "impersonate-on:user-info:list", "impersonate-on:user-info:*"], 2)})
            objects.append((f"{RBAC}/clusterroles", {"metadata": {"name": f"{name}-{number}", "labels": labels(name)}, "rules": rules}))
            objects.append((f"{RBAC}/clusterrolebindings", {
                "metadata": {"name": f"{name}-{number}", "labels": labels(name)},
                "subjects": [{"kind": "ServiceAccount", "name": f"{name}-imp{number}", "namespace": "ns1"}],
                "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": f"{name}-{number}"}}))
        def make(server):
            clean(server)
            for path, body in objects:
                server.must("POST", path, body)
        on_both(servers, make)
        time.sleep(SETTLE_SECONDS)
        for _ in range(250):
            user_index = rng.randrange(6)
            headers = [("Impersonate-User", rng.choice(["u1", "u2", "system:serviceaccount:ns1:robot", "system:serviceaccount:ns2:x",
                                                        "system:node:n1", "system:node:", "system:serviceaccount:bad", "system:anonymous"]))]
            if rng.random() < 0.05:
                headers = []
            for _ in range(rng.choice([0, 0, 1, 2])):
                headers.append(("Impersonate-Group", rng.choice(["g1", "g2", "system:masters", "system:authenticated",
                                                                "system:serviceaccounts", "system:unauthenticated", "system:nodes"])))
            if rng.random() < 0.2:
                headers.append(("Impersonate-Uid", rng.choice(["uid1", "uid2"])))
            if rng.random() < 0.3:
                headers.append((rng.choice(["Impersonate-Extra-Reason", "Impersonate-Extra-Scopes", "Impersonate-Extra-a%2Fb"]),
                                rng.choice(["because", "x"])))
            path, method = rng.choice([("/apis/authentication.k8s.io/v1/selfsubjectreviews", "POST"),
                                       ("/apis/authentication.k8s.io/v1/selfsubjectreviews", "POST"),
                                       ("/api/v1/namespaces/ns1/configmaps", "GET"), ("/version", "GET")])
            body = {} if method == "POST" else None
            pairs = [user_names[0][user_index], user_names[1][user_index]]
            want, got = on_both(pairs, lambda server: server.call(method, path, body, "application/json", headers))
            tally.compare([user_index, rules_of(objects, user_index), method, path, headers], want, got, without_ids)


def rules_of(objects, user_index):
    return objects[2 * user_index][1]["rules"]


def without_ids(response):
    text = normalized(response)
    return re.sub(r"JTI=[0-9a-f-]+|[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}", "ID", text)


PARTS = {"rbac": rbac, "escalate": escalate, "node": node, "impersonate": impersonate}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("want")
    parser.add_argument("got")
    parser.add_argument("token")
    parser.add_argument("--part", choices=PARTS, action="append")
    parser.add_argument("--cases", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--show", type=int, default=20)
    parser.add_argument("-v", "--verbose", action="store_true")
    args = parser.parse_args()
    servers = [Server(args.want, args.token), Server(args.got, args.token)]
    on_both(servers, namespaces)
    for part in args.part or PARTS:
        tally = Tally(args)
        PARTS[part](servers, random.Random(args.seed), tally)
        tally.end(part)
    on_both(servers, clean)


if __name__ == "__main__":
    main()
