//! Invalid requests on valid connections: each gets the status, the reason and the message of
//! kube-apiserver 1.36, and changes nothing.

use crate::world::{Client, Options, Server};
use serde_json::Value;

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const JSON: &str = "application/json";
const YAML: &str = "application/yaml";
/// The Go type into which a body that is not an object would be decoded.
const TYPE_META: &str = "type struct { APIVersion string \"json:\\\"apiVersion,omitempty\\\"\"; \
                         Kind string \"json:\\\"kind,omitempty\\\"\" }";

/// A server without controllers, and its objects before a test.
struct UnchangedServer {
    server: Server,
    before: Value,
}

impl UnchangedServer {
    fn start() -> UnchangedServer {
        let server = Server::start_plain(Options::default());
        let before = everything(&server.client());
        UnchangedServer { server, before }
    }

    /// Sends a request and compares code, reason and message of the response.
    #[track_caller]
    fn check(&self, line: &str, media: &str, body: &[u8], want: (u16, &str, &str)) {
        let answer = self.server.client().send_bytes(line, &headers(media), body);
        let shown: String = String::from_utf8_lossy(body).chars().take(100).collect();
        let text = |name: &str| answer.body[name].as_str().unwrap_or_default();
        let got = (answer.status, text("reason"), text("message"));
        assert_eq!(got, want, "{line} {shown}");
        assert_eq!(answer.body["code"], want.0, "{line} {shown}");
    }

    /// Checks that a create is rejected.
    #[track_caller]
    fn create(&self, media: &str, body: impl AsRef<[u8]>, want: (u16, &str, &str)) {
        self.check(&format!("POST {MAPS}"), media, body.as_ref(), want);
    }

    /// Checks that objects and revision are unchanged.
    fn end(self) {
        assert_eq!(everything(&self.server.client()), self.before);
        self.server.stop();
    }
}

fn headers(media: &str) -> String {
    if media.is_empty() { String::new() } else { format!("Content-Type: {media}\r\n") }
}

/// Returns all objects of the kinds under test, and the latest revision.
fn everything(client: &Client) -> Value {
    let lists = ["/api/v1/configmaps", "/api/v1/namespaces", "/api/v1/pods"];
    lists.iter().map(|path| client.get(path).body).collect()
}

const BAD: &str = "BadRequest";

fn unrecognized(why: &str) -> String {
    format!("the object provided is unrecognized (must be of type ConfigMap): {why}")
}

fn json_error(why: &str) -> String {
    unrecognized(&format!("couldn't get version/kind; json parse error: {why}"))
}

#[test]
fn malformed_json_has_the_error_text_of_go() {
    let unchanged = UnchangedServer::start();
    let check = |body: &[u8], why: &str| unchanged.create(JSON, body, (400, BAD, &json_error(why)));
    check(b"", "unexpected end of JSON input (<empty>)");
    check(b"{", "unexpected end of JSON input ({)");
    check(b"not json", "invalid character 'o' in literal null (expecting 'u') (6e6f74206a736f6e)");
    check(b"{\"a\":}", "invalid character '}' looking for beginning of value ({\"a\":})");
    check(b"{\"a\" 1}", "invalid character '1' after object key ({\"a\" 1})");
    check(
        b"{\"a\":1,}",
        "invalid character '}' looking for beginning of object key string ({\"a\":1,})",
    );
    check(
        b"{'a':1}",
        "invalid character '\\'' looking for beginning of object key string ({'a':1})",
    );
    check(b"{\"a\":01}", "invalid character '1' after object key:value pair ({\"a\":01})");
    check(b"{\"a\":\"\x01\"}", "invalid character '\\x01' in string literal ({\"a\":\"\x01\"})");
    check(b"{\"a\":\"\\x\"}", "invalid character 'x' in string escape code ({\"a\":\"\\x\"})");
    check(b"{} {}", "invalid character '{' after top-level value ({} {})");
    let array = format!("json: cannot unmarshal array into Go value of {TYPE_META} (5b5d)");
    check(b"[]", &array);
    let string = format!("json: cannot unmarshal string into Go value of {TYPE_META} (2273747222)");
    check(b"\"str\"", &string);
    unchanged.end();
}

#[test]
fn malformed_yaml_is_rejected() {
    let unchanged = UnchangedServer::start();
    let mapping =
        unrecognized("yaml: mapping values are not allowed in this context (613a20623a2063)");
    unchanged.create(YAML, "a: b: c", (400, BAD, &mapping));
    let utf8 = unrecognized("yaml: invalid leading UTF-8 octet (613a2022ff22)");
    unchanged.create(YAML, b"a: \"\xff\"", (400, BAD, &utf8));
    let number = "ConfigMap in version \"v1\" cannot be handled as a ConfigMap: json: cannot unmarshal \
                  number into Go struct field ConfigMap.data of type string";
    unchanged.create(YAML, "data:\n  k: 1\n", (400, BAD, number));
    unchanged.end();
}

#[test]
fn expanding_bodies_are_rejected_before_expansion() {
    let unchanged = UnchangedServer::start();
    let client = unchanged.server.client();
    let check = |media: &str, body: String, words: &str| {
        let answer = client.send_bytes(&format!("POST {MAPS}"), &headers(media), body.as_bytes());
        let message = answer.body["message"].as_str().unwrap_or_default();
        assert_eq!(answer.status, 400, "{words}: {message}");
        assert!(message.contains(words), "{words}: {message}");
    };
    let deep = 100_000;
    check(JSON, "[".repeat(deep), "exceeded max depth");
    check(JSON, "{\"a\":".repeat(deep), "exceeded max depth");
    check(YAML, "[".repeat(deep), "exceeded max depth");
    check(YAML, "{a: ".repeat(deep), "exceeded max depth");
    check(YAML, "- ".repeat(deep), "exceeded max depth");
    let bomb = (1..9).fold("a0: &a0 [x,x,x,x,x,x,x,x,x]\n".to_owned(), |text, i| {
        let last = format!("*a{}", i - 1);
        let nine = [last.as_str(); 9].join(",");
        format!("{text}a{i}: &a{i} [{nine}]\n")
    });
    check(YAML, bomb, "document contains excessive aliasing");
    check(YAML, "a: &a\n  b: *a\n".to_owned(), "anchor 'a' value contains itself");
    unchanged.end();
}

/// A debug build needs most of the stack, whose size the runtime sets.
#[test]
fn the_deepest_accepted_body_passes_every_verb_and_media_type() {
    let server = Server::start_plain(Options::default());
    let client = server.client();
    let all = "/apis/apps/v1/namespaces/default/controllerrevisions";
    let one = format!("{all}/a");
    // With the object itself this is the maximum depth.
    let levels = keelson_schema::json::DEPTH_MAX - 1;
    let data = format!("{}1{}", "{\"a\":".repeat(levels), "}".repeat(levels));
    let body = format!(
        "{{\"apiVersion\":\"apps/v1\",\"kind\":\"ControllerRevision\",\
         \"metadata\":{{\"name\":\"a\"}},\"revision\":1,\"data\":{data}}}"
    );
    let send = |line: &str, headers: &str, body: &str, code: u16| {
        let answer = client.send_bytes(line, headers, body.as_bytes());
        assert_eq!(answer.status, code, "{line} {headers}");
    };
    send(&format!("POST {all}"), &headers(JSON), &body, 201);
    for form in ["application/yaml", "application/vnd.kubernetes.protobuf"] {
        let answer = client.raw(
            format!(
                "GET {one} HTTP/1.0\r\nHost: h\r\nAuthorization: Bearer t\r\nAccept: {form}\r\n\r\n"
            )
            .as_bytes(),
        );
        assert_eq!(answer.map(|answer| answer.status), Some(200), "{form}");
    }
    for kind in ["merge-patch+json", "apply-patch+yaml"] {
        let line = format!("PATCH {one}?fieldManager=m{}", &kind[..1]);
        let line = if kind.starts_with("apply") { format!("{line}&force=true") } else { line };
        send(&line, &headers(&format!("application/{kind}")), &body, 200);
    }
    let copy = r#"[{"op":"copy","from":"/data","path":"/data/a/b"}]"#;
    send(&format!("PATCH {one}"), &headers("application/json-patch+json"), copy, 422);
    send(&format!("PUT {one}"), &headers(JSON), &body, 200);
    send(&format!("PUT {one}"), &headers(YAML), &body, 200);
    send(&format!("DELETE {one}"), "", "", 200);
    server.stop();
}

#[test]
fn a_body_has_a_maximum() {
    let unchanged = UnchangedServer::start();
    let large = (413, "RequestEntityTooLarge", "Request entity too large: limit is 3145728");
    let body = format!("{{\"data\":{{\"a\":\"{}\"}}}}", "x".repeat(3 << 20));
    unchanged.create(JSON, &body, large);
    unchanged.check(&format!("PUT {MAPS}/a"), JSON, body.as_bytes(), large);
    unchanged.check(&format!("DELETE {MAPS}/a"), JSON, body.as_bytes(), large);
    let merge = "application/merge-patch+json";
    unchanged.check(&format!("PATCH {MAPS}/a"), merge, body.as_bytes(), large);
    unchanged.end();
}

#[test]
fn wrong_types_and_kinds_are_named() {
    let unchanged = UnchangedServer::start();
    let typed = |body: &str, why: &str| {
        let why = format!("ConfigMap in version \"v1\" cannot be handled as a ConfigMap: {why}");
        unchanged.create(JSON, body, (400, BAD, &why));
    };
    typed(
        r#"{"metadata":"x"}"#,
        "json: cannot unmarshal string into Go struct field ConfigMap.metadata of type v1.ObjectMeta",
    );
    typed(
        r#"{"data":{"k":5}}"#,
        "json: cannot unmarshal number into Go struct field ConfigMap.data of type string",
    );
    typed(
        r#"{"metadata":{"labels":[]}}"#,
        "json: cannot unmarshal array into Go struct field ObjectMeta.metadata.labels of type \
         map[string]string",
    );
    typed(r#"{"binaryData":{"k":"%"}}"#, "illegal base64 data at input byte 0");
    let conversion = |kind: &str, from: &str| {
        format!(
            "{kind} in version \"v1\" cannot be handled as a ConfigMap: converting ({from}) to \
             (core.ConfigMap): unknown conversion"
        )
    };
    let deployment = conversion("Deployment", "v1.Deployment");
    unchanged.create(
        JSON,
        r#"{"apiVersion":"apps/v1","kind":"Deployment"}"#,
        (400, BAD, &deployment),
    );
    let secret = conversion("Secret", "v1.Secret");
    unchanged.create(JSON, r#"{"apiVersion":"v1","kind":"Secret"}"#, (400, BAD, &secret));
    let unknown = "no kind \"Nonsense\" is registered for version \"v1\" in scheme \
                   \"pkg/api/legacyscheme/scheme.go:30\"";
    let unknown = format!("Nonsense in version \"v1\" cannot be handled as a ConfigMap: {unknown}");
    unchanged.create(JSON, r#"{"apiVersion":"v1","kind":"Nonsense"}"#, (400, BAD, &unknown));
    let number = json_error(
        "json: cannot unmarshal number into Go struct field .kind of type string ({\"kind\":5})",
    );
    unchanged.create(JSON, r#"{"kind":5}"#, (400, BAD, &number));
    unchanged.end();
}

#[test]
fn names_and_labels_are_validated() {
    let unchanged = UnchangedServer::start();
    let invalid = |body: &str, why: &str| unchanged.create(JSON, body, (422, "Invalid", why));
    let subdomain = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, \
                     '-' or '.', and must start and end with an alphanumeric character (e.g. \
                     'example.com', regex used for validation is \
                     '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";
    for name in ["UPPER", "-a", "a_b", "é", "a..b"] {
        let why = format!(
            "ConfigMap \"{name}\" is invalid: metadata.name: Invalid value: \"{name}\": {subdomain}"
        );
        invalid(&format!(r#"{{"metadata":{{"name":"{name}"}}}}"#), &why);
    }
    for name in ["../x", "a/b", ".", ".."] {
        let answer = unchanged.server.client().send_bytes(
            &format!("POST {MAPS}"),
            &headers(JSON),
            format!(r#"{{"metadata":{{"name":"{name}"}}}}"#).as_bytes(),
        );
        assert_eq!(answer.status, 422, "{name}: {answer:?}");
    }
    invalid(
        "{}",
        "ConfigMap \"\" is invalid: metadata.name: Required value: name or generateName is required",
    );
    invalid(
        r#"{"metadata":{"name":"a","labels":{"a b":"c"}}}"#,
        "ConfigMap \"a\" is invalid: metadata.labels: Invalid value: \"a b\": name part must consist of \
         alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric \
         character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is \
         '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')",
    );
    let elsewhere = "the namespace of the provided object does not match the namespace sent on the \
                     request";
    let body = r#"{"metadata":{"name":"a","namespace":"other"}}"#;
    unchanged.create(JSON, body, (400, BAD, elsewhere));
    let missing = (404, "NotFound", "namespaces \"Not_There\" not found");
    let body = br#"{"metadata":{"name":"a"}}"#;
    unchanged.check("POST /api/v1/namespaces/Not_There/configmaps", JSON, body, missing);
    unchanged.end();
}

#[test]
fn parameters_are_checked() {
    let unchanged = UnchangedServer::start();
    let get = |query: &str, want: (u16, &str, &str)| {
        unchanged.check(&format!("GET {MAPS}?{query}"), "", b"", want)
    };
    get("limit=x", (400, BAD, "strconv.ParseInt: parsing \"x\": invalid syntax"));
    get("timeoutSeconds=x", (400, BAD, "strconv.ParseInt: parsing \"x\": invalid syntax"));
    get(
        "timeout=x",
        (400, BAD, "invalid timeout specified in the request URL - time: invalid duration \"x\""),
    );
    get(
        "timeout=10",
        (
            400,
            BAD,
            "invalid timeout specified in the request URL - time: missing unit in duration \"10\"",
        ),
    );
    let rule = |query: &str, why: &str| {
        let why = format!("ListOptions.meta.k8s.io \"\" is invalid: resourceVersionMatch: {why}");
        get(query, (422, "Invalid", &why));
    };
    rule(
        "resourceVersionMatch=Exact",
        "Forbidden: resourceVersionMatch is forbidden unless resourceVersion is provided",
    );
    rule(
        "resourceVersion=1&resourceVersionMatch=x",
        "Unsupported value: \"x\": supported values: \"Exact\", \"NotOlderThan\", \"\"",
    );
    get(
        "fieldSelector=spec.x%3D1",
        (
            400,
            BAD,
            "\"spec.x\" is not a known field selector: only \"metadata.name\", \"metadata.namespace\"",
        ),
    );
    get(
        "fieldSelector=metadata.name",
        (400, BAD, "invalid selector: 'metadata.name'; can't understand 'metadata.name'"),
    );
    get(
        "labelSelector=a%3D%3D%3D",
        (400, BAD, "unable to parse requirement: found '=', expected: identifier"),
    );
    get(
        "resourceVersion=x",
        (
            400,
            BAD,
            "invalid resource version: resourceVersion: Invalid value: \"x\": strconv.ParseUint: \
             parsing \"x\": invalid syntax",
        ),
    );
    unchanged.end();
}

#[test]
fn parameters_of_writes_are_checked() {
    let unchanged = UnchangedServer::start();
    let post = |query: &str, why: &str| {
        let why = format!("CreateOptions.meta.k8s.io \"\" is invalid: {why}");
        let body = br#"{"metadata":{"name":"a"}}"#;
        unchanged.check(&format!("POST {MAPS}?{query}"), JSON, body, (422, "Invalid", &why));
    };
    post("dryRun=x", "dryRun: Unsupported value: [\"x\"]: supported values: \"All\"");
    post(
        "fieldValidation=x",
        "fieldValidation: Unsupported value: \"x\": supported values: \"\", \"Ignore\", \"Strict\", \
         \"Warn\"",
    );
    let delete = "strconv.ParseInt: parsing \"x\": invalid syntax";
    let line = format!("DELETE {MAPS}/a?gracePeriodSeconds=x");
    unchanged.check(&line, "", b"", (400, BAD, delete));
    unchanged.end();
}

#[test]
fn unknown_and_malformed_parameters_are_ignored() {
    let unchanged = UnchangedServer::start();
    let client = unchanged.server.client();
    for query in ["nonsense=1", "limit=-1", "%zz=1&limit=%zz", "a;b=c", "&&=", "watch=0"] {
        assert_eq!(client.get(&format!("{MAPS}?{query}")).status, 200, "{query}");
    }
    unchanged.end();
}

#[test]
fn media_types_are_negotiated() {
    let unchanged = UnchangedServer::start();
    let body = br#"{"metadata":{"name":"a"}}"#;
    let unknown = "the body of the request was in an unknown format - accepted media types include: \
                   application/json, application/yaml, application/vnd.kubernetes.protobuf";
    for media in ["text/plain", "application/xml", "application/merge-patch+json", "*/*", ";;"] {
        unchanged.create(media, body, (415, "UnsupportedMediaType", unknown));
    }
    let line = format!("PATCH {MAPS}/a");
    unchanged.check(
        &line,
        JSON,
        b"{}",
        (415, "UnsupportedMediaType", "415: Unsupported Media Type"),
    );
    let prefix = unrecognized(
        "provided data does not appear to be a protobuf message, expected prefix [107 56 115 0] \
         ({\"metadata\":{\"name\":\"a\"}})",
    );
    unchanged.create("application/vnd.kubernetes.protobuf", body, (400, BAD, &prefix));
    let answer =
        unchanged.server.client().send_bytes(&format!("GET {MAPS}"), "Accept: text/html\r\n", b"");
    assert_eq!(answer.status, 406);
    let words = "406: Not Acceptable\n\nAvailable representations: application/json, \
                 application/yaml, application/vnd.kubernetes.protobuf, application/json;stream=watch, \
                 application/vnd.kubernetes.protobuf;stream=watch";
    let got = answer.body["message"].as_str().unwrap_or_default();
    assert!(words.starts_with(got) && !got.is_empty(), "{got}");
    unchanged.end();
}

#[test]
fn unknown_verbs_and_paths_are_rejected() {
    let unchanged = UnchangedServer::start();
    let gone = (404, "NotFound", "the server could not find the requested resource");
    for line in [
        &format!("GET {MAPS}/a/nonsense") as &str,
        "GET /api/v1/namespaces/default/nonsense",
        "GET /apis/apps/v2/deployments",
        &format!("GET {MAPS}/a%2Fb"),
        "PATCH /api/v1/configmaps/a",
    ] {
        unchanged.check(line, "application/merge-patch+json", b"{}", gone);
    }
    let no = (
        405,
        "MethodNotAllowed",
        "the server does not allow this method on the requested resource",
    );
    for line in [
        &format!("PATCH {MAPS}") as &str,
        &format!("PUT {MAPS}"),
        &format!("POST {MAPS}/a"),
        &format!("BREW {MAPS}"),
        "OPTIONS /api/v1",
    ] {
        unchanged.check(line, "application/merge-patch+json", b"{}", no);
    }
    unchanged.end();
}

#[test]
fn a_wrong_token_gets_401_and_no_token_is_anonymous() {
    let unchanged = UnchangedServer::start();
    let client = unchanged.server.client();
    for (header, code) in [
        ("Authorization: Bearer wrong\r\n", 401),
        ("Authorization: bearer wrong\r\n", 401),
        // As in kube-apiserver, the token between the spaces is empty.
        ("Authorization: bearer  wrong\r\n", 403),
        ("Authorization: Basic dDp0\r\n", 403),
        ("Authorization: Bearer\r\n", 403),
        ("", 403),
    ] {
        let answer = client.send_as(&format!("GET {MAPS}"), header, b"");
        assert_eq!((answer.status, &answer.body["code"]), (code, &code.into()), "{header}");
    }
    unchanged.end();
}
