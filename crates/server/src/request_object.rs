//! Records the object of a request in its audit event, as far as the policy wants it.

use crate::audited::AuditedRequest;
use crate::request_head::RequestHead;
use crate::response_object::without_managed_fields;
use bytes::Bytes;
use keelson_audit::Level;
use keelson_meta::json_text::compact;
use keelson_meta::{GroupVersionKind, Object, Overgrown};
use keelson_registry::check_body_fields;
use keelson_registry::options::{FieldValidation, Patch, PatchForm};
use keelson_schema::decode::Decoded;
use keelson_schema::{Schema, cbor, default, json, yaml};

/// Records a decoded object, unless it has fields for which the request is refused. `fill` sets its
/// defaults.
pub(crate) fn record(
    head: &RequestHead,
    schema: &Schema,
    decoded: &Decoded,
    validation: FieldValidation,
    fill: impl FnOnce(&mut Object) -> Result<(), Overgrown>,
) {
    let Some(audited) = &head.audited else { return };
    if check_body_fields(schema, decoded, validation).is_err() {
        return;
    }
    let object = &decoded.object;
    let name = object.name();
    let uid = object.uid();
    audited.refer(object.namespace(), name, uid, object.resource_version());
    if audited.level() < Level::Request {
        return;
    }
    let mut object = object.clone();
    if fill(&mut object).is_ok() {
        record_object(audited, schema, &object);
    }
}

/// Records a decoded object whose defaults are those of its schema.
pub(crate) fn record_with_defaults(
    head: &RequestHead,
    schema: &Schema,
    decoded: &Decoded,
    validation: FieldValidation,
) {
    record(head, schema, decoded, validation, |object| default::fill(schema, object));
}

/// Records the options of a deletion, under the name that kube-apiserver gives them.
pub(crate) fn record_options(head: &RequestHead, schema: &Schema, options: &Object) {
    if let Some(audited) = wants_object(head) {
        let kind = GroupVersionKind::new("meta.k8s.io", "__internal", "DeleteOptions");
        let mut options = options.clone();
        options.set_gvk(&kind);
        record_object(audited, &Schema { gvk: kind, ..schema.clone() }, &options);
    }
}

/// Records a patch, unless it cannot be parsed.
pub(crate) fn record_patch(head: &RequestHead, patch: &Patch) {
    let Some(audited) = wants_object(head) else { return };
    let value = match patch.form {
        PatchForm::Json | PatchForm::Merge | PatchForm::Strategic => {
            let text = std::str::from_utf8(&patch.body).ok();
            if let Some(text) = text.filter(|text| json::parse(text.as_bytes()).is_ok()) {
                audited.set_request_object(Bytes::from(compact(text).into_owned()));
            }
            return;
        }
        PatchForm::ApplyYaml => yaml::parse(&patch.body).ok().map(|parsed| parsed.value),
        PatchForm::ApplyCbor => cbor::parse(&patch.body).ok(),
    };
    if let Some(value) = value {
        let mut text = vec![];
        json::write_value(&value, &mut text);
        audited.set_request_object(Bytes::from(text));
    }
}

fn wants_object(head: &RequestHead) -> Option<&AuditedRequest> {
    head.audited.as_deref().filter(|audited| audited.level() >= Level::Request)
}

fn record_object(audited: &AuditedRequest, schema: &Schema, object: &Object) {
    let mut text = vec![];
    json::encode(schema, object, &mut text);
    audited.set_request_object(match audited.omits_managed_fields() {
        true => without_managed_fields(&text),
        false => Bytes::from(text),
    });
}
