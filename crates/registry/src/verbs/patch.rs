//! patch: a change that is told as a difference, applied to the stored object in the update loop.

use crate::kind::Target;
use crate::options::{FieldValidation, Patch, WriteOptions};
use crate::owners;
use crate::registry::Registry;
use crate::verbs::create::check_namespace;
use crate::verbs::update::{Updated, check_name};
use crate::verbs::{Part, Written, check_fields};
use keelson_auth::Permit;
use keelson_meta::{Failure, Map, Object, Reason, Status, Str, Value};
use keelson_schema::decode::conform;
use std::sync::Mutex;

impl Registry {
    /// Changes an object as a patch says.
    pub async fn patch(
        &self,
        permit: &Permit,
        target: &Target,
        part: Part,
        patch: &Patch,
        options: &WriteOptions,
    ) -> Result<Written, Failure> {
        // The loop may make the object several times; the warnings of the last time count.
        let warnings: Mutex<Vec<Str>> = Mutex::new(vec![]);
        let make = |live: Option<&Object>| {
            let updated = match patch {
                Patch::Apply(config) => self.applied(target, part, live, config, options)?,
                Patch::Json(_) | Patch::Merge(_) | Patch::Strategic(_) => {
                    let live = live.ok_or_else(|| target.not_found())?;
                    self.patched(target, live, patch, options)?
                }
            };
            if let Ok(mut slot) = warnings.lock() {
                *slot = updated.1;
            }
            Ok(updated.0)
        };
        let mut written = self.change(permit, target, part, &make, options).await?;
        written.warnings = warnings.into_inner().unwrap_or_default();
        Ok(written)
    }

    fn patched(
        &self,
        target: &Target,
        live: &Object,
        patch: &Patch,
        options: &WriteOptions,
    ) -> Result<(Updated, Vec<Str>), Failure> {
        let schema = target.schema();
        let before = live.clone().into_value();
        let after = crate::subresources::apply_patch(schema, before, patch)?;
        let (object, warnings) = self.read_patched(target, after, options)?;
        check_name(target, &object)?;
        Ok((Updated { object, owned: false }, warnings))
    }

    /// A patched value as an object of the target's kind.
    fn read_patched(
        &self,
        target: &Target,
        value: Value,
        options: &WriteOptions,
    ) -> Result<(Object, Vec<Str>), Failure> {
        let schema = target.schema();
        let gvk = (value.get("kind").cloned(), value.get("apiVersion").cloned());
        let decoded = conform(schema, value).map_err(|why| {
            Status::new(Reason::Invalid, String::new()).with_patch_error(target, &why)
        })?;
        check_type_meta(target, &gvk)?;
        let warnings = check_fields(&decoded, options.field_validation, |why| {
            Status::new(Reason::Invalid, String::new()).with_patch_error(target, &why)
        })?;
        let mut object = decoded.object;
        check_namespace(target, &mut object)?;
        Ok((object, warnings))
    }

    fn applied(
        &self,
        target: &Target,
        part: Part,
        live: Option<&Object>,
        config: &Value,
        options: &WriteOptions,
    ) -> Result<(Updated, Vec<Str>), Failure> {
        let schema = target.schema();
        let Some(map) = config.as_object() else {
            return Err(Status::bad_request("the applied configuration is not an object"));
        };
        check_applied(target, map)?;
        let decoded = conform(schema, config.clone());
        let mut warnings = vec![];
        if let Ok(decoded) = &decoded
            && options.field_validation != FieldValidation::Ignore
        {
            warnings = check_fields(decoded, options.field_validation, |why| {
                Status::bad_request(format!("error strict decoding YAML: {why}"))
            })?;
        }
        let now = self.clock.now();
        let object = owners::apply(target, part, live, config, options, now)?;
        let (object, _) = self.read_patched(
            target,
            object.into_value(),
            &WriteOptions { field_validation: FieldValidation::Ignore, ..options.clone() },
        )?;
        Ok((Updated { object, owned: true }, warnings))
    }
}

/// An applied configuration must say what it is and be about the object of the URL.
fn check_applied(target: &Target, config: &Map) -> Result<(), Failure> {
    let schema = target.schema();
    let text = |name: &str| config.get(name).and_then(Value::as_str).unwrap_or_default();
    let (api_version, kind) = (text("apiVersion"), text("kind"));
    if kind != schema.gvk.kind || api_version != schema.gvk.api_version() {
        let shown = if api_version.contains('/') || api_version.is_empty() {
            format!("{}, Kind={kind}", if api_version.is_empty() { "/" } else { api_version })
        } else {
            format!("/{api_version}, Kind={kind}")
        };
        return Err(Status::bad_request(format!("invalid object type: {shown}")));
    }
    let metadata = config.get("metadata");
    if metadata.and_then(|m| m.get("managedFields")).is_some_and(|m| !m.is_null()) {
        return Err(Status::bad_request("metadata.managedFields must be nil"));
    }
    let mut named = Object::new();
    named.root.insert("metadata", metadata.cloned().unwrap_or_default());
    check_namespace(target, &mut named)?;
    check_name(target, &named)
}

/// A patch may not turn an object into one of another kind.
fn check_type_meta(
    target: &Target,
    (kind, api_version): &(Option<Value>, Option<Value>),
) -> Result<(), Failure> {
    let gvk = &target.schema().gvk;
    let same_kind = kind.as_ref().and_then(Value::as_str).is_none_or(|kind| *kind == gvk.kind);
    let same_version =
        api_version.as_ref().and_then(Value::as_str).is_none_or(|v| *v == gvk.api_version());
    if same_kind && same_version {
        return Ok(());
    }
    let text = |value: &Option<Value>| {
        value.as_ref().and_then(Value::as_str).unwrap_or_default().to_owned()
    };
    Err(Status::bad_request(format!(
        "the API version in the data ({}) does not match the expected API version ({})",
        text(api_version),
        gvk.api_version()
    )))
}

/// The 422 of a patch whose result is not an object of its kind.
trait PatchError {
    fn with_patch_error(self, target: &Target, why: &str) -> Failure;
}

impl PatchError for Failure {
    fn with_patch_error(mut self, target: &Target, why: &str) -> Failure {
        use keelson_meta::{ErrorList, FieldError, Path};
        let mut errors = ErrorList::new();
        let path = Path::new("patch");
        errors.push(FieldError::invalid(&path, "", why));
        let gvk = &target.schema().gvk;
        self = Status::invalid(&gvk.group, &gvk.kind, &target.name, errors);
        self
    }
}
