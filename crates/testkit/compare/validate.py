"""Compares `keelson validate` with a server: python3 validate.py URL TOKEN PROGRAM [--cases N] [--seed S] [-v].

URL is that of an empty kube-apiserver 1.36 (or any other server), PROGRAM the program keelson. Creates the objects on which
others depend on the server, changes valid manifests in random places, and compares what the server says to each as a dry
run with strict field validation with what PROGRAM says to all of them: code, reason, message and causes. Prints how many
verdicts were equal, and the first that were not. Needs only the standard library.
"""

import argparse
import collections
import copy
import http.client
import json
import pathlib
import random
import ssl
import subprocess
import tempfile
import time
import urllib.parse

MANIFESTS = pathlib.Path(__file__).parents[2] / "keelson/tests/it/files/manifests.json"
VALUES = [-1, 0, 1, 70000, 2**40, 1.5, "", "a", "Not Valid!", "a" * 300, "1Gi", "10%", True, False, None, [], ["a"], {},
          {"unknown": True}, [{"name": "a"}], "2026-01-01T00:00:00Z", "*", "/", "Always", "TCP"]


class Server:
    """A connection to a server."""

    def __init__(self, url, token):
        url = urllib.parse.urlsplit(url)
        context = ssl._create_unverified_context()
        if url.scheme == "https":
            self.connection = http.client.HTTPSConnection(url.netloc, context=context)
        else:
            self.connection = http.client.HTTPConnection(url.netloc)
        self.headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}

    def post(self, path, value):
        self.connection.request("POST", path, json.dumps(value), self.headers)
        response = self.connection.getresponse()
        return response.status, json.loads(response.read())


def collection(value):
    """Returns the path of the collection of an object."""
    version, kind = value["apiVersion"], value["kind"].lower()
    if kind.endswith("y"):
        plural = kind[:-1] + "ies"
    else:
        plural = kind + ("es" if kind.endswith("s") else "s")
    root = f"/apis/{version}" if "/" in version else f"/api/{version}"
    namespace = value["metadata"].get("namespace")
    return f"{root}/namespaces/{namespace}/{plural}" if namespace else f"{root}/{plural}"


def places(value, path=()):
    """Lists the places of all members and items, but those that say where an object belongs."""
    members = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for name, inner in members:
        here = path + (name,)
        if here not in {("kind",), ("apiVersion",), ("metadata",), ("metadata", "namespace")}:
            yield here
            yield from places(inner, here)


def change(rng, base):
    """Returns a copy with one to three changes."""
    value = copy.deepcopy(base)
    for _ in range(rng.choice([1, 1, 1, 2, 3])):
        path = rng.choice(list(places(value)))
        parent = value
        for name in path[:-1]:
            parent = parent[name]
        how = rng.random()
        if how < 0.2:
            del parent[path[-1]]
        elif how < 0.3 and isinstance(parent, list):
            parent.append(copy.deepcopy(parent[path[-1]]))
        elif how < 0.4 and isinstance(parent, dict):
            parent[str(path[-1]) + "s"] = parent[path[-1]]
        else:
            # Values of another type are refused by the decoder, which is soon known.
            alike = [one for one in VALUES if type(one) is type(parent[path[-1]])]
            parent[path[-1]] = copy.deepcopy(rng.choice(alike if alike and rng.random() < 0.8 else VALUES))
        if not list(places(value)):
            break
    return value


def verdict(status, body):
    """Returns what is compared of an answer."""
    if status == 201:
        return {"code": 201}
    causes = (body.get("details") or {}).get("causes") or []
    # kube-apiserver visits the properties of a schema in random order, in which its errors are.
    causes.sort(key=json.dumps)
    message = body.get("message") if len(causes) < 2 else None
    return {"code": body.get("code"), "reason": body.get("reason"), "message": message, "causes": causes}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("url")
    parser.add_argument("token")
    parser.add_argument("program")
    parser.add_argument("--cases", type=int, default=5000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("-v", action="store_true", help="print all differences")
    options = parser.parse_args()
    rng = random.Random(options.seed)
    manifests = json.loads(MANIFESTS.read_text())
    server = Server(options.url, options.token)
    for value in manifests["context"]:
        status, body = server.post(collection(value), value)
        if status not in (201, 409):
            raise SystemExit(f"{value['metadata']['name']}: {body}")
    # Policies and definitions count a moment after they were stored.
    time.sleep(3)
    bases = manifests["bases"]
    cases = list(bases) + [change(rng, rng.choice(bases)) for _ in range(options.cases - len(bases))]
    with tempfile.TemporaryDirectory() as folder:
        given, context = pathlib.Path(folder, "given.json"), pathlib.Path(folder, "context.json")
        given.write_text("\n".join(map(json.dumps, cases)))
        context.write_text("\n".join(json.dumps(value) for value in manifests["context"]))
        began = time.perf_counter()
        arguments = [options.program, "validate", "-o", "json", "--crds", str(context), str(given)]
        output = subprocess.run(arguments, capture_output=True, check=False).stdout
        took = time.perf_counter() - began
    results = json.loads(output)["results"]
    codes, equal, equal_codes, shown = collections.Counter(), 0, 0, 0
    for case, result in zip(cases, results):
        query = "?dryRun=All&fieldValidation=Strict&fieldManager=kubectl-create"
        want = verdict(*server.post(collection(case) + query, case))
        got = {"code": 201} if result["valid"] else verdict(0, result["status"])
        codes[want["code"]] += 1
        equal += want == got
        equal_codes += want["code"] == got["code"]
        if want != got and (options.v or shown < 5):
            shown += 1
            print(json.dumps(case), "\n  want", json.dumps(want), "\n  got ", json.dumps(got))
    print(f"{equal} of {len(cases)} verdicts equal, {equal_codes} codes equal, codes {dict(codes)}, validated in {took:.2f} s")


main()
