//! ClusterTrustBundles and PodCertificateRequests.

use super::{decoded, signer_name};
use crate::check::Field;
use crate::conditions;
use crate::equality::equal_or_empty;
use crate::strategy::Strategy;
use keelson_meta::object_meta::IMMUTABLE;
use keelson_meta::status::ErrorType;
use keelson_meta::{ErrorList, FieldError, Object, Path, Value, names};
use x509_parser::pem::Pem;
use x509_parser::prelude::{FromDer, X509Certificate, X509CertificationRequest};
use x509_parser::x509::SubjectPublicKeyInfo;

const BUNDLE_BYTES_MAX: usize = 1 << 20;
const UID_BYTES_MAX: usize = 128;
const KEY_BYTES_MAX: usize = 10 << 10;
const SECONDS_MIN: i64 = 3600;
/// The maximum for signers `kubernetes.io/...`. Others may use [`SECONDS_MAX`].
const OWN_SECONDS_MAX: i64 = 86_400;
const SECONDS_MAX: i64 = 91 * 86_400;
const OUTCOMES: &[&str] = &["Issued", "Denied", "Failed"];

/// ClusterTrustBundles.
pub(crate) const fn bundle(base: Strategy) -> Strategy {
    Strategy {
        // The format of names depends on the signer.
        name_rule: |_, _| vec![],
        validate: |new, old| {
            let mut errors = bundle_name(new);
            let spec = Field::of(new, "spec");
            let signer = spec.field("signerName");
            if !signer.text().is_empty() {
                signer_name(&signer, &mut errors);
            }
            let text = spec.field("trustBundle");
            let before = old.and_then(|old| old.at(&["spec", "trustBundle"]));
            if before != Some(text.value) {
                anchors(&text, &mut errors);
            }
            errors
        },
        validate_change: |new, old| {
            let mut errors = ErrorList::new();
            let spec = Field::of(new, "spec");
            let before = old.and_then(|old| old.at(&["spec", "signerName"]));
            let signer = spec.field("signerName");
            signer.unchanged_value(&mut errors, before.unwrap_or(&Value::Null));
            errors
        },
        ..base
    }
}

/// Validates the name: that of a bundle with a signer starts with the signer name.
fn bundle_name(new: &Object) -> ErrorList {
    let mut errors = ErrorList::new();
    let signer = new.str_at(&["spec", "signerName"]);
    let prefix = format!("{}:", signer.replace('/', ":"));
    let metadata = Path::new("metadata");
    let mut check = |member: &str, name: &str, is_prefix: bool| {
        let path = metadata.field(member);
        let mut report = |why: &str| errors.push(FieldError::invalid(&path, name, why));
        let rest = if signer.is_empty() {
            if name.contains(':') {
                return report(
                    "ClusterTrustBundle without signer name must not have \":\" in its name",
                );
            }
            name
        } else {
            let Some(rest) = name.strip_prefix(&prefix) else {
                let words = "must be named with prefix";
                return report(&format!(
                    "ClusterTrustBundle for signerName {signer} {words} {prefix}"
                ));
            };
            rest
        };
        names::name_is_dns_subdomain(rest, is_prefix).iter().for_each(|why| report(why));
    };
    if !new.generate_name().is_empty() {
        check("generateName", new.generate_name(), true);
    }
    if !new.name().is_empty() {
        check("name", new.name(), false);
    }
    errors
}

/// Validates the certificates of a bundle in PEM; duplicates are errors.
fn anchors(at: &Field<'_, '_>, errors: &mut ErrorList) {
    if at.text().len() > BUNDLE_BYTES_MAX {
        return at.not_too_long(errors, BUNDLE_BYTES_MAX);
    }
    let before = errors.len();
    let mut report =
        |why: String| errors.push(FieldError::invalid(&at.path, "<value omitted>", &why));
    let mut known: Vec<(Vec<u8>, Vec<usize>)> = vec![];
    let mut by_content = std::collections::HashMap::new();
    for (number, block) in blocks(at.text()).enumerate() {
        if block.label != "CERTIFICATE" {
            report(format!("entry {number} has bad block type: {}", block.label));
        } else if block.has_headers {
            report(format!("entry {number} has PEM block headers"));
        } else if !X509Certificate::from_der(&block.contents).is_ok_and(|(rest, _)| rest.is_empty())
        {
            report(format!("entry {number} does not parse as X.509"));
        } else {
            let index = *by_content.entry(block.contents.clone()).or_insert_with(|| {
                known.push((block.contents, vec![]));
                known.len() - 1
            });
            known[index].1.push(number);
        }
    }
    for (_, numbers) in known.iter().filter(|(_, numbers)| numbers.len() > 1) {
        let numbers: Vec<String> = numbers.iter().map(usize::to_string).collect();
        report(format!("duplicate trust anchor (indices [{}])", numbers.join(" ")));
    }
    if known.is_empty() && errors.len() == before {
        let words = "at least one trust anchor must be provided";
        errors.push(FieldError::invalid(&at.path, "<value omitted>", words));
    }
}

/// One block of a PEM text.
struct Block {
    label: String,
    has_headers: bool,
    contents: Vec<u8>,
}

fn blocks(text: &str) -> impl Iterator<Item = Block> {
    let mut lines = text.lines();
    std::iter::from_fn(move || {
        loop {
            let line = lines.next()?;
            let Some(label) =
                line.trim_end().strip_prefix("-----BEGIN ").and_then(|l| l.strip_suffix("-----"))
            else {
                continue;
            };
            let end = format!("-----END {label}-----");
            let mut has_headers = false;
            let mut body = String::new();
            for line in lines.by_ref() {
                if line.trim_end() == end {
                    let block = format!("-----BEGIN {label}-----\n{body}{end}\n");
                    let parsed = Pem::iter_from_buffer(block.as_bytes()).next();
                    let Some(Ok(pem)) = parsed else { break };
                    let label = label.to_owned();
                    return Some(Block { label, has_headers, contents: pem.contents });
                }
                if line.contains(": ") {
                    has_headers = true;
                } else if !line.trim().is_empty() {
                    body.push_str(line.trim());
                    body.push('\n');
                }
            }
        }
    })
}

/// PodCertificateRequests.
pub(crate) const fn pod_request(base: Strategy) -> Strategy {
    Strategy {
        name_rule: names::name_is_dns_subdomain_unless_generated,
        validate: |new, old| match old {
            None => validate_request(new),
            Some(_) => ErrorList::new(),
        },
        validate_change: |new, old| {
            let mut errors = ErrorList::new();
            let spec = Field::of(new, "spec");
            if !equal_or_empty(
                spec.value,
                old.and_then(|old| old.get("spec")).unwrap_or(&Value::Null),
            ) {
                spec.invalid(&mut errors, IMMUTABLE);
            }
            errors
        },
        validate_status: validate_request_status,
        ..base
    }
}

/// Returns the error `Invalid value` without the value.
fn error_without_value(at: &Field<'_, '_>, why: &str) -> FieldError {
    let error_type = ErrorType::Invalid;
    let field = at.path.to_string();
    FieldError { error_type, field, value: None, detail: why.to_owned() }
}

fn validate_request(new: &Object) -> ErrorList {
    let mut errors = ErrorList::new();
    let spec = Field::of(new, "spec");
    signer_name(&spec.field("signerName"), &mut errors);
    let annotations = spec.field("unverifiedUserAnnotations");
    errors.extend(keelson_meta::object_meta::validate_annotations(
        annotations.value.as_object(),
        &annotations.path,
    ));
    for (name, _) in annotations.entries().filter(|(name, _)| !name.contains('/')) {
        let words = "must be a domain-prefixed key (such as \"acme.io/foo\")";
        annotations.invalid_as(&mut errors, name, words);
    }
    let objects = [
        ("podName", "podUID"),
        ("serviceAccountName", "serviceAccountUID"),
        ("nodeName", "nodeUID"),
    ];
    for (name, uid) in objects {
        spec.field(name).rule(&mut errors, names::is_dns1123_subdomain);
        let uid = spec.field(uid);
        if uid.text().is_empty() {
            uid.invalid_as(&mut errors, "", "must not be empty");
        }
        uid.not_too_long(&mut errors, UID_BYTES_MAX);
    }
    let own = spec.str("signerName").starts_with("kubernetes.io/");
    let most = if own { OWN_SECONDS_MAX } else { SECONDS_MAX };
    let seconds = spec.field("maxExpirationSeconds");
    if seconds.is_set() && !(SECONDS_MIN..=most).contains(&seconds.number()) {
        seconds.invalid(&mut errors, &format!("must be in the range [{SECONDS_MIN}, {most}]"));
    }
    key(&spec, &mut errors);
    errors
}

/// Validates the public key: a PKCS#10 request, or a key with a proof of possession.
fn key(spec: &Field<'_, '_>, errors: &mut ErrorList) {
    let [stub, public, proof] =
        ["stubPKCS10Request", "pkixPublicKey", "proofOfPossession"].map(|name| spec.field(name));
    let has = |at: &Field<'_, '_>| !at.text().is_empty();
    if has(&stub) == (has(&public) || has(&proof)) {
        let words =
            "exactly one of (stubPKCS10Request) or (pkixPublicKey, proofOfPossession) must be set";
        return errors.push(error_without_value(spec, words));
    }
    for at in [&stub, &public, &proof] {
        if decoded(at.text()).len() > KEY_BYTES_MAX {
            return errors.push(FieldError::too_long(&at.path, KEY_BYTES_MAX));
        }
    }
    if has(&stub) {
        let der = decoded(stub.text());
        let Ok(([], request)) = X509CertificationRequest::from_der(&der) else {
            return errors.push(error_without_value(&stub, "must be a valid PKCS#10 CSR"));
        };
        if request.verify_signature().is_err() {
            errors.push(error_without_value(&stub, "signature must verify"));
        }
    } else {
        let der = decoded(public.text());
        if !SubjectPublicKeyInfo::from_der(&der).is_ok_and(|(rest, _)| rest.is_empty()) {
            public.invalid(errors, "must be a valid PKIX-serialized public key");
        }
    }
}

fn validate_request_status(new: &Object, old: Option<&Object>) -> ErrorList {
    let mut errors = ErrorList::new();
    let status = Field::of(new, "status");
    let list = status.field("conditions");
    let before = old.and_then(|old| old.get("status")).unwrap_or(&Value::Null);
    let decided = |list: &[Value]| {
        list.iter().any(|at| OUTCOMES.contains(&at.str_at(&["type"]).unwrap_or_default()))
    };
    if !equal_or_empty(status.value, before) && decided(before.array_at(&["conditions"])) {
        errors.push(error_without_value(
            &status,
            "status is immutable once \"Issued\", \"Denied\", or \"Failed\"",
        ));
        return errors;
    }
    let mut outcomes = 0;
    for (number, at) in list.items().enumerate() {
        // Upstream's path has a dot before the index.
        let part = format!("[{number}]");
        let condition = Field::new(Some(at.value), list.path.field(&part));
        let kind = condition.field("type");
        if OUTCOMES.contains(&kind.text()) {
            condition.field("status").one_of(&mut errors, &["True"]);
            outcomes += 1;
            if outcomes > 1 {
                let words = "There may be at most one condition with type \"Issued\", \"Denied\", or \
                             \"Failed\"";
                kind.invalid(&mut errors, words);
            }
        } else {
            kind.not_supported(&mut errors, OUTCOMES);
        }
    }
    conditions::validate(&list, &mut errors);
    if equal_or_empty(status.value, before) {
        return errors;
    }
    if !decided(list.array()) {
        let words =
            "status is immutable unless transitioning to \"Issued\", \"Denied\", or \"Failed\"";
        errors.push(error_without_value(&status, words));
        return errors;
    }
    let is_issued = list.items().any(|at| at.str("type") == "Issued");
    let chain = status.field("certificateChain");
    if is_issued && blocks(chain.text()).next().is_none() {
        chain.invalid_as(
            &mut errors,
            chain.text(),
            "issued certificate chain must contain at least one certificate",
        );
    }
    errors
}
