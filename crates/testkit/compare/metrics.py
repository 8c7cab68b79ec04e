"""Compares /metrics of two servers after the same load: python3 metrics.py WANT_URL GOT_URL TOKEN [--facts FILE] [-v].

WANT_URL is that of a new kube-apiserver 1.36, GOT_URL the server to compare with it, also new. Sends both the requests of
`keelson/tests/it/files/metrics_requests.txt` and `metrics_more_requests.txt`, scrapes /metrics and /metrics/slis, and
prints names that are missing, types, labels and buckets that differ, and counters whose increase differs where both servers
count the same: those of `COUNTED_ALIKE`, without resources for which kube-apiserver sends requests to itself. `--facts FILE` records name, type, labels and
buckets of all metrics of WANT_URL, which the test `metrics` of the package keelson reads; lines of other metrics stay. Metrics of Go's runtime are
left out. Needs only the standard library.
"""

import argparse
import collections
import http.client
import json
import pathlib
import re
import ssl
import time
import urllib.parse

FILES = pathlib.Path(__file__).parents[2] / "keelson/tests/it/files"
MEDIA_TYPES = {"APPLY": "application/apply-patch+yaml", "PATCH": "application/merge-patch+json"}
SERIES = re.compile(r'([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{(.*)\})? (\S+)$')
LABEL = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\]|\\.)*)"')
# Counters that depend on the requests alone.
COUNTED_ALIKE = [
    "apiserver_request_total", "apiserver_request_body_size_bytes_count", "apiserver_watch_list_duration_seconds_count",
    "apiserver_requested_deprecated_apis", "apiserver_admission_webhook_request_total",
    "apiserver_validating_admission_policy_check_total", "apiserver_mutating_admission_policy_check_total",
    "apiserver_request_terminations_total", "pod_security_evaluations_total", "pod_security_exemptions_total",
    "kube_apiserver_clusterip_allocator_allocation_total", "kube_apiserver_clusterip_allocator_allocation_errors_total",
    "kube_apiserver_clusterip_allocator_allocated_ips", "kube_apiserver_clusterip_allocator_available_ips",
    "kube_apiserver_nodeport_allocator_allocation_total", "kube_apiserver_nodeport_allocator_allocated_ports",
    "kube_apiserver_nodeport_allocator_available_ports", "apiserver_cache_list_total", "apiserver_init_events_total",
    "apiserver_cache_list_returned_objects_total", "apiserver_watch_cache_consistent_read_total",
    "apiserver_storage_events_received_total", "aggregator_unavailable_apiservice",
]


class Server:
    """A server, with one connection."""

    def __init__(self, url, token):
        url = urllib.parse.urlsplit(url)
        context = ssl._create_unverified_context()
        secure = url.scheme == "https"
        self.connection = (http.client.HTTPSConnection(url.netloc, context=context) if secure
                           else http.client.HTTPConnection(url.netloc))
        self.token = token

    def call(self, method, path, body=None, token=None):
        headers = {"Authorization": f"Bearer {token or self.token}",
                   "Content-Type": MEDIA_TYPES.get(method, "application/json")}
        method = "PATCH" if method == "APPLY" else method
        self.connection.request(method, path, body, headers)
        response = self.connection.getresponse()
        return response.status, response.read().decode(errors="replace")

    def load(self, lines):
        for line in lines:
            if line == "WAIT":
                time.sleep(3)  # Until webhooks and policies act.
                continue
            method, path, *body = line.split(" ", 2)
            token = None
            if method.startswith("AS:"):
                token, method = method[3:].split(":")
            self.call(method, path, body[0] if body else None, token)


class Family:
    """A metric: its type, the names of its labels, its buckets and its series."""

    def __init__(self):
        self.type, self.labels, self.buckets, self.series = "", None, None, {}


def scrape(server):
    """Returns the families of /metrics and /metrics/slis by name."""
    families = collections.OrderedDict()
    for path in ["/metrics", "/metrics/slis"]:
        status, text = server.call("GET", path)
        assert status == 200, (path, status, text)
        for line in text.splitlines():
            if line.startswith("# TYPE "):
                _, _, name, kind = line.split(" ")
                families.setdefault(name, Family()).type = kind
            elif not line.startswith("#") and line:
                add_series(families, line)
    return {name: family for name, family in families.items() if not name.startswith("go_")}


def add_series(families, line):
    found = SERIES.match(line)
    assert found, line
    name, labels, value = found.groups()
    labels = LABEL.findall(labels or "")
    base = next(base for base in [name, *(name.removesuffix(end) for end in ["_bucket", "_sum", "_count"])]
                if base in families)
    family = families[base]
    names = [key for key, _ in labels]
    if family.type == "histogram":
        names = [key for key in names if key != "le"]
    if family.labels is None:
        family.labels = names
    if name.endswith("_bucket") and family.type == "histogram":
        first = [pair for pair in labels if pair[0] != "le"]
        bound = dict(labels)["le"]
        if family.buckets is None:
            family.buckets = (first, [])
        if family.buckets[0] == first:
            family.buckets[1].append(bound)
    else:
        family.series[(name, tuple(labels))] = float(value)


def facts(families):
    """Returns a line for each metric: name, type, labels (`-`: none, `?`: it had no series), buckets."""
    for name, family in sorted(families.items()):
        labels = "?" if family.labels is None else ",".join(family.labels) or "-"
        buckets = " " + ",".join(family.buckets[1]) if family.buckets else ""
        yield f"{name} {family.type} {labels}{buckets}"


def of_resource(labels):
    labels = dict(labels)
    return labels.get("group", ""), labels.get("resource", "")


def increases(before, after, own):
    """Returns by how much the series of `COUNTED_ALIKE` have grown, without those of the resources `own`."""
    grown = {}
    for name, family in after.items():
        old = before[name].series if name in before else {}
        for series, value in family.series.items():
            if series[0] in COUNTED_ALIKE and of_resource(series[1]) not in own and value != old.get(series, 0):
                grown[series] = value - old.get(series, 0)
    return grown


def differences(want, got):
    """Yields what of the families differs: what it is, and the two sides."""
    for name, family in sorted(want.items()):
        if name not in got:
            yield "missing", name, family.type, ""
            continue
        other = got[name]
        for what in ["type", "labels"]:
            one, two = getattr(family, what), getattr(other, what)
            if one is not None and two is not None and one != two:
                yield what, name, one, two
        if family.buckets and other.buckets and family.buckets[1] != other.buckets[1]:
            yield "buckets", name, family.buckets[1], other.buckets[1]
    for name in sorted(set(got) - set(want)):
        if not name.startswith("keelson_"):
            yield "only here", name, "", got[name].type


def count_differences(want, got):
    """Yields the series whose increases differ."""
    for series in sorted(set(want) | set(got)):
        if want.get(series, 0) != got.get(series, 0):
            name, labels = series
            yield "count", name + json.dumps(dict(labels)), want.get(series, 0), got.get(series, 0)


def main():
    arguments = argparse.ArgumentParser()
    for name in ["want", "got", "token"]:
        arguments.add_argument(name)
    arguments.add_argument("--facts", type=pathlib.Path)
    arguments.add_argument("-v", action="store_true", help="print each difference")
    arguments = arguments.parse_args()
    requests = [line for name in ["metrics_requests.txt", "metrics_more_requests.txt"]
                for line in (FILES / name).read_text().splitlines()]
    before, after = [], []
    for url in [arguments.want, arguments.got]:
        server = Server(url, arguments.token)
        before.append(scrape(server))
        server.load(requests)
        server.call("GET", "/healthz")
        time.sleep(1)  # A request is counted after its last byte.
        after.append(scrape(server))
    want, got = after
    old_own, new_own = (scraped["apiserver_selfrequest_total"].series for scraped in [before[0], want])
    own = {of_resource(labels) for (name, labels), value in new_own.items() if value != old_own.get((name, labels), 0)}
    grown = [increases(old, new, own) for old, new in zip(before, after)]
    if arguments.facts:
        known = arguments.facts.read_text().splitlines() if arguments.facts.exists() else []
        lines = {line.split(" ")[0]: line for line in [*known, *facts(want)]}
        arguments.facts.write_text("".join(lines[name] + "\n" for name in sorted(lines)))
    found = [*differences(want, got), *count_differences(*grown)]
    if arguments.v:
        for difference in found:
            print(*difference, sep="\t")
    by_kind = collections.Counter(kind for kind, *_ in found)
    equal = sum(value == grown[1].get(series) for series, value in grown[0].items())
    print(json.dumps({"wanted": len(want), "served": len(set(want) & set(got)), **by_kind, "equal counts": equal}))


if __name__ == "__main__":
    main()
