//! [`Validator`]: what a server would say to manifests, without a server: no network, no control
//! loops, no files.
//!
//! The manifests are created as dry runs in a registry in memory, by the steps that each request
//! takes, so there is no second implementation of any rule. What others depend on (namespaces,
//! definitions, policies, ...) is stored first.

mod order;

use crate::builder::Builder;
use crate::start_error::StartError;
use keelson_aggregation::ServiceResolver;
use keelson_auth::{AUTHENTICATED, Attributes, MASTERS, Permit, User};
use keelson_builtin::{Opened, definitions};
use keelson_egress::Egress;
use keelson_meta::{Failure, GroupVersion, GroupVersionKind, Reason, Status, Str, Value, value};
use keelson_registry::options::{FieldValidation, WriteOptions};
use keelson_registry::{Registry, Target};
use keelson_resources::Endpoint;
use keelson_schema::catalogue::Catalogue;
use keelson_schema::decode::{self, Format};
use keelson_schema::json;
use keelson_store::Embedded;
use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

/// The field manager of `kubectl create`, which managed fields name.
const FIELD_MANAGER: &str = "kubectl-create";
/// The namespace of manifests without one.
const NAMESPACE_DEFAULT: &str = "default";
/// The service account that a control loop makes in each namespace.
const ACCOUNT: &str = "default";
/// The user that creates the manifests.
const USER: &str = "kubernetes-admin";
/// The port of the server that there is not.
const PORT: u16 = 6443;

/// An object to validate.
#[derive(Clone, Debug)]
pub struct ValidatorInput<'a> {
    /// The object, parsed.
    pub value: &'a Value,
    /// Its text, in YAML or JSON, if a text has only it: duplicate fields are found in it.
    pub text: Option<&'a [u8]>,
}

/// What a server says to an object.
#[derive(Clone, Debug)]
pub struct Verdict {
    /// The Status with which it refuses the object; `Ok`: it creates it.
    pub result: Result<(), Failure>,
    /// The warnings that it sends.
    pub warnings: Vec<Str>,
}

impl Verdict {
    fn of(result: Result<Vec<Str>, Failure>) -> Verdict {
        match result {
            Ok(warnings) => Verdict { result: Ok(()), warnings },
            Err(mut failure) => {
                let warnings = std::mem::take(&mut failure.warnings);
                Verdict { result: Err(failure), warnings }
            }
        }
    }
}

/// A registry in memory to which manifests are put.
pub struct Validator {
    registry: Arc<Registry>,
    user: User,
    /// Namespace of manifests that name none.
    namespace: Str,
}

impl Validator {
    /// Opens an empty cluster. `namespace` is that of manifests without one; `None`: `default`.
    pub async fn open(namespace: Option<&str>) -> Result<Validator, StartError> {
        let egress = Arc::new(Egress::new(Arc::new(ServiceResolver::new(false))));
        let mut builder = Builder::default();
        let mut options =
            builder.registry_options(IpAddr::V4(Ipv4Addr::LOCALHOST), PORT, &egress)?;
        // Nothing is sent anywhere: webhooks neither admit nor convert.
        options.conversion_webhooks = None;
        options.dynamic_admission.retain(|plug_in| !plug_in.name().ends_with("Webhook"));
        let opened =
            keelson_builtin::open(Embedded::in_memory(), builder.take_clock(), options).await?;
        let Opened { registry, .. } = opened;
        let groups = [MASTERS, AUTHENTICATED];
        let user = User {
            name: Str::new_static(USER),
            groups: groups.into_iter().map(Str::new_static).collect(),
            ..User::default()
        };
        let namespace = Str::new(namespace.unwrap_or(NAMESPACE_DEFAULT));
        Ok(Validator { registry, user, namespace })
    }

    /// Returns the verdict on each object, in their order, as if each were created in a cluster
    /// that has the namespaces that they use and all objects on which others depend, whatever the
    /// order. Those on which others depend must be valid themselves to count.
    pub async fn validate(&self, given: &[ValidatorInput<'_>]) -> Vec<Verdict> {
        self.prepare(given).await;
        let mut verdicts = Vec::with_capacity(given.len());
        for one in given {
            let verdict = Verdict::of(self.create(one, true).await);
            let exists = |failure: &Failure| failure.reason == Reason::AlreadyExists;
            // It is there because it was stored for others; all other checks come before this one.
            let is_stored = verdict.result.as_ref().is_err_and(exists);
            verdicts.push(match is_stored {
                true => Verdict { result: Ok(()), ..verdict },
                false => verdict,
            });
        }
        verdicts
    }

    /// Stores what others depend on. What cannot be stored is not there for them; its own verdict
    /// tells why.
    async fn prepare(&self, given: &[ValidatorInput<'_>]) {
        self.store_namespaces(given).await;
        let parameters = order::parameter_kinds(given);
        let mut others: Vec<(usize, &ValidatorInput<'_>)> = vec![];
        for one in given {
            if let Some(step) = order::step(one.value, &parameters) {
                others.push((step, one));
            }
        }
        others.sort_by_key(|(step, _)| *step);
        let mut last = None;
        for (step, one) in others {
            if last == Some(order::DEFINITIONS) && step != order::DEFINITIONS {
                self.serve_definitions().await;
            }
            let _ = self.create(one, false).await;
            last = Some(step);
        }
        self.serve_definitions().await;
    }

    /// Stores the namespaces, those that are given and those that are only named, with what a
    /// control loop makes in each.
    async fn store_namespaces(&self, given: &[ValidatorInput<'_>]) {
        let mut names: BTreeSet<Str> =
            BTreeSet::from([self.namespace.clone(), NAMESPACE_DEFAULT.into()]);
        for one in given {
            if order::is_namespace(one.value) {
                let _ = self.create(one, false).await;
                names.extend(one.value.str_at(&["metadata", "name"]).map(Str::new));
            }
            names.extend(one.value.str_at(&["metadata", "namespace"]).map(Str::new));
        }
        for name in names.iter().filter(|name| !name.is_empty()) {
            let namespace = value!({
                "apiVersion": "v1", "kind": "Namespace", "metadata": {"name": (name.clone())}
            });
            let account = value!({
                "apiVersion": "v1", "kind": "ServiceAccount",
                "metadata": {"name": ACCOUNT, "namespace": (name.clone())}
            });
            for object in [namespace, account] {
                // One that exists, or whose name is invalid, which the objects in it will hear.
                let _ = self.create(&ValidatorInput { value: &object, text: None }, false).await;
            }
        }
    }

    async fn serve_definitions(&self) {
        if self.registry.cache.wait_latest().await.is_ok()
            && let Err(error) = definitions::serve_all(&self.registry).await
        {
            tracing::debug!(%error, "definitions are not served");
        }
    }

    /// Creates an object, or checks by a dry run whether it could be. Returns the warnings.
    async fn create(&self, given: &ValidatorInput<'_>, dry_run: bool) -> Result<Vec<Str>, Failure> {
        let gvk = kind_of(given.value)?;
        let endpoint = self.endpoint(&gvk)?;
        let Some(kind) = &endpoint.kind else {
            // A review: a question to a server, about which there is nothing to say without one.
            return Ok(vec![]);
        };
        let named = given.value.str_at(&["metadata", "namespace"]).unwrap_or_default();
        let namespace = match (kind.namespaced, named) {
            (false, _) => Str::default(),
            (true, "") => self.namespace.clone(),
            (true, name) => Str::new(name),
        };
        let target = Target {
            kind: kind.clone(),
            version: gvk.version.clone(),
            namespace: namespace.clone(),
            name: Str::default(),
        };
        let mut warnings: Vec<Str> = endpoint.deprecation.iter().cloned().collect();
        let permit = self.permit(&target).await?;
        let (body, format) = match given.text {
            Some(text) => (text.to_vec(), format_of(text)),
            None => {
                let mut body = vec![];
                json::write_value(given.value, &mut body);
                (body, Format::Json)
            }
        };
        let catalogue = Catalogue::shared();
        let schema = target.schema();
        let decoded = decode::decode(schema, &body, format, &|gvk| catalogue.is_known(gvk))?;
        let options = WriteOptions {
            dry_run,
            field_manager: Str::new_static(FIELD_MANAGER),
            field_validation: FieldValidation::Strict,
            field_validation_is_given: true,
            ..WriteOptions::default()
        };
        let written = self.registry.create(&permit, &target, decoded, &options).await;
        match written {
            Ok(written) => {
                warnings.extend(written.warnings);
                if !dry_run {
                    let latest = self.registry.cache.wait_latest().await;
                    latest.map_err(Status::internal)?;
                }
                Ok(warnings)
            }
            Err(mut failure) => {
                warnings.append(&mut failure.warnings);
                Err(failure.with_warnings(warnings))
            }
        }
    }

    async fn permit(&self, target: &Target) -> Result<Permit, Failure> {
        let attributes = Attributes {
            verb: Str::new_static("create"),
            gvr: target.gvr().clone(),
            namespace: target.namespace.clone(),
            ..Attributes::default()
        };
        self.registry.options.authorizer.authorize(self.user.clone(), attributes).await
    }

    /// Returns the resource of a kind, or what kubectl says if there is none.
    fn endpoint(&self, gvk: &GroupVersionKind) -> Result<Arc<Endpoint>, Failure> {
        let api = self.registry.api();
        let version = api.group(&gvk.group).and_then(|group| group.version(&gvk.version));
        let mut endpoints = version.into_iter().flat_map(|version| version.endpoints());
        let found = endpoints.find(|endpoint| endpoint.facts.kind.kind == gvk.kind);
        found.cloned().ok_or_else(|| {
            let message = format!(
                "no matches for kind \"{}\" in version \"{}\"",
                gvk.kind,
                gvk.api_version()
            );
            Status::new(Reason::NotFound, message)
        })
    }
}

/// Returns the kind of an object, or what kubectl says if it has none.
fn kind_of(value: &Value) -> Result<GroupVersionKind, Failure> {
    let text = |name: &'static str| {
        let text = value.str_at(&[name]).unwrap_or_default();
        if text.is_empty() { Err(Status::bad_request(format!("{name} not set"))) } else { Ok(text) }
    };
    let version = text("apiVersion")?;
    let kind = text("kind")?;
    let parsed = GroupVersion::parse(version)
        .ok_or_else(|| Status::bad_request(format!("unexpected GroupVersion string: {version}")))?;
    Ok(parsed.kind(kind))
}

/// Returns the format of a text: what is JSON is sent as such, as kubectl sends it.
fn format_of(text: &[u8]) -> Format {
    let may_be_json = text.trim_ascii_start().starts_with(b"{");
    if may_be_json && json::parse(text).is_ok() { Format::Json } else { Format::Yaml }
}
