//! The kinds of `certificates.k8s.io`. The rules here are those of CertificateSigningRequests.

mod trust;

pub(super) use trust::{bundle, pod_request};

use super::check::Field;
use crate::row::{Deprecation, Row};
use crate::strategy::{
    Check, ResetFields, SelectableField, StatusMetadata, Strategy, SubresourceStrategy,
};
use keelson_meta::{ErrorList, FieldError, Object, Path, SmallSet, Str, User, Value, names};
use std::collections::HashMap;

/// The resources of the group.
pub(crate) const ROWS: &[Row] = &[
    Row {
        resource: "certificatesigningrequests",
        strategy: signing_request(Strategy {
            reset_fields: ResetFields::CertificateApproval,
            update_checks: &[Check::Metadata, Check::Rules, Check::MetadataChange, Check::Change],
            status_checks: &[Check::Metadata, Check::Rules, Check::MetadataChange],
            fields: &[SelectableField::new("spec.signerName", &[&["spec", "signerName"]])],
            not_selectable: &["metadata.namespace"],
            ..Strategy::GENERIC
        }),
        ..Row::PLAIN
    },
    Row {
        resource: "clustertrustbundles",
        strategy: bundle(Strategy {
            unconditional_update: false,
            update_checks: &[Check::Metadata, Check::Rules, Check::MetadataChange, Check::Change],
            status_checks: &[Check::Metadata, Check::Rules, Check::MetadataChange],
            ..Strategy::GENERIC
        }),
        deprecations: &[Deprecation {
            version: "v1alpha1",
            since: 34,
            until: Some(37),
            replacement: None,
        }],
        ..Row::PLAIN
    },
    Row {
        resource: "podcertificaterequests",
        strategy: pod_request(Strategy {
            unconditional_update: false,
            status_metadata: StatusMetadata::Keep,
            update_checks: &[Check::Metadata, Check::Rules, Check::MetadataChange, Check::Change],
            status_checks: &[Check::Metadata, Check::Rules, Check::MetadataChange],
            ..Strategy::GENERIC
        }),
        ..Row::PLAIN
    },
];

const SECONDS_MIN: i64 = 600;
const SIGNER_BYTES_MAX: usize = 571;
const USAGES: &[&str] = &[
    "any",
    "cert sign",
    "client auth",
    "code signing",
    "content commitment",
    "crl sign",
    "data encipherment",
    "decipher only",
    "digital signature",
    "email protection",
    "encipher only",
    "ipsec end system",
    "ipsec tunnel",
    "ipsec user",
    "key agreement",
    "key encipherment",
    "microsoft sgc",
    "netscape sgc",
    "ocsp signing",
    "s/mime",
    "server auth",
    "signing",
    "timestamping",
];

/// CertificateSigningRequests.
pub(super) const fn signing_request(base: Strategy) -> Strategy {
    Strategy {
        name_rule: names::name_is_anything,
        record_user: record_requester,
        prepare_update: |new, old| match old.get("spec").cloned() {
            Some(spec) => {
                new.root.insert("spec", spec);
            }
            None => {
                new.root.remove("spec");
            }
        },
        record_time,
        validate: |new, _| validate(new),
        validate_status: |new, old| {
            let mut errors = ErrorList::new();
            no_condition_removed(new, old, &mut errors);
            for kind in ["Approved", "Denied"] {
                if count(new, kind) > old.map_or(0, |old| count(old, kind)) {
                    let words = format!("updates may not add a condition of type {kind:?}");
                    errors.push(FieldError::forbidden(&conditions_path(), &words));
                }
            }
            let status = Field::of(new, "status");
            let at = status.field("certificate");
            let before = old.map(|old| old.str_at(&["status", "certificate"])).unwrap_or_default();
            if !before.is_empty() && at.text() != before {
                at.forbidden(&mut errors, "updates may not modify existing certificate content");
            }
            conditions(new, &mut errors);
            certificate(&at, &mut errors);
            errors
        },
        subresources: &[SubresourceStrategy {
            name: "approval",
            prepare: keep_spec_and_certificate,
            validate: |new, old| {
                let mut errors = ErrorList::new();
                no_condition_removed(new, old, &mut errors);
                conditions(new, &mut errors);
                errors
            },
        }],
        ..base
    }
}

/// Restores everything that an approval may not change: all but conditions and metadata.
fn keep_spec_and_certificate(new: &mut Object, old: &Object) {
    if let Some(spec) = old.get("spec").cloned() {
        new.root.insert("spec", spec);
    }
    let status = new.object_mut("status");
    match old.at(&["status", "certificate"]).cloned() {
        Some(certificate) => status.insert("certificate", certificate),
        None => status.remove("certificate"),
    };
}

/// Sets `lastUpdateTime` and `lastTransitionTime` of the conditions.
fn record_time(new: &mut Object, old: &Object, now: &str) {
    let Some(status) = new.root.get_mut("status").and_then(Value::as_object_mut) else { return };
    fn says(condition: &Value) -> [String; 2] {
        ["type", "status"].map(|name| condition.str_at(&[name]).unwrap_or_default().to_owned())
    }
    // The first of equal conditions is used.
    let stored: HashMap<_, &Value> =
        old.array_at(&["status", "conditions"]).iter().rev().map(|one| (says(one), one)).collect();
    let conditions = status.get_mut("conditions").and_then(Value::as_array_mut);
    for condition in conditions.into_iter().flatten() {
        let before = stored.get(&says(condition));
        let since = before.and_then(|other| other.str_at(&["lastTransitionTime"])).unwrap_or(now);
        let Some(members) = condition.as_object_mut() else { continue };
        for (name, time) in [("lastUpdateTime", now), ("lastTransitionTime", since)] {
            if members.get(name).is_none_or(Value::is_null) {
                members.insert(name, time);
            }
        }
    }
}

fn conditions_path() -> Path<'static> {
    Path::new("status.conditions")
}

fn count(obj: &Object, kind: &str) -> usize {
    let conditions = obj.array_at(&["status", "conditions"]).iter();
    conditions.filter(|condition| condition.str_at(&["type"]) == Some(kind)).count()
}

/// Checks that no decision about the request is removed.
fn no_condition_removed(new: &Object, old: Option<&Object>, errors: &mut ErrorList) {
    for kind in ["Approved", "Denied", "Failed"] {
        if count(new, kind) < old.map_or(0, |old| count(old, kind)) {
            let words = format!("updates may not remove a condition of type {kind:?}");
            errors.push(FieldError::forbidden(&conditions_path(), &words));
        }
    }
}

fn conditions(obj: &Object, errors: &mut ErrorList) {
    let status = Field::of(obj, "status");
    let all = status.field("conditions");
    let mut seen: SmallSet<&str> = SmallSet::new();
    for condition in all.items() {
        let kind = condition.field("type");
        let says = condition.field("status");
        if kind.text().is_empty() {
            kind.required(errors, "");
        }
        let decides = matches!(kind.text(), "Approved" | "Denied" | "Failed");
        if says.text().is_empty() {
            says.required(errors, "");
        } else if decides {
            says.one_of(errors, &["True"]);
        } else {
            says.one_of(errors, &["False", "True", "Unknown"]);
        }
        if !seen.insert(kind.text()) {
            kind.duplicate(errors);
        }
    }
    if seen.contains(&"Approved") && seen.contains(&"Denied") {
        let words = "Approved and Denied conditions are mutually exclusive";
        errors.push(FieldError::invalid(&all.path, "Denied", words));
    }
}

/// Sets the user of the request.
fn record_requester(request: &mut Object, user: &User) {
    let texts = |texts: &[Str]| -> Vec<Value> {
        texts.iter().map(|text| Value::from(text.as_str())).collect()
    };
    let spec = request.object_mut("spec");
    for name in ["username", "uid", "groups", "extra"] {
        spec.remove(name);
    }
    spec.insert("username", user.name.as_str());
    if !user.uid.is_empty() {
        spec.insert("uid", user.uid.as_str());
    }
    if !user.groups.is_empty() {
        spec.insert("groups", texts(&user.groups));
    }
    if !user.extra.is_empty() {
        let extra = user.extra.iter().map(|(key, all)| (key.clone(), Value::Array(texts(all))));
        spec.insert("extra", Value::Object(extra.collect()));
    }
}

fn validate(new: &Object) -> ErrorList {
    let mut errors = ErrorList::new();
    let spec = Field::of(new, "spec");
    let request = spec.field("request");
    if pem_blocks(&decoded(request.text())).first().map(String::as_str)
        != Some("CERTIFICATE REQUEST")
    {
        request.invalid(&mut errors, "PEM block type must be CERTIFICATE REQUEST");
    }
    let usages = spec.field("usages");
    usages.not_empty(&mut errors, "");
    let mut seen: SmallSet<&str> = SmallSet::new();
    for usage in usages.items() {
        usage.one_of(&mut errors, USAGES);
        if !seen.insert(usage.text()) {
            usage.duplicate(&mut errors);
        }
    }
    let signer = spec.field("signerName");
    if signer.text() == "kubernetes.io/legacy-unknown" {
        signer.invalid(&mut errors, "the legacy signerName is not allowed via this API version");
    } else {
        signer_name(&signer, &mut errors);
    }
    let seconds = spec.field("expirationSeconds");
    if seconds.is_set() && seconds.number() < SECONDS_MIN {
        let words = "may not specify a duration less than 600 seconds (10 minutes)";
        seconds.invalid(&mut errors, words);
    }
    errors
}

/// Validates a signer name such as `example.com/signer-name`.
fn signer_name(at: &Field<'_, '_>, errors: &mut ErrorList) {
    const FORM: &str =
        "must be a fully qualified domain and path of the form 'example.com/signer-name'";
    if !at.not_empty(errors, "") {
        return;
    }
    let parts: Vec<&str> = at.text().split('/').collect();
    let [domain, path] = parts.as_slice() else { return at.invalid(errors, FORM) };
    let labels: Vec<&str> = domain.split('.').collect();
    // Upstream reports only the first invalid label.
    if let Some(label) = labels.iter().find(|label| !names::is_dns1123_label(label).is_empty()) {
        for why in names::is_dns1123_label(label) {
            let shown = keelson_meta::status::quote(label);
            at.invalid_as(errors, *domain, &format!("validating label {shown}: {why}"));
        }
    }
    if labels.len() < 2 {
        let words = "should be a domain with at least two segments separated by dots";
        at.invalid_as(errors, *domain, words);
    }
    for label in path.split('.') {
        for why in names::is_dns1123_subdomain(label) {
            let shown = keelson_meta::status::quote(label);
            at.invalid_as(errors, *path, &format!("validating label {shown}: {why}"));
        }
    }
    if at.text().len() > SIGNER_BYTES_MAX {
        errors.push(FieldError::too_long(&at.path, SIGNER_BYTES_MAX));
    }
}

fn decoded(text: &str) -> Vec<u8> {
    use base64::Engine;
    base64::engine::general_purpose::STANDARD.decode(text).unwrap_or_default()
}

/// Returns the types of the blocks in a PEM text.
fn pem_blocks(text: &[u8]) -> Vec<String> {
    let text = String::from_utf8_lossy(text);
    const END: &str = "-----END ";
    let ends =
        text.match_indices(END).filter_map(|(at, _)| text[at + END.len()..].split_once("-----"));
    let ends: SmallSet<&str> = ends.map(|(kind, _)| kind).collect();
    let kind = |line: &str| {
        let kind = line.trim().strip_prefix("-----BEGIN ")?.strip_suffix("-----")?;
        ends.contains(kind).then(|| kind.to_owned())
    };
    text.lines().filter_map(kind).collect()
}

fn certificate(at: &Field<'_, '_>, errors: &mut ErrorList) {
    const HIDDEN: &str = "<certificate data>";
    if at.text().is_empty() {
        return;
    }
    let blocks = pem_blocks(&decoded(at.text()));
    if let Some(other) = blocks.iter().find(|kind| *kind != "CERTIFICATE") {
        let shown = keelson_meta::status::quote(other);
        let words = format!("only CERTIFICATE PEM blocks are allowed, found {shown}");
        at.invalid_as(errors, HIDDEN, &words);
    } else if blocks.is_empty() {
        at.invalid_as(errors, HIDDEN, "must contain at least one CERTIFICATE PEM block");
    }
}
