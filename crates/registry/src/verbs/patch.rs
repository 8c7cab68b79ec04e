//! The verb patch: a patch or an apply configuration, applied in the retry loop of updates.

use crate::conversion::Conversions;
use crate::managed_fields::FieldManager;
use crate::options::{FieldValidation, Patch, PatchForm, WriteOptions, strict_warnings};
use crate::patching::{ParsedPatch, Patched};
use crate::registry::Registry;
use crate::target::Target;
use crate::verbs::WriteResponse;
use crate::verbs::bodies::{NewObject, check_namespace};
use crate::verbs::update::check_name;
use crate::write::Subresource;
use keelson_apply::apply::is_well_typed_managed_fields;
use keelson_auth::Permit;
use keelson_meta::{Failure, Map, Object, Reason, Status, Str, Value, owner_references};
use keelson_schema::canonical::GoDecoder;
use keelson_schema::decode::{canonicalize_as, check_maps, yaml_strict};
use keelson_schema::{Schema, cbor, yaml};

impl Registry {
    /// Patches or applies an object.
    pub async fn patch(
        &self,
        permit: &Permit,
        target: &Target,
        subresource: Subresource,
        patch: &Patch,
        options: &WriteOptions,
    ) -> Result<WriteResponse, Failure> {
        target.assert_covered(permit, "patch", subresource.name());
        target.check_name()?;
        let conversions = Conversions::default();
        let span = keelson_traces::current();
        let make = |live: Option<&Object>| {
            let made = if patch.form.is_apply() {
                let manager = FieldManager::converting(target, subresource, &conversions);
                self.apply_configuration(target, &manager, live, patch, options)?
            } else {
                let live = live.ok_or_else(|| target.not_found())?;
                patched(target, live, patch, options)?
            };
            span.event("About to check admission control");
            Ok(made)
        };
        self.change_converting(permit, target, subresource, &make, &conversions, options).await
    }

    fn apply_configuration(
        &self,
        target: &Target,
        manager: &FieldManager<'_>,
        live: Option<&Object>,
        patch: &Patch,
        options: &WriteOptions,
    ) -> Result<NewObject, Failure> {
        let config = ApplyConfiguration::parse(patch)?;
        let (object, warnings) = config.apply(target, manager, live, options, self.clock.now())?;
        Ok(NewObject { object, managed: true, warnings })
    }
}

fn patched(
    target: &Target,
    live: &Object,
    patch: &Patch,
    options: &WriteOptions,
) -> Result<NewObject, Failure> {
    let parsed = ParsedPatch::parse(patch)?;
    let has_raw_extension = target.kind.strategy.has_raw_extension;
    let Patched { mut object, mut warnings, other_type } =
        parsed.apply(target.schema(), live, options.field_validation, has_raw_extension)?;
    warnings.extend(owner_references::dedup_patched(&mut object));
    let checked = check_namespace(target, &mut object)
        .and_then(|()| check_name(target, &object))
        .and_then(|()| other_type.map_or(Ok(()), Err));
    match checked {
        Ok(()) => Ok(NewObject { object, managed: false, warnings }),
        Err(failure) => Err(failure.with_warnings(warnings)),
    }
}

/// A parsed configuration of a server-side apply.
pub(crate) struct ApplyConfiguration {
    config: Map,
    bytes: usize,
    strict: Vec<String>,
}

impl ApplyConfiguration {
    /// Parses the body of an apply.
    pub fn parse(patch: &Patch) -> Result<ApplyConfiguration, Failure> {
        if patch.form == PatchForm::ApplyCbor {
            return ApplyConfiguration::parse_cbor(&patch.body);
        }
        let fail = |why: String| Status::bad_request(format!("error decoding YAML: {why}"));
        let parsed = yaml::parse(&patch.body)
            .map_err(|error| fail(format!("error converting YAML to JSON: {error}")))?;
        let config = match parsed.value {
            Value::Object(config) => config,
            Value::Null => Map::new(),
            other => {
                let given = other.type_name();
                return Err(fail(format!(
                    "error unmarshaling JSON: while decoding JSON: json: cannot unmarshal {given} \
                     into Go value of type map[string]interface {{}}"
                )));
            }
        };
        Ok(ApplyConfiguration {
            config,
            bytes: patch.body.len(),
            strict: yaml_strict(&parsed.duplicates),
        })
    }

    fn parse_cbor(body: &[u8]) -> Result<ApplyConfiguration, Failure> {
        let fail = |why: String| Status::bad_request(format!("error decoding CBOR: {why}"));
        let config = match cbor::parse(body).map_err(|error| fail(error.to_string()))? {
            Value::Object(config) => config,
            Value::Null => Map::new(),
            other => {
                let given = other.type_name();
                return Err(fail(format!(
                    "cbor: cannot unmarshal {given} into Go value of type map[string]interface {{}}"
                )));
            }
        };
        Ok(ApplyConfiguration { config, bytes: body.len(), strict: vec![] })
    }

    /// Applies the configuration to `live`, of the kind of the endpoint. Returns the object and its
    /// warnings.
    pub fn apply(
        self,
        target: &Target,
        manager: &FieldManager<'_>,
        live: Option<&Object>,
        options: &WriteOptions,
        now: keelson_meta::Timestamp,
    ) -> Result<(Object, Vec<Str>), Failure> {
        let schema = manager.schema;
        check_applied(schema, &self.config)?;
        check_maps(&self.config, self.bytes)?;
        let config = Value::Object(self.config);
        let about = about(&config, schema);
        let mut object = manager.apply(live, &config, options, now)?;
        let mut deletion = Ok(());
        if schema.types.is_custom_resource() {
            // The server sets creationTimestamp, and upstream ignores what the configuration says.
            object.metadata_mut().remove("creationTimestamp");
            deletion = check_deletion(manager, &mut object);
        }
        let warnings = match (options.field_validation, self.strict.first()) {
            (FieldValidation::Strict, Some(why)) => {
                return Err(Status::bad_request(format!(
                    "error strict decoding YAML: error converting YAML to JSON: {why}"
                )));
            }
            (FieldValidation::Warn, Some(_)) => strict_warnings(&self.strict),
            _ => vec![],
        };
        let conversion_failure = |why: String| {
            let gvk = &schema.gvk;
            let why = format!(
                "failed to convert new object ({about}) to proper version: unable to convert \
                 unstructured object to {gvk}: {why}"
            );
            Status::new(Reason::Unknown, why)
        };
        if let Some(why) = invalid_managed_time(&config) {
            return Err(conversion_failure(why));
        }
        let decoded =
            canonicalize_as(schema, object.into_value(), GoDecoder::UnstructuredConverter)
                .map_err(conversion_failure)?;
        let mut object = decoded.object;
        if live.is_none() && !object.uid().is_empty() {
            return Err(uid_mismatch(target, object.uid()));
        }
        check_namespace(target, &mut object)?;
        check_name(target, &object)?;
        deletion?;
        Ok((object, warnings))
    }
}

/// Returns the error of an invalid time in managedFields. Well-typed entries are refused before.
fn invalid_managed_time(config: &Value) -> Option<String> {
    let mut times = config
        .array_at(&["metadata", "managedFields"])
        .iter()
        .filter_map(|entry| entry.str_at(&["time"]));
    times.find_map(|time| keelson_meta::Timestamp::parse(time).err().map(|why| why.to_string()))
}

/// Checks the deletionTimestamp of an applied custom resource. An invalid one is dropped, and is an
/// error only if the version is not the storage version.
fn check_deletion(manager: &FieldManager<'_>, object: &mut Object) -> Result<(), Failure> {
    let name = "deletionTimestamp";
    let why = match object.root.get("metadata").and_then(|metadata| metadata.get(name)) {
        None | Some(Value::Null) => return Ok(()),
        Some(Value::String(text)) => match keelson_meta::Timestamp::parse(text) {
            Ok(_) => return Ok(()),
            Err(why) => why.to_string(),
        },
        Some(other) => format!(
            "json: cannot unmarshal {} into Go struct field ObjectMeta.{name} of type string",
            other.type_name()
        ),
    };
    object.metadata_mut().remove(name);
    match manager.is_storage() {
        true => Ok(()),
        false => Err(Status::new(Reason::Unknown, why)),
    }
}

/// Returns 409 for a configuration with a uid whose object does not exist.
fn uid_mismatch(target: &Target, uid: &str) -> Failure {
    let why = format!(
        "uid mismatch: the provided object specified uid {uid}, and no existing object was found"
    );
    Status::conflict(target.gvr(), &target.name, &why)
}

/// Describes the object of a configuration for messages.
fn about(config: &Value, schema: &Schema) -> String {
    let text = |name: &str| config.str_at(&["metadata", name]).unwrap_or_default();
    format!("{}/{}; {}", text("namespace"), text("name"), schema.gvk)
}

/// Checks the type of a configuration, and that it has no managedFields.
fn check_applied(schema: &Schema, config: &Map) -> Result<(), Failure> {
    let text = |name: &str| config.get(name).and_then(Value::as_str).unwrap_or_default();
    let api_version = text("apiVersion");
    let kind = text("kind");
    if kind != schema.gvk.kind || api_version != schema.gvk.api_version() {
        let given = match api_version.matches('/').count() {
            _ if api_version.is_empty() => format!("/, Kind={kind}"),
            0 => format!("/{api_version}, Kind={kind}"),
            1 => format!("{api_version}, Kind={kind}"),
            // Upstream cannot read it, and knows no kind then either.
            _ => "/, Kind=".to_owned(),
        };
        return Err(Status::bad_request(format!("invalid object type: {given}")));
    }
    let entries = config.get("metadata").and_then(|metadata| metadata.get("managedFields"));
    let is_readable =
        |entries: &Value| entries.as_array().is_some() && is_well_typed_managed_fields(entries);
    if entries.is_some_and(is_readable) {
        return Err(Status::bad_request("metadata.managedFields must be nil"));
    }
    Ok(())
}
