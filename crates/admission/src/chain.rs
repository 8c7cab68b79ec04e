//! [`Chain`]: the plug-ins that are on, in the order in which they are asked.

use crate::attributes::Notes;
use crate::config::PlugInConfig;
use crate::request::{Operation, Request};
use crate::{
    admin_access, always_pull_images, certificates, declared_features, event_rate_limit,
    extended_resource_toleration, image_policy, ingress_class, jobs, limit_ranger,
    namespace_lifecycle, node_restriction, nodes, owner_references, pod_groups, pod_node_selector,
    pod_resize, pod_security, pod_toleration_restriction, priority, quota, runtime_class,
    service_account, small, storage, tolerations, trust_bundle_attest,
};
use keelson_auth::User;
use keelson_meta::{Failure, GroupVersionResource, Object, Status};
use std::fmt;
use std::sync::Arc;

/// Changes the object of a request, or refuses it, with warnings and audit annotations to the last argument.
type Admit = fn(&Request<'_>, &mut Object, &mut Notes) -> Result<(), Failure>;

/// Refuses the object of a request as it would be stored.
type Validate = fn(&Request<'_>, &Object, &mut Notes) -> Result<(), Failure>;

/// A plug-in.
struct PlugIn {
    name: &'static str,
    default_on: bool,
    does: Does,
}

/// The implementation of a plug-in.
enum Does {
    /// Functions of the mutating and the validating phase.
    Steps { admit: Option<Admit>, validate: Option<Validate> },
    /// The name is known, and nothing is done for it here.
    Nothing,
}

const fn mutates(name: &'static str, admit: Admit) -> PlugIn {
    PlugIn { name, default_on: true, does: Does::Steps { admit: Some(admit), validate: None } }
}

const fn validates(name: &'static str, validate: Validate) -> PlugIn {
    PlugIn { name, default_on: true, does: Does::Steps { admit: None, validate: Some(validate) } }
}

const fn both(name: &'static str, admit: Admit, validate: Validate) -> PlugIn {
    let does = Does::Steps { admit: Some(admit), validate: Some(validate) };
    PlugIn { name, default_on: true, does }
}

impl PlugIn {
    const fn off_by_default(self) -> PlugIn {
        PlugIn { default_on: false, ..self }
    }
}

const fn nothing(name: &'static str, default_on: bool) -> PlugIn {
    PlugIn { name, default_on, does: Does::Nothing }
}

/// All plug-ins that kube-apiserver knows, in its order (`pkg/kubeapiserver/options/plugins.go`).
static PLUG_INS: [PlugIn; 41] = [
    nothing("AlwaysAdmit", false),
    nothing(NAMESPACE_AUTO_PROVISION, false),
    both(namespace_lifecycle::NAME, namespace_lifecycle::admit, namespace_lifecycle::validate),
    validates("NamespaceExists", small::namespace_exists).off_by_default(),
    validates("LimitPodHardAntiAffinityTopology", small::limit_anti_affinity).off_by_default(),
    both("LimitRanger", limit_ranger::admit, limit_ranger::validate),
    both("ServiceAccount", service_account::admit, service_account::validate),
    both("NodeRestriction", node_restriction::admit, node_restriction::validate),
    mutates("TaintNodesByCondition", nodes::taint_new),
    both("AlwaysPullImages", always_pull_images::admit, always_pull_images::validate)
        .off_by_default(),
    nothing(image_policy::NAME, false),
    validates("PodSecurity", pod_security::validate),
    both("PodNodeSelector", pod_node_selector::admit, pod_node_selector::validate).off_by_default(),
    both("Priority", priority::admit, priority::validate),
    mutates("DefaultTolerationSeconds", tolerations::add_defaults),
    both(
        "PodTolerationRestriction",
        pod_toleration_restriction::admit,
        pod_toleration_restriction::validate,
    )
    .off_by_default(),
    validates("EventRateLimit", event_rate_limit::validate).off_by_default(),
    mutates("ExtendedResourceToleration", extended_resource_toleration::admit).off_by_default(),
    mutates("DefaultStorageClass", storage::set_default_class),
    mutates("StorageObjectInUseProtection", storage::protect),
    mutates("PodGroupProtection", pod_groups::protect),
    nothing(owner_references::NAME, false),
    validates("PersistentVolumeClaimResize", storage::validate_resize),
    both("RuntimeClass", runtime_class::admit, runtime_class::validate),
    nothing("CertificateApproval", true),
    nothing("CertificateSigning", true),
    nothing(trust_bundle_attest::NAME, true),
    validates("CertificateSubjectRestriction", certificates::validate_subject),
    mutates("DefaultIngressClass", ingress_class::set_default),
    validates("DenyServiceExternalIPs", small::deny_external_ips).off_by_default(),
    mutates("PodTopologyLabels", nodes::copy_topology),
    validates("PodGroupWorkloadExists", pod_groups::check_workload),
    validates("NodeDeclaredFeatureValidator", declared_features::validate),
    validates("JobValidation", jobs::validate),
    validates("PodResizeValidator", pod_resize::validate),
    nothing("MutatingAdmissionPolicy", true),
    nothing("MutatingAdmissionWebhook", true),
    nothing("ValidatingAdmissionPolicy", true),
    nothing("ValidatingAdmissionWebhook", true),
    nothing(quota::NAME, true),
    both("AlwaysDeny", small::deny_mutation, small::deny).off_by_default(),
];

/// The plug-in that makes namespaces as they are needed; the registry does it, since plug-ins do not write.
pub const NAMESPACE_AUTO_PROVISION: &str = "NamespaceAutoProvision";

/// Whether kube-apiserver has a plug-in of this name.
pub(crate) fn is_plug_in(name: &str) -> bool {
    PLUG_INS.iter().any(|plug_in| plug_in.name == name)
}

/// The plug-ins that are on, in the order in which they are asked, with their configuration.
#[derive(Clone)]
pub struct Chain {
    on: Vec<&'static PlugIn>,
    config: Arc<PlugInConfig>,
}

impl Default for Chain {
    /// The plug-ins that kube-apiserver has on by default.
    fn default() -> Self {
        let on = PLUG_INS.iter().filter(|plug_in| plug_in.default_on).collect();
        Chain { on, config: Arc::default() }
    }
}

impl fmt::Debug for Chain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.on.iter().map(|plug_in| plug_in.name)).finish()
    }
}

/// Why plug-ins cannot be switched on or off as asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NameError {
    /// There is no such plug-in.
    Unknown {
        /// The name.
        name: String,
    },
    /// Enabled and disabled.
    Both {
        /// The name.
        name: String,
    },
}

impl fmt::Display for NameError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NameError::Unknown { name } => {
                let known: Vec<&str> = PLUG_INS.iter().map(|plug_in| plug_in.name).collect();
                write!(f, "there is no plug-in {name:?}; known are {}", known.join(", "))
            }
            NameError::Both { name } => write!(f, "the plug-in {name} is enabled and disabled"),
        }
    }
}

impl std::error::Error for NameError {}

fn named(name: &str) -> Result<&'static PlugIn, NameError> {
    let found = PLUG_INS.iter().find(|plug_in| plug_in.name == name);
    found.ok_or_else(|| NameError::Unknown { name: name.to_owned() })
}

impl Chain {
    /// The default ones, without `off` and with `on`.
    pub fn new(on: &[String], off: &[String]) -> Result<Chain, NameError> {
        for name in off {
            named(name)?;
            if on.contains(name) {
                return Err(NameError::Both { name: name.clone() });
            }
        }
        for name in on {
            named(name)?;
        }
        let is = |names: &[String], plug_in: &PlugIn| names.iter().any(|name| name == plug_in.name);
        let chosen =
            |plug_in: &&PlugIn| (plug_in.default_on && !is(off, plug_in)) || is(on, plug_in);
        Ok(Chain { on: PLUG_INS.iter().filter(chosen).collect(), config: Arc::default() })
    }

    /// With what a configuration file says to plug-ins.
    pub fn with_config(self, config: PlugInConfig) -> Chain {
        Chain { config: Arc::new(config), ..self }
    }

    /// A plug-in that is on and cannot act without being configured.
    pub fn unconfigured(&self) -> Option<&'static str> {
        let is = self.has(image_policy::NAME) && self.config.image_policy().is_none();
        is.then_some(image_policy::NAME)
    }

    /// The configuration of the plug-ins.
    pub fn config(&self) -> &PlugInConfig {
        &self.config
    }

    /// Whether a plug-in is on.
    pub fn has(&self, name: &str) -> bool {
        self.on.iter().any(|plug_in| plug_in.name == name)
    }

    /// Whether plug-ins look at more than the namespace when they are asked about this resource, so
    /// that they should see the newest state.
    pub fn looks_around(&self, gvr: &GroupVersionResource) -> bool {
        matches!(
            (gvr.group.as_str(), gvr.resource.as_str()),
            ("", "pods" | "persistentvolumeclaims")
                | ("networking.k8s.io", "ingresses")
                | ("scheduling.k8s.io", "priorityclasses")
        )
    }

    /// Lets every plug-in change the object; the first that refuses ends it. None looks at connections.
    pub fn admit(
        &self,
        req: &Request<'_>,
        obj: &mut Object,
        notes: &mut Notes,
    ) -> Result<(), Failure> {
        if req.operation == Operation::Connect {
            return Ok(());
        }
        for plug_in in &self.on {
            if let Does::Steps { admit: Some(admit), .. } = plug_in.does {
                admit(req, obj, notes)?;
            }
        }
        Ok(())
    }

    /// Asks every plug-in about the object as it would be stored, or as it is when it is deleted.
    pub fn validate(
        &self,
        req: &Request<'_>,
        obj: &Object,
        notes: &mut Notes,
    ) -> Result<(), Failure> {
        if req.operation == Operation::Connect {
            return Ok(());
        }
        admin_access::validate(req, obj)?;
        for plug_in in &self.on {
            if let Does::Steps { validate: Some(validate), .. } = plug_in.does {
                validate(req, obj, notes)?;
            }
        }
        Ok(())
    }

    /// Asks the one plug-in that has something to say of reviews.
    pub fn admit_review(
        &self,
        user: &User,
        resource: &GroupVersionResource,
        review: &Object,
    ) -> Result<(), Failure> {
        let names = [review.name(), review.generate_name(), "Unknown"];
        let name = names.into_iter().find(|name| !name.is_empty()).unwrap_or_default();
        match node_restriction::refuses_sender(user).filter(|_| self.has("NodeRestriction")) {
            Some(why) => Err(Status::forbidden(resource, name, &why)),
            None => Ok(()),
        }
    }

    /// The service account that a new pod needs and that a control loop is about to make: worth
    /// waiting for a moment when it is not there.
    pub fn awaited_account(&self, req: &Request<'_>, obj: &Object) -> Option<&'static str> {
        let asks = self.has("ServiceAccount") && req.creates("", "pods");
        (asks && service_account::is_default(obj)).then_some(service_account::DEFAULT)
    }
}
