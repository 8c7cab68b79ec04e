//! The `scale` subresource: one small kind over the replica counts of several (registry
//! `apps/deployment/storage`, `core/replicationcontroller/storage`).

use crate::admission::{OwnKind, Passes, Write};
use crate::api_table::Source;
use crate::kind::{Answer, Target};
use crate::options::{Freshness, Patch, WriteOptions};
use crate::owners::Endpoint;
use crate::patching::Difference;
use crate::registry::Registry;
use crate::verbs::create::check_namespace;
use crate::verbs::patch::Applied;
use crate::verbs::update::{Updated, check_name, check_uid};
use crate::verbs::{Part, Written, check_body_fields};
use keelson_apply::managed::scale::{ReplicasPaths, to_resource, to_scale};
use keelson_auth::Permit;
use keelson_meta::selector::Selector;
use keelson_meta::{
    ErrorList, Failure, FieldError, GroupVersionKind, Map, Object, Path, Status, Str, Value,
};
use keelson_schema::Schema;
use keelson_schema::decode::Decoded;

/// Where the replicas stand in a Scale, and in every built-in kind that has one.
const REPLICAS: &[&str] = &["spec", "replicas"];

/// Where the scale of a custom resource stands in its objects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScalePaths {
    /// `.spec.replicas`.
    spec_replicas: Vec<Str>,
    /// `.status.replicas`.
    status_replicas: Vec<Str>,
    /// `.status.selector`; empty: there is none.
    selector: Vec<Str>,
}

impl ScalePaths {
    /// Reads `subresources.scale` of a CustomResourceDefinition.
    pub fn read(scale: &Value) -> ScalePaths {
        let path = |name: &str| path_members(scale.str_at(&[name]).unwrap_or_default());
        ScalePaths {
            spec_replicas: path("specReplicasPath"),
            status_replicas: path("statusReplicasPath"),
            selector: path("labelSelectorPath"),
        }
    }
}

/// The members to which a simple JSONPath such as `.spec.replicas` leads.
pub fn path_members(path: &str) -> Vec<Str> {
    path.split('.').filter(|member| !member.is_empty()).map(Str::new).collect()
}

fn members(path: &[Str]) -> Vec<&str> {
    path.iter().map(Str::as_str).collect()
}

/// Sets a value in objects below objects.
fn set_at(object: &mut Object, path: &[&str], value: i64) {
    let Some((last, parents)) = path.split_last() else { return };
    let mut map = &mut object.root;
    for parent in parents {
        if map.get(parent).and_then(Value::as_object).is_none() {
            map.insert(Str::new(*parent), Map::new());
        }
        let Some(inner) = map.get_mut(parent).and_then(Value::as_object_mut) else { return };
        map = inner;
    }
    map.insert(Str::new(*last), value);
}

/// What `scale` speaks: autoscaling/v1 Scale.
pub fn scale_kind() -> GroupVersionKind {
    GroupVersionKind::new("autoscaling", "v1", "Scale")
}

/// What a write of a scale brings.
#[derive(Debug)]
pub enum ScaleChange {
    /// PUT.
    Whole(Decoded),
    /// PATCH.
    Patch(Patch),
}

/// The Scale of an object in the version that writes work on.
fn shown_scale(target: &Target, obj: &Object) -> Object {
    match target.kind.source {
        Source::BuiltIn => {
            scale_before(target, &target.kind.in_version(obj.clone(), target.schema()))
        }
        Source::Custom => scale_before(target, obj),
    }
}

/// The Scale of an object in the version of the target.
fn scale_of(target: &Target, obj: &Object) -> Result<Object, Failure> {
    let Some(paths) = target.kind.scale(&target.version) else { return Ok(built_in_scale(obj)) };
    if obj.int_at(&members(&paths.spec_replicas)).is_none() {
        let path = paths.spec_replicas.join(".");
        let why = format!("the spec replicas field \".{path}\" does not exist");
        return Err(Status::internal(why));
    }
    Ok(custom_scale(&paths, obj))
}

/// The same for an object that is about to change: one that has no replicas yet has 0.
fn scale_before(target: &Target, obj: &Object) -> Object {
    match target.kind.scale(&target.version) {
        Some(paths) => custom_scale(&paths, obj),
        None => built_in_scale(obj),
    }
}

fn custom_scale(paths: &ScalePaths, obj: &Object) -> Object {
    let replicas = obj.int_at(&members(&paths.spec_replicas)).unwrap_or(0);
    let mut status = Map::new();
    let now = obj.int_at(&members(&paths.status_replicas));
    status.insert("replicas", now.unwrap_or(0));
    let selector = obj.str_at(&members(&paths.selector));
    if !paths.selector.is_empty() && !selector.is_empty() {
        status.insert("selector", selector);
    }
    scale(obj, replicas, status)
}

fn built_in_scale(obj: &Object) -> Object {
    let mut status = Map::new();
    status.insert("replicas", obj.int_at(&["status", "replicas"]).unwrap_or(0));
    let text = selector_text(obj);
    if !text.is_empty() {
        status.insert("selector", text);
    }
    scale(obj, obj.int_at(REPLICAS).unwrap_or(0), status)
}

fn scale(obj: &Object, replicas: i64, status: Map) -> Object {
    let mut metadata = Map::new();
    for name in ["name", "namespace", "uid", "resourceVersion", "creationTimestamp"] {
        if let Some(value) = obj.metadata().and_then(|m| m.get(name)) {
            metadata.insert(name, value.clone());
        }
    }
    let mut spec = Map::new();
    spec.insert("replicas", replicas);
    let mut scale = Object::new();
    scale.set_gvk(&scale_kind());
    scale.root.insert("metadata", metadata);
    scale.root.insert("spec", spec);
    scale.root.insert("status", status);
    scale
}

/// The selector of a built-in kind, as text.
fn selector_text(obj: &Object) -> String {
    let selector = obj.at(&["spec", "selector"]);
    match selector {
        Some(map) if map.get("matchLabels").is_some() || map.get("matchExpressions").is_some() => {
            Selector::from_object(selector).map(|s| s.to_string()).unwrap_or_default()
        }
        Some(Value::Object(labels)) => {
            let pairs = labels.iter().map(|(k, v)| (k.as_str(), v.as_str().unwrap_or_default()));
            Selector::from_labels(pairs).to_string()
        }
        _ => String::new(),
    }
}

impl Registry {
    /// The Scale of an object.
    pub async fn get_scale(
        &self,
        permit: &Permit,
        target: &Target,
        freshness: Freshness,
    ) -> Result<Answer, Failure> {
        target.assert_covered(permit, "get", "scale");
        match self.read(target, freshness).await? {
            Answer::Entry(entry) => {
                let obj = target.kind.object_in(&entry, target.schema())?;
                Ok(Answer::Object(scale_of(target, &obj)?))
            }
            other => Ok(other),
        }
    }

    /// Sets the replica count of an object to that of the Scale that the change makes.
    pub async fn update_scale(
        &self,
        permit: &Permit,
        target: &Target,
        change: &ScaleChange,
        options: &WriteOptions,
    ) -> Result<Written, Failure> {
        let verb = match change {
            ScaleChange::Whole(_) => "update",
            ScaleChange::Patch(_) => "patch",
        };
        target.assert_covered(permit, verb, "scale");
        let schema = self
            .catalogue
            .schema(&scale_kind())
            .ok_or_else(|| Status::internal("Scale has no schema"))?;
        let make = |live: Option<&Object>| {
            let live = live.ok_or_else(|| target.not_found())?;
            let (object, warnings) = self.scaled(target, &schema, live, change, options)?;
            Ok(Updated { object, owned: true, warnings })
        };
        let part = Part::Other("scale");
        let mut written = self.change(permit, target, part, &make, options).await?;
        let obj = match &written.answer {
            Answer::Entry(entry) => target.kind.object_in(entry, target.schema())?,
            Answer::Object(obj) => obj.clone(),
            Answer::Success(_) => return Err(Status::internal("a scale without an object")),
        };
        written.answer = Answer::Object(scale_of(target, &obj)?);
        Ok(written)
    }

    /// Lets plug-ins change the Scale of a changed object, which is in the version that writes work on.
    pub(crate) async fn admit_scale(
        &self,
        write: &Write<'_>,
        obj: &mut Object,
        warnings: &mut Vec<Str>,
    ) -> Result<Passes, Failure> {
        let (kind, old) = (scale_kind(), stored_scale(write));
        let own = Some(OwnKind { kind: &kind, resource: None });
        let write = Write { old: old.as_ref(), own, ..*write };
        let mut scale = shown_scale(write.target, obj);
        let before = scale.int_at(REPLICAS);
        let passes = self.admit(&write, &mut scale, warnings).await?;
        if let Some(replicas) = scale.int_at(REPLICAS).filter(|after| before != Some(*after)) {
            let paths = write.target.kind.scale(&write.target.version);
            let path = paths.as_ref().map(|paths| members(&paths.spec_replicas));
            set_at(obj, path.as_deref().unwrap_or(REPLICAS), replicas);
        }
        Ok(passes)
    }

    /// Asks plug-ins about the Scale of an object as it would be stored.
    pub(crate) async fn validate_scale(
        &self,
        write: &Write<'_>,
        passes: &Passes,
        obj: &Object,
        warnings: &mut Vec<Str>,
    ) -> Result<(), Failure> {
        let (kind, old) = (scale_kind(), stored_scale(write));
        let own = Some(OwnKind { kind: &kind, resource: None });
        let scale = shown_scale(write.target, obj);
        let write = Write { old: old.as_ref(), own, ..*write };
        self.validate_admitted(&write, passes, &scale, warnings).await
    }

    /// The object with the replicas of its new Scale, whose owners become the object's own.
    fn scaled(
        &self,
        target: &Target,
        schema: &Schema,
        live: &Object,
        change: &ScaleChange,
        options: &WriteOptions,
    ) -> Result<(Object, Vec<Str>), Failure> {
        let own = target.kind.scale(&target.version);
        let own = own.as_ref().map(|paths| members(&paths.spec_replicas));
        let place = own.as_deref().unwrap_or(REPLICAS);
        let versions: Vec<String> = target
            .kind
            .versions
            .iter()
            .map(|schema| schema.gvk.api_version().to_string())
            .collect();
        let versions: Vec<(&str, Option<&[&str]>)> =
            versions.iter().map(|version| (version.as_str(), Some(place))).collect();
        let api_version = target.schema().gvk.api_version();
        let paths = ReplicasPaths { api_version: &api_version, versions: &versions };
        let entries = live.array_at(&["metadata", "managedFields"]);
        let mut before = scale_before(target, live);
        let shown = to_scale(entries, &paths).map_err(Status::internal)?;
        if !shown.is_empty() {
            before.metadata_mut().insert("managedFields", shown);
        }
        let (scale, warnings) = self.new_scale(target, schema, &before, change, options)?;
        check(target, &scale)?;
        let mut object = live.clone();
        let replicas = scale.int_at(REPLICAS).unwrap_or(0);
        set_at(&mut object, place, replicas);
        object.set_meta("resourceVersion", scale.resource_version());
        let owners = scale.array_at(&["metadata", "managedFields"]);
        let owners = to_resource(entries, owners, &paths).map_err(Status::internal)?;
        object.metadata_mut().insert("managedFields", owners);
        Ok((object, warnings))
    }

    fn new_scale(
        &self,
        target: &Target,
        schema: &Schema,
        before: &Object,
        change: &ScaleChange,
        options: &WriteOptions,
    ) -> Result<(Object, Vec<Str>), Failure> {
        let endpoint = Endpoint::with_own_kind(schema, "scale");
        let now = self.clock.now();
        let validation = options.field_validation;
        let (mut scale, warnings) = match change {
            ScaleChange::Patch(patch) if patch.form.is_apply() => {
                let applied = Applied::read(patch)?;
                return applied.apply(target, &endpoint, Some(before), options, now);
            }
            ScaleChange::Patch(patch) => {
                let patched = Difference::read(patch)?.apply(schema, before, validation)?;
                (patched.object, patched.warnings)
            }
            ScaleChange::Whole(body) => {
                let warnings = check_body_fields(schema, body, validation)?;
                check_uid(target, &body.object, before.uid(), options.dry_run)?;
                (body.object.clone(), warnings)
            }
        };
        check_namespace(target, &mut scale)?;
        check_name(target, &scale)?;
        endpoint.updated(before, &mut scale, options, now);
        Ok((scale, warnings))
    }
}

fn stored_scale(write: &Write<'_>) -> Option<Object> {
    write.old.map(|old| shown_scale(write.target, old))
}

impl ScalePaths {
    /// The faults of what the paths lead to in an object (apiextensions `ValidateScaleSpec`).
    pub(crate) fn validate(&self, obj: &Object, errors: &mut ErrorList) {
        for path in [&self.spec_replicas, &self.status_replicas] {
            let field = format!(".{}", path.join("."));
            let field = Path::new(&field);
            match nested(obj, path) {
                Err(why) => errors.push(FieldError::invalid(&field, 0, &why)),
                Ok(None | Some(Value::Int(0..=MAX_REPLICAS))) => {}
                Ok(Some(Value::Int(count))) if *count < 0 => {
                    let why = "should be a non-negative integer";
                    errors.push(FieldError::invalid(&field, *count, why));
                }
                Ok(Some(Value::Int(count))) => {
                    let why = format!("should be less than or equal to {MAX_REPLICAS}");
                    errors.push(FieldError::invalid(&field, *count, &why));
                }
                Ok(Some(other)) => {
                    let why = misfit(path, other, "int64");
                    errors.push(FieldError::invalid(&field, 0, &why));
                }
            }
        }
        if self.selector.is_empty() {
            return;
        }
        let field = format!(".{}", self.selector.join("."));
        let why = match nested(obj, &self.selector) {
            Ok(None | Some(Value::String(_))) => return,
            Ok(Some(other)) => misfit(&self.selector, other, "string"),
            Err(why) => why,
        };
        errors.push(FieldError::invalid(&Path::new(&field), "", &why));
    }
}

const MAX_REPLICAS: i64 = i32::MAX as i64;

/// What a path leads to, or what stands in its way.
fn nested<'v>(obj: &'v Object, path: &[Str]) -> Result<Option<&'v Value>, String> {
    let Some((first, rest)) = path.split_first() else { return Ok(None) };
    let Some(mut value) = obj.get(first) else { return Ok(None) };
    for (at, member) in rest.iter().enumerate() {
        if value.is_null() {
            return Ok(None);
        }
        let Some(map) = value.as_object() else {
            // The path ends with the first member that cannot be looked for.
            return Err(misfit(&path[..at + 2], value, "map[string]interface{}"));
        };
        match map.get(member) {
            Some(inner) => value = inner,
            None => return Ok(None),
        }
    }
    Ok(Some(value))
}

fn misfit(path: &[Str], value: &Value, wanted: &str) -> String {
    let go_type = match value {
        Value::Null => "<nil>",
        Value::Bool(_) => "bool",
        Value::Int(_) => "int64",
        Value::Float(_) => "float64",
        Value::String(_) => "string",
        Value::Array(_) => "[]interface {}",
        _ => "map[string]interface {}",
    };
    let shown = keelson_apply::gofmt::plain(value);
    let path = path.join(".");
    format!(".{path} accessor error: {shown} is of the type {go_type}, expected {wanted}")
}

fn check(target: &Target, scale: &Object) -> Result<(), Failure> {
    if target.kind.source == Source::Custom {
        // Its validation looks at the object.
        return Ok(());
    }
    let mut errors = ErrorList::new();
    let replicas = scale.int_at(REPLICAS).unwrap_or(0);
    if replicas < 0 {
        let spec = Path::new("spec");
        let why = "must be greater than or equal to 0";
        errors.push(FieldError::invalid(&spec.field("replicas"), replicas, why));
    }
    errors.into_result("autoscaling", "Scale", &target.name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use keelson_meta::value;

    #[test]
    fn what_stands_in_the_way_of_a_scale_is_named_with_the_first_member_behind_it() {
        let path = ["spec", "worker", "replicas"].map(Str::from);
        let check = |spec: Value, expected: Result<Option<&str>, &str>| {
            let object = Object::from_value(value!({"spec": (spec)})).expect("a map");
            let found = nested(&object, &path).map(|found| found.map(keelson_apply::gofmt::plain));
            let expected = expected.map(|value| value.map(str::to_owned)).map_err(str::to_owned);
            assert_eq!(found.map(|found| found.map(|text| text.to_string())), expected);
        };
        let wanted = "expected map[string]interface{}";
        let in_spec =
            format!(".spec.worker accessor error: [] is of the type []interface {{}}, {wanted}");
        check(value!([]), Err(&in_spec));
        let in_worker =
            format!(".spec.worker.replicas accessor error: x is of the type string, {wanted}");
        check(value!({"worker": "x"}), Err(&in_worker));
        check(value!({"worker": null}), Ok(None));
        check(Value::Null, Ok(None));
        check(value!({"worker": {"replicas": 2}}), Ok(Some("2")));
    }
}
