//! Role bindings and certificate signing requests. Roles have the default table.

use super::column::{AGE, NAME, field, literal, string};
use super::row::{NONE, Row, human_seconds, members};
use super::{Column, Printer};
use keelson_meta::Value;

const CSR: &str = "io.k8s.api.certificates.v1.CertificateSigningRequestSpec";
const CSR_STATUS: &str = "io.k8s.api.certificates.v1.CertificateSigningRequestStatus";

const fn binding_columns(type_name: &'static str) -> [Column; 6] {
    [
        NAME,
        string("Role", field(type_name, "roleRef")),
        AGE,
        string("Users", literal("The users bound to the role.")).wide(),
        string("Groups", literal("The groups bound to the role.")).wide(),
        string("ServiceAccounts", literal("The service accounts bound to the role.")).wide(),
    ]
}

pub(super) static PRINTERS: &[Printer] = &[
    Printer {
        group: "rbac.authorization.k8s.io",
        kind: "RoleBinding",
        columns: &const { binding_columns("io.k8s.api.rbac.v1.RoleBinding") },
        cells: binding,
    },
    Printer {
        group: "rbac.authorization.k8s.io",
        kind: "ClusterRoleBinding",
        columns: &const { binding_columns("io.k8s.api.rbac.v1.ClusterRoleBinding") },
        cells: binding,
    },
    Printer {
        group: "certificates.k8s.io",
        kind: "CertificateSigningRequest",
        columns: &[
            NAME,
            AGE,
            string("SignerName", field(CSR, "signerName")),
            string("Requestor", field(CSR, "request")),
            string("RequestedDuration", field(CSR, "expirationSeconds")),
            string("Condition", field(CSR_STATUS, "conditions")),
        ],
        cells: signing_request,
    },
];

fn binding(row: &Row<'_>) -> Vec<Value> {
    let role = format!("{}/{}", row.str(&["roleRef", "kind"]), row.str(&["roleRef", "name"]));
    let subjects = row.array(&["subjects"]);
    let of_kind = |kind: &str, print: fn(&Value) -> String| {
        let all = subjects.iter().filter(|s| s.str_at(&["kind"]) == Some(kind)).map(print);
        Value::from(all.collect::<Vec<_>>().join(", "))
    };
    let name = |subject: &Value| subject.str_at(&["name"]).unwrap_or_default().to_owned();
    let account = |subject: &Value| {
        let member = |name| subject.str_at(&[name]).unwrap_or_default();
        format!("{}/{}", member("namespace"), member("name"))
    };
    vec![
        row.name(),
        role.into(),
        row.age(),
        of_kind("User", name),
        of_kind("Group", name),
        of_kind("ServiceAccount", account),
    ]
}

fn signing_request(row: &Row<'_>) -> Vec<Value> {
    let lifetime = row.obj.int_at(&["spec", "expirationSeconds"]);
    vec![
        row.name(),
        row.age(),
        row.text_or(&["spec", "signerName"], NONE),
        row.text(&["spec", "username"]),
        lifetime.map_or_else(|| NONE.to_owned(), human_seconds).into(),
        request_state(row).into(),
    ]
}

fn request_state(row: &Row<'_>) -> String {
    let conditions = row.array(&["status", "conditions"]);
    let has = |wanted: &str| members(conditions, "type").any(|kind| kind == wanted);
    let mut state = match () {
        () if has("Denied") => "Denied",
        () if has("Approved") => "Approved",
        () => "Pending",
    }
    .to_owned();
    if has("Failed") {
        state.push_str(",Failed");
    }
    if !row.str(&["status", "certificate"]).is_empty() {
        state.push_str(",Issued");
    }
    state
}

#[cfg(test)]
mod tests {
    use super::super::tests::row;
    use keelson_meta::value;

    #[test]
    fn a_binding_sorts_its_subjects_by_kind() {
        let object = value!({"metadata": {"name": "b"}, "roleRef": {"kind": "Role", "name": "r"},
        "subjects": [
            {"kind": "User", "name": "u"},
            {"kind": "ServiceAccount", "namespace": "n", "name": "a"},
            {"kind": "Group", "name": "g"}, {"kind": "User", "name": "v"}
        ]});
        assert_eq!(
            row("rbac.authorization.k8s.io", "RoleBinding", object),
            "b | Role/r | <unknown> | u, v | g | n/a"
        );
    }

    #[test]
    fn signing_request_shows_state_and_duration() {
        let object = value!({"metadata": {"name": "c"}, "spec": {
            "signerName": "s/x", "username": "u", "expirationSeconds": 3600
        }, "status": {"conditions": [{"type": "Approved"}], "certificate": "x"}});
        assert_eq!(
            row("certificates.k8s.io", "CertificateSigningRequest", object),
            "c | <unknown> | s/x | u | 60m | Approved,Issued"
        );
    }
}
