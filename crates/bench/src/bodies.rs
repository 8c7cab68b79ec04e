//! Request bodies. A template is parsed once; filling it in costs one copy.

use crate::client::{ApiRequest, Client};
use anyhow::Result;
use serde_json::{Value, json};

/// The placeholder of the object's name.
const NAME: &str = "{name}";
/// The placeholder of the turn, the number of a worker's request, in six digits.
const TURN: &str = "{turn}";
/// Turns wrap around here, to stay within six digits.
const TURNS_MAX: u64 = 1_000_000;
/// Padding of the object with which [`padded`] measures the stored size.
const PADDING: usize = 100;

/// A text with placeholders.
#[derive(Clone, Debug)]
pub struct Template(Vec<Part>);

#[derive(Clone, Debug)]
enum Part {
    Text(String),
    Name,
    Turn,
}

impl Template {
    /// Parses a text with the placeholders `{name}` and `{turn}`.
    pub fn new(text: &str) -> Template {
        let mut parts = vec![];
        for (number, piece) in text.split(NAME).enumerate() {
            if number > 0 {
                parts.push(Part::Name);
            }
            for (number, text) in piece.split(TURN).enumerate() {
                if number > 0 {
                    parts.push(Part::Turn);
                }
                parts.push(Part::Text(text.to_owned()));
            }
        }
        Template(parts)
    }

    /// Returns the text with this name and turn filled in.
    pub fn fill(&self, name: &str, turn: u64) -> String {
        let digits = format!("{:06}", turn % TURNS_MAX);
        let pieces: Vec<&str> = self
            .0
            .iter()
            .map(|part| match part {
                Part::Text(text) => text,
                Part::Name => name,
                Part::Turn => &digits,
            })
            .collect();
        pieces.concat()
    }
}

/// Returns a ConfigMap with `size` bytes of data and the turn as a label.
pub fn config_map(size: usize) -> Template {
    let body = json!({"apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": NAME, "labels": {"turn": TURN}},
        "data": {"payload": "x".repeat(size)}});
    Template::new(&body.to_string())
}

/// Returns a typical pod with `padding` bytes of annotations. It mounts no service account token,
/// so that the service account need not exist yet.
pub fn pod(containers: usize, padding: usize) -> Template {
    let container = |number: usize| {
        let env: Vec<Value> = (0..6)
            .map(
                |n| json!({"name": format!("SETTING_{n}"), "value": format!("value-{number}-{n}")}),
            )
            .collect();
        json!({"name": format!("c{number}"), "image": "registry.example.org/team/app:1.2.3",
            "args": ["--port=8080", "--verbose"], "env": env,
            "ports": [{"name": "http", "containerPort": 8080 + number}],
            "resources": {"requests": {"cpu": "100m", "memory": "64Mi"},
                "limits": {"memory": "128Mi"}},
            "readinessProbe": {"httpGet": {"path": "/ready", "port": 8080}, "periodSeconds": 5},
            "volumeMounts": [{"name": "config", "mountPath": "/etc/app"}]})
    };
    let containers: Vec<Value> = (0..containers).map(container).collect();
    let body = json!({"apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": NAME, "labels": {"app": "bench", "pod": NAME},
            "annotations": {"padding": "x".repeat(padding)}},
        "spec": {"nodeName": "node-0", "automountServiceAccountToken": false,
            "containers": containers,
            "volumes": [{"name": "config", "configMap": {"name": "config"}}]}});
    Template::new(&body.to_string())
}

/// Returns a template whose objects are `size` bytes long as the server returns them. Creates one
/// object to measure what the server adds; if that alone exceeds `size`, objects are longer.
pub async fn padded(
    client: &mut Client,
    path: &str,
    size: usize,
    make: impl Fn(usize) -> Template,
) -> Result<Template> {
    let first = make(PADDING).fill("calibration", 0);
    let length = client.require_success(ApiRequest::post(path, first)).await?.len();
    client
        .require_success(ApiRequest::delete(format!("{path}/calibration?gracePeriodSeconds=0")))
        .await?;
    Ok(make((size + PADDING).saturating_sub(length)))
}

/// Returns a lease as a kubelet creates it.
pub fn lease() -> Template {
    let body = json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
        "metadata": {"name": NAME},
        "spec": {"holderIdentity": NAME, "leaseDurationSeconds": 40,
            "renewTime": "2026-01-01T00:00:00.{turn}Z"}});
    Template::new(&body.to_string())
}

/// Returns a lease as a kubelet renews it, with the resourceVersion of the last response.
pub fn renewed_lease(name: &str, turn: u64, last: &[u8]) -> String {
    let micros = turn % TURNS_MAX;
    let revision = revision(last);
    format!(
        r#"{{"apiVersion":"coordination.k8s.io/v1","kind":"Lease","metadata":{{"name":"{name}","resourceVersion":"{revision}"}},"spec":{{"holderIdentity":"{name}","leaseDurationSeconds":40,"renewTime":"2026-01-01T00:00:00.{micros:06}Z"}}}}"#
    )
}

/// Returns the merge patch that renews a lease.
pub fn lease_patch() -> Template {
    Template::new(r#"{"spec":{"renewTime":"2026-01-01T00:00:00.{turn}Z"}}"#)
}

/// Returns the resourceVersion of an object in JSON. It does not parse the object, to leave the CPU
/// to the server.
pub fn revision(text: &[u8]) -> &str {
    member(text, "resourceVersion").unwrap_or_default()
}

/// Returns the first string member of this name, at any depth. The value must have no escapes.
pub fn member<'a>(text: &'a [u8], name: &str) -> Option<&'a str> {
    let text = std::str::from_utf8(text).unwrap_or_else(|error| {
        std::str::from_utf8(&text[..error.valid_up_to()]).unwrap_or_default()
    });
    let (_, rest) = text.split_once(&format!("\"{name}\":"))?;
    let rest = rest.trim_start().strip_prefix('"')?;
    rest.split_once('"').map(|(value, _)| value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn templates_may_have_any_number_of_placeholders() {
        let check = |text: &str, want: &str| {
            assert_eq!(Template::new(text).fill("n", 42), want, "{text}");
        };
        check("", "");
        check("no placeholder", "no placeholder");
        check("{name}", "n");
        check("{turn}{name}{turn} {name}.", "000042n000042 n.");
        assert_eq!(Template::new("{turn}").fill("n", 7_000_001), "000001");
    }

    #[test]
    fn bodies_are_json_of_the_requested_length() {
        let length = |template: &Template| {
            let text = template.fill("name", 1);
            serde_json::from_str::<Value>(&text).expect(&text);
            text.len()
        };
        assert_eq!(length(&config_map(1000)), length(&config_map(0)) + 1000);
        assert_eq!(length(&pod(2, 500)), length(&pod(2, 0)) + 500);
        assert!(length(&pod(1, 0)) < 1600, "{}", length(&pod(1, 0)));
        length(&lease());
        length(&lease_patch());
        let renewed = renewed_lease("node-1", 3, br#"{"metadata":{"resourceVersion":"17"}}"#);
        let renewed: Value = serde_json::from_str(&renewed).expect("a lease");
        assert_eq!(renewed["metadata"]["resourceVersion"], "17");
        assert_eq!(renewed["spec"]["renewTime"], "2026-01-01T00:00:00.000003Z");
    }

    #[test]
    fn members_are_found_in_a_truncated_text() {
        let check = |text: &str, want: Option<&str>| {
            assert_eq!(member(text.as_bytes(), "reason"), want, "{text}");
        };
        check(r#"{"kind":"Status","reason":"Conflict","code":409}"#, Some("Conflict"));
        check(r#"{"reason": "NotFound"#, None);
        check(r#"{"reason": "NotFound", "#, Some("NotFound"));
        check(r#"{"reason":1}"#, None);
        check("upstream failed", None);
        assert_eq!(member(b"{\"reason\":\"a\",\"b\":\"\xff", "reason"), Some("a"));
    }
}
