//! What requests carry. Each body is made ready once; to fill one in costs a copy.

use crate::client::{Ask, Client};
use anyhow::Result;
use serde_json::{Value, json};

/// Stands for a name.
const NAME: &str = "{name}";
/// Stands for six digits that differ from turn to turn.
const TURN: &str = "{turn}";
/// More turns than digits are left for come round again.
const TURNS_MAX: u64 = 1_000_000;
/// What the first object of a kind gets as padding, to see how long the server makes it.
const PADDING: usize = 100;

/// A text with places for what differs from request to request.
#[derive(Clone, Debug)]
pub struct Template(Vec<Part>);

#[derive(Clone, Debug)]
enum Part {
    Text(String),
    Name,
    Turn,
}

impl Template {
    /// Of a text with `{name}` and `{turn}` in it.
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

    /// The text with this name and turn.
    pub fn fill(&self, name: &str, turn: u64) -> String {
        let digits = format!("{:06}", turn % TURNS_MAX);
        let pieces = self.0.iter().map(|part| match part {
            Part::Text(text) => text,
            Part::Name => name,
            Part::Turn => &digits,
        });
        let pieces: Vec<&str> = pieces.collect();
        pieces.concat()
    }
}

/// A ConfigMap with so many bytes of data, and a label that differs each time.
pub fn config_map(size: usize) -> Template {
    let body = json!({"apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": NAME, "labels": {"turn": TURN}},
        "data": {"payload": "x".repeat(size)}});
    Template::new(&body.to_string())
}

/// A pod such as a deployment makes, with `containers` of them and so many bytes of padding. It asks for
/// no token, so that what is measured does not depend on when its account is there.
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

/// The template that the server makes `size` bytes long: what it adds is found out by making one. How
/// long an object really is, where what it adds alone is more than that, is for the caller to ask.
pub async fn padded(
    client: &mut Client,
    path: &str,
    size: usize,
    make: impl Fn(usize) -> Template,
) -> Result<Template> {
    let first = make(PADDING).fill("calibration", 0);
    let length = client.must(Ask::post(path, first)).await?.len();
    client.must(Ask::delete(format!("{path}/calibration?gracePeriodSeconds=0"))).await?;
    Ok(make((size + PADDING).saturating_sub(length)))
}

/// A lease as a kubelet makes it.
pub fn lease() -> Template {
    let body = json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
        "metadata": {"name": NAME},
        "spec": {"holderIdentity": NAME, "leaseDurationSeconds": 40,
            "renewTime": "2026-01-01T00:00:00.{turn}Z"}});
    Template::new(&body.to_string())
}

/// A lease as a kubelet renews it: over the revision that the last answer told.
pub fn renewed_lease(name: &str, turn: u64, last: &[u8]) -> String {
    let micros = turn % TURNS_MAX;
    let revision = revision(last);
    format!(
        r#"{{"apiVersion":"coordination.k8s.io/v1","kind":"Lease","metadata":{{"name":"{name}","resourceVersion":"{revision}"}},"spec":{{"holderIdentity":"{name}","leaseDurationSeconds":40,"renewTime":"2026-01-01T00:00:00.{micros:06}Z"}}}}"#
    )
}

/// The merge patch that renews a lease.
pub fn lease_patch() -> Template {
    Template::new(r#"{"spec":{"renewTime":"2026-01-01T00:00:00.{turn}Z"}}"#)
}

/// The revision of an object in JSON; cheaper than to parse it, so that the server is what is measured.
pub fn revision(text: &[u8]) -> &str {
    member(text, "resourceVersion").unwrap_or_default()
}

/// The first member of this name whose value is a text without escapes, at whatever depth.
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
    fn templates_take_names_and_turns_in_any_order_and_number() {
        let check = |text: &str, want: &str| {
            assert_eq!(Template::new(text).fill("n", 42), want, "{text}");
        };
        check("", "");
        check("no places", "no places");
        check("{name}", "n");
        check("{turn}{name}{turn} {name}.", "000042n000042 n.");
        assert_eq!(Template::new("{turn}").fill("n", 7_000_001), "000001");
    }

    #[test]
    fn bodies_are_json_and_as_long_as_asked() {
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
    fn members_are_found_in_the_beginning_of_a_text() {
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
