"""The parts `presence` and `values` of requests.py: odd values at every field of every kind, by every kind of write."""

import copy
import json

from request_cases import APPLY, JSON_PATCH, JSON, KINDS, MERGE, STRATEGIC, TABLE, Case, Request, nested, pointer

NAMESPACE = "requests"
ABSENT = [None, {}, [], "", 0, False, [None], {"a": None}, [{}], [""], {"": ""}]

INTEGERS = [
    2147483647,
    2147483648,
    -2147483648,
    -2147483649,
    9223372036854775807,
    9223372036854775808,
    -9223372036854775808,
    -1,
    0,
    65535,
    65536,
    1.0,
    1.5,
    -0.0,
    1e3,
    1e18,
    1e19,
    1e300,
    "1",
    "",
    True,
    30000,
    32767,
    100,
    101,
    604800,
    604801,
]
# Texts by what they are for; each list has right and nearly right forms.
TEXTS = {
    "quantity": [
        "1",
        "0",
        "-1",
        "1.5",
        "0.1",
        "100m",
        "1k",
        "1K",
        "1Ki",
        "1Mi",
        "1e3",
        "1E3",
        "1e",
        "1.",
        ".5",
        "+1",
        " 1",
        "1 ",
        "1Gb",
        "0.0001",
        "1n",
        "1u",
        "1e400",
        "12345678901234567890",
        "0x1",
        "1_000",
        "1,5",
        "--1",
        "1Ei",
        "9Ei",
        "1E",
        "1e-3",
        "100000m",
        "0.5Ki",
        "",
    ],
    "time": [
        "2024-01-01T00:00:00Z",
        "2024-01-01T00:00:00.5Z",
        "2024-01-01T00:00:00.123456Z",
        "2024-01-01T00:00:00.1234567Z",
        "2024-01-01T01:00:00+01:00",
        "2024-01-01t00:00:00z",
        "2024-01-01 00:00:00Z",
        "2024-01-01",
        "2024-02-30T00:00:00Z",
        "2024-01-01T24:00:00Z",
        "2024-01-01T00:00:60Z",
        "0001-01-01T00:00:00Z",
        "9999-12-31T23:59:59Z",
        "10000-01-01T00:00:00Z",
        "1969-12-31T23:59:59Z",
        "2024-01-01T00:00:00",
        "2024-1-1T0:0:0Z",
        "2024-01-01T00:00:00+25:00",
        "null",
        "",
    ],
    "duration": ["1s", "1m0s", "1h", "0", "0s", "-1s", "1.5h", "1d", "1", "", "1h1", "100ms", "1us", "1µs", "9999999h", "1 s"],
    "ip": [
        "10.1.1.1",
        "010.001.1.1",
        "256.1.1.1",
        "1.1.1",
        "::1",
        "::",
        "2001:db8::1",
        "2001:DB8::1",
        "2001:0db8::0001",
        "::ffff:1.2.3.4",
        "127.0.0.1",
        "0.0.0.0",
        "169.254.1.1",
        "224.0.0.1",
        "fe80::1",
        "fe80::1%eth0",
        " 10.1.1.1",
        "10.1.1.1/32",
        "",
        "None",
    ],
    "cidr": [
        "10.1.0.0/16",
        "10.1.0.1/16",
        "10.1.0.0/33",
        "10.1.0.0/",
        "10.1.0.0",
        "0.0.0.0/0",
        "::/0",
        "2001:db8::/64",
        "2001:db8::1/64",
        "::ffff:10.0.0.0/104",
        "010.0.0.0/8",
        "10.0.0.0/08",
        "10.0.0.0/-1",
        "",
    ],
    "name": [
        "a",
        "A",
        "a-b",
        "-a",
        "a-",
        "a.b",
        "a..b",
        "a_b",
        "1",
        "1a",
        "a" * 63,
        "a" * 64,
        "a" * 253,
        "a" * 254,
        "",
        " ",
        "a b",
        "a/b",
        "/",
        "..",
        ".",
        "a.",
        "é",
        "a\n",
        "a%b",
        "*",
        "a:b",
        "kubernetes.io",
        "a.kubernetes.io/b",
        "example.com/a",
        "example.com/",
        "/a",
        "a/b/c",
        "EXAMPLE.com/a",
        "example.com/A_b.c",
        "http://a",
        "$(A)",
        "C:\\a",
        "../a",
        "a/../b",
    ],
    "base64": ["", "YQ==", "YQ", "YQ=", "YR==", "Y Q==", "YQ==\n", "_-8=", "////", "a", "====", "é", "YWI="],
    "cron": [
        "* * * * *",
        "*/5 * * * *",
        "0 0 31 2 *",
        "60 * * * *",
        "@daily",
        "@every 1h",
        "@every 1",
        "@odd",
        "* * * *",
        "* * * * * *",
        "TZ=UTC * * * * *",
        "CRON_TZ=UTC * * * * *",
        "1-5/2 * * * *",
        "5-1 * * * *",
        "*/0 * * * *",
        "* * * JAN mon",
        "* * ? * ?",
        "a * * * *",
        "",
        " * * * * * ",
        "* * * * 7",
        "* * * * 0-7",
        "* * L * *",
    ],
    "percent": ["50%", "0%", "100%", "101%", "-1%", "50", "%", "5.5%", "1e1%", " 50%", "50% ", "", "١%"],
    "selector": ["a", "a=b", "a==b", "a in (b)", "a in ()", "!a", "a,b", "a,", "a=b=c", "a>1", "a>b", "(", "", "a notin (b,c)", "a = b"],
    "text": [
        "a",
        "",
        " ",
        "true",
        "null",
        "~",
        "1e3",
        "<&>",
        "\u2028",
        "\x00",
        "\x7f",
        "😀",
        "a\tb",
        "a\r\n",
        "\ud800",
        "é",
        "x" * 1025,
        "%",
    ],
}
# Which texts fit which names of fields.
FITTING = [
    ("port", "name"),
    ("cidr", "cidr"),
    ("ip", "ip"),
    ("schedule", "cron"),
    ("time", "time"),
    ("duration", "duration"),
    ("selector", "selector"),
    ("unavailable", "percent"),
    ("surge", "percent"),
    ("address", "ip"),
    ("storage", "quantity"),
    ("request", "quantity"),
    ("limit", "quantity"),
    ("capacity", "quantity"),
    ("bundle", "base64"),
    ("data", "base64"),
]
KEYS = [
    "a",
    "A",
    "",
    "a/b",
    "a/",
    "/a",
    "example.com/a",
    "EXAMPLE.com/a",
    "a/b/c",
    "a b",
    "-a",
    "a" * 63,
    "a" * 64,
    "kubernetes.io/a",
    "é",
    "cpu",
    "memory",
    "pods",
    "requests.cpu",
    "count/pods",
    "hugepages-2Mi",
    "hugepages-3",
    "storage",
    "..",
    ".",
    "a\x00",
]


def value_for(rng, path, schema):
    """Returns a value for a scalar field, or a map, from the grammar that fits, mostly."""
    kind = schema.get("type")
    if kind == "integer" or kind == "number":
        return rng.choice(INTEGERS)
    if kind == "boolean":
        return rng.choice([True, False, "true", 1, 0, None])
    if kind == "object":
        return {rng.choice(KEYS): rng.choice(TEXTS[rng.choice(["name", "quantity", "text"])])}
    if kind == "array":
        return rng.choice([[rng.choice(TEXTS["name"])], ["a", "a"], []])
    if schema.get("enum") and rng.random() < 0.5:
        return rng.choice([schema["enum"][-1], schema["enum"][0].lower(), schema["enum"][0] + " ", "", "Odd"])
    name = next((str(step).lower() for step in reversed(path) if isinstance(step, str) and step != "a"), "")
    fitting = [texts for part, texts in FITTING if part in name]
    if schema.get("format") == "date-time":
        fitting = ["time"]
    elif schema.get("format") == "byte":
        fitting = ["base64"]
    elif schema.get("format") == "int-or-string":
        return rng.choice(INTEGERS + TEXTS["percent"] + TEXTS["name"][:8])
    elif "quantity" in json.dumps(schema).lower() or schema.get("oneOf"):
        fitting = ["quantity"]
    if rng.random() < 0.15:
        return rng.choice(INTEGERS + ABSENT)
    return rng.choice(TEXTS[rng.choice(fitting) if fitting and rng.random() < 0.8 else rng.choice(["name", "name", "text", "quantity"])])


def writes(kind, rng, obj, odd, path, value, set_odd):
    """Returns the requests of a case: an odd value comes with one kind of write, then writes that must change nothing."""
    collection, name = kind.collection(NAMESPACE), obj["metadata"]["name"]
    at = f"{collection}/{name}"
    query = rng.choice(["", "", "", "fieldValidation=Strict", "fieldValidation=Ignore"])
    mark = lambda path, *more: path + "?" + "&".join(part for part in (query, *more) if part)
    if kind.only_create:
        return [Request("POST", mark(collection), odd)]
    if kind.dry:
        if rng.random() < 0.4:
            apply = {**odd, "metadata": {key: inner for key, inner in (odd.get("metadata") or {}).items() if key != "managedFields"}}
            return [Request("PATCH", mark(at, "fieldManager=m", "dryRun=All"), apply, APPLY)]
        return [Request("POST", mark(collection, "dryRun=All"), odd)]
    end = [Request("PUT", at, lambda last: last, needed=True), Request("GET", at, accept=rng.choice([JSON, TABLE])), Request("DELETE", at)]
    way = rng.choice(["create", "create", "put", "merge", "strategic", "json", "apply", "apply", "status"])
    if way == "create":
        again = Request("PATCH", mark(at, "fieldManager=m", "force=true"), odd, APPLY)
        return [Request("POST", mark(collection), odd, needed=True), again, again] + end
    first = [Request("POST", collection, obj, needed=True)]

    def put(last):
        body = copy.deepcopy(last or obj)
        try:
            set_odd(body)
        except (TypeError, KeyError, IndexError, AttributeError):
            pass
        return body

    if way == "put":
        odd_writes = [Request("PUT", mark(at), put), Request("PUT", mark(at), put)]
    elif way in ("merge", "strategic"):
        media = MERGE if way == "merge" else STRATEGIC
        odd_writes = [Request("PATCH", mark(at), nested(path, value), media)] * 2
    elif way == "json":
        operation = {"op": rng.choice(["add", "add", "replace", "test", "remove"]), "path": pointer(path), "value": value}
        odd_writes = [Request("PATCH", mark(at), [operation], JSON_PATCH)] * 2
    elif way == "apply":
        whole = rng.random() < 0.6
        body = odd if whole else {**nested(path, value), "apiVersion": kind.version, "kind": kind.kind}
        if not whole:
            meta = body.get("metadata")
            body["metadata"] = {**(meta if isinstance(meta, dict) else {}), "name": name}
        odd_writes = [Request("PATCH", mark(at, "fieldManager=m", rng.choice(["", "force=true"])), body, APPLY)] * 2
    else:
        media = rng.choice([MERGE, STRATEGIC])
        odd_writes = [Request("PATCH", mark(f"{at}/status"), nested(path, value), media)] * 2
        odd_writes.append(Request("PATCH", mark(f"{at}/status", "fieldManager=s", "force=true"), odd, APPLY))
    return first + odd_writes + end


def case(env, part, number, choose, to_scalar):
    rng = env.random(part, number)
    kind = rng.choice(KINDS)
    path, schema = env.schemas.walk(kind, rng, to_scalar)
    value = choose(rng, path, schema)
    obj = kind.object(f"{part[0]}{env.seed}-{number}")
    if kind.kind == "APIService":
        obj["metadata"]["name"] = "v1.a.com"
    if kind.kind == "CustomResourceDefinition":
        obj["metadata"]["name"] = "things.a.example.com"
    if kind.kind == "IPAddress":
        obj["metadata"]["name"] = "10.0.0.77"
    odd = copy.deepcopy(obj)
    state = f"{env.seed}/{number}"

    def set_odd(target):
        env.schemas.set(kind, target, path, copy.deepcopy(value), env.random("fill", state))

    set_odd(odd)
    label = kind.kind
    return Case(label, writes(kind, rng, obj, odd, path, value, set_odd))


def presence(env, number):
    return case(env, "presence", number, lambda rng, path, schema: rng.choice(ABSENT), False)


def values(env, number):
    return case(env, "values", number, value_for, True)
