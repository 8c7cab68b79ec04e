//! `keelson validate` and the [`Validator`] behind it: their verdicts are those of a running
//! server.

use crate::http::{Server, without_controllers};
use keelson::{Validator, ValidatorInput};
use keelson_meta::Value as Object;
use serde_json::{Value, json};
use std::io::Write;
use std::process::{Command, Output, Stdio};

/// Objects that others depend on, and valid manifests.
const MANIFESTS: &str = include_str!("files/manifests.json");
/// Of the broken manifests, each one with such a number is tried; the numbers have no common factor
/// with that of the changes, so that each change occurs.
const STEP: usize = 9;

fn manifests(name: &str) -> Vec<Value> {
    let all: Value = serde_json::from_str(MANIFESTS).expect("the file is JSON");
    all[name].as_array().expect("a list").clone()
}

/// Returns the pointers of all members and items of an object, but its kind.
fn pointers(value: &Value, at: &str, out: &mut Vec<String>) {
    let members: Vec<(String, &Value)> = match value {
        Value::Object(map) => {
            map.iter().map(|(name, inner)| (name.replace('/', "~1"), inner)).collect()
        }
        Value::Array(items) => {
            items.iter().enumerate().map(|(i, inner)| (i.to_string(), inner)).collect()
        }
        _ => vec![],
    };
    for (name, inner) in members {
        let pointer = format!("{at}/{name}");
        // The server must find the collection.
        let says_where = ["/kind", "/apiVersion", "/metadata", "/metadata/namespace"];
        if !says_where.contains(&pointer.as_str()) {
            out.push(pointer.clone());
        }
        pointers(inner, &pointer, out);
    }
}

/// Returns a copy of an object in which the value at a pointer is changed.
fn changed(base: &Value, pointer: &str, change: usize) -> Value {
    let mut object = base.clone();
    let (parent, name) = pointer.rsplit_once('/').expect("a pointer");
    let name = name.replace("~1", "/");
    let replacement = match change {
        0 => None,
        1 => Some(json!(-1)),
        2 => Some(json!("")),
        3 => Some(json!("Not Valid!")),
        4 => Some(json!(70_000)),
        5 => Some(json!(["a"])),
        6 => Some(json!({"unknown": true})),
        _ => Some(Value::Null),
    };
    match (object.pointer_mut(parent).expect("it is there"), replacement) {
        (Value::Object(map), None) => {
            map.remove(&name);
        }
        (Value::Array(items), None) => {
            // An item that is there twice.
            items.push(items[0].clone());
        }
        (Value::Object(map), Some(value)) => {
            map.insert(name, value);
        }
        (Value::Array(items), Some(value)) => {
            items[name.parse::<usize>().expect("an index")] = value
        }
        _ => {}
    }
    object
}

/// The number of changes.
const CHANGES: usize = 8;

fn cases() -> Vec<Value> {
    let bases = manifests("bases");
    let mut cases = bases.clone();
    for base in &bases {
        let mut all = vec![];
        pointers(base, "", &mut all);
        let broken =
            all.iter().flat_map(|pointer| (0..CHANGES).map(move |change| (pointer, change)));
        cases.extend(broken.step_by(STEP).map(|(pointer, change)| changed(base, pointer, change)));
    }
    cases
}

/// Returns the path of the collection of an object.
fn collection(object: &Value) -> String {
    let text = |name: &str| object[name].as_str().unwrap_or_default().to_owned();
    let version = text("apiVersion");
    let kind = text("kind").to_lowercase();
    let plural = match kind.as_str() {
        kind if kind.ends_with('y') => format!("{}ies", kind.trim_end_matches('y')),
        kind if kind.ends_with('s') => format!("{kind}es"),
        kind => format!("{kind}s"),
    };
    let root =
        if version.contains('/') { format!("/apis/{version}") } else { format!("/api/{version}") };
    match object["metadata"]["namespace"].as_str() {
        Some(namespace) => format!("{root}/namespaces/{namespace}/{plural}"),
        None => format!("{root}/{plural}"),
    }
}

#[test]
fn verdicts_are_those_of_a_server() {
    let context = manifests("context");
    let cases = cases();
    assert!(cases.len() > 300, "{}", cases.len());
    let server = Server::start_plain(without_controllers());
    let client = server.client();
    for object in &context {
        let made = client.post(&collection(object), object);
        assert!(matches!(made.status, 201 | 409), "{}", made.body);
    }
    client.poll("/apis/example.com/v1/widgets", |answer| answer.status == 200);
    let all: Vec<Object> = context
        .iter()
        // The server above has no control loop that makes accounts; the validator knows that there
        // is one.
        .filter(|object| object["kind"] != "ServiceAccount")
        .chain(&cases)
        .map(|object| {
            keelson_schema::json::parse(object.to_string().as_bytes()).expect("JSON").value
        })
        .collect();
    let given: Vec<ValidatorInput<'_>> =
        all.iter().map(|value| ValidatorInput { value, text: None }).collect();
    let verdicts = server.block_on(async {
        let validator = Validator::open(None).await.expect("an empty cluster");
        validator.validate(&given).await
    });
    let (of_context, of_cases) = verdicts.split_at(verdicts.len() - cases.len());
    assert!(of_context.iter().all(|verdict| verdict.result.is_ok()), "{of_context:#?}");
    let mut refused = 0;
    for (case, verdict) in cases.iter().zip(of_cases) {
        let path = format!(
            "{}?dryRun=All&fieldValidation=Strict&fieldManager=kubectl-create",
            collection(case)
        );
        let answer = client.post(&path, case);
        let got = match &verdict.result {
            Ok(()) => json!({"code": 201}),
            Err(failure) => {
                let mut text = vec![];
                keelson_schema::json::write_value(&failure.to_value(), &mut text);
                serde_json::from_slice(&text).expect("JSON")
            }
        };
        let want = if answer.status == 201 { json!({"code": 201}) } else { answer.body.clone() };
        assert_eq!(got, want, "{case}");
        refused += usize::from(answer.status != 201);
    }
    assert!(refused > 100 && refused < cases.len() - 50, "{refused} of {}", cases.len());
    server.stop();
}

/// Runs a command with standard input, and returns its exit code and outputs.
fn run(arguments: &[&str], input: &str) -> (Option<i32>, String, String) {
    let mut child = Command::new(env!("CARGO_BIN_EXE_keelson"))
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program runs");
    child.stdin.take().expect("a pipe").write_all(input.as_bytes()).expect("written");
    let Output { status, stdout, stderr } = child.wait_with_output().expect("an exit");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (status.code(), text(&stdout), text(&stderr))
}

const BROKEN: &str = "\
apiVersion: example.com/v1
kind: Widget
metadata: {name: one, namespace: shop}
spec:
  size: 30
---
apiVersion: v1
kind: ConfigMap
metadata: {name: two}
data: {a: b, a: c}
colour: red
---
apiVersion: v1
kind: Endpoints
metadata: {name: three}
";

#[test]
fn what_is_wrong_is_printed_with_its_place() {
    let folder = tempfile::tempdir().expect("a folder");
    let context = folder.path().join("context.json");
    let list = json!({"apiVersion": "v1", "kind": "List", "items": manifests("context")});
    std::fs::write(&context, list.to_string()).expect("written");
    let context = context.display().to_string();
    let arguments = ["validate", "-", "--crds", &context];
    // A mutating policy has set the size to 11.
    let want = "\
-:5:3: error: Widget shop/one: spec.size: Invalid value: 11: spec.size in body should be less than or equal to 10 [Invalid]
-:10:1: error: ConfigMap two: key \"a\" already set in map [BadRequest]
-:11:1: error: ConfigMap two: unknown field \"colour\" [BadRequest]
-:13:1: warning: Endpoints three: v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice [Warning]
3 manifests: 2 invalid, 1 warning
";
    assert_eq!(run(&arguments, BROKEN), (Some(1), want.to_owned(), String::new()));
    let valid = "apiVersion: v1\nkind: Endpoints\nmetadata: {name: three}\n";
    assert_eq!(run(&["validate", "-", "--quiet"], valid), (Some(0), String::new(), String::new()));
    assert_eq!(run(&["validate", "-", "--strict", "-q"], valid).0, Some(1));
    let (code, text, _) = run(&["validate", "-", "-o", "json"], valid);
    let parsed: Value = serde_json::from_str(&text).expect("JSON");
    assert_eq!((code, &parsed["results"][0]["valid"]), (Some(0), &json!(true)));
    let (code, _, errors) = run(&["validate", "-"], "kind: [\n");
    assert_eq!((code, errors.starts_with("keelson: -:")), (Some(2), true), "{errors}");
}

const DEFINITION: &str = "\
kind: ConfigMap
---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: widgets.example.com}
spec:
  group: example.com
  scope: Namespaced
  names: {plural: widgets, kind: Widget}
  versions:
  - name: v1
    served: true
    storage: true
    schema:
      openAPIV3Schema:
        type: object
        properties:
          spec:
            type: object
            properties:
              max_size: {type: string}
";

#[test]
fn lint_prints_what_breaks_a_rule_with_its_place() {
    let (code, text, errors) = run(&["lint", "-"], DEFINITION);
    let first = "-:21:15: error: spec.max_size: the name \"max_size\" has a separator; write \"maxSize\" [field-name]";
    assert_eq!((code, text.lines().next(), errors.as_str()), (Some(1), Some(first), ""));
    assert!(text.ends_with("1 definition: 1 error, 0 warnings\n"), "{text}");
    assert_eq!(run(&["lint", "-", "--disable", "field-name"], DEFINITION).0, Some(0));
    let (code, text, _) = run(&["lint", "-", "-o", "sarif"], DEFINITION);
    let parsed: Value = serde_json::from_str(&text).expect("JSON");
    let result = &parsed["runs"][0]["results"][0];
    let line = &result["locations"][0]["physicalLocation"]["region"]["startLine"];
    assert_eq!((code, &result["ruleId"], line), (Some(1), &json!("field-name"), &json!(21)));
    let (_, text, _) = run(&["lint", "-", "-o", "github"], DEFINITION);
    assert!(text.starts_with("::error file=-,line=21,col=15,title=field-name::"), "{text}");
    assert_eq!(run(&["lint", "-", "--disable", "nope"], DEFINITION).0, Some(2));
    assert_eq!(run(&["lint", "-"], "a: {{ b }}: c\n").0, Some(2));
}
