//! Namespaced core kinds besides pods and services: configuration, service accounts, quotas,
//! events, leases.

use super::Printer;
use super::column::{AGE, Column, NAME, field, literal, string};
use super::row::{Row, UNKNOWN, count, quantity};
use keelson_meta::{Map, Value};

const EVENT: &str = "io.k8s.api.core.v1.Event";

const EVENT_COLUMNS: &[Column] = &[
    string("Last Seen", field(EVENT, "lastTimestamp")),
    string("Type", field(EVENT, "type")),
    string("Reason", field(EVENT, "reason")),
    string("Object", field(EVENT, "involvedObject")),
    string("Subobject", field("io.k8s.api.core.v1.ObjectReference", "fieldPath")).wide(),
    string("Source", field(EVENT, "source")).wide(),
    string("Message", field(EVENT, "message")),
    string("First Seen", field(EVENT, "firstTimestamp")).wide(),
    string("Count", field(EVENT, "count")).wide(),
    NAME.wide(),
];

pub(super) static PRINTERS: &[Printer] = &[
    Printer {
        group: "",
        kind: "ConfigMap",
        columns: &[NAME, string("Data", field("io.k8s.api.core.v1.ConfigMap", "data")), AGE],
        cells: |row| {
            let entries = row.entries(&["data"]) + row.entries(&["binaryData"]);
            vec![row.name(), count(entries), row.age()]
        },
    },
    Printer {
        group: "",
        kind: "Secret",
        columns: &[
            NAME,
            string("Type", field("io.k8s.api.core.v1.Secret", "type")),
            string("Data", field("io.k8s.api.core.v1.Secret", "data")),
            AGE,
        ],
        cells: |row| {
            vec![row.name(), row.text(&["type"]), count(row.entries(&["data"])), row.age()]
        },
    },
    Printer {
        group: "",
        kind: "ServiceAccount",
        columns: &[NAME, AGE],
        cells: |row| vec![row.name(), row.age()],
    },
    Printer {
        group: "",
        kind: "ResourceQuota",
        columns: &[
            NAME,
            string("Request", literal("Used and hard amounts of requests and counts.")),
            string("Limit", literal("Used and hard amounts of limits.")),
            AGE,
        ],
        cells: resource_quota,
    },
    Printer { group: "", kind: "Event", columns: EVENT_COLUMNS, cells: event },
    Printer { group: "events.k8s.io", kind: "Event", columns: EVENT_COLUMNS, cells: event },
    Printer {
        group: "coordination.k8s.io",
        kind: "Lease",
        columns: &[
            NAME,
            string("Holder", field("io.k8s.api.coordination.v1.LeaseSpec", "holderIdentity")),
            AGE,
        ],
        cells: |row| vec![row.name(), row.text(&["spec", "holderIdentity"]), row.age()],
    },
    Printer {
        group: "coordination.k8s.io",
        kind: "LeaseCandidate",
        columns: &[
            NAME,
            string(
                "LeaseName",
                field("io.k8s.api.coordination.v1beta1.LeaseCandidateSpec", "leaseName"),
            ),
            string("BinaryVersion", literal("")),
            string("EmulationVersion", literal("")),
            AGE,
        ],
        cells: |row| {
            let [lease, binary, emulation] =
                ["leaseName", "binaryVersion", "emulationVersion"].map(|n| row.text(&["spec", n]));
            vec![row.name(), lease, binary, emulation, row.age()]
        },
    },
];

fn resource_quota(row: &Row<'_>) -> Vec<Value> {
    let mut requests = vec![];
    let mut limits = vec![];
    let hard = row.obj.at(&["status", "hard"]).and_then(Value::as_object);
    for (resource, granted) in hard.into_iter().flat_map(Map::sorted) {
        let used =
            row.obj.at(&["status", "used", resource]).map_or_else(|| "0".to_owned(), quantity);
        let list = if resource.starts_with("limits.") { &mut limits } else { &mut requests };
        list.push(format!("{resource}: {used}/{}", quantity(granted)));
    }
    vec![row.name(), requests.join(", ").into(), limits.join(", ").into(), row.age()]
}

/// Prints an event of core/v1 or events.k8s.io/v1, which name some fields differently.
fn event(row: &Row<'_>) -> Vec<Value> {
    let either = |old: &[&str], new: &[&str]| {
        let text = row.str(old);
        if text.is_empty() { row.str(new) } else { text }
    };
    let age = |time: &str| if time.is_empty() { UNKNOWN.to_owned() } else { row.since(time) };
    let first = match either(&["firstTimestamp"], &["deprecatedFirstTimestamp"]) {
        "" => age(row.str(&["eventTime"])),
        time => age(time),
    };
    let mut last = match either(&["lastTimestamp"], &["deprecatedLastTimestamp"]) {
        "" => first.clone(),
        time => age(time),
    };
    let old_count = row.number(&["count"]).max(row.number(&["deprecatedCount"]));
    let mut times = if old_count == 0 { 1 } else { old_count };
    if row.obj.get("series").is_some_and(|series| !series.is_null()) {
        last = age(row.str(&["series", "lastObservedTime"]));
        times = row.number(&["series", "count"]);
    }
    let target = |name| either(&["involvedObject", name], &["regarding", name]);
    let kind = target("kind").to_lowercase();
    let object = match target("name") {
        "" => kind,
        name => format!("{kind}/{name}"),
    };
    vec![
        last.into(),
        row.text(&["type"]),
        row.text(&["reason"]),
        object.into(),
        target("fieldPath").into(),
        event_source(row).into(),
        either(&["message"], &["note"]).trim().into(),
        first.into(),
        times.into(),
        row.name(),
    ]
}

fn event_source(row: &Row<'_>) -> String {
    let first = |paths: [&[&str]; 3]| {
        paths.into_iter().map(|path| row.str(path)).find(|t| !t.is_empty()).unwrap_or_default()
    };
    let component = first([
        &["source", "component"],
        &["deprecatedSource", "component"],
        &["reportingController"],
    ]);
    // events.k8s.io names the reporter differently: `reportingComponent` in core/v1.
    let component = if component.is_empty() { row.str(&["reportingComponent"]) } else { component };
    let host = first([&["source", "host"], &["deprecatedSource", "host"], &["reportingInstance"]]);
    if host.is_empty() { component.to_owned() } else { format!("{component}, {host}") }
}

#[cfg(test)]
mod tests {
    use super::super::tests::row;
    use keelson_meta::value;

    #[test]
    fn quota_shows_limits_separately() {
        let object = value!({"metadata": {"name": "q"}, "status": {
            "hard": {"limits.cpu": "2", "pods": "10", "limits.memory": "1Gi"},
            "used": {"limits.cpu": "0.5", "pods": "3"}
        }});
        assert_eq!(
            row("", "ResourceQuota", object),
            "q | pods: 3/10 | limits.cpu: 500m/2, limits.memory: 0/1Gi | <unknown>"
        );
    }

    #[test]
    fn events_of_both_groups_have_the_same_columns() {
        let object = value!({
            "metadata": {"name": "e"}, "type": "Normal", "reason": "Pulled", "message": " text\n",
            "involvedObject": {"kind": "Pod", "name": "p", "fieldPath": "spec.containers{c}"},
            "source": {"component": "kubelet", "host": "n"},
            "firstTimestamp": "2023-12-31T23:40:00Z", "lastTimestamp": "2024-01-01T00:09:00Z",
            "count": 5
        });
        let expected =
            "60s | Normal | Pulled | pod/p | spec.containers{c} | kubelet, n | text | 30m | 5 | e";
        assert_eq!(row("", "Event", object), expected);
        let object = value!({
            "metadata": {"name": "e"}, "type": "Normal", "reason": "Pulled", "note": "text",
            "regarding": {"kind": "Pod"}, "reportingController": "ctl",
            "eventTime": "2024-01-01T00:09:30.000000Z",
            "series": {"count": 7, "lastObservedTime": "2024-01-01T00:09:59.000000Z"}
        });
        let expected = "1s | Normal | Pulled | pod |  | ctl | text | 30s | 7 | e";
        assert_eq!(row("events.k8s.io", "Event", object), expected);
    }
}
