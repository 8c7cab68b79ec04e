"""What many CustomResourceDefinitions cost a server: python3 many_definitions.py URL TOKEN FOLDER --pid PID [--count N].

Makes N definitions out of those of FOLDER (JSON files, searched below it too) under changed groups, and says what they take
of memory, how long it takes from a definition until an object of it can be made, how long other writes take beside them,
and how long the OpenAPI documents take. PID is the server's, on this host. The standard library is enough.

Times of a busy machine say little; the processor time of the server is said beside them: what it takes must not grow
with the number of definitions.
"""

import argparse
import http.client
import json
import os
import pathlib
import ssl
import time
import urllib.parse

DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
MAPS = "/api/v1/namespaces/default/configmaps"
BLOCK = 100
PROBES = 200
MAPS_MADE = 1000
SERVED_SECONDS_MAX = 10


class Server:
    """One connection to a server."""

    def __init__(self, url, token):
        url = urllib.parse.urlsplit(url)
        if url.scheme == "https":
            context = ssl._create_unverified_context()
            self.connection = http.client.HTTPSConnection(url.hostname, url.port, context=context)
        else:
            self.connection = http.client.HTTPConnection(url.hostname, url.port)
        self.headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}

    def call(self, method, path, body=None):
        text = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        self.connection.request(method, path, text, self.headers)
        answer = self.connection.getresponse()
        return answer.status, answer.read()


def documents(folder):
    found = []
    for path in sorted(pathlib.Path(folder).rglob("*.json")):
        document = json.loads(path.read_text())
        if document.get("kind") == "CustomResourceDefinition":
            document["spec"].pop("conversion", None)
            document.pop("status", None)
            found.append(document)
    return found


def under(document, group):
    """The same definition in another group."""
    copy = json.loads(json.dumps(document))
    copy["spec"]["group"] = f"{group}.{document['spec']['group']}"
    annotations = document["metadata"].get("annotations", {})
    copy["metadata"] = {"name": f"{copy['spec']['names']['plural']}.{copy['spec']['group']}", "annotations": annotations}
    return copy


def resident(pid):
    with open(f"/proc/{pid}/status") as status:
        return next(int(line.split()[1]) / 1024 for line in status if line.startswith("VmRSS"))


def processor(pid):
    """Milliseconds of processor time that the server has taken so far."""
    with open(f"/proc/{pid}/stat") as stat:
        fields = stat.read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) * 1000 / os.sysconf("SC_CLK_TCK")


def settled(pid):
    """Resident MiB once they no longer change, or after half a minute."""
    before, deadline = resident(pid), time.time() + 30
    while time.time() < deadline:
        time.sleep(3)
        now = resident(pid)
        if abs(now - before) < 0.2:
            break
        before = now
    return resident(pid)


def spread(name, seconds, taken):
    ordered = sorted(seconds)
    at = lambda share: ordered[min(len(ordered) - 1, int(len(ordered) * share))] * 1000
    print(f"{name}: p50 {at(0.5):.2f} ms, p99 {at(0.99):.2f} ms, most {at(1):.2f} ms ({len(ordered)}); "
          f"processor {taken:.2f} ms each", flush=True)


def made_maps(server, pid, prefix, name):
    seconds, taken = [], processor(pid)
    for number in range(MAPS_MADE):
        body = {"kind": "ConfigMap", "apiVersion": "v1", "metadata": {"name": f"{prefix}{number}"}, "data": {"a": "b"}}
        began = time.perf_counter()
        status, answer = server.call("POST", MAPS, body)
        seconds.append(time.perf_counter() - began)
        assert status == 201, answer
    spread(name, seconds, (processor(pid) - taken) / MAPS_MADE)


def probe(number):
    """A small definition and an object of it."""
    group = f"probe{number}.example.com"
    schema = {"type": "object", "properties": {"spec": {"type": "object", "properties": {"a": {"type": "string"}}}}}
    names = {"plural": "probes", "singular": "probe", "kind": "Probe", "listKind": "ProbeList"}
    version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    definition = {"kind": "CustomResourceDefinition", "apiVersion": "apiextensions.k8s.io/v1",
                  "metadata": {"name": f"probes.{group}"},
                  "spec": {"group": group, "scope": "Cluster", "names": names, "versions": [version]}}
    made = {"kind": "Probe", "apiVersion": f"{group}/v1", "metadata": {"name": "a"}, "spec": {"a": "b"}}
    return definition, f"/apis/{group}/v1/probes", made


def served(server, definition, path, obj):
    """Seconds from the answer to the definition until an object was made, and those of the definition's own write."""
    sent = time.perf_counter()
    status, answer = server.call("POST", DEFINITIONS, definition)
    began = time.perf_counter()
    assert status == 201, answer
    body = json.dumps(obj).encode()
    while True:
        status, answer = server.call("POST", path, body)
        if status != 404:
            break
        assert time.perf_counter() - began < SERVED_SECONDS_MAX, answer
    assert status == 201, answer
    return time.perf_counter() - began, began - sent


def make_definitions(server, pid, found, count):
    """Makes so many definitions; the bytes of their JSON and the last one."""
    json_bytes, seconds, last, taken = 0, [], None, processor(pid)
    block, began_at = taken, 0
    for number in range(count):
        last = under(found[number % len(found)], f"g{number // len(found)}")
        body = json.dumps(last, separators=(",", ":")).encode()
        began = time.perf_counter()
        status, answer = server.call("POST", DEFINITIONS, body)
        seconds.append(time.perf_counter() - began)
        assert status == 201, answer[:1000]
        json_bytes += len(body)
        if (number + 1) % BLOCK == 0:
            now = processor(pid)
            megabytes = (json_bytes - began_at) / 1e6
            print(f"definitions {number + 2 - BLOCK} to {number + 1}: processor {(now - block) / BLOCK:.1f} ms each, "
                  f"{(now - block) / megabytes:.1f} ms a MB", flush=True)
            block, began_at = now, json_bytes
    spread(f"create of a definition of {json_bytes / count / 1000:.0f} kB", seconds, (processor(pid) - taken) / count)
    return json_bytes, last


def documents_taken(server, pid, path):
    """Says what a document costs when it is first asked for, and then."""
    for turn, times in [("first", 1), ("then", 5)]:
        taken, began = processor(pid), time.perf_counter()
        for _ in range(times):
            status, answer = server.call("GET", path)
        took = (time.perf_counter() - began) * 1000 / times
        print(f"{path}, {turn}: {status}, {len(answer)} bytes, {took:.1f} ms, "
              f"processor {(processor(pid) - taken) / times:.1f} ms", flush=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("url")
    parser.add_argument("token")
    parser.add_argument("folder")
    parser.add_argument("--pid", type=int, required=True)
    parser.add_argument("--count", type=int, default=1000)
    given = parser.parse_args()
    server = Server(given.url, given.token)
    found = documents(given.folder)
    pid = given.pid
    made_maps(server, pid, "warm", "create of a ConfigMap, warming up")
    made_maps(server, pid, "before", "create of a ConfigMap, no definitions")
    before = settled(pid)
    json_bytes, last = make_definitions(server, pid, found, given.count)
    grown = settled(pid) - before
    each, goal = grown * 1048.576 / given.count, (1.25 * json_bytes / given.count + 40_000) / 1000
    print(f"resident: {before:.0f} MiB before, {grown:.0f} MiB more with {given.count}: "
          f"{each:.0f} kB each (goal {goal:.0f})", flush=True)
    taken = processor(pid)
    times = [served(server, *probe(number)) for number in range(PROBES)]
    taken = (processor(pid) - taken) / PROBES
    spread("from a definition's answer until an object is made", [one for one, _ in times], taken)
    spread("the definition's own write", [one for _, one in times], taken)
    made_maps(server, pid, "after", "create of a ConfigMap beside them")
    group, version = last["spec"]["group"], last["spec"]["versions"][0]["name"]
    for path in [f"/openapi/v3/apis/{group}/{version}", "/openapi/v3", "/openapi/v2", "/apis"]:
        documents_taken(server, pid, path)
    print(f"resident after the documents: {settled(pid):.0f} MiB")


main()
