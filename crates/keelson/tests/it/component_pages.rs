//! `/statusz` and `/flagz`, as kube-apiserver 1.36 answers them.

use crate::http::Server;
use keelson::Keelson;
use keelson_meta::Feature;
use serde_json::Value;

fn server(pages: bool) -> Server {
    let mut builder = Keelson::builder().in_memory().no_controllers();
    builder.flags = vec![("bind-address".into(), "0.0.0.0".into()), ("v".into(), String::new())];
    for feature in [Feature::ComponentStatusz, Feature::ComponentFlagz] {
        builder.apis.features = builder.apis.features.with(feature, pages);
    }
    Server::start_plain(builder)
}

#[test]
fn component_pages_are_text_unless_an_object_is_accepted() {
    let server = server(true);
    let client = server.client();
    let get = |path: &str, accept: &str| {
        let answer = client.raw_response("GET", path, &format!("Accept: {accept}\r\n"), &[]);
        (answer.status, String::from_utf8(answer.body).expect("text"))
    };
    for accept in ["*/*", "text/plain", "application/json, text/plain;q=0.1"] {
        let (status, text) = get("/statusz", accept);
        assert_eq!(status, 200, "{accept}");
        assert!(text.starts_with("\napiserver statusz\nWarning: "), "{text}");
        assert!(
            text.contains(
                "\nBinary version: 1.36.2\nEmulation version: 1.36\nPaths: /flagz /healthz "
            ),
            "{text}"
        );
    }
    let (_, text) = get("/flagz", "*/*");
    assert!(text.starts_with("\napiserver flagz\nWarning: "), "{text}");
    assert!(text.ends_with("only.\nbind-address 0.0.0.0\nv \n"), "{text}");
    for version in ["v1alpha1", "v1beta1"] {
        let accept = |kind: &str| format!("application/json;v={version};g=config.k8s.io;as={kind}");
        let (_, text) = get("/statusz", &accept("Statusz"));
        let page: Value = serde_json::from_str(&text).expect("JSON");
        assert_eq!(page["apiVersion"], format!("config.k8s.io/{version}"));
        assert_eq!(page["metadata"]["name"], "apiserver");
        assert_eq!(page["binaryVersion"], "1.36.2");
        let paths = serde_json::json!([
            "/flagz", "/healthz", "/livez", "/metrics", "/readyz", "/statusz", "/version"
        ]);
        assert_eq!(page["paths"], paths);
        let (_, text) = get("/flagz", &accept("Flagz"));
        let page: Value = serde_json::from_str(&text).expect("JSON");
        assert_eq!(page["flags"], serde_json::json!({"bind-address": "0.0.0.0", "v": ""}));
    }
    let (_, yaml) = get("/flagz", "application/yaml;v=v1beta1;g=config.k8s.io;as=Flagz");
    assert!(yaml.contains("\nkind: Flagz\n"), "{yaml}");
    for accept in [
        "application/json",
        "application/json;v=v1;g=config.k8s.io;as=Statusz",
        "application/json;v=v1beta1;g=config.k8s.io;as=Flagz",
        "application/cbor;v=v1beta1;g=config.k8s.io;as=Statusz",
        "text/html",
    ] {
        assert_eq!(get("/statusz", accept).0, 406, "{accept}");
    }
    server.stop();
}

#[test]
fn component_pages_depend_on_their_feature_gates() {
    let server = server(false);
    let client = server.client();
    for path in ["/statusz", "/flagz"] {
        assert_eq!(client.get(path).status, 404, "{path}");
    }
    let index = client.get("/").body.to_string();
    assert!(!index.contains("/statusz") && index.contains("/healthz"), "{index}");
    server.stop();
}
