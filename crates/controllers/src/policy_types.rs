//! The ValidatingAdmissionPolicy status controller: type checks the expressions of a policy for the
//! kinds that it matches, and reports warnings in its status (apiserver
//! `admission/plugin/policy/validating/typechecking.go`).

use keelson_auth::long_work;
use keelson_cel::admission::{Compiler, Purpose};
use keelson_cel::{Type, Version};
use keelson_loops::client::{Client, ignore_terminating};
use keelson_loops::control_loop::{self, ControlLoop};
use keelson_loops::queue::Queue;
use keelson_meta::{Failure, GroupVersion, GroupVersionKind, Object, Str, Value, value};
use keelson_registry::options::PatchForm;
use keelson_registry::{InformerEvent, InformerScope, Registry, Subresource, Target};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

const GROUP: &str = "admissionregistration.k8s.io";
const RESOURCE: &str = "validatingadmissionpolicies";
const FIELD_MANAGER: &str = "validatingadmissionpolicy-status";
/// Maximum number of kinds of one resource rule that are checked.
const KINDS_MAX: usize = 10;

/// Runs until it is dropped.
pub(crate) async fn run(registry: Arc<Registry>) {
    let client = Client::new(&registry, "validatingadmissionpolicy-status-controller")
        .with_field_manager(FIELD_MANAGER);
    control_loop::run(&registry, PolicyTypes { client }).await;
}

struct PolicyTypes {
    client: Client,
}

impl ControlLoop for PolicyTypes {
    /// The name of a policy.
    type Key = Str;
    const NAME: &'static str = "validatingadmissionpolicy-status-controller";
    const SCOPE: InformerScope = InformerScope::Only(&[(GROUP, RESOURCE)]);
    const WORKERS_MAX: usize = 1;

    fn observe(&self, events: Vec<InformerEvent>, queue: &mut Queue<Str>) -> bool {
        for event in &events {
            match event {
                InformerEvent::Listed(_, all) => {
                    queue.extend(all.range("", "").map(|entry| entry.name().into()));
                }
                InformerEvent::Put { entry, .. } => queue.add(entry.name().into()),
                _ => {}
            }
        }
        false
    }

    async fn sync(&self, name: Str) -> Result<Option<Duration>, Failure> {
        let Some(kind) = self.client.kind(GROUP, RESOURCE) else { return Ok(None) };
        let target = Target::of(&kind, "", &name);
        let Some(policy) = self.client.get(&target).await? else { return Ok(None) };
        let generation = policy.generation();
        if policy.int_at(&["status", "observedGeneration"]).unwrap_or_default() >= generation {
            return Ok(None);
        }
        let registry = self.client.registry.clone();
        // Declaring the types of a kind takes milliseconds.
        let check = move || type_check(&registry, &policy);
        let warnings = long_work::run_elsewhere(&Self::NAME.into(), check).await?;
        let types = match warnings.is_empty() {
            true => value!({}),
            false => value!({"expressionWarnings": (warnings)}),
        };
        let patch = value!({
            "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicy",
            "metadata": {"name": (name.clone())},
            "status": {"observedGeneration": (generation), "typeChecking": (types)}
        });
        ignore_terminating(
            self.client.patch(&target, Subresource::Status, PatchForm::ApplyYaml, &patch).await,
        )?;
        Ok(None)
    }
}

/// Returns the `expressionWarnings` of a policy: the type errors of each expression, by kind.
fn type_check(registry: &Registry, policy: &Object) -> Vec<Value> {
    let compilers = compilers(registry, policy);
    let mut warnings = vec![];
    for (i, validation) in policy.array_at(&["spec", "validations"]).iter().enumerate() {
        for field in ["expression", "messageExpression"] {
            let text = validation.str_at(&[field]).filter(|text| !text.is_empty());
            let Some(text) = text else { continue };
            let errors: Vec<String> = compilers
                .iter()
                .filter_map(|(kind, compiler)| {
                    let error = compiler.compile(text, Purpose::Variable).err()?;
                    let error = error.strip_prefix("compilation failed: ").unwrap_or(&error);
                    Some(format!("{kind}: {error}\n"))
                })
                .collect();
            if !errors.is_empty() {
                let field = format!("spec.validations[{i}].{field}");
                warnings.push(value!({"fieldRef": (field), "warning": (errors.join("\n"))}));
            }
        }
    }
    warnings
}

/// Returns a compiler for each kind that a policy names.
fn compilers(registry: &Registry, policy: &Object) -> Vec<(GroupVersionKind, Compiler)> {
    let declared = |kind: &GroupVersionKind, name: &str| -> Option<Type> {
        registry.api().decl_type(&registry.catalogue, kind, name).map(|decl_type| decl_type.ty())
    };
    let params = policy.at(&["spec", "paramKind"]).filter(|kind| !kind.is_null());
    let has_params = params.is_some();
    let params = params.and_then(|kind| {
        let text = |name: &str| kind.str_at(&[name]).unwrap_or_default();
        let kind = GroupVersion::parse(text("apiVersion"))?.kind(text("kind"));
        declared(&kind, &format!("{}Params", kind.kind))
    });
    let compiler = |kind: GroupVersionKind| {
        let object = declared(&kind, &kind.kind)?;
        let mut compiler = Compiler::policy(Version::STORED_EXPRESSIONS, has_params)
            .with_types(object, params.clone());
        for variable in policy.array_at(&["spec", "variables"]) {
            let text = |name: &str| variable.str_at(&[name]).unwrap_or_default();
            compiler.variable(text("name"), text("expression"));
        }
        Some((kind, compiler))
    };
    named_kinds(registry, policy).into_iter().filter_map(compiler).collect()
}

/// Returns the kinds that the resource rules of a policy name. Wildcards name no kinds.
fn named_kinds(registry: &Registry, policy: &Object) -> BTreeSet<GroupVersionKind> {
    let mut kinds = BTreeSet::new();
    for rule in policy.array_at(&["spec", "matchConstraints", "resourceRules"]) {
        let names = |list: &str| -> BTreeSet<String> {
            let names = rule.array_at(&[list]).iter().filter_map(Value::as_str);
            names.filter(|name| !name.contains(['*', '/'])).map(str::to_lowercase).collect()
        };
        let versions = names("apiVersions");
        let resources = names("resources");
        let mut of_rule = BTreeSet::new();
        for group in names("apiGroups") {
            for version in &versions {
                for resource in &resources {
                    let found = kinds_for(registry, &group, version, resource);
                    let free = KINDS_MAX.saturating_sub(of_rule.len());
                    of_rule.extend(found.into_iter().take(free));
                }
            }
        }
        kinds.append(&mut of_rule);
    }
    kinds
}

/// Returns the kinds of a resource, by its plural or singular name. The core group stands for all
/// groups, as in client-go's RESTMapper.
fn kinds_for(
    registry: &Registry,
    group: &str,
    version: &str,
    resource: &str,
) -> Vec<GroupVersionKind> {
    let api = registry.api();
    let groups = api.groups().filter(|known| group.is_empty() || known.name == group);
    let versions = groups.filter_map(|known| known.version(version));
    let endpoints = versions.flat_map(|version| version.endpoints());
    let named = endpoints
        .filter(|endpoint| endpoint.facts.name == resource || endpoint.facts.singular == resource);
    named.map(|endpoint| endpoint.facts.kind.clone()).collect()
}
