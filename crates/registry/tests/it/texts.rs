//! The text of raw extensions is stored unchanged, as in kube-apiserver.

use crate::harness::causes;
use crate::rules::Session;
use keelson_meta::Value;
use keelson_registry::Answer;
use keelson_registry::options::Freshness;
use keelson_schema::{Schema, Shape, Types, json};
use std::collections::HashSet;

const REVISIONS: &str = "/apis/apps/v1/namespaces/n/controllerrevisions";
const CLASSES: &str = "/apis/resource.k8s.io/v1/deviceclasses";

fn path(name: &str) -> String {
    format!("{REVISIONS}/{name}")
}

impl Session {
    async fn as_media(&self, request: &str, media: &str, body: &str) -> (u16, Value) {
        let (method, path) = request.split_once(' ').expect("a request is a method and a path");
        self.harness.send(method, path, media, body.as_bytes()).await.expect("the path is known")
    }

    /// Returns the JSON of a GET at a revision.
    async fn shown(&self, name: &str) -> String {
        let target = self.harness.registry.target("apps", "controllerrevisions", "n", name);
        let got = self.harness.registry.get(&self.harness.permit, &target, Freshness::Latest).await;
        let Answer::Entry(entry) = got.expect("it is there") else { panic!("not an entry") };
        String::from_utf8(entry.json_slice().to_vec()).expect("UTF-8")
    }
}

fn revision(name: &str, data: &str) -> String {
    format!(r#"{{"metadata":{{"name":"{name}"}},"revision":1,"data":{data}}}"#)
}

#[tokio::test]
async fn data_of_a_controller_revision_is_compared_as_text() {
    let session = Session::open().await;
    let label = r#"{"metadata":{"labels":{"x":"y"}}}"#;
    let add = r#"[{"op":"add","path":"/metadata/labels","value":{"x":"z"}}]"#;
    let cases = [
        // Data, its response, and the result of a strategic patch; a differing result is rejected.
        (
            r#"{"b": 1, "a":[1, 2.0,1e3]}"#,
            r#"{"b":1,"a":[1,2.0,1e3]}"#,
            r#"{"a":[1,2,1000],"b":1}"#,
        ),
        (r#"{"b":1,"a":0.10}"#, r#"{"b":1,"a":0.10}"#, r#"{"a":0.1,"b":1}"#),
        (r#"{"a":1,"a":2}"#, r#"{"a":1,"a":2}"#, r#"{"a":2}"#),
        (r#"{"a":"<\u0041\/>"}"#, r#"{"a":"\u003c\u0041\/\u003e"}"#, r#"{"a":"\u003cA/\u003e"}"#),
        (r#"{"a":1,"b":2}"#, r#"{"a":1,"b":2}"#, r#"{"a":1,"b":2}"#),
    ];
    for (at, (data, shown, sorted)) in cases.into_iter().enumerate() {
        let name = format!("r{at}");
        let body = revision(&name, data);
        let all = format!("POST {REVISIONS}");
        assert_eq!(session.as_media(&all, "", &body).await.0, 201, "{data}");
        let text = session.shown(&name).await;
        assert!(text.contains(&format!(r#""data":{shown},"#)), "{text}");
        let refused = |text: &str| vec![format!("data: Invalid value: {text}: field is immutable")];
        let expect = |is_same: bool, text: &str| if is_same { vec![] } else { refused(text) };
        let put = format!("PUT {}", path(&name));
        let patch = format!("PATCH {}", path(&name));
        for (request, media, body, expected) in [
            (&put, "", body.clone(), vec![]),
            // The slow path, which decodes values.
            (&put, "", body.replace(r#""revision""#, r#""no":1,"revision""#), vec![]),
            (&put, "", revision(&name, sorted), expect(sorted == data, sorted)),
            (&patch, "application/merge-patch+json", label.into(), expect(shown == data, shown)),
            (&patch, "application/json-patch+json", add.into(), expect(shown == data, shown)),
            (
                &patch,
                "application/strategic-merge-patch+json",
                label.into(),
                expect(sorted == data, sorted),
            ),
        ] {
            let (code, answer) = session.as_media(request, media, &body).await;
            assert_eq!(causes(&answer), expected, "{request} {media} {body} of {data}");
            assert_eq!(code, if expected.is_empty() { 200 } else { 422 });
        }
    }
}

#[tokio::test]
async fn reformatted_parameters_of_a_device_class_are_changes() {
    let session = Session::open().await;
    let class = |parameters: &str| {
        format!(
            r#"{{"metadata":{{"name":"d"}},"spec":{{"config":[
                {{"opaque":{{"driver":"a.com","parameters":{parameters}}}}}]}}}}"#
        )
    };
    let one = format!("{CLASSES}/d");
    session.send(&format!("POST {CLASSES}"), &class(r#"{"b": 1}"#)).await;
    for (body, generation) in [
        (class(r#"{"b": 1}"#), "1"),
        (class(r#"{"b":1}"#), "2"),
        (class(r#"{"b":1}"#), "2"),
        (class(r#"{"b":1.0}"#), "3"),
    ] {
        session
            .check_at(&format!("PUT {one}"), &body, &["metadata", "generation"], generation)
            .await;
    }
    let text = class("7");
    let causes = [
        r#"spec.config[0].opaque.parameters: Invalid value: "<value omitted>": must be a valid JSON object"#,
    ];
    session.check(&format!("PUT {one}"), &text, 422, &causes).await;
}

/// Whether objects of a kind may contain raw extensions.
fn holds_texts(types: &Types, shape: &Shape, seen: &mut HashSet<u32>) -> bool {
    match shape {
        Shape::RawExtension => true,
        Shape::List(list) => holds_texts(types, &list.item, seen),
        Shape::Map(map) => holds_texts(types, &map.value, seen),
        Shape::Struct(id) if seen.insert(id.0) => {
            types.get(*id).fields.iter().any(|field| holds_texts(types, &field.shape, seen))
        }
        _ => false,
    }
}

#[tokio::test]
async fn each_kind_with_raw_text_declares_it() {
    let session = Session::open().await;
    let mut found = 0;
    for kind in session.harness.registry.kinds() {
        let holds = |schema: &Schema| {
            let fields = schema.root().fields.iter();
            let mut seen = HashSet::new();
            fields.into_iter().any(|field| holds_texts(&schema.types, &field.shape, &mut seen))
        };
        assert_eq!(kind.strategy.has_raw_extension, holds(&kind.storage), "{}", kind.name());
        found += usize::from(kind.strategy.has_raw_extension);
    }
    assert!(found > 3, "{found}");
}

#[test]
fn raw_text_is_parsed_when_its_value_is_read() {
    let value = Value::Raw(r#"{"a": [1.0]}"#.into());
    let mut text = vec![];
    json::write_value(&json::parse_raw(value), &mut text);
    assert_eq!(text, br#"{"a":[1]}"#);
}
