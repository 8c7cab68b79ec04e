//! Templates, from text to text.

use super::*;
use keelson_meta::value;

fn facts() -> TemplateFacts {
    TemplateFacts {
        now: Timestamp::parse("2026-01-02T03:04:05Z").expect("a time"),
        started: Timestamp::parse("2026-01-01T00:00:00Z").expect("a time"),
        random: [7; 16],
        node: "n".into(),
        node_ips: vec!["172.16.0.2".into()],
        pod_ips: vec!["10.128.0.2".into()],
    }
}

fn object() -> Value {
    value!({
        "metadata": {"name": "p", "labels": {"a": "1", "b": "2"}},
        "spec": {"nodeName": "n", "containers": [
            {"name": "c", "image": "i"}, {"name": "d", "image": "j", "restartPolicy": "Always"}]}
    })
}

/// Returns the text of a template, or its error.
fn rendered(text: &str) -> String {
    let rendered =
        StageTemplate::parse(text).and_then(|template| template.render(&object(), &facts()));
    rendered.unwrap_or_else(|error| error.to_string())
}

#[test]
fn actions_are_those_of_go() {
    let check = |text: &str, want: &str| assert_eq!(rendered(text), want, "{text}");
    check("{{ .metadata.name }}/{{ .none.at.all }}", "p/<no value>");
    check("{{ if .spec.nodeName }}a{{ else }}b{{ end }}", "a");
    check("{{ if .no }}a{{ else if eq .metadata.name \"p\" }}b{{ else }}c{{ end }}", "b");
    check("{{ with .no }}a{{ else }}{{ .metadata.name }}{{ end }}", "p");
    check("{{ with $x := .metadata }}{{ .name }}{{ $x.name }}{{ end }}", "pp");
    check("{{ range .spec.containers }}{{ .name }}{{ $.metadata.name }} {{ end }}", "cp dp ");
    check("{{ range $i, $c := .spec.containers }}{{ $i }}{{ $c.name }}{{ end }}", "0c1d");
    check("{{ range $k, $v := .metadata.labels }}{{ $k }}={{ $v }},{{ end }}", "a=1,b=2,");
    check("{{ range .no }}a{{ else }}none{{ end }}", "none");
    check("{{ range until 5 }}{{ if eq . 3 }}{{ break }}{{ end }}{{ . }}{{ end }}", "012");
    check("{{ range until 3 }}{{ if eq . 1 }}{{ continue }}{{ end }}{{ . }}{{ end }}", "02");
    check("{{ $x := 1 }}{{ if true }}{{ $x = 2 }}{{ $y := 3 }}{{ end }}{{ $x }}", "2");
    check("{{ $x := 1 }}{{ if true }}{{ $x := 2 }}{{ end }}{{ $x }}", "1");
    check("{{ define \"t\" }}<{{ . }}>{{ end }}{{ template \"t\" .metadata.name }}", "<p>");
    check("{{ (index .spec.containers 1).name }}", "d");
    check("{{ \"x\" | printf \"%s-%s\" .metadata.name | quote }}", "\"p-x\"");
    check("{{ or .no .metadata.name \"x\" }}{{ and 1 0 2 }}{{ or .no \"\" }}", "p0");
    check(
        "{{ range .spec.containers }}{{ eq .restartPolicy \"Always\" }} {{ end }}",
        "false true ",
    );
    check(
        "{{ index .metadata.labels \"a\" }}{{ index (or .metadata.no dict) \"a\" }}",
        "1<no value>",
    );
}

#[test]
fn functions_are_those_of_kwok_and_sprig() {
    let check = |text: &str, want: &str| assert_eq!(rendered(text), want, "{text}");
    check("{{ Now | Quote }} {{ StartTime }}", "\"2026-01-02T03:04:05Z\" 2026-01-01T00:00:00Z");
    check(
        "{{ Quote 3 }} {{ Quote .metadata.labels }}",
        "\"3\" \"{\\\"a\\\":\\\"1\\\",\\\"b\\\":\\\"2\\\"}\"",
    );
    check("a:{{ YAML .metadata.labels 1 }}", "a:\n  a: \"1\"\n  b: \"2\"\n  ");
    check(
        "{{ NodeIPWith .spec.nodeName }} {{ PodIPWith \"n\" false \"\" \"\" \"\" }}",
        "172.16.0.2 10.128.0.2",
    );
    check("{{ index (PodIPsWith \"n\" true \"\" \"\" \"\") 0 }} {{ NodeName }}", "172.16.0.2 n");
    check(
        "{{ range NodeConditions }}{{ .type }} {{ end }}",
        "Ready MemoryPressure DiskPressure PIDPressure NetworkUnavailable ",
    );
    check(
        "{{ default \"x\" .no }} {{ ternary \"a\" \"b\" (empty .no) }} {{ coalesce .no 0 3 }}",
        "x a 3",
    );
    check(
        "{{ list 1 2 | join \"-\" }} {{ splitList \",\" \"a,b\" | len }} {{ upper \"a\" }}",
        "1-2 2 A",
    );
    check("{{ add 1 \"2\" 3 }} {{ div 7 2 }} {{ max 1 5 2 }} {{ round 1.256 2 }}", "6 3 5 1.26");
    check("{{ dict \"a\" 1 | toJson }} {{ (fromJson `{\"b\":[1]}`).b }}", "{\"a\":1} [1]");
    check(
        "{{ trunc 3 \"abcdef\" }} {{ trunc -2 \"abcdef\" }} {{ substr 1 3 \"abcdef\" }}",
        "abc ef bc",
    );
    check("{{ regexReplaceAll \"a(x*)b\" \"-ab-axxb-\" \"${1}W\" }}", "-W-xxW-");
    check("{{ nindent 2 \"a\\nb\" }}", "\n  a\n  b");
    check(
        "{{ dateModify \"-1h\" Now }} {{ unixEpoch StartTime }}",
        "2026-01-02T02:04:05Z 1767225600",
    );
    check("{{ dig \"metadata\" \"name\" \"x\" . }}{{ dig \"a\" \"b\" \"x\" . }}", "px");
    check("{{ keys .metadata.labels }} {{ has \"b\" (keys .metadata.labels) }}", "[a b] true");
}

#[test]
fn an_error_says_where_and_why() {
    let check = |text: &str, want: &str| assert_eq!(rendered(text), want, "{text}");
    check(
        "a\n{{ getHostByName \"x\" }}",
        "template, line 2: function \"getHostByName\" is not known",
    );
    check("{{ env \"HOME\" }}", "template, line 1: function \"env\" is not known");
    check("{{ if .a }}", "template, line 1: if has no end");
    check("{{ .a", "template, line 1: an action has no closing }}");
    check("{{ $x }}", "template, line 1: variable \"$x\" is not defined");
    check("{{ .metadata.name.x }}", "template, line 1: a value of type string has no field \"x\"");
    check("{{ index .spec.containers 5 }}", "template, line 1: index: the list has no item 5");
    check("{{ fail \"no\" }}", "template, line 1: fail: no");
    check("{{ break }}", "template, line 1: break outside of range");
    check("{{ lt 1 \"a\" }}", "template, line 1: lt: int and string cannot be compared");
    check("{{ add 9223372036854775807 1 }}", "template, line 1: add: there is no such number");
}

#[test]
fn no_template_takes_many_steps_or_much_memory() {
    let ends = |text: &str, want: &str| {
        let error = rendered(text);
        assert!(error.contains(want), "{text}: {error:.200}");
    };
    ends("{{ range until 10000 }}{{ range until 10000 }}{{ end }}{{ end }}", "too many steps");
    let doubling = "{{ $l := list 1 }}{{ range until 60 }}{{ $l = concat $l $l }}{{ end }}";
    ends(doubling, "too many steps");
    ends("{{ define \"t\" }}{{ template \"t\" . }}{{ end }}{{ template \"t\" . }}", "too deeply");
    ends("{{ range until 100 }}{{ repeat 100000 \"a\" }}{{ end }}", "MiB of text");
    ends("{{ repeat 10000000 \"a\" }}", "more than");
    ends(&format!("{{{{ {}1{} }}}}", "(".repeat(100), ")".repeat(100)), "nested too deeply");
    ends(&"{{ if 1 }}".repeat(100), "nested too deeply");
    ends("{{ until 1000000 }}", "more than 10000");
}
