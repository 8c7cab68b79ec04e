"""Compares requests at the corners of the API on two servers: python3 requests.py WANT_URL GOT_URL TOKEN [--part P] [--cases N]
[--seed S] [--first N] [--jobs J] [-v].

The parts are options (parameters and options of every verb), media (forms of requests and answers), versions (group versions and
kinds in bodies), presence (null, empty and zero at every field), values (numbers and texts near their limits), definitions (custom
resources under changing definitions) and clients (several clients in the middle of a deletion). Without --part all run. Both servers
get the same requests, which depend on seed and number only: --seed S --first N --cases 1 -v shows one case again. Compared are
status, headers, warnings and bodies without values that a server generates; watches by their events. A case ends at the first
difference. Neither server may have control loops (--controllers=-*). Needs only the standard library.
"""

import argparse
import collections
import concurrent.futures
import threading
import time
import traceback

import corpus
import request_clients
import request_definitions
import request_fields
import request_media
import request_options
import request_versions
import sequences
from request_cases import Environment, Request, Schemas, Server

PARTS = {
    "options": request_options.case,
    "media": request_media.case,
    "versions": request_versions.case,
    "presence": request_fields.presence,
    "values": request_fields.values,
    "definitions": request_definitions.case,
    "clients": request_clients.case,
}
NAMESPACES = ["requests", request_options.FIXED, request_media.NAMESPACE]
# How often a difference at the same place of an answer is shown without -v.
SHOWN_MAX = 2


def run(case, servers):
    """Returns how many answers were alike, and the first difference: the request and both answers."""
    for server in servers:
        server.begin()
    alike = 0
    for request in case.steps:
        before = [server.last for server in servers]
        answers = [server.answer(request) for server in servers]
        time.sleep(request.pause)
        if request.compared:
            if answers[0] != answers[1]:
                return alike, (request.shown(before[0]), *answers)
            alike += 1
        if request.needed and answers[0]["status"] not in (200, 201):
            break
    return alike, None


def prepare(servers):
    """Creates the namespaces and the objects that only reads are about."""
    for server in servers:
        server.begin()
        for namespace in NAMESPACES:
            server.send(Request("POST", "/api/v1/namespaces", {"metadata": {"name": namespace}}))
            server.send(Request("POST", f"/api/v1/namespaces/{namespace}/serviceaccounts", {"metadata": {"name": "default"}}))
        for request in request_options.preparation() + request_media.preparation():
            server.send(request)


class Part:
    """The count of a part, and what it prints of differences."""

    def __init__(self, name, args):
        self.name, self.args = name, args
        self.alike = self.total = 0
        self.by_label, self.differing, self.places = collections.Counter(), collections.Counter(), collections.Counter()

    def count(self, number, label, alike, difference):
        self.alike += alike
        self.total += alike + (difference is not None)
        self.by_label[label] += alike + (difference is not None)
        if difference is None:
            return
        self.differing[label] += 1
        request, want, got = difference
        place, one, other = sequences.first_difference(want, got)
        self.places[label, place] += 1
        if self.args.v or self.places[label, place] <= SHOWN_MAX:
            print(f"DIFFERENT {self.name} seed {self.args.seed} case {number} {label}\n    {request}")
            print(
                f"    at {place}\n    want {want['status']} {corpus.excerpt(one, other)}\n    got  {got['status']} {corpus.excerpt(other, one)}",
                flush=True,
            )

    def report(self, seconds):
        for label, count in self.differing.most_common():
            share = 100 * (1 - count / self.by_label[label])
            print(f"  {self.name} {label}: {count} of {self.by_label[label]} differ ({share:.1f} % alike)")
        share = 100 * self.alike / max(1, self.total)
        print(f"{self.name}: {self.alike} of {self.total} answers alike ({share:.2f} %); {seconds:.0f} s", flush=True)


def run_part(name, args, env, servers_of_thread):
    part, began = Part(name, args), time.monotonic()

    def one(number):
        try:
            case = PARTS[name](env, number)
            return number, case.label, *run(case, servers_of_thread())
        except Exception:
            # A fault of this program is not a difference, but must be seen.
            print(f"FAULT {name} seed {args.seed} case {number}\n{traceback.format_exc()}")
            return number, "fault", 0, None

    with concurrent.futures.ThreadPoolExecutor(args.jobs * (4 if name in ("definitions", "clients", "media") else 1)) as pool:
        for result in pool.map(one, range(args.first, args.first + args.cases)):
            part.count(*result)
    part.report(time.monotonic() - began)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("want")
    parser.add_argument("got")
    parser.add_argument("token")
    parser.add_argument("--part", action="append", choices=list(PARTS))
    parser.add_argument("--cases", type=int, default=200)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("-v", action="store_true")
    args = parser.parse_args()
    local = threading.local()

    def servers_of_thread():
        if not hasattr(local, "servers"):
            local.servers = [Server(args.want, args.token), Server(args.got, args.token)]
        return local.servers

    prepare(servers_of_thread())
    env = Environment(Schemas(Server(args.want, args.token)), args.seed)
    for name in args.part or PARTS:
        run_part(name, args, env, servers_of_thread)


if __name__ == "__main__":
    main()
