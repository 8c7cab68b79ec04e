//! CustomResourceDefinitions: what one takes of memory, how soon it is served, and what documents of many cost.

use crate::Bench;
use crate::bodies::Template;
use crate::client::{Ask, Client};
use crate::drive::{FILL, each, fill};
use crate::process::Processes;
use anyhow::{Result, ensure};
use serde_json::{Map, Value, json};
use std::time::{Duration, Instant};

const PATH: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
/// Definitions that are made before memory is looked at: what the first ones take is not what many take.
const BEFORE: usize = 100;
/// A definition that is not served by then never is.
const SERVED: Duration = Duration::from_secs(10);
/// Fields of a part of a schema.
const FIELDS: usize = 20;

/// A definition of about so many bytes, most of which is what schemas of projects have: descriptions. `{name}` is its
/// group.
pub fn definition(bytes: usize) -> Template {
    let with = |parts: usize| document(parts).to_string();
    let (none, one) = (with(0).len(), with(1).len());
    Template::new(&with(bytes.saturating_sub(none).div_ceil(one - none)))
}

fn document(parts: usize) -> Value {
    let field = |number: usize| {
        let mut field = match number % 4 {
            0 => {
                json!({"type": "string", "pattern": "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$", "maxLength": 63})
            }
            1 => json!({"type": "integer", "format": "int32", "minimum": 1, "default": 3}),
            2 => {
                json!({"type": "array", "items": {"type": "string"}, "x-kubernetes-list-type": "set", "maxItems": 16})
            }
            _ => json!({"type": "string", "enum": ["Always", "Never"]}),
        };
        let text = format!(
            "Field {number} says what is wanted of this part, and of all that belong to it. "
        );
        field["description"] = text.repeat(2).into();
        (format!("field{number}"), field)
    };
    let part = |number: usize| {
        let fields: Map<_, _> = (0..FIELDS).map(field).collect();
        let rule = json!({"rule": "!has(self.field1) || self.field1 < 100", "message": "must be less than 100"});
        let part = json!({"type": "object", "description": "A part of it.", "properties": fields,
            "x-kubernetes-validations": [rule]});
        (format!("part{number}"), part)
    };
    let parts: Map<_, _> = (0..parts).map(part).collect();
    let schema = json!({"type": "object", "properties": {
        "spec": {"type": "object", "properties": parts},
        "status": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}});
    let column = json!({"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"});
    json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "widgets.{name}"},
        "spec": {"group": "{name}", "scope": "Cluster",
            "names": {"plural": "widgets", "singular": "widget", "kind": "Widget", "listKind": "WidgetList"},
            "versions": [{"name": "v1", "served": true, "storage": true, "subresources": {"status": {}},
                "schema": {"openAPIV3Schema": schema}, "additionalPrinterColumns": [column]}]}})
}

/// The group of a definition of this run: others may have left theirs.
fn group(bench: &Bench, number: usize) -> String {
    format!("group{number}.{}.example.org", bench.namespace)
}

/// Makes so many definitions of about so many bytes; kB that each takes, when the server's process is known.
pub async fn memory(bench: &Bench, bytes: usize, count: usize) -> Result<Option<f64>> {
    let body = definition(bytes);
    let make = |first: usize| {
        let groups: Vec<String> =
            (first..first + BEFORE.max(count)).map(|number| group(bench, number)).collect();
        let body = body.clone();
        move |number: usize| Ask::post(PATH, body.fill(&groups[number], 0))
    };
    ensure!(fill(bench, BEFORE, 1, FILL, make(0)).await?, "they were not there after {FILL:?}");
    tokio::time::sleep(bench.settle()).await;
    let before = bench.seen(Processes::memory)?;
    ensure!(fill(bench, count, 1, FILL, make(BEFORE)).await?, "they were not there after {FILL:?}");
    tokio::time::sleep(bench.settle()).await;
    let growth = bench.seen(Processes::memory)?.zip(before);
    Ok(growth.map(|(after, before)| (after.rss - before.rss) * 1e3 / count as f64))
}

/// Deletes what [`memory`] made: definitions are in no namespace.
pub async fn clear(bench: &Bench, count: usize) -> Result<()> {
    let paths =
        (0..BEFORE + count).map(|number| format!("{PATH}/widgets.{}", group(bench, number)));
    let paths: Vec<String> = paths.collect();
    let delete = move |number: usize| Ask::delete(&paths[number]);
    each(bench, BEFORE + count, 1, FILL, delete).await.map(drop)
}

/// Milliseconds from the answer to a small definition until an object of it was made, of so many, one after the other.
pub async fn served(bench: &Bench, count: usize) -> Result<Vec<f64>> {
    let mut client = Client::connect(&bench.target).await?;
    let (body, mut head, mut all) = (definition(0), vec![], vec![]);
    for number in 0..count {
        let group = format!("probe{number}.{}.example.org", bench.namespace);
        let path = format!("/apis/{group}/v1/widgets");
        let object = json!({"apiVersion": format!("{group}/v1"), "kind": "Widget", "metadata": {"name": "a"}});
        let object = object.to_string();
        client.must(Ask::post(PATH, body.fill(&group, 0))).await?;
        let began = Instant::now();
        loop {
            let (code, _) = client.skim(&Ask::post(&path, object.clone()), 200, &mut head).await?;
            if code == 201 {
                break;
            }
            let said = String::from_utf8_lossy(&head);
            ensure!(code == 404 && began.elapsed() < SERVED, "{path}: {code} {said}");
        }
        all.push(began.elapsed().as_secs_f64() * 1e3);
        client.must(Ask::delete(format!("{PATH}/widgets.{group}"))).await?;
    }
    Ok(all)
}

/// Milliseconds that a document takes, each of so many times.
pub async fn document_times(bench: &Bench, path: &str, count: usize) -> Result<Vec<f64>> {
    let mut client = Client::connect(&bench.target).await?;
    let mut all = vec![];
    for _ in 0..count {
        let began = Instant::now();
        client.must(Ask::get(path)).await?;
        all.push(began.elapsed().as_secs_f64() * 1e3);
    }
    Ok(all)
}

/// The path of the OpenAPI v3 document of one of the groups that [`memory`] made.
pub fn document_path(bench: &Bench) -> String {
    format!("/openapi/v3/apis/{}/v1", group(bench, BEFORE))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_definition_is_about_as_long_as_it_is_wanted() {
        for bytes in [16_000, 92_000] {
            let length = definition(bytes).fill("group7.example.org", 0).len();
            let part = document(1).to_string().len() - document(0).to_string().len();
            assert!((bytes..bytes + part + 100).contains(&length), "{length} for {bytes}");
        }
    }
}
