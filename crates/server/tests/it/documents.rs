//! Non-resource paths: discovery, OpenAPI, health checks, the index.

use crate::world::{Options, Server};

fn server() -> Server {
    Server::start_plain(Options::default())
}

#[test]
fn documents_have_the_accepted_media_type() {
    const AGGREGATED: &str = "application/json;g=apidiscovery.k8s.io;as=APIGroupDiscoveryList";
    let server = server();
    let client = server.client();
    let check = |path: &str, headers: &str, status: u16, media_type: &str, beginning: &[u8]| {
        let answer = client.raw_response("GET", path, &format!("{headers}\r\n"), &[]);
        assert_eq!((answer.status, &*answer.media_type), (status, media_type), "{path} {headers}");
        assert!(answer.body.starts_with(beginning), "{path} {headers}");
        assert_eq!(beginning.is_empty(), answer.body.is_empty(), "{path} {headers}");
    };
    let protobuf = "application/vnd.kubernetes.protobuf";
    let accept = format!("Accept: {protobuf}");
    check("/api", &accept, 200, protobuf, b"k8s\0\n\x0f\n\0\x12\x0bAPIVersions");
    check("/apis", &accept, 200, protobuf, b"k8s\0\n\x12\n\x02v1\x12\x0cAPIGroupList");
    check("/apis/apps", &accept, 200, protobuf, b"k8s\0\n\x0e\n\x02v1\x12\x08APIGroup");
    check("/apis/apps/v1", &accept, 200, protobuf, b"k8s\0\n\x15\n\x02v1\x12\x0fAPIResourceList");
    let accept = format!("Accept: {AGGREGATED};v=v2");
    check("/apis", &accept, 200, aggregated_type(), b"{\"kind\":\"APIGroupDiscoveryList\"");
    // 1.36 does not serve the older version.
    let accept = format!("Accept: {AGGREGATED};v=v2beta1");
    check("/apis", &accept, 406, "application/json", b"{\n  \"kind\": \"Status\"");
    let accept = format!("Accept: {AGGREGATED};v=v2beta1,application/json");
    check("/apis", &accept, 200, "application/json", b"{\"kind\":\"APIGroupList\"");
    for path in ["/openapi/v2", "/openapi/v3/version"] {
        check(path, "Accept: text/plain", 406, "", b"");
        check(path, "If-None-Match: *", 304, "", b"");
    }
    check("/openapi/v3", "Accept: */*", 200, "text/plain; charset=utf-8", b"{\"paths\"");
    check("/openapi/v3/nosuch", "Accept: */*", 404, "", b"");
    check("/openapi/v3/version?hash=0", "Accept: */*", 301, "application/json", b"");
    server.stop();
}

fn aggregated_type() -> &'static str {
    "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
}

#[test]
fn health_has_the_checks_of_kube_apiserver() {
    let server = server();
    let client = server.client();
    let check = |path: &str, status: u16, text: &str| {
        let answer = client.get(path);
        assert_eq!((answer.status, answer.body.as_str()), (status, Some(text)), "{path}");
    };
    for path in ["/livez", "/readyz", "/livez/etcd", "/readyz/etcd", "/readyz/etcd-readiness"] {
        check(path, 200, "ok");
    }
    check("/readyz/informer-sync", 200, "ok");
    check("/livez/poststarthook/crd-informer-synced", 200, "ok");
    check("/livez?exclude=nope", 200, "ok");
    let none =
        ["/livez/nope", "/livez/", "/livez/etcd-readiness", "/livez/shutdown", "/livez/etcd/x"];
    for path in none {
        check(path, 404, "404 page not found\n");
    }
    let answer = client.get("/livez?verbose&exclude=etcd&exclude=nope");
    let text = answer.body.as_str().expect("text");
    let head = "[+]ping ok\n[+]log ok\n[+]loopback-serving-certificate ok\n[+]etcd excluded: ok\n";
    assert!(text.starts_with(head), "{text}");
    let tail = "[+]poststarthook/apiservice-openapiv3-controller ok\nwarn: some health checks cannot be \
                excluded: no matches for \"nope\"\nlivez check passed\n";
    assert!(text.ends_with(tail), "{text}");
    let body = client.get("/readyz?verbose").body;
    let text = body.as_str().expect("text");
    assert!(text.ends_with("[+]shutdown ok\nreadyz check passed\n"), "{text}");
    let metrics = client.get("/metrics/slis").body;
    let counts = metrics.as_str().expect("text");
    for line in [
        r#"kubernetes_healthcheck{name="etcd",type="livez"} 1"#,
        r#"kubernetes_healthchecks_total{name="shutdown",status="success",type="readyz"} 2"#,
    ] {
        assert!(counts.lines().any(|other| other == line), "{line}: {counts}");
    }
    server.stop();
}

#[test]
fn the_index_contains_non_resource_paths() {
    let server = server();
    let client = server.client();
    let index = client.get("/").body;
    assert_eq!(client.get("/index.html").body, index);
    let paths: Vec<&str> =
        index["paths"].as_array().expect("paths").iter().filter_map(|path| path.as_str()).collect();
    for path in ["/apis/", "/livez/etcd", "/metrics/slis", "/openapi/v3/", "/openid/v1/jwks"] {
        assert!(paths.contains(&path), "{path}");
    }
    assert!(paths.is_sorted());
    server.stop();
}
