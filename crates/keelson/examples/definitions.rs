//! Measures the memory that CustomResourceDefinitions hold.
//! `cargo run --release -p keelson --example definitions [COUNT [FOLDER]]`
//!
//! As a test it fails when a definition holds much more than its JSON. The measure is the number of
//! bytes that the server has allocated and not freed; `tests/clients/many_definitions.py` measures
//! resident memory, with the overhead of the allocator. `FOLDER` contains definitions in JSON that
//! are created under changed groups, instead of a generated definition of typical size.

mod responses;

use keelson::Keelson;
use responses::Response;
use serde_json::{Value, json};
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};
use std::alloc::System;
use std::io::Write;
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::time::{Duration, Instant};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

const COUNT: usize = 200;
/// Definitions that are created before the measurement, so that the history and the buffers of
/// threads have reached their size.
const WARM_UP_COUNT: usize = 100;
/// Timeout until the last definition is served.
const SERVED_TIME_MAX: Duration = Duration::from_secs(60);
const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";

type Failure = Box<dyn std::error::Error + Send + Sync>;

/// The average of one definition, in bytes.
struct Cost {
    json: usize,
    held: usize,
}

fn main() -> Result<(), Failure> {
    let mut args = std::env::args().skip(1);
    let count = args.next().map_or(Ok(COUNT), |count| count.parse())?;
    let documents = match args.next() {
        Some(folder) => read(Path::new(&folder))?,
        None => vec![document()],
    };
    let Cost { json, held } = cost(count, documents)?;
    writeln!(std::io::stdout(), "{count} definitions of {json} bytes of JSON hold {held} each")?;
    Ok(())
}

/// Reads the definitions in a folder and its subfolders.
fn read(folder: &Path) -> Result<Vec<Value>, Failure> {
    let mut out = vec![];
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            out.extend(read(&path)?);
        } else if path.extension().is_some_and(|extension| extension == "json") {
            let mut document: Value = serde_json::from_slice(&std::fs::read(&path)?)?;
            if document["kind"] == "CustomResourceDefinition" {
                let spec = document["spec"].as_object_mut().ok_or("no spec")?;
                spec.remove("conversion");
                out.push(document);
            }
        }
    }
    Ok(out)
}

/// Returns a definition of 90 kB, most of it descriptions, with the costly parts of schemas:
/// patterns, rules, defaults and columns.
fn document() -> Value {
    let field = |number: usize| {
        let text = format!("Field {number} says what is wanted of it. ").repeat(4);
        let field = match number % 5 {
            0 => json!({"type": "string", "pattern": format!("^[a-z]{{1,{}}}$", number + 1)}),
            1 => json!({"type": "integer", "format": "int32", "minimum": 1, "default": 3}),
            2 => json!({"type": "array", "items": {"type": "string"}, "maxItems": 16}),
            3 => json!({"type": "string", "enum": ["One", "Two"], "maxLength": 10}),
            _ => json!({"type": "boolean", "nullable": true}),
        };
        let mut field = field;
        field["description"] = text.into();
        (format!("field{number}"), field)
    };
    let part = |number: usize| {
        let properties: serde_json::Map<_, _> = (0..20).map(field).collect();
        let rule = json!({"rule": "!has(self.field1) || self.field1 < 100", "message": "less"});
        let part = json!({"type": "object", "description": "A part of it.",
            "properties": properties, "x-kubernetes-validations": [rule]});
        (format!("part{number}"), part)
    };
    let parts: serde_json::Map<_, _> = (0..20).map(part).collect();
    let spec = json!({"type": "object", "properties": parts});
    let schema = json!({"type": "object", "properties": {"spec": spec, "status": {
        "type": "object", "x-kubernetes-preserve-unknown-fields": true}}});
    json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "spec": {
        "group": "example.com", "scope": "Namespaced",
        "names": {"plural": "widgets", "singular": "widget", "kind": "Widget", "listKind": "WidgetList",
            "shortNames": ["wd"], "categories": ["all"]},
        "versions": [{"name": "v1", "served": true, "storage": true,
            "schema": {"openAPIV3Schema": schema}, "subresources": {"status": {}},
            "additionalPrinterColumns": [
                {"name": "One", "type": "string", "jsonPath": ".spec.part0.field0"},
                {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"}]}]}})
}

/// Returns the definition under a group of its own.
fn with_group(document: &Value, number: usize) -> Result<Vec<u8>, Failure> {
    let mut out = document.clone();
    let group = document["spec"]["group"].as_str().ok_or("no group")?;
    let plural = document["spec"]["names"]["plural"].as_str().ok_or("no plural")?;
    let group = format!("g{number}.{group}");
    let mut annotations = document["metadata"]["annotations"].clone();
    if annotations.is_null() {
        annotations = json!({});
    }
    out["metadata"] = json!({"name": format!("{plural}.{group}"), "annotations": annotations});
    out["spec"]["group"] = group.into();
    Ok(serde_json::to_vec(&out)?)
}

/// Creates `count` definitions from these documents in round, on a new server.
fn cost(count: usize, documents: Vec<Value>) -> Result<Cost, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let folder = tempfile::tempdir()?;
    let builder = Keelson::builder().data_dir(folder.path()).plain_http();
    let keelson = runtime.block_on(builder.no_controllers().token("t", "admin").start())?;
    let address = keelson.address();
    // Dropped when the client ends, however it does.
    let (running, ended) = tokio::sync::oneshot::channel::<()>();
    let client = std::thread::spawn(move || {
        let _running = running;
        create_all(address, count, &documents)
    });
    runtime.block_on(async {
        let _ = ended.await;
        keelson.stop().await;
    });
    client.join().map_err(|_| "the client panicked")?
}

fn create_all(address: SocketAddr, count: usize, documents: &[Value]) -> Result<Cost, Failure> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_nodelay(true)?;
    let mut buffer = vec![0; 4 << 20];
    let mut json = 0;
    let mut region = Region::new(ALLOCATOR);
    for number in 0..WARM_UP_COUNT + count {
        if number == WARM_UP_COUNT {
            region = Region::new(ALLOCATOR);
            json = 0;
        }
        let body = with_group(&documents[number % documents.len()], number)?;
        json += body.len();
        let response = request(&mut stream, &mut buffer, "POST", DEFINITIONS, &body)?;
        if !response.is_success() {
            return Err(String::from_utf8_lossy(response.bytes).into());
        }
        drop(body);
        if number + 1 == WARM_UP_COUNT || number + 1 == WARM_UP_COUNT + count {
            // Definitions are served in order: when the last one is, all are.
            let last = &documents[number % documents.len()]["spec"];
            let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
            let group = format!("g{number}.{}", text(&last["group"]));
            let path = format!("/apis/{group}");
            let began = Instant::now();
            while !request(&mut stream, &mut buffer, "GET", &path, b"")?.is_success() {
                if began.elapsed() > SERVED_TIME_MAX {
                    return Err(format!("{path} is not served").into());
                }
            }
        }
    }
    let change = region.change();
    let held = change.bytes_allocated.saturating_sub(change.bytes_deallocated);
    Ok(Cost { json: json / count, held: held / count })
}

/// Sends a request and reads the response.
fn request<'a>(
    stream: &mut TcpStream,
    buffer: &'a mut [u8],
    method: &str,
    path: &str,
    body: &[u8],
) -> Result<Response<'a>, Failure> {
    let length = body.len();
    let head = format!(
        "{method} {path} HTTP/1.1\r\nHost: h\r\nAuthorization: Bearer t\r\n\
         Content-Type: application/json\r\nContent-Length: {length}\r\n\r\n"
    );
    stream.write_all(&[head.as_bytes(), body].concat())?;
    responses::read(stream, buffer)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_definition_holds_its_text_once() {
        let Cost { json, held } = cost(COUNT, vec![document()]).expect("all are created");
        assert!(json > 80_000, "{json} bytes");
        assert!(held < json + json / 8 + 16_000, "{held} bytes held for {json}");
    }
}
