//! CustomResourceDefinitions: memory per definition, time until the resource is served, and time of
//! OpenAPI documents.

use crate::Bench;
use crate::bodies::Template;
use crate::client::{ApiRequest, Client};
use crate::drive::{FILL_TIME_MAX, each, fill};
use crate::process::Processes;
use anyhow::{Result, ensure};
use serde_json::{Map, Value, json};
use std::time::{Duration, Instant};

const PATH: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
/// Definitions that are created before memory is measured, so that fixed costs do not count.
const WARM_UP_COUNT: usize = 100;
/// Timeout until a definition is served.
const SERVED_TIME_MAX: Duration = Duration::from_secs(10);
/// Fields of a part of the schema.
const FIELDS: usize = 20;

/// Returns a definition of about this size, with a typical schema: most of it is descriptions.
/// `{name}` is its group.
pub fn definition(bytes: usize) -> Template {
    let with = |parts: usize| document(parts).to_string();
    let none = with(0).len();
    let one = with(1).len();
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

/// Returns the group of a definition. It contains the namespace of this run, since earlier runs may
/// have left definitions.
fn group(bench: &Bench, number: usize) -> String {
    format!("group{number}.{}.example.org", bench.namespace)
}

/// Creates `count` definitions of about this size. Returns the memory of each in kB, if the
/// server's process is known.
pub async fn memory(bench: &Bench, bytes: usize, count: usize) -> Result<Option<f64>> {
    let body = definition(bytes);
    let make = |first: usize| {
        let groups: Vec<String> =
            (first..first + WARM_UP_COUNT.max(count)).map(|number| group(bench, number)).collect();
        let body = body.clone();
        move |number: usize| ApiRequest::post(PATH, body.fill(&groups[number], 0))
    };
    ensure!(
        fill(bench, WARM_UP_COUNT, 1, FILL_TIME_MAX, make(0)).await?,
        "they were not there after {FILL_TIME_MAX:?}"
    );
    tokio::time::sleep(bench.settle_time()).await;
    let before = bench.sample(Processes::memory)?;
    ensure!(
        fill(bench, count, 1, FILL_TIME_MAX, make(WARM_UP_COUNT)).await?,
        "they were not there after {FILL_TIME_MAX:?}"
    );
    tokio::time::sleep(bench.settle_time()).await;
    let growth = bench.sample(Processes::memory)?.zip(before);
    Ok(growth.map(|(after, before)| (after.rss - before.rss) * 1e3 / count as f64))
}

/// Deletes the definitions of [`memory`], which are cluster-scoped.
pub async fn clear(bench: &Bench, count: usize) -> Result<()> {
    let paths =
        (0..WARM_UP_COUNT + count).map(|number| format!("{PATH}/widgets.{}", group(bench, number)));
    let paths: Vec<String> = paths.collect();
    let delete = move |number: usize| ApiRequest::delete(&paths[number]);
    each(bench, WARM_UP_COUNT + count, 1, FILL_TIME_MAX, delete).await.map(drop)
}

/// Creates `count` small definitions one after the other. Returns for each the milliseconds from
/// its response until an object could be created.
pub async fn served(bench: &Bench, count: usize) -> Result<Vec<f64>> {
    let mut client = Client::connect(&bench.target).await?;
    let body = definition(0);
    let mut head = vec![];
    let mut all = vec![];
    for number in 0..count {
        let group = format!("probe{number}.{}.example.org", bench.namespace);
        let path = format!("/apis/{group}/v1/widgets");
        let object = json!({"apiVersion": format!("{group}/v1"), "kind": "Widget", "metadata": {"name": "a"}}).to_string();
        client.require_success(ApiRequest::post(PATH, body.fill(&group, 0))).await?;
        let began = Instant::now();
        loop {
            let (code, _) =
                client.execute(&ApiRequest::post(&path, object.clone()), 200, &mut head).await?;
            if code == 201 {
                break;
            }
            let response = String::from_utf8_lossy(&head);
            ensure!(code == 404 && began.elapsed() < SERVED_TIME_MAX, "{path}: {code} {response}");
        }
        all.push(began.elapsed().as_secs_f64() * 1e3);
        client.require_success(ApiRequest::delete(format!("{PATH}/widgets.{group}"))).await?;
    }
    Ok(all)
}

/// Requests a document `count` times, and returns the milliseconds of each request.
pub async fn document_times(bench: &Bench, path: &str, count: usize) -> Result<Vec<f64>> {
    let mut client = Client::connect(&bench.target).await?;
    let mut all = vec![];
    for _ in 0..count {
        let began = Instant::now();
        client.require_success(ApiRequest::get(path)).await?;
        all.push(began.elapsed().as_secs_f64() * 1e3);
    }
    Ok(all)
}

/// Returns the path of the OpenAPI v3 document of one of the groups of [`memory`].
pub fn document_path(bench: &Bench) -> String {
    format!("/openapi/v3/apis/{}/v1", group(bench, WARM_UP_COUNT))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_definition_has_about_the_requested_size() {
        for bytes in [16_000, 92_000] {
            let length = definition(bytes).fill("group7.example.org", 0).len();
            let part = document(1).to_string().len() - document(0).to_string().len();
            assert!((bytes..bytes + part + 100).contains(&length), "{length} for {bytes}");
        }
    }
}
