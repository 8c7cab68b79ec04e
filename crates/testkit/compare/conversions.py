"""Compares two servers whose conversion webhook misbehaves: python3 conversions.py WANT_URL GOT_URL TOKEN [--only NAME] [-v].

The program is the webhook. For each of its behaviors it defines a kind with two versions on both servers, stores objects in
one version, and reads, lists, watches, writes and deletes them in the other. Compared are status codes, messages and the
converted objects. Prints how many responses were equal, and those that differ. Needs only the standard library and openssl.

Known differences of Keelson: it follows no redirect, does not decode gzip, which it never asks for, nests JSON less deeply, and
converts the objects of a list and of a collection's deletion in one call, where kube-apiserver calls once for each.
"""

import argparse
import concurrent.futures
import copy
import http.client
import http.server
import json
import pathlib
import re
import ssl
import subprocess
import tempfile
import threading
import time
import urllib.parse

DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
JSON, MERGE, APPLY = "application/json", "application/merge-patch+json", "application/apply-patch+yaml"
NAMES = ["a", "b", "c"]
# Behaviors that are tried at the same time. Most of the time goes by while kube-apiserver fills its watch caches.
AT_ONCE = 8
SETTLE_SECONDS = 30


# What the webhook does with a correct review. Each behavior returns the bytes of a body, or sends its response by itself.

def converted(review):
    """Returns the review with a correct response."""
    request = review["request"]
    objects = copy.deepcopy(request["objects"])
    for one in objects:
        one["apiVersion"] = request["desiredAPIVersion"]
    response = {"uid": request["uid"], "convertedObjects": objects, "result": {"status": "Success"}}
    return {"apiVersion": review["apiVersion"], "kind": review["kind"], "response": response}


def text(value):
    return json.dumps(value).encode()


def each(change):
    """Returns a behavior that changes each converted object."""
    def behave(review, _):
        answer = converted(review)
        for one in answer["response"]["convertedObjects"]:
            change(one)
        return text(answer)
    return behave


def metadata(**changes):
    return each(lambda one: one["metadata"].update(changes))


def spec_text(given):
    """Returns a behavior whose objects have this text as their spec."""
    def behave(review, _):
        answer = converted(review)
        for one in answer["response"]["convertedObjects"]:
            one["spec"] = "SPEC"
        return text(answer).replace(b'"SPEC"', given)
    return behave


def response_text(before, after):
    """Returns a behavior that replaces a text of the response."""
    return lambda review, _: text(converted(review)).replace(before, after)


def around(before=b"", after=b""):
    return lambda review, _: before + text(converted(review)) + after


def answered(code, headers=(), body=None):
    """Returns a behavior with another status code and more headers."""
    def behave(review, handler):
        sent = text(converted(review)) if body is None else body
        handler.send_response(code)
        for name, value in headers:
            handler.send_header(name, value)
        handler.send_header("Content-Length", str(len(sent)))
        handler.end_headers()
        handler.wfile.write(sent)
    return behave


def cut(review, handler):
    body = text(converted(review))
    handler.send_response(200)
    handler.send_header("Content-Type", JSON)
    handler.send_header("Content-Length", str(len(body)))
    handler.end_headers()
    handler.wfile.write(body[:len(body) // 2])
    handler.close_connection = True


def closed(_, handler):
    handler.close_connection = True


def chunked(review, handler):
    body = text(converted(review))
    handler.send_response(200)
    handler.send_header("Content-Type", JSON)
    handler.send_header("Transfer-Encoding", "chunked")
    handler.end_headers()
    for at in range(0, len(body), 100):
        part = body[at:at + 100]
        handler.wfile.write(b"%x\r\n%s\r\n" % (len(part), part))
    handler.wfile.write(b"0\r\n\r\n")


def of_two(change):
    """Returns a behavior that changes the list of objects when there are several."""
    def behave(review, _):
        answer = converted(review)
        objects = answer["response"]["convertedObjects"]
        if len(objects) > 1:
            change(objects)
        return text(answer)
    return behave


def result(**status):
    def behave(review, _):
        answer = converted(review)
        answer["response"]["result"] = status
        return text(answer)
    return behave


def nested(depth):
    return spec_text(b'{"x":' + b"[" * depth + b"]" * depth + b"}")


BEHAVIORS = {
    "converts": around(),
    "fails": result(status="Failure", message="no luck", code=403),
    "fails with a long message": result(status="Failure", message="m" * 20000),
    "fails without a message": result(status="Failure"),
    "success in small letters": result(status="success"),
    "success with a code of failure": result(status="Success", code=500, message="m"),
    "chunked": chunked,
    "cut body": cut,
    "closed connection": closed,
    "201": answered(201),
    "204": answered(204, body=b""),
    "300": answered(300),
    "307 to another path": answered(307, [("Location", "/converts")]),
    "301 to another path": answered(301, [("Location", "/converts")], b""),
    "401": answered(401, body=b"who"),
    "409 with a status": answered(409, [("Content-Type", JSON)], text(
        {"kind": "Status", "apiVersion": "v1", "status": "Failure", "message": "m", "reason": "Conflict", "code": 409})),
    "503": answered(503, body=b"later"),
    "text/plain": answered(200, [("Content-Type", "text/plain")]),
    "protobuf": answered(200, [("Content-Type", "application/vnd.kubernetes.protobuf")]),
    "a name of an encoding": answered(200, [("Content-Type", JSON), ("Content-Encoding", "gzip")]),
    "space around": around(b"\n\t ", b" \r\n"),
    "a byte order mark": around(b"\xef\xbb\xbf"),
    "text behind": around(after=b"x"),
    "two documents": around(after=b'{"kind":"ConversionReview"}'),
    "YAML": lambda review, _: ("kind: ConversionReview\napiVersion: %s\nresponse: %s\n" % (
        review["apiVersion"], json.dumps(converted(review)["response"]))).encode(),
    "a cut text": lambda review, _: text(converted(review))[:-3],
    "nested 200": nested(200),
    "nested 20,000": nested(20000),
    "long text": spec_text(b'{"x":"' + b"l" * 2_000_000 + b'"}'),
    "many members": lambda review, _: text({**converted(review), **{f"k{n}": n for n in range(20000)}}),
    "response twice": lambda review, _: text(converted(review)).replace(b'"response"', b'"response":{"uid":"x"},"response"', 1),
    "uid twice": response_text(b'"uid":', b'"uid":"x","uid":'),
    "spec twice": response_text(b'"spec":', b'"spec":{"x":"first"},"spec":'),
    "metadata twice": response_text(b'"metadata":', b'"metadata":{"name":"zz"},"metadata":'),
    "members in other case": response_text(b'"convertedObjects"', b'"ConvertedObjects"'),
    "spec is null": spec_text(b"null"),
    "spec is text": spec_text(b'"a"'),
    "spec is a list": spec_text(b"[1]"),
    "unknown field": spec_text(b'{"x":"y","odd":[1,{"a":null}]}'),
    "wrong type": spec_text(b'{"x":{"y":1}}'),
    "null field": spec_text(b'{"x":null}'),
    "NaN": spec_text(b'{"x":NaN}'),
    "huge number": spec_text(b'{"n":1e400}'),
    "long integer": spec_text(b'{"n":123456789012345678901234567890}'),
    "float": spec_text(b'{"n":1.50}'),
    "invalid UTF-8": spec_text(b'{"x":"\xff\xfe"}'),
    "half a surrogate": spec_text(b'{"x":"\\ud800"}'),
    "control character": spec_text(b'{"x":"a\x01"}'),
    "NUL": spec_text(b'{"x":"\\u0000"}'),
    "name is a number": metadata(name=1),
    "name is null": metadata(name=None),
    "uid is a number": metadata(uid=5),
    "uid is a list": metadata(uid=[]),
    "namespace is a map": metadata(namespace={}),
    "labels with null": metadata(labels={"a": None}),
    "labels is a list": metadata(labels=[]),
    "annotations with a map": metadata(annotations={"a": {}}),
    "many annotations": metadata(annotations={f"a{n}": "v" * 100 for n in range(3000)}),
    "finalizers of other types": metadata(finalizers={"a": 1}),
    "owners": metadata(ownerReferences=[{"kind": "x"}]),
    "generation is text": metadata(generation="x"),
    "no managed fields": each(lambda one: one["metadata"].pop("managedFields", None)),
    "managed fields of other types": metadata(managedFields="x"),
    "kind in small letters": each(lambda one: one.update(kind="thing")),
    "kind is a number": each(lambda one: one.update(kind=1)),
    "version is a list": each(lambda one: one.update(apiVersion=[])),
    "a version with two slashes": each(lambda one: one.update(apiVersion="a/b/c")),
    "version of the stored": lambda review, _: text({**converted(review), "response": {
        **converted(review)["response"], "convertedObjects": review["request"]["objects"]}}),
    "only a core version": each(lambda one: one.update(apiVersion="v1")),
    "objects in text": lambda review, _: text({**converted(review), "response": {
        **converted(review)["response"],
        "convertedObjects": [json.dumps(one) for one in converted(review)["response"]["convertedObjects"]]}}),
    "objects in lists": lambda review, _: text({**converted(review), "response": {
        **converted(review)["response"], "convertedObjects": [converted(review)["response"]["convertedObjects"]]}}),
    "swapped": of_two(lambda objects: objects.reverse()),
    "one missing": of_two(lambda objects: objects.pop()),
    "one twice": of_two(lambda objects: objects.append(objects[0])),
    "one null": of_two(lambda objects: objects.__setitem__(1, None)),
    "the second fails": of_two(lambda objects: objects[1]["metadata"].update(name="zz")),
    "another port": None,
    "another authority": None,
}


class Webhook:
    """The webhook; the path of a request names its behavior."""

    def __init__(self, folder):
        self.bundle = self.authority(folder, "ours")
        self.other_bundle = self.authority(folder, "other")
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(folder / "ours.crt", folder / "ours.key")
        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.socket = context.wrap_socket(self.server.socket, server_side=True, do_handshake_on_connect=False)
        self.port = self.server.server_address[1]
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    @staticmethod
    def authority(folder, name):
        subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", f"/CN={name}",
                        "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", folder / f"{name}.key", "-out", folder / f"{name}.crt"],
                       check=True, capture_output=True)
        encoded = subprocess.run(["openssl", "base64", "-A", "-in", folder / f"{name}.crt"], check=True, capture_output=True)
        return encoded.stdout.decode()

    def config(self, name):
        port = 1 if name == "another port" else self.port
        bundle = self.other_bundle if name == "another authority" else self.bundle
        return {"url": f"https://127.0.0.1:{port}/{urllib.parse.quote(name)}", "caBundle": bundle}


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        review = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        name = urllib.parse.unquote(urllib.parse.urlsplit(self.path).path[1:])
        body = BEHAVIORS[name](review, self)
        if body is not None:
            self.send_response(200)
            self.send_header("Content-Type", JSON)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

    def log_message(self, *_):
        pass


class Server:
    def __init__(self, url, token):
        self.url, self.token = urllib.parse.urlsplit(url), token

    def call(self, method, path, body=None, content_type=JSON):
        connection = http.client.HTTPSConnection(
            self.url.hostname, self.url.port, context=ssl._create_unverified_context(), timeout=90)
        headers = {"Authorization": f"Bearer {self.token}", "Content-Type": content_type, "User-Agent": "compare/1"}
        connection.request(method, path, None if body is None else json.dumps(body), headers)
        response = connection.getresponse()
        answer = response.read()
        connection.close()
        return response.status, [json.loads(line) if line[:1] in b"{[" and line else line.decode(errors="replace")
                                 for line in answer.splitlines()]


def definition(group, config):
    def version(name):
        fields = {"x": {"type": "string"}, "n": {"type": "number"}}
        return {"name": name, "served": True, "storage": name == "v1beta1", "schema": {"openAPIV3Schema": {
            "type": "object", "properties": {"spec": {"type": "object", "properties": fields}}}}}
    names = {"plural": "things", "singular": "thing", "kind": "Thing", "listKind": "ThingList"}
    return {"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": f"things.{group}"},
            "spec": {"group": group, "scope": "Namespaced", "names": names, "versions": [version("v1beta1"), version("v1")],
                     "conversion": {"strategy": "Webhook", "webhook": {
                         "conversionReviewVersions": ["v1"], "clientConfig": config}}}}


def responses(server, webhook, name, group):
    """Runs one behavior. Returns a response for each request."""
    server.call("POST", DEFINITIONS, definition(group, webhook.config(name)))
    path = {version: f"/apis/{group}/{version}/namespaces/default/things" for version in ["v1beta1", "v1"]}
    end = time.monotonic() + 30
    while server.call("GET", path["v1beta1"])[0] != 200 and time.monotonic() < end:
        time.sleep(0.02)

    def thing(version, called, **spec):
        return {"apiVersion": f"{group}/{version}", "kind": "Thing", "metadata": {"name": called}, "spec": spec}

    for called in NAMES:
        made = server.call("POST", path["v1beta1"], thing("v1beta1", called, x="y"))
        assert made[0] == 201, made
    # kube-apiserver answers from an empty watch cache until it has tried to fill it again.
    end = time.monotonic() + SETTLE_SECONDS
    while time.monotonic() < end:
        code, lines = server.call("GET", path["v1"] + "?resourceVersion=0")
        if code != 200 or len(lines[0]["items"]) == len(NAMES):
            break
        time.sleep(0.2)
    first = f"{path['v1']}/a"
    put = server.call("GET", f"{path['v1beta1']}/b")[1][0]
    put["apiVersion"] = f"{group}/v1"
    put["spec"] = {"x": "put"}
    requests = [
        ("GET", first, None, JSON),
        ("GET", path["v1"] + "?limit=2", None, JSON),
        ("GET", path["v1"], None, JSON),
        ("GET", path["v1"] + "?watch=1&timeoutSeconds=1", None, JSON),
        ("POST", path["v1"], thing("v1", "d", x="new"), JSON),
        ("PUT", f"{path['v1']}/b", put, JSON),
        ("PATCH", first, {"spec": {"x": "patched"}}, MERGE),
        ("PATCH", first + "?fieldManager=m&force=true", thing("v1", "a", x="applied"), APPLY),
        ("DELETE", first, None, JSON),
        ("DELETE", path["v1"], None, JSON),
        ("GET", path["v1beta1"], None, JSON),
    ]
    found = [(f"{method} {url}".replace(group, "G"), plain(server.call(method, url, body, media), group))
             for method, url, body, media in requests]
    server.call("DELETE", f"{DEFINITIONS}/things.{group}")
    return found


def plain(answer, group):
    """Replaces what differs from run to run."""
    code, lines = answer
    kept = json.dumps(lines, sort_keys=True)
    kept = re.sub(r'"(uid|resourceVersion|creationTimestamp|time|continue)": "[^"]*"', r'"\1": "*"', kept)
    kept = re.sub(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}", "UID", kept)
    kept = re.sub(r"127\.0\.0\.1:\d+(->)?", "ADDRESS", kept)
    # What follows is the reason or not, depending on when the watch cache was tried last; and the text of an object.
    kept = re.sub(r"(storage is \(re\)initializing|Object 'Kind' is missing in)[^}]*", r"\1", kept)
    return code, kept.replace(group, "G")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("want")
    parser.add_argument("got")
    parser.add_argument("token")
    parser.add_argument("--only", default="")
    parser.add_argument("-v", action="store_true", help="print equal responses too")
    flags = parser.parse_args()
    equal = total = 0
    with tempfile.TemporaryDirectory() as folder:
        webhook = Webhook(pathlib.Path(folder))
        names = [name for name in BEHAVIORS if flags.only in name]

        def both(name):
            group = f"c{int(time.time())}x{names.index(name)}.example.com"
            return [responses(Server(url, flags.token), webhook, name, group) for url in (flags.want, flags.got)]

        with concurrent.futures.ThreadPoolExecutor(AT_ONCE) as pool:
            for name, (want, got) in zip(names, pool.map(both, names)):
                for (request, wanted), (_, given) in zip(want, got):
                    total += 1
                    equal += wanted == given
                    if wanted != given or flags.v:
                        print(f"{name}: {request}\n  want {str(wanted)[:1500]}\n  got  {str(given)[:1500]}", flush=True)
    print(f"{equal} of {total} equal")


if __name__ == "__main__":
    main()
