"""Compares two servers on manifests of public projects: python3 corpus.py WANT_URL GOT_URL TOKEN SOURCES [--kubectl PROGRAM] [-v].

SOURCES is a file with one line of JSON for each project: {"name": ..., "folder": ..., "globs": [...]}; `cargo xtask corpus`
downloads the packages, writes it, starts a kube-apiserver and Keelson, and runs this. Of each project, definitions first, each
manifest is sent with one broken field (--broken copies, chosen by --seed, as dry runs), created as it is with strict
validation, applied by another manager, read in all forms (JSON, YAML, protobuf, Table, metadata only), and, all of a project at
once, by kubectl in its output forms; then it is deleted. Compared are status, warnings and whole answers without what a server
generates. Neither server may have controllers. Needs PyYAML.
"""

import argparse
import collections
import concurrent.futures
import http.client
import json
import pathlib
import re
import ssl
import subprocess
import tempfile
import time
import urllib.parse

import corpus_documents
import corpus_protobuf
from sequences import first_difference

TLS = ssl._create_unverified_context()
JSON, YAML, PROTOBUF = "application/json", "application/yaml", "application/vnd.kubernetes.protobuf"
APPLY = "application/apply-patch+yaml"
TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"
PARTIAL = "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io"
FORMS = [["-o", "yaml"], ["-o", "json"], ["-o", "name"], ["-o", "wide"], ["--show-labels"],
         ["-o", "jsonpath={range .items[*]}{.kind}/{.metadata.name} {.spec}{\"\\n\"}{end}"],
         ["-o", "custom-columns=KIND:.kind,NAME:.metadata.name,LABELS:.metadata.labels,SPEC:.spec"]]
# How many differences at one place are shown without -v.
SHOWN_MAX = 20
UID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
TIME = re.compile(r"(?:20[2-9]\d-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?Z|(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun), \d\d \w{3} 20\d\d \d\d:\d\d:\d\d \+0000)")
VERSION = re.compile(r"((?:resource version|resourceVersion|ResourceVersion|Resource Version)[^0-9a-zA-Z]{0,60})\d+")
ADDRESS = re.compile(r"\b10\.0\.0\.\d+\b")
PORT = re.compile(r"((?:nodePort|NodePort|healthCheckNodePort|HealthCheck NodePort)[^0-9\n]{0,30}|NodePort:\s+\S+\s+)3[0-2]\d\d\d\b|(?<=:)3[0-2]\d\d\d(?=/)")
TOKEN_VOLUME = re.compile(r"(?<=kube-api-access-)[a-z0-9]{5}\b")
# An unknown field or a value of another type ends the check of its map, whose order is that of Go maps.
TYPED = re.compile(r"(failed to create typed \w+ object \([^)]*\)): .*", re.DOTALL)
STRUCT = re.compile(r"Invalid value: \{.{200,}\}: ")
DIFFERENCE = re.compile(r"\n(?:@@ |[-+] ).*", re.DOTALL)
AGE = re.compile(r"\b(?:\d+m)?\d+s\b")
# Kinds whose status the server itself writes, at any time.
OWN_STATUS = {"APIService", "FlowSchema", "PriorityLevelConfiguration", "ValidatingAdmissionPolicy"}


class Server:
    """A server, with one connection."""

    def __init__(self, url, token):
        self.url, self.token, self.connection, self.paths = urllib.parse.urlsplit(url), token, None, {}

    def send(self, method, path, body=None, content_type=JSON, accept=JSON):
        """Returns the status, the headers that are compared, and the bytes of an answer."""
        head = {"Authorization": f"Bearer {self.token}", "Accept": accept, "Content-Type": content_type}
        data = body.encode() if isinstance(body, str) else None if body is None else json.dumps(body).encode()
        for is_last in (False, True):
            try:
                if self.connection is None:
                    self.connection = http.client.HTTPSConnection(self.url.hostname, self.url.port, timeout=60, context=TLS)
                self.connection.request(method, path, body=data, headers=head)
                response = self.connection.getresponse()
                answer = response.read()
                return response.status, [response.headers.get_all("Warning") or [], response.headers.get("Content-Type")], answer
            except (http.client.HTTPException, OSError) as fault:
                self.connection = None
                if is_last:
                    return 0, [type(fault).__name__], b""
        return None

    def path_of(self, version, kind):
        """Returns the collection of a kind and whether it is namespaced; `None` if the server has no such kind."""
        if (version, kind) not in self.paths:
            root = f"/apis/{version}" if "/" in version else f"/api/{version}"
            status, _, body = self.send("GET", root)
            resources = json.loads(body).get("resources", []) if status == 200 else []
            for resource in resources:
                if "/" not in resource["name"]:
                    self.paths[version, resource["kind"]] = f"{root}%s/{resource['name']}", resource["namespaced"]
        return self.paths.get((version, kind))


def clean(text):
    """Replaces what a server generates in a text."""
    text = VERSION.sub(r"\1<rv>", TIME.sub("<time>", UID.sub("<uid>", TOKEN_VOLUME.sub("<any>", text))))
    return PORT.sub(lambda found: (found.group(1) or "") + "<port>", ADDRESS.sub("<ip>", text))


def normal(value, key=""):
    """Replaces what a server generates in an answer."""
    if isinstance(value, dict):
        if str(value.get("kind")) in OWN_STATUS and isinstance(value.get("metadata"), dict):
            value = {name: inner for name, inner in value.items() if name != "status"}
        return {name: normal(value[name], name) for name in sorted(value)}
    if isinstance(value, list):
        if key == "managedFields":
            value = [entry for entry in value if not isinstance(entry, dict) or entry.get("manager") not in ("kube-apiserver", "api-priority-and-fairness-config-consumer-v1")]
        items = [normal(item, key) for item in value]
        # Of causes the order is that of Go maps, of the conditions of a definition that of two control loops.
        return sorted(items, key=json.dumps) if key in ("managedFields", "causes", "conditions") else items
    if isinstance(value, str):
        if key == "cells":
            value = AGE.sub("<age>", value)
        if key == "message":
            # COMPAT.md: a changed spec is shown as a difference of Go structs or of JSON, some structs likewise.
            value = STRUCT.sub("Invalid value: <struct>: ", DIFFERENCE.sub("\n<difference>", value))
            value = TYPED.sub(r"\1: <errors>", value)
        return "<rv>" if key == "resourceVersion" else clean(value)
    return "<port>" if key in ("nodePort", "healthCheckNodePort") else value


def answer_of(status, head, body, accept):
    """Returns what is compared of an answer."""
    if accept == PROTOBUF and status == 200 and body[:4] == b"k8s\x00":
        return status, head, corpus_protobuf.object_tree(body, lambda text: "<n>" if text.isdigit() else clean(text))
    try:
        value = normal(json.loads(body))
    except ValueError:
        return status, head, clean(body.decode(errors="replace"))
    if isinstance(value, dict) and value.get("kind") == "Status" and status >= 400:
        causes = (value.get("details") or {}).get("causes") or []
        if len(causes) > 1:
            # The message has them in an order that is that of Go maps.
            value["message"] = None
    if isinstance(value, dict) and value.get("kind") == "Table":
        for column in value.get("columnDefinitions") or []:
            column.pop("description", None)
    return status, sorted(map(str, head[0])) + head[1:] if head else head, value


def excerpt(value, other):
    """Returns the part of a value in which it begins to differ from another."""
    text, different = json.dumps(value), json.dumps(other)
    at = next((at for at, pair in enumerate(zip(text, different)) if pair[0] != pair[1]), 0)
    return text[max(0, at - 80):at + 300]


class Comparison:
    """Sends requests to both servers and counts what they answer."""

    def __init__(self, servers, verbose):
        self.servers, self.verbose = servers, verbose
        self.total, self.different = collections.Counter(), collections.Counter()
        self.pool = concurrent.futures.ThreadPoolExecutor(2)
        self.shown = collections.Counter()
        self.project = ""

    def each(self, method, path, body=None, content_type=JSON, accept=JSON):
        """Sends a request to both, without comparing. Returns the answers."""
        return list(self.pool.map(lambda server: server.send(method, path, body, content_type, accept), self.servers))

    def ask(self, what, label, method, path, body=None, content_type=JSON, accept=JSON):
        """Sends a request to both, and compares. Returns the status of the answers if it is the same, else 0."""
        answers = self.each(method, path, body, content_type, accept)
        want, got = (answer_of(*answer, accept) for answer in answers)
        self.count(what, label, f"{method} {path}", body, want, got)
        return answers[0][0] if answers[0][0] == answers[1][0] else 0

    def count(self, what, label, request, body, want, got):
        self.total[what] += 1
        if want == got:
            return
        self.different[what] += 1
        place, one, other = first_difference(want, got)
        self.shown[place.split("[")[0], what] += 1
        if self.verbose or self.shown[place.split("[")[0], what] <= SHOWN_MAX:
            print(f"DIFFERENT {what}: {self.project} {label}\n    {request}")
            if self.verbose and body is not None:
                print(f"    body {(body if isinstance(body, str) else json.dumps(body))[:3000]}")
            print(f"    at {place}\n    want {excerpt(one, other)}\n    got  {excerpt(other, one)}", flush=True)


class Project:
    """The manifests of a project, compared."""

    def __init__(self, comparison, source, options):
        self.comparison, self.options = comparison, options
        self.documents = corpus_documents.read(source["folder"], source["globs"], options.objects)
        self.created, self.definitions, self.unserved = [], [], 0
        comparison.project = source["name"]

    def run(self):
        """Returns the number of manifests that were sent and that were created."""
        self.prepare()
        sent = 0
        definitions = [document for document in self.documents if document.kind == "CustomResourceDefinition"]
        for document in definitions:
            sent += self.compare(document)
        self.wait_for_definitions()
        for document in self.documents:
            if document.kind != "CustomResourceDefinition":
                sent += self.compare(document)
        self.run_kubectl()
        created = len(self.created)
        self.remove_all()
        return sent, created

    def prepare(self):
        """Creates what manifests presuppose: namespaces and service accounts."""
        namespaces = {document.namespace for document in self.documents}
        for namespace in sorted(namespaces - {"default", "kube-system"}):
            self.comparison.each("POST", "/api/v1/namespaces", {"metadata": {"name": namespace}})
        for namespace in sorted(namespaces):
            accounts = {"default"} | {account for document in self.documents if document.namespace == namespace
                                      for account in [document.value.get("spec", {})] if isinstance(account, dict)
                                      for account in [account.get("serviceAccountName")] if isinstance(account, str)}
            for account in sorted(accounts):
                self.comparison.each("POST", f"/api/v1/namespaces/{namespace}/serviceaccounts", {"metadata": {"name": account}})

    def compare(self, document):
        """Compares all requests about a manifest. Returns whether the server has its kind."""
        found = self.comparison.servers[0].path_of(document.version, document.kind)
        if found is None:
            self.unserved += 1
            return False
        root, namespaced = found
        collection = root % (f"/namespaces/{document.namespace}" if namespaced else "")
        ask, label = self.comparison.ask, document.label
        for what, broken in corpus_documents.broken_copies(document, self.options.seed, self.options.broken):
            query = "?dryRun=All&fieldValidation=Strict&fieldManager=kubectl-create"
            ask("broken create", f"{label}: {what}", "POST", collection + query, broken)
        text, media = document.text, YAML
        if document.kind == "CustomResourceDefinition" and "conversion" in document.value.get("spec", {}):
            ask("create", label, "POST", f"{collection}?dryRun=All&fieldValidation=Strict&fieldManager=kubectl-create", text, media)
            # Nobody serves the webhook.
            text = json.dumps({**document.value, "spec": {**document.value["spec"], "conversion": None}})
        status = ask("create", label, "POST", f"{collection}?fieldValidation=Strict&fieldManager=kubectl-create", text, media)
        if status in (400, 422):
            # Unknown fields, most often of another version of the project.
            status = ask("create", label, "POST", f"{collection}?fieldManager=kubectl-create", text, media)
        if status != 201:
            return True
        path = f"{collection}/{document.name}"
        self.created.append((document, path))
        if document.kind == "CustomResourceDefinition":
            self.definitions.append(path)
            # Its conditions follow at any time.
            return True
        if document.kind in ("APIService", "FlowSchema"):
            # A loop of the server writes them, before or after the requests that follow.
            self.wait_for_conditions(path)
        self.read_and_apply(document, path, text)
        if document.kind in corpus_documents.INTRUSIVE:
            self.remove(*self.created.pop())
        return True

    def read_and_apply(self, document, path, text):
        """Compares the forms of an object, and applies of it."""
        ask, label = self.comparison.ask, document.label
        query = "?fieldManager=corpus&fieldValidation=Strict"
        ask("apply", label, "PATCH", path + query, text, APPLY)
        ask("apply", label, "PATCH", path + query + "&force=true", text, APPLY)
        for what, broken in corpus_documents.broken_copies(document, f"{self.options.seed}/apply", self.options.broken // 2):
            ask("broken apply", f"{label}: {what}", "PATCH", f"{path}{query}&dryRun=All&force=true", broken, APPLY)
        for what, broken in corpus_documents.broken_copies(document, f"{self.options.seed}/merge", self.options.broken // 2):
            ask("broken merge patch", f"{label}: {what}", "PATCH", f"{path}{query}&dryRun=All", broken, "application/merge-patch+json")
        for form in (JSON, YAML, TABLE, PARTIAL, PROTOBUF):
            if form != PROTOBUF or is_built_in(document.version):
                ask("read", f"{label} as {form}", "GET", path, accept=form)

    def wait_for_conditions(self, path, enough=bool):
        """Waits until the conditions of an object are enough on both servers, by default any."""
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            bodies = [json.loads(answer[2]) for answer in self.comparison.each("GET", path)]
            states = [{one["type"]: one["status"] for one in (body.get("status") or {}).get("conditions") or []} for body in bodies]
            if all(enough(state) for state in states):
                break
            time.sleep(0.05)

    def wait_for_definitions(self):
        """Waits until both servers serve the new definitions."""
        for path in self.definitions:
            self.wait_for_conditions(path, lambda state: state.get("Established") == "True" or state.get("NamesAccepted") == "False")
        if self.definitions:
            # A kube-apiserver serves them a moment later.
            time.sleep(2)
        for path in self.definitions:
            self.comparison.ask("definition", path, "GET", path)

    def run_kubectl(self):
        """Compares what kubectl prints of all created objects."""
        program = self.options.kubectl
        if program is None or not self.created:
            return
        # The conditions of an approved definition are written by two control loops, in any order.
        shown = [document for document, _ in self.created
                 if document.kind != "CustomResourceDefinition" or not is_protected(document.name)]
        with tempfile.TemporaryDirectory() as folder:
            items = [{"apiVersion": document.version, "kind": document.kind,
                      "metadata": {"name": document.name, "namespace": document.namespace}} for document in shown]
            manifest = pathlib.Path(folder, "all.json")
            manifest.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": items}))
            calls = [["get", "-f", str(manifest), *form] for form in FORMS] + [["describe", "-f", str(manifest)]]
            for call in calls:
                def run(at, server):
                    url = f"https://{server.url.netloc}"
                    command = [program, "--server", url, "--token", server.token, "--insecure-skip-tls-verify",
                               f"--cache-dir={folder}/{at}", *call]
                    done = subprocess.run(command, capture_output=True, check=False, timeout=300)
                    return [done.returncode, *(self.lines(text) for text in (done.stdout, done.stderr))]
                want, got = self.comparison.pool.map(lambda pair: run(*pair), enumerate(self.comparison.servers))
                self.comparison.count("kubectl", " ".join(call[:1] + call[3:])[:60], "kubectl", None, want, got)

    def lines(self, text):
        text = clean(text.decode(errors="replace"))
        for server in self.comparison.servers:
            text = text.replace(server.url.netloc, "<server>")
        # Ages, and the widths of columns with them.
        return [re.sub(r" {2,}", "  ", AGE.sub("<age>", line)).rstrip() for line in text.splitlines()]

    def remove(self, document, path):
        status = self.comparison.ask("delete", document.label, "DELETE", f"{path}?propagationPolicy=Background&gracePeriodSeconds=0")
        if status == 200 and "finalizers" in document.value["metadata"]:
            self.comparison.each("PATCH", path, {"metadata": {"finalizers": None}}, "application/merge-patch+json")

    def remove_all(self):
        definitions = [pair for pair in self.created if pair[0].kind == "CustomResourceDefinition"]
        for pair in self.created:
            # Namespaces would stay in deletion: nobody empties them.
            if pair[0].kind not in ("CustomResourceDefinition", "Namespace"):
                self.remove(*pair)
        for pair in definitions:
            self.comparison.each("DELETE", pair[1])
        deadline = time.monotonic() + 60
        for _, path in definitions:
            while time.monotonic() < deadline and any(answer[0] != 404 for answer in self.comparison.each("GET", path)):
                time.sleep(0.1)
        for server in self.comparison.servers:
            server.paths.clear()


def is_protected(name):
    return name.endswith((".k8s.io", ".kubernetes.io"))


def is_built_in(version):
    group = version.split("/")[0]
    return "." not in group or group.endswith(".k8s.io") and "x-k8s.io" not in group


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("want")
    parser.add_argument("got")
    parser.add_argument("token")
    parser.add_argument("sources")
    parser.add_argument("--kubectl", help="the program; without it nothing is read by kubectl")
    parser.add_argument("--broken", type=int, default=4, help="broken copies of each manifest (half as many of applies and patches)")
    parser.add_argument("--objects", type=int, default=15, help="most manifests of one kind in a project")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", help="a part of the names of the projects to compare")
    parser.add_argument("-v", action="store_true", help="print all differences, and the bodies")
    options = parser.parse_args()
    sources = [json.loads(line) for line in pathlib.Path(options.sources).read_text().splitlines()]
    servers = [Server(options.want, options.token), Server(options.got, options.token)]
    comparison, began, projects, all_sent = Comparison(servers, options.v), time.monotonic(), 0, 0
    for source in sources:
        if options.only is not None and options.only not in source["name"]:
            continue
        before = sum(comparison.total.values()), sum(comparison.different.values())
        project = Project(comparison, source, options)
        sent, created = project.run()
        answers = sum(comparison.total.values()) - before[0]
        different = sum(comparison.different.values()) - before[1]
        projects, all_sent = projects + (sent > 0), all_sent + sent
        print(f"{source['name']}: {len(project.documents)} manifests, {project.unserved} of kinds that are not served, {created} created, "
              f"{answers} answers, {different} differ", flush=True)
    for what, total in sorted(comparison.total.items()):
        print(f"{what}: {total - comparison.different[what]} of {total} alike")
    total, different = sum(comparison.total.values()), sum(comparison.different.values())
    print(f"{projects} projects, {all_sent} manifests: {total - different} of {total} answers alike; {time.monotonic() - began:.0f} s")
    raise SystemExit(different > 0)


if __name__ == "__main__":
    main()
