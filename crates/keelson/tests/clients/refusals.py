"""Records how a kube-apiserver refuses writes: python3 refusals.py URL TOKEN [--cases N] [--seed S] [--from FILE] [--keep FILE]
[--others].

Makes requests by changing objects at random places, sends them, and appends to FILE (the fixture
crates/registry/tests/it/files/refusals.jsonl unless told otherwise) one line for each rule that no line has
yet: the request and the causes of the 422. The objects are those of the fixture itself and of accepted.jsonl
beside it; the values are at the edges of what fields may be. With --from the requests come from a file of the
same form, and every refusal is kept. With --others the requests also have unknown fields, wrong types and a
`fieldValidation`, and what is kept, in others.jsonl, is what has no causes: answers with another code, and those with
warnings; one line for each way to say it. The server needs the namespace `n` with a service account `default`; both are
made. Start kube-apiserver 1.36 without kube-controller-manager. The standard library is enough.
"""

import argparse
import copy
import http.client
import json
import os
import random
import re
import ssl
import sys
import urllib.parse

FILES = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "..", "registry", "tests", "it", "files")
MEDIA = {
    "APPLY": "application/apply-patch+yaml",
    "MERGE": "application/merge-patch+json",
    "STRATEGIC": "application/strategic-merge-patch+json",
    "JSON": "application/json-patch+json",
}
STORED = "{stored}"
VALUES = [
    "", "a", "A", "a-b", "-a", "a.b", "a_b", "a/b", "example.com/a", "a" * 63, "a" * 64, "a" * 254, " a", "0", "10%",
    "Always", "None", "/a", "../a", "a:b", "1.2.3.4", "::1", "10.0.0.0/8", "TCP", "a=b", "*", "2024-01-01T00:00:00Z",
    -1, 0, 1, 2, 100, 101, 65536, 2147483648, True, False, None, [], {}, ["a", "a"], {"a": "b"}, {"A b": ""},
]


class Server:
    def __init__(self, url, token):
        self.at = urllib.parse.urlsplit(url)
        self.token = token
        self.warnings = self.told = []

    def send(self, method, path, body, media="application/json"):
        context = ssl._create_unverified_context()
        connection = http.client.HTTPSConnection(self.at.hostname, self.at.port, context=context, timeout=30)
        head = {"Authorization": "Bearer " + self.token, "Content-Type": media}
        connection.request(method, path, None if body is None else json.dumps(body, separators=(",", ":")), head)
        try:
            answer = connection.getresponse()
        except http.client.RemoteDisconnected:
            return 0, {}  # It has met a nil pointer.
        text = answer.read()
        connection.close()
        self.warnings = answer.headers.get_all("Warning") or []
        try:
            return answer.status, json.loads(text)
        except ValueError:
            return answer.status, {}

    def replay(self, row):
        """What a line's request is answered; None where its base or an earlier status is refused."""
        version = ""
        if "base" in row:
            status, made = self.send("POST", row["at"], row["base"])
            if status != 201:
                return None
            version = made["metadata"].get("resourceVersion", "")
        path = row["path"]
        try:
            for earlier in row.get("before", []):
                body = dict(copy.deepcopy(row["base"]), status=earlier)
                status, made = self.send("PUT", path, body)
                if status != 200:
                    return None
                version = made["metadata"]["resourceVersion"]
            body = json.loads(json.dumps(row["body"]).replace(STORED, version))
            method = "PATCH" if row["do"] in MEDIA else row["do"]
            media = MEDIA.get(row["do"], "application/json")
            force = "&force=true" if row["do"] == "APPLY" else ""
            answered = self.send(method, path + "?dryRun=All&fieldManager=m" + force + row.get("query", ""), body, media)
            self.told = self.warnings
            return answered
        finally:
            if "base" in row:
                place = path.removesuffix("/status")
                self.send("DELETE", place + "?propagationPolicy=Background", {"gracePeriodSeconds": 0})


def causes(answer):
    """The causes of a 422 as the test writes them: JSON values and differences cut."""
    out = []
    for cause in (answer.get("details") or {}).get("causes") or []:
        text = f"{cause.get('field', '')}: {cause['message']}"
        out.append(collapse(text))
    return out


def collapse(text):
    out, mark = "", "Invalid value: "
    while mark in text:
        at = text.index(mark) + len(mark)
        out, text = out + text[:at], text[at:]
        if text[:1] in ("{", "["):
            depth, end = 0, len(text)
            for i, c in enumerate(text):
                depth += (c in "{[") - (c in "}]")
                if depth == 0:
                    end = i + 1
                    break
            out, text = out + "(value)", text[end:]
    out += text
    return out.split("\n", 1)[0] + " (more)" if "\n" in out else out


def rule(row, cause):
    """What is the same in two refusals by one rule: the kind, the field and the words without their values."""
    field, _, words = cause.partition(": ")
    field = re.sub(r"\[[^]]*\]", "[]", field)
    kind = row["path"].strip("/").split("/")[-1 if row["do"] == "POST" else -2]
    return kind, field, re.sub(r'"(\\.|[^"])*"|-?\d+', "x", words)


def is_stable(row, found):
    """Go's maps have no order: refusals with two faults of a map differ from one request to the next."""
    text = json.dumps([row.get("base"), row["body"], found])
    if re.search(r"[0-9a-f]{8}-[0-9a-f]{4}-", text):
        return False
    fields = [re.sub(r"\[[^]0-9][^]]*\]", "[]", cause.partition(": ")[0]) for cause in found]
    return len(set(fields)) == len(fields)


def words_of(answer):
    """The message of a refusal, without the objects that it shows."""
    text = re.sub(r'Invalid value: "\{.*\}": ', "Invalid value: (object): ", answer.get("message", ""))
    return "" if answer.get("kind") != "Status" else collapse(text)


def other(row, status, answer, warnings):
    """What is kept of an answer that has no causes or comes with warnings, and what is the same in two of a sort."""
    words = words_of(answer)
    shown = json.dumps([words, warnings])
    if re.search(r"[0-9a-f]{8}-[0-9a-f]{4}-|20[0-9][0-9]-[0-9][0-9]-[0-9][0-9]T|resourceVersion|errors:", shown):
        return None, None
    if not status or status < 300 and not warnings or status == 422 and "(object)" not in words:
        return None, None
    sort = re.sub(r'"(\\.|[^"])*"|-?\d+', "x", "\n".join([words, *warnings]))
    sort = re.sub(r"\b[A-Z][a-z]\w*", "K", re.sub(r"[\w/]*\.[\w.\[\]/]+", "f", sort))
    return dict(row, code=status, message=words, warnings=warnings), (row["do"], status, sort[:160])


def places(node, at=()):
    yield at, node
    items = node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ()
    for key, value in items:
        yield from places(value, at + (key,))


def changed(rng, body):
    """The body, changed at one to three places; where it says which object it is, it stays."""
    new = copy.deepcopy(body)
    for _ in range(rng.choice([1, 1, 2, 3])):
        fixed = ((), ("apiVersion",), ("kind",), ("metadata",), ("metadata", "name"), ("metadata", "resourceVersion"))
        spots = [at for at, _ in places(new) if at not in fixed]
        if not spots:
            break
        at = rng.choice(spots)
        node = new
        for step in at[:-1]:
            node = node[step]
        how = rng.random()
        if how < 0.15:
            del node[at[-1]]
        elif how < 0.25 and isinstance(node, list):
            node.append(copy.deepcopy(node[at[-1]]))
        else:
            node[at[-1]] = copy.deepcopy(rng.choice(VALUES))
    return new


def lines(name):
    with open(os.path.join(FILES, name)) as file:
        return [json.loads(line) for line in file if line.strip()]


def generated(rng, count):
    rows = [row for row in lines("accepted.jsonl") + lines("refusals.jsonl") if isinstance(row["body"], dict)]
    for _ in range(count):
        row = dict(rng.choice(rows))
        row.pop("causes", None), row.pop("answer", None), row.pop("code", None)
        row["body"] = changed(rng, row["body"])
        yield row


def odd(rng, count):
    """Requests with unknown fields, wrong types and a choice of field validation."""
    for row in generated(rng, count):
        row["query"] = rng.choice(["", "", "&fieldValidation=Strict", "&fieldValidation=Ignore"])
        maps = [node for _, node in places(row["body"]) if isinstance(node, dict)]
        if maps and rng.random() < 0.5:
            rng.choice(maps)[rng.choice(["unknown", "Name", "metaData"])] = rng.choice([1, "a", None, {"a": 1}])
        if rng.random() < 0.4:
            spots = [at for at, _ in places(row["body"]) if len(at) > 1 and at != ("metadata", "name")]
            node = row["body"]
            at = rng.choice(spots) if spots else ("kind",)
            for step in at[:-1]:
                node = node[step]
            node[at[-1]] = rng.choice(["x", 7, True, None, [], {}, 1.5])
        yield row


def keep_others(server, rng, count):
    path = os.path.join(FILES, "others.jsonl")
    known, kept = set(), 0
    if os.path.exists(path):
        known = {tuple(other(row, row["code"], dict(row, kind="Status"), row["warnings"])[1]) for row in lines("others.jsonl")}
    with open(path, "a") as out:
        for row in odd(rng, count):
            answered = server.replay(row)
            found, sort = other(row, *answered, server.told) if answered else (None, None)
            # Which of several faults is told may be chance: Go's maps have no order.
            if found and sort not in known and all(other(row, *server.replay(row), server.told)[0] == found for _ in range(4)):
                known.add(sort)
                kept += 1
                out.write(json.dumps(found) + "\n")
    print(f"{count} requests, {kept} answers kept", file=sys.stderr)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("url")
    parser.add_argument("token")
    parser.add_argument("--cases", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--from", dest="source")
    parser.add_argument("--others", action="store_true")
    parser.add_argument("--keep", default=os.path.join(FILES, "refusals.jsonl"))
    args = parser.parse_args()
    server = Server(args.url, args.token)
    server.send("POST", "/api/v1/namespaces", {"metadata": {"name": "n"}})
    account = {"metadata": {"name": "default"}, "automountServiceAccountToken": False}
    server.send("POST", "/api/v1/namespaces/n/serviceaccounts", account)
    if args.others:
        return keep_others(server, random.Random(args.seed), args.cases)
    known = {rule(row, cause) for row in lines("refusals.jsonl") for cause in row["causes"]}
    if args.source:
        with open(args.source) as file:
            rows = [json.loads(line) for line in file if line.strip()]
    else:
        rows = generated(random.Random(args.seed), args.cases)
    sent = kept = 0
    with open(args.keep, "a") as out:
        for row in rows:
            sent += 1
            answered = server.replay(row)
            if not answered or answered[0] != 422:
                continue
            found = causes(answered[1])
            rules = {rule(row, cause) for cause in found}
            if not found or not is_stable(row, found) or (not args.source and rules <= known):
                continue
            known |= rules
            kept += 1
            out.write(json.dumps(dict(row, causes=found)) + "\n")
    print(f"{sent} requests, {kept} refusals kept", file=sys.stderr)


main()
