//! [`Chain`]: the plug-ins that are on, in the order in which they are asked.

use crate::request::{Operation, Request};
use crate::{
    certificates, ingress_class, limit_ranger, namespace_lifecycle, node_restriction, nodes,
    pod_security, priority, quota, runtime_class, service_account, storage, tolerations,
};
use keelson_meta::{Failure, GroupVersionResource, Object, Str};
use std::fmt;

/// Changes the object of a request, or refuses it; texts of warnings go to the last argument.
type Admit = fn(&Request<'_>, &mut Object, &mut Vec<Str>) -> Result<(), Failure>;

/// Refuses the object of a request as it would be stored.
type Validate = fn(&Request<'_>, &Object, &mut Vec<Str>) -> Result<(), Failure>;

/// One plug-in.
struct PlugIn {
    name: &'static str,
    default_on: bool,
    does: Does,
}

/// What there is of a plug-in.
enum Does {
    /// It acts.
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

const fn nothing(name: &'static str, default_on: bool) -> PlugIn {
    PlugIn { name, default_on, does: Does::Nothing }
}

/// All plug-ins that kube-apiserver knows, in its order (`pkg/kubeapiserver/options/plugins.go`).
static PLUG_INS: [PlugIn; 40] = [
    nothing("AlwaysAdmit", false),
    nothing("NamespaceAutoProvision", false),
    both(namespace_lifecycle::NAME, namespace_lifecycle::admit, namespace_lifecycle::validate),
    nothing("NamespaceExists", false),
    nothing("LimitPodHardAntiAffinityTopology", false),
    both("LimitRanger", limit_ranger::admit, limit_ranger::validate),
    both("ServiceAccount", service_account::admit, service_account::validate),
    both("NodeRestriction", node_restriction::admit, node_restriction::validate),
    mutates("TaintNodesByCondition", nodes::taint_new),
    nothing("AlwaysPullImages", false),
    nothing("ImagePolicyWebhook", false),
    validates("PodSecurity", pod_security::validate),
    nothing("PodNodeSelector", false),
    both("Priority", priority::admit, priority::validate),
    mutates("DefaultTolerationSeconds", tolerations::add_defaults),
    nothing("PodTolerationRestriction", false),
    nothing("EventRateLimit", false),
    nothing("ExtendedResourceToleration", false),
    mutates("DefaultStorageClass", storage::set_default_class),
    mutates("StorageObjectInUseProtection", storage::protect),
    nothing("PodGroupProtection", true),
    nothing("OwnerReferencesPermissionEnforcement", false),
    validates("PersistentVolumeClaimResize", storage::validate_resize),
    both("RuntimeClass", runtime_class::admit, runtime_class::validate),
    nothing("CertificateApproval", true),
    nothing("CertificateSigning", true),
    nothing("ClusterTrustBundleAttest", true),
    validates("CertificateSubjectRestriction", certificates::validate_subject),
    mutates("DefaultIngressClass", ingress_class::set_default),
    nothing("DenyServiceExternalIPs", false),
    mutates("PodTopologyLabels", nodes::copy_topology),
    nothing("PodGroupWorkloadExists", true),
    nothing("NodeDeclaredFeatureValidator", true),
    nothing("JobValidation", true),
    nothing("MutatingAdmissionPolicy", true),
    nothing("MutatingAdmissionWebhook", true),
    nothing("ValidatingAdmissionPolicy", true),
    nothing("ValidatingAdmissionWebhook", true),
    nothing(quota::NAME, true),
    nothing("AlwaysDeny", false),
];

/// The plug-ins that are on, in the order in which they are asked.
#[derive(Clone)]
pub struct Chain {
    on: Vec<&'static PlugIn>,
}

impl Default for Chain {
    /// Those that kube-apiserver has on by default.
    fn default() -> Self {
        Chain { on: PLUG_INS.iter().filter(|plug_in| plug_in.default_on).collect() }
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
    /// kube-apiserver has it, off by default; this server does not.
    Missing {
        /// The name.
        name: String,
    },
    /// It is to be on and off.
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
            NameError::Missing { name } => write!(f, "the plug-in {name} is not there yet"),
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
            let plug_in = named(name)?;
            if matches!(plug_in.does, Does::Nothing) && !plug_in.default_on {
                return Err(NameError::Missing { name: name.clone() });
            }
        }
        let is = |names: &[String], plug_in: &PlugIn| names.iter().any(|name| name == plug_in.name);
        let chosen =
            |plug_in: &&PlugIn| (plug_in.default_on && !is(off, plug_in)) || is(on, plug_in);
        Ok(Chain { on: PLUG_INS.iter().filter(chosen).collect() })
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
        warnings: &mut Vec<Str>,
    ) -> Result<(), Failure> {
        if req.operation == Operation::Connect {
            return Ok(());
        }
        for plug_in in &self.on {
            if let Does::Steps { admit: Some(admit), .. } = plug_in.does {
                admit(req, obj, warnings)?;
            }
        }
        Ok(())
    }

    /// Asks every plug-in about the object as it would be stored, or as it is when it is deleted.
    pub fn validate(
        &self,
        req: &Request<'_>,
        obj: &Object,
        warnings: &mut Vec<Str>,
    ) -> Result<(), Failure> {
        if req.operation == Operation::Connect {
            return Ok(());
        }
        for plug_in in &self.on {
            if let Does::Steps { validate: Some(validate), .. } = plug_in.does {
                validate(req, obj, warnings)?;
            }
        }
        Ok(())
    }

    /// The service account that a new pod needs and that a control loop is about to make: worth
    /// waiting for a moment when it is not there.
    pub fn awaited_account(&self, req: &Request<'_>, obj: &Object) -> Option<&'static str> {
        let asks = self.has("ServiceAccount") && req.creates("", "pods");
        (asks && service_account::is_default(obj)).then_some(service_account::DEFAULT)
    }
}
