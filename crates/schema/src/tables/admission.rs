//! Admission webhooks and policies.

use super::column::{AGE, NAME, integer, literal, string};
use super::row::{Row, UNSET, text};
use super::{Column, Printer};
use keelson_meta::{Map, Value};

const GROUP: &str = "admissionregistration.k8s.io";

const WEBHOOKS: &[Column] =
    &[NAME, integer("Webhooks", literal("The number of webhooks in the configuration.")), AGE];

const BINDING: &[Column] = &[
    NAME,
    string("PolicyName", literal("The policy that is bound.")),
    string("ParamRef", literal("The objects with the policy's parameters.")),
    AGE,
];

const PARAM_KIND: Column = string("ParamKind", literal("The kind of the policy's parameters."));

pub(super) static PRINTERS: &[Printer] = &[
    Printer {
        group: GROUP,
        kind: "MutatingWebhookConfiguration",
        columns: WEBHOOKS,
        cells: webhooks,
    },
    Printer {
        group: GROUP,
        kind: "ValidatingWebhookConfiguration",
        columns: WEBHOOKS,
        cells: webhooks,
    },
    Printer {
        group: GROUP,
        kind: "ValidatingAdmissionPolicy",
        columns: &[
            NAME,
            integer("Validations", literal("The number of validations of the policy.")),
            PARAM_KIND,
            AGE,
        ],
        cells: |row| policy(row, "validations"),
    },
    Printer {
        group: GROUP,
        kind: "MutatingAdmissionPolicy",
        columns: &[
            NAME,
            integer("Mutations", literal("The number of mutations of the policy.")),
            PARAM_KIND,
            AGE,
        ],
        cells: |row| policy(row, "mutations"),
    },
    Printer {
        group: GROUP,
        kind: "ValidatingAdmissionPolicyBinding",
        columns: BINDING,
        cells: binding,
    },
    Printer {
        group: GROUP,
        kind: "MutatingAdmissionPolicyBinding",
        columns: BINDING,
        cells: binding,
    },
];

fn webhooks(row: &Row<'_>) -> Vec<Value> {
    vec![row.name(), row.count(&["webhooks"]), row.age()]
}

fn policy(row: &Row<'_>, rules: &str) -> Vec<Value> {
    let kind = row
        .obj
        .at(&["spec", "paramKind"])
        .filter(|kind| !kind.is_null())
        .map(|kind| {
            let member = |name| kind.str_at(&[name]).unwrap_or_default();
            format!("{}/{}", member("apiVersion"), member("kind"))
        })
        .unwrap_or_else(|| UNSET.to_owned());
    vec![row.name(), row.count(&["spec", rules]), kind.into(), row.age()]
}

fn binding(row: &Row<'_>) -> Vec<Value> {
    let parameters = row
        .obj
        .at(&["spec", "paramRef"])
        .filter(|p| !p.is_null())
        .map_or_else(|| UNSET.to_owned(), parameter_reference);
    vec![row.name(), row.text(&["spec", "policyName"]), parameters.into(), row.age()]
}

fn parameter_reference(reference: &Value) -> String {
    let member = |name| reference.str_at(&[name]).unwrap_or_default();
    match (member("namespace"), member("name")) {
        (_, "") => match reference.get("selector").filter(|selector| !selector.is_null()) {
            Some(selector) => go_selector(selector),
            None => UNSET.to_owned(),
        },
        // Whether the parameter kind is namespaced is unknown here.
        ("", name) => format!("*/{name}"),
        (namespace, name) => format!("{namespace}/{name}"),
    }
}

/// Formats a label selector as Go prints the struct, which upstream shows.
fn go_selector(selector: &Value) -> String {
    let labels: String = selector
        .get("matchLabels")
        .and_then(Value::as_object)
        .into_iter()
        .flat_map(Map::sorted)
        .map(|(key, value)| format!("{key}: {},", text(value)))
        .collect();
    let expressions: String = selector
        .array_at(&["matchExpressions"])
        .iter()
        .map(|expression| {
            let member = |name| expression.str_at(&[name]).unwrap_or_default();
            let values: Vec<&str> = expression.array_at(&["values"]).iter().map(text).collect();
            format!(
                "LabelSelectorRequirement{{Key:{},Operator:{},Values:[{}],}},",
                member("key"),
                member("operator"),
                values.join(" ")
            )
        })
        .collect();
    format!(
        "&LabelSelector{{MatchLabels:map[string]string{{{labels}}},\
         MatchExpressions:[]LabelSelectorRequirement{{{expressions}}},}}"
    )
}

#[cfg(test)]
mod tests {
    use super::super::tests::row;
    use keelson_meta::{Value, value};

    #[test]
    fn policy_binding_shows_its_parameters() {
        let check = |reference: Value, expected: &str| {
            let object = value!({"metadata": {"name": "b"}, "spec": {
                "policyName": "p", "paramRef": (reference)
            }});
            let printed =
                row("admissionregistration.k8s.io", "ValidatingAdmissionPolicyBinding", object);
            assert_eq!(printed, format!("b | p | {expected} | <unknown>"));
        };
        check(Value::Null, "<unset>");
        check(value!({"name": "x"}), "*/x");
        check(value!({"name": "x", "namespace": "n"}), "n/x");
        check(
            value!({"selector": {"matchLabels": {"a": "b"}, "matchExpressions": [
                {"key": "k", "operator": "In", "values": ["v", "w"]}
            ]}}),
            "&LabelSelector{MatchLabels:map[string]string{a: b,},MatchExpressions:\
             []LabelSelectorRequirement{LabelSelectorRequirement{Key:k,Operator:In,\
             Values:[v w],},},}",
        );
    }

    #[test]
    fn policy_shows_the_number_of_validations() {
        let object = value!({"metadata": {"name": "p"}, "spec": {
            "validations": [{}, {}], "paramKind": {"apiVersion": "x/v1", "kind": "Y"}
        }});
        assert_eq!(
            row("admissionregistration.k8s.io", "ValidatingAdmissionPolicy", object),
            "p | 2 | x/v1/Y | <unknown>"
        );
    }
}
