"""Compares how two servers judge wrong credentials, which it generates.

    python3 credentials.py prepare DIR     makes keys, certificates, files and DIR/flags, the flags of both servers
    python3 credentials.py run DIR WANT_URL GOT_URL TOKEN [--part P] [--cases N] [--seed S] [-v]

`run` is the issuer of the tokens, so it must run while the servers start, or a few seconds longer. Parts: `oidc`, `proxy`,
`bootstrap`, `abac`. TOKEN is that of an administrator in system:masters. Compared are status codes and the user that a
server sees. Prints how many judgements were equal, and those that differ. Needs the standard library and openssl.
"""

import argparse
import base64
import collections
import hashlib
import hmac
import http.client
import http.server
import json
import pathlib
import random
import ssl
import subprocess
import threading
import time

PORT = 21997
ISSUER = f"https://127.0.0.1:{PORT}"
SELF = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
ACCESS = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
SECRETS = "/api/v1/namespaces/kube-system/secrets"
PROXY_HEADERS = ["X-Remote-User", "X-Other-User", "X-Remote-Uid", "X-Remote-Group", "X-Remote-Extra-a", "X-Remote-Extra-A%2fB",
                 "X-Remote-Extra-%zz", "X-Remote-Extra-%ff", "X-Remote-Extra-", "x-remote-user", "X-Remote-User-X",
                 "Impersonate-User", "Authorization"]
PROXY_VALUES = ["bob", "", " ", "system:anonymous", "system:masters", "a,b", "j\u00f6rg", "\udcff", "x" * 5000, "a\tb", "system:node:n",
                "system:unauthenticated", "Bearer nothing"]


def openssl(*arguments, given=None):
    return subprocess.run(["openssl", *map(str, arguments)], check=True, capture_output=True, input=given).stdout


def certificate(folder, name, subject, authority=None, days=2, more=""):
    """Makes a key and a certificate, which `authority` signs, or the key itself."""
    key, out, extensions = (folder / f"{name}.{end}" for end in ["key", "crt", "ext"])
    openssl("genpkey", "-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-256", "-out", key)
    if authority is None:
        openssl("req", "-x509", "-new", "-key", key, "-subj", subject, "-days", days, "-out", out, *more.split())
        return
    extensions.write_text(more)
    request = openssl("req", "-new", "-key", key, "-subj", subject)
    openssl("x509", "-req", "-CA", folder / f"{authority}.crt", "-CAkey", folder / f"{authority}.key", "-CAcreateserial",
            "-days", days, "-out", out, "-extfile", extensions, given=request)


# Files of both servers.

AUTHENTICATION = """apiVersion: apiserver.config.k8s.io/v1
kind: AuthenticationConfiguration
jwt:
- issuer: {{url: "{issuer}/a", audiences: [us, them], audienceMatchPolicy: MatchAny, certificateAuthority: {ca}}}
  claimMappings: {{username: {{claim: sub, prefix: "a:"}}, groups: {{claim: groups, prefix: "g:"}}, uid: {{claim: uid}}}}
- issuer: {{url: "{issuer}/b", audiences: [us], certificateAuthority: {ca}}}
  claimMappings:
    username: {{expression: "claims.sub + ':' + claims.tenant"}}
    groups: {{expression: "claims.?groups.orValue([])"}}
    extra: [{{key: "example.org/x", valueExpression: "claims.x"}}]
  claimValidationRules:
  - {{expression: "claims.exp - claims.nbf <= 86400", message: "too long"}}
  - {{claim: hd, requiredValue: "example.org"}}
  userValidationRules: [{{expression: "!user.username.startsWith('system:')", message: "reserved"}}]
- issuer: {{url: "{issuer}/c", audiences: [us], certificateAuthority: {ca}}}
  claimMappings: {{username: {{claim: email, prefix: ""}}, groups: {{claim: "https://x/y", prefix: ""}}}}
"""

ABAC_VERSION = {"apiVersion": "abac.authorization.kubernetes.io/v1beta1", "kind": "Policy"}
ABAC_VALUES = {
    "namespace": ["a", "b", "*", "", "a*", "**"], "resource": ["pods", "secrets", "*", "", "pods/log", "Pods"],
    "apiGroup": ["apps", "*", "", "Apps"], "nonResourcePath": ["/healthz", "/healthz*", "*", "/api/*", "", "**", "/*/x", "/"],
    "readonly": [True, False], "group": ["g", "*", "", "system:authenticated", "system:unauthenticated", "G"],
}


def abac_lines(cases):
    """Returns policies, of which the one of line N is for user N."""
    random_lines = random.Random(7)
    for number in range(cases):
        fields = {name: random_lines.choice(values) for name, values in ABAC_VALUES.items() if random_lines.random() < 0.45}
        kind = random_lines.random()
        user = random_lines.choice([f"u{number}"] * 6 + ["*", "", f"U{number}"])
        if kind < 0.15:
            # Other cases of the names of fields, and fields that do not exist.
            fields = {random_lines.choice([name, name.upper(), name.capitalize(), name + "x"]): value for name, value in fields.items()}
        if user in ("*", ""):
            # Such a line is for everybody: only with a group that one user alone has.
            fields["group"] = f"only{number}"
        named = {"user": user} if user or random_lines.random() < 0.5 else {}
        if kind > 0.85:
            fields.pop("apiGroup", None)
            fields.pop("nonResourcePath", None)
            yield json.dumps({**named, **fields})
        else:
            yield json.dumps({**ABAC_VERSION, "spec": {**named, **fields}})


def prepare(folder):
    folder.mkdir(parents=True, exist_ok=True)
    server_extension = "subjectAltName=IP:127.0.0.1"
    certificate(folder, "issuer", "/CN=issuer", more=f"-addext {server_extension}")
    for name in ["proxy-ca", "client-ca", "other-ca"]:
        certificate(folder, name, f"/CN={name}")
    client = "extendedKeyUsage=clientAuth"
    certificate(folder, "front", "/CN=front", "proxy-ca", more=client)
    certificate(folder, "other-name", "/CN=back", "proxy-ca", more=client)
    certificate(folder, "for-servers", "/CN=front", "proxy-ca", more="extendedKeyUsage=serverAuth")
    certificate(folder, "expired", "/CN=front", "proxy-ca", days=-1, more=client)
    certificate(folder, "of-clients", "/CN=front/O=devs", "client-ca", more=client)
    certificate(folder, "unknown", "/CN=front", "other-ca", more=client)
    for name in ["rsa", "rsa2", "weak"]:
        openssl("genrsa", "-out", folder / f"{name}.pem", "1024" if name == "weak" else "2048")
    openssl("genpkey", "-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-256", "-out", folder / "ec.pem")
    authority = json.dumps((folder / "issuer.crt").read_text())
    (folder / "authentication.yaml").write_text(AUTHENTICATION.format(issuer=ISSUER, ca=authority))
    (folder / "policies.jsonl").write_text("# policies\n\n" + "\n".join(abac_lines(400)) + "\n")
    flags = [f"--authentication-config={folder}/authentication.yaml", "--enable-bootstrap-token-auth=true",
             f"--client-ca-file={folder}/client-ca.crt", f"--requestheader-client-ca-file={folder}/proxy-ca.crt",
             "--requestheader-allowed-names=front", "--requestheader-username-headers=X-Remote-User,X-Other-User",
             "--requestheader-uid-headers=X-Remote-Uid", "--requestheader-group-headers=X-Remote-Group",
             "--requestheader-extra-headers-prefix=X-Remote-Extra-", "--authorization-mode=ABAC",
             f"--authorization-policy-file={folder}/policies.jsonl"]
    (folder / "flags").write_text(" ".join(flags) + "\n")


class Server:
    def __init__(self, url, token):
        self.host, self.port = url.removeprefix("https://").split(":")
        self.token = token

    def send(self, method, path, headers=(), body=None, context=None):
        """Sends a request over a connection of its own. Returns the code and the body, or 0 if there is no response."""
        connection = http.client.HTTPSConnection(self.host, int(self.port), timeout=30,
                                                 context=context or ssl._create_unverified_context())
        try:
            connection.putrequest(method, path)
            sent = json.dumps(body).encode() if body is not None else b""
            for name, value in [*headers, ("Content-Type", "application/json"), ("Content-Length", str(len(sent)))]:
                connection.putheader(name, value.encode("utf-8", "surrogateescape"))
            connection.endheaders(sent)
            response = connection.getresponse()
            text = response.read()
        except (OSError, http.client.HTTPException, ValueError):
            return 0, {}
        finally:
            connection.close()
        try:
            return response.status, json.loads(text)
        except ValueError:
            return response.status, {}

    def admin(self, method, path, body=None):
        return self.send(method, path, [("Authorization", f"Bearer {self.token}")], body)

    def seen(self, headers, context=None):
        """Returns the code, and the user of a request with these headers."""
        code, body = self.send("POST", SELF, headers, {"kind": "SelfSubjectReview", "apiVersion": "authentication.k8s.io/v1"}, context)
        user = body.get("status", {}).get("userInfo", {}) if code == 201 else {}
        # The serial number of a certificate and the like differ by nothing; the rest is compared.
        return code, json.dumps(user, sort_keys=True)


# Tokens.

class Issuer:
    """Publishes keys under three URLs."""

    def __init__(self, folder):
        self.folder = folder
        keys = {"keys": [self.rsa_key("rsa", "1"), self.rsa_key("rsa2", "2"), self.rsa_key("weak", "weak"), self.ec_key("ec", "3")]}

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                part = self.path.split("/")[1]
                document = keys if self.path.endswith("/keys") else {
                    "issuer": f"{ISSUER}/{part}", "jwks_uri": f"{ISSUER}/{part}/keys",
                    "id_token_signing_alg_values_supported": ["RS256", "ES256"]}
                body = json.dumps(document).encode()
                self.send_response(200)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_):
                pass

        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(folder / "issuer.crt", folder / "issuer.key")
        server = http.server.ThreadingHTTPServer(("127.0.0.1", PORT), Handler)
        server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
        threading.Thread(target=server.serve_forever, daemon=True).start()

    def rsa_key(self, name, key_id):
        modulus = openssl("rsa", "-in", self.folder / f"{name}.pem", "-noout", "-modulus").decode().strip().split("=")[1]
        return {"kty": "RSA", "kid": key_id, "use": "sig", "n": encoded(bytes.fromhex(modulus)), "e": "AQAB"}

    def ec_key(self, name, key_id):
        point = openssl("pkey", "-in", self.folder / f"{name}.pem", "-pubout", "-outform", "DER")[-64:]
        return {"kty": "EC", "crv": "P-256", "kid": key_id, "x": encoded(point[:32]), "y": encoded(point[32:])}

    def sign(self, algorithm, name, message):
        path = self.folder / f"{name}.pem"
        if algorithm == "none":
            return b""
        if algorithm == "HS256":
            public = openssl("pkey", "-in", path, "-pubout")
            return hmac.new(public, message, hashlib.sha256).digest()
        signature = openssl("dgst", "-sha256", "-sign", path, given=message)
        if name != "ec":
            return signature
        # From DER to two numbers of 32 bytes.
        length = signature[3]
        numbers = [signature[4:4 + length], signature[6 + length:]]
        return b"".join(number.lstrip(b"\0").rjust(32, b"\0") for number in numbers)


def encoded(data):
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


ODD = [None, True, 1, 1.5, "", "x", [], ["x"], [["x"]], ["x", 1], {}, {"a": 1}, "system:masters", " us ", "us"]


def claims_of(choose):
    now = int(time.time())
    part = choose.choice("aaabbc")
    claims = {"iss": f"{ISSUER}/{part}", "aud": "us", "sub": "s", "exp": now + 600, "iat": now, "nbf": now - 10, "groups": ["x", "y"],
              "uid": "7", "tenant": "t", "x": "v", "hd": "example.org", "email": "a@b.c", "email_verified": True, "https://x/y": ["z"]}
    changes = {
        "iss": [f"{ISSUER}/{part}/", f"{ISSUER}/A", f"{ISSUER}/a?x", f"http://127.0.0.1:{PORT}/a", f"{ISSUER}/d", *ODD],
        "aud": ["them", ["us", "x"], ["x"], "US", *ODD],
        "exp": [now - 1, now - 100, 0, -1, now + 600.7, str(now + 600), 1e30, -1e30, 9223372036854775807, *ODD],
        "nbf": [now + 30, now + 59, now + 61, now + 3600, str(now), 1e30, *ODD],
        "iat": [now + 3600, *ODD],
        "sub": ["\u00e9", "a\nb", "x" * 3000, "system:admin", *ODD],
        "groups": [["system:masters"], "one", [""], *ODD],
        "email": ["system:admin", *ODD],
        "email_verified": ["true", False, *ODD],
        "_claim_names": [{"groups": "src"}, {"https://x/y": "src"}, *ODD],
        "tenant": ODD, "x": ODD, "hd": ["example.com", ["example.org"], *ODD], "uid": ODD, "https://x/y": ODD,
    }
    for name in choose.sample(list(changes), choose.choice([0, 1, 1, 1, 2])):
        if choose.random() < 0.2:
            claims.pop(name, None)
        else:
            claims[name] = choose.choice(changes[name])
    return claims


def token_of(issuer, choose):
    """Returns a token, and what is wrong with it."""
    claims, label = claims_of(choose), []
    algorithm, key, key_id = choose.choice([("RS256", "rsa", "1")] * 6 + [
        ("RS256", "rsa2", "2"), ("ES256", "ec", "3"), ("RS256", "rsa", "2"), ("RS256", "rsa", "nope"), ("RS256", "rsa", None),
        ("none", "rsa", "1"), ("HS256", "rsa", "1"), ("RS256", "weak", "weak"), ("ES256", "rsa", "1"), ("RS512", "rsa", "1"),
        ("rs256", "rsa", "1"), ("RS256", "ec", "3"), ("", "rsa", "1"), (None, "rsa", "1")])
    header = {"alg": algorithm, "kid": key_id, "typ": "JWT"}
    header = {name: value for name, value in header.items() if value is not None}
    if choose.random() < 0.08:
        header.update(choose.choice([{"crit": ["exp"]}, {"crit": []}, {"b64": False}, {"kid": 1}, {"alg": ["RS256"]}, {"typ": 1}, {"jku": "x"},
                                     {"jwk": {}}, {"cty": "JWT"}, {"x5c": ["x"]}]))
    text = json.dumps(claims)
    if choose.random() < 0.06:
        name, value = choose.choice([("sub", "eve"), ("aud", "us"), ("exp", 1), ("iss", "x"), ("SUB", "eve"), ("Aud", "x")])
        twice = f'"{name}": {json.dumps(value)}'
        text = choose.choice([text[:-1] + ", " + twice + "}", "{" + twice + ", " + text[1:]])
        label.append("twice " + name)
    parts = [encoded(json.dumps(header).encode()), encoded(text.encode())]
    parts.append(encoded(issuer.sign(algorithm, key, ".".join(parts).encode())))
    token = ".".join(parts)
    if choose.random() < 0.25:
        name, change = choose.choice([
            ("padding", lambda: ".".join(part + "=" * (-len(part) % 4) for part in parts)),
            ("no signature", lambda: f"{parts[0]}.{parts[1]}."), ("two parts", lambda: f"{parts[0]}.{parts[1]}"),
            ("four parts", lambda: token + "." + parts[2]), ("two signatures", lambda: token + "," + parts[2]),
            ("other header", lambda: f"{encoded(b'{}')}.{parts[1]}.{parts[2]}"), ("space in front", lambda: " " + token),
            ("space behind", lambda: token + " "), ("space inside", lambda: f"{parts[0]} .{parts[1]}.{parts[2]}"),
            ("cut", lambda: token[:choose.randrange(len(token))]), ("one bit", lambda: flipped(token, choose)),
            ("standard base64", lambda: token.replace("-", "+").replace("_", "/")), ("no header", lambda: f".{parts[1]}.{parts[2]}"),
            ("JSON form", lambda: json.dumps({"payload": parts[1], "signatures": [{"protected": parts[0], "signature": parts[2]}]})),
            ("swapped", lambda: f"{parts[1]}.{parts[0]}.{parts[2]}"), ("long", lambda: token + "A" * 4000),
            ("line break in base64", lambda: f"{parts[0]}.{parts[1][:8]}\u00a0{parts[1][8:]}.{parts[2]}")])
        token = change()
        label.append(name)
    return token, f"{label} {header} {text}"


def flipped(token, choose):
    at = choose.randrange(len(token))
    return token[:at] + ("A" if token[at] != "A" else "B") + token[at + 1:]


def oidc(judge, folder, choose, cases):
    issuer = Issuer(folder)
    good = json.dumps({"iss": f"{ISSUER}/a", "aud": "us", "sub": "s", "uid": "7", "exp": int(time.time()) + 600})
    parts = f"{encoded(json.dumps({'alg': 'RS256', 'kid': '1'}).encode())}.{encoded(good.encode())}"
    token = f"{parts}.{encoded(issuer.sign('RS256', 'rsa', parts.encode()))}"
    end = time.monotonic() + 60
    for server in judge.servers:
        while server.seen([("Authorization", f"Bearer {token}")])[0] != 201 and time.monotonic() < end:
            time.sleep(0.5)
    assert time.monotonic() < end, "the servers do not accept a correct token"
    for _ in range(cases):
        token, label = token_of(issuer, choose)
        scheme = choose.choice(["Bearer"] * 12 + ["bearer", "BEARER", "Bearer ", "Basic", "", "Bearer\t"])
        judge.compare(f"{scheme!r} {label} {token[:200]}", lambda server: server.seen([("Authorization", f"{scheme} {token}")]))


# The front proxy.

def proxy(judge, folder, choose, cases):
    contexts = {None: ssl._create_unverified_context()}
    for name in ["front", "other-name", "for-servers", "expired", "of-clients", "unknown"]:
        contexts[name] = ssl._create_unverified_context()
        contexts[name].load_cert_chain(folder / f"{name}.crt", folder / f"{name}.key")
    for _ in range(cases):
        name = choose.choice(["front"] * 6 + list(contexts))
        headers = [(choose.choice(PROXY_HEADERS), choose.choice(PROXY_VALUES)) for _ in range(choose.randrange(5))]
        if choose.random() < 0.7:
            headers.insert(choose.randrange(len(headers) + 1), ("X-Remote-User", "bob"))
        judge.compare(f"{name} {headers}", lambda server: server.seen(headers, contexts[name]))


# Bootstrap tokens.

def bootstrap(judge, _, choose, cases):
    now = time.time()
    stamp = lambda shift, form="%Y-%m-%dT%H:%M:%SZ": time.strftime(form, time.gmtime(now + shift))
    values = {
        "token-id": ["ABCDEF", "abcde", "", "abcdeg"], "token-secret": ["0123456789abcdeg", "", "0123456789ABCDEF", "0123456789abcdef "],
        "usage-bootstrap-authentication": ["True", "1", "false", "", "true "], "usage-bootstrap-signing": ["true"],
        "expiration": [stamp(3600), stamp(-3600), stamp(3600, "%Y-%m-%dT%H:%M:%S+00:00"), stamp(3600, "%Y-%m-%dT%H:%M:%S"),
                       stamp(3600, "%Y-%m-%d"), "never", "", "0", stamp(3600, "%Y-%m-%dT%H:%M:%S.123Z"), "9999-12-31T23:59:59Z",
                       "10000-01-01T00:00:00Z", stamp(3600) + " ", stamp(3600, "%Y-%m-%dt%H:%M:%Sz"), "2026-13-01T00:00:00Z"],
        "auth-extra-groups": ["system:bootstrappers:a", "system:bootstrappers:a,system:bootstrappers:b", "system:masters", "system:bootstrappers",
                              "system:bootstrappers:", "system:bootstrappers:A", "system:bootstrappers:a,", ",", " system:bootstrappers:a",
                              "system:bootstrappers:a, system:bootstrappers:b", "system:bootstrappers:a:", "system:bootstrappers:-",
                              "system:bootstrappers:a-", "system:bootstrappers:" + "a" * 250, "system:bootstrappers:" + "a" * 300, "system:bootstrappers:a\n"],
    }
    for number in range(cases):
        token_id = f"t{number:05d}"
        data = {"token-id": token_id, "token-secret": "0123456789abcdef", "usage-bootstrap-authentication": "true"}
        for name in choose.sample(list(values), choose.choice([0, 1, 1, 2])):
            data[name] = choose.choice(values[name])
        for name in ["token-id", "token-secret", "usage-bootstrap-authentication"]:
            if choose.random() < 0.04:
                del data[name]
        kind = choose.choice(["bootstrap.kubernetes.io/token"] * 9 + ["Opaque"])
        binary = {name: base64.b64encode(value.encode()).decode() for name, value in data.items()}
        if choose.random() < 0.05:
            binary[choose.choice(list(data))] = base64.b64encode(b"\xff\xfe").decode()
        name = choose.choice([f"bootstrap-token-{token_id}"] * 9 + [f"bootstrap-tokens-{token_id}"])
        secret = {"metadata": {"name": name}, "type": kind, "data": binary}
        if choose.random() < 0.05:
            secret["metadata"]["finalizers"] = ["example.org/stay"]
        token = choose.choice([f"{token_id}.0123456789abcdef"] * 12 + [
            f"{token_id}.0123456789abcdeg", f"{token_id}.0123456789abcdef.x", f"{token_id.upper()}.0123456789abcdef", f"{token_id}.",
            f"{token_id}.{data.get('token-secret', '')}", f"{data.get('token-id', '')}.0123456789abcdef", f"{token_id}:0123456789abcdef"])

        def seen(server):
            made = server.admin("POST", SECRETS, secret)[0]
            if "finalizers" in secret["metadata"]:
                server.admin("DELETE", f"{SECRETS}/{name}")
            # A kube-apiserver reads Secrets from a cache that follows its writes.
            time.sleep(0.05)
            found = server.seen([("Authorization", f"Bearer {token}")])
            server.admin("DELETE", f"{SECRETS}/{name}")
            return made, *found

        judge.compare(f"{token} {secret}", seen)


# ABAC.

def abac(judge, folder, choose, cases):
    lines = [line for line in (folder / "policies.jsonl").read_text().splitlines() if line.startswith("{")]
    for _ in range(cases):
        number = choose.randrange(len(lines))
        spec = {"user": f"u{number}", "groups": choose.choice([[], ["g"], ["system:authenticated"], ["g", f"only{number}"], [f"only{number}"]])}
        verb = choose.choice(["get", "list", "watch", "create", "delete", "*", "GET", ""])
        if choose.random() < 0.3:
            path = choose.choice(["/healthz", "/healthz/etcd", "/healthzz", "/api/v1", "/api", "/", "*", "/a/x", ""])
            spec["nonResourceAttributes"] = {"path": path, "verb": verb}
        else:
            spec["resourceAttributes"] = {"verb": verb, "namespace": choose.choice(["a", "b", "", "A", "a*"]),
                                          "resource": choose.choice(["pods", "secrets", "Pods", "*", "pods/log"]),
                                          "group": choose.choice(["", "apps", "Apps", "*"]), "subresource": choose.choice(["", "", "log"])}

        def decided(server):
            code, body = server.admin("POST", ACCESS, {"spec": spec})
            return code, json.dumps(body.get("status", {}), sort_keys=True) if code == 201 else ""

        judge.compare(f"{lines[number]} {spec}", decided)


PARTS = {"oidc": oidc, "proxy": proxy, "bootstrap": bootstrap, "abac": abac}


class Judge:
    """Asks two servers and counts."""

    def __init__(self, want, got, verbose):
        self.servers, self.verbose = (want, got), verbose
        self.codes, self.total, self.equal = collections.Counter(), 0, 0

    def compare(self, label, ask):
        want, got = (ask(server) for server in self.servers)
        self.total += 1
        self.equal += want == got
        self.codes[want[0] if len(want) == 2 else want[1]] += 1
        if want != got or self.verbose:
            print(f"{label}\n  want {want}\n  got  {got}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", choices=["prepare", "run"])
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("urls", nargs="*", metavar="WANT_URL GOT_URL TOKEN")
    parser.add_argument("--part", choices=PARTS, action="append")
    parser.add_argument("--cases", type=int, default=300)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("-v", action="store_true", help="print equal judgements too")
    flags = parser.parse_args()
    if flags.command == "prepare":
        return prepare(flags.folder.absolute())
    want, got, token = flags.urls
    for part in flags.part or PARTS:
        judge = Judge(Server(want, token), Server(got, token), flags.v)
        PARTS[part](judge, flags.folder, random.Random(flags.seed), flags.cases)
        print(f"{part}: {judge.equal} of {judge.total} equal; status codes {dict(judge.codes)}")


if __name__ == "__main__":
    main()
