//! kubectl and custom resources: the chart of an operator and commands on its objects.

use super::Kubectl;
use keelson::Keelson;

/// Two definitions, and objects of both.
const CHART: &str = include_str!("../files/chart.yaml");
/// What a chart leaves to be done when kubectl was given all of it at once: it looks the kinds up
/// before it creates anything.
const FIRST: &str = "ensure CRDs are installed first";

/// Runs rows where the chart lies.
fn check(rows: &[super::Row]) {
    let Some(bench) = Kubectl::start(Keelson::builder().in_memory()) else { return };
    std::fs::write(bench.dir.path().join("chart.yaml"), CHART).expect("a file");
    bench.run(rows);
    bench.server.stop();
}

#[test]
fn a_chart_is_applied_and_applied_again() {
    check(&[
        // The objects follow at once: nobody waits for the definitions.
        ("k apply -f chart.yaml", 1, FIRST),
        ("k apply -f chart.yaml | sort", 0, "ferry.boats.example.com/one created\n"),
        ("k apply -f chart.yaml | grep -c ' unchanged$'", 0, "6"),
        ("k diff -f chart.yaml", 0, ""),
        ("sed 's/line: north/line: south/' chart.yaml > south.yaml", 0, ""),
        ("k diff -f south.yaml", 1, "+  line: south"),
        ("k apply -f south.yaml --dry-run=server | grep -v unchanged", 0, "one configured"),
        ("k diff -f south.yaml", 1, "-  line: north"),
        ("k apply -f south.yaml | grep -v unchanged", 0, "ferry.boats.example.com/one configured"),
        ("k diff -f south.yaml", 0, ""),
        ("k apply --server-side --force-conflicts -f chart.yaml | wc -l", 0, "6"),
        ("k diff --server-side --force-conflicts -f chart.yaml", 0, ""),
        ("sed 's/line: north/line: west/' chart.yaml > west.yaml", 0, ""),
        ("k diff -f west.yaml", 2, r#"Unsupported value: "west""#),
        ("k apply -f west.yaml", 1, r#"spec.line: Unsupported value: "west""#),
        ("k delete crd ferries.boats.example.com ports.boats.example.com", 0, "deleted"),
        ("k get fy -n boats", 1, "could not find the requested resource"),
    ]);
}

#[test]
fn custom_resources_are_explained_and_found_by_every_name() {
    check(&[
        ("k apply -f chart.yaml", 1, FIRST),
        ("k apply -f chart.yaml", 0, "one created"),
        ("k explain ferry", 0, "A ship that goes to and fro."),
        ("k explain ferry", 0, "apiVersion\t<string>\n    APIVersion defines "),
        ("k explain ferry.metadata", 0, "Standard object's metadata."),
        ("k explain fy", 0, "spec\t<Object> -required-\n    What is wanted of it."),
        ("k explain ferries.spec.line", 0, "FIELD: line <string>\nENUM:\n    north\n    south\n"),
        ("k explain ferries --recursive", 0, "    decks\t<integer>\n    line\t<string> -required-"),
        ("k explain ferries.spec.masts", 1, r#"field "masts" does not exist"#),
        ("k explain ports", 0, "VERSION:    v1"),
        ("k get fy -n boats --no-headers | tr -s ' '", 0, "one north 2\n"),
        ("k get ferry -n boats -o wide", 0, "NAME   LINE    DECKS   READY\n"),
        ("k get ferries.boats.example.com one -n boats -o name", 0, "ferry.boats.example.com/one"),
        ("k get ferries.v1.boats.example.com/one -n boats -o name", 0, "example.com/one"),
        ("k get all -n boats -l app=boats -o name", 0, "ferry.boats.example.com/one\n"),
        (
            "k get afloat -A -o name | tr '\\n' ' '",
            0,
            "example.com/one port.boats.example.com/home ",
        ),
        ("k get fy -A --field-selector=spec.line=north -o name", 0, "one"),
        ("k get fy -A --field-selector=spec.line=south -o name | wc -l", 0, "0"),
        ("k get fy -A --field-selector=spec.decks=2", 1, "field label not supported: spec.decks"),
        (
            "k api-resources --categories=afloat -o name | tr '\\n' ' '",
            0,
            "ferries.boats.example.com ports",
        ),
        (
            "k api-resources --api-group=boats.example.com",
            0,
            "ferries   fy           boats.example.com/v1",
        ),
        ("k -n boats describe fy one", 0, "  Decks:  2\n  Line:   north\n"),
    ]);
}

#[test]
fn custom_resources_are_waited_for_scaled_and_patched() {
    const READY: &str = r#"k -n boats wait --for=condition=Ready fy/one --timeout=20s & waits=$!
        k -n boats patch fy one --subresource=status --type=merge -p '{"status": {"decks": 2,
            "conditions": [{"type": "Ready", "status": "True"}]}}'; wait $waits"#;
    check(&[
        ("k apply -f chart.yaml", 1, FIRST),
        ("k wait --for=condition=Established crd --all --timeout=20s", 0, "condition met"),
        ("k apply -f chart.yaml", 0, "one created"),
        ("k -n boats wait --for=condition=Ready fy/one --timeout=1s", 1, "timed out"),
        (READY, 0, "ferry.boats.example.com/one condition met"),
        ("k -n boats wait --for=jsonpath='{.status.decks}'=2 fy/one --timeout=20s", 0, "met"),
        ("k -n boats scale fy one --replicas=4", 0, "ferry.boats.example.com/one scaled"),
        ("k -n boats get fy one -o jsonpath='{.spec.decks}'", 0, "4"),
        ("k -n boats get fy one --subresource=scale --no-headers | tr -s ' '", 0, "one 4 2 "),
        ("k -n boats scale fy one --replicas=9", 1, "no more than eight decks"),
        ("k -n boats scale fy one --current-replicas=7 --replicas=1", 1, "replicas to be 7, was 4"),
        ("k scale port home --replicas=1", 1, "ports.boats.example.com \"home\" not found"),
        ("k -n boats patch fy one -p '{}'", 1, "strategic-merge-patch+json is not supported"),
        (
            r#"k -n boats patch fy one --type=merge -p '{"spec": {"masts": 1}}'"#,
            0,
            r#"unknown field "spec.masts""#,
        ),
        ("k -n boats wait --for=delete fy/one --timeout=1s", 1, "timed out"),
        ("k -n boats delete fy one", 0, "deleted"),
        ("k -n boats wait --for=delete fy/one --timeout=20s", 0, ""),
        ("k delete ns boats --timeout=20s", 0, "deleted"),
    ]);
}
