//! [`Chain`]: the plug-ins that are on, in the order in which they are asked.

use crate::attributes::Notes;
use crate::config::PlugInConfig;
use crate::metrics::{Metrics, Phase, Step};
use crate::request::{Operation, Request};
use crate::{
    always_pull_images, certificates, declared_features, event_rate_limit,
    extended_resource_toleration, image_policy, ingress_class, jobs, limit_ranger,
    namespace_lifecycle, node_restriction, nodes, owner_references, pod_groups, pod_node_selector,
    pod_resize, pod_security, pod_toleration_restriction, priority, quota, runtime_class,
    service_account, small, storage, tolerations, trust_bundle_attest,
};
use keelson_auth::User;
use keelson_meta::{Failure, GroupVersionResource, Object, Status};
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Changes the object of a request, or refuses it, with warnings and audit annotations to the last argument.
type Admit = fn(&Request<'_>, &mut Object, &mut Notes) -> Result<(), Failure>;

/// Refuses the object of a request as it would be stored.
type Validate = fn(&Request<'_>, &Object, &mut Notes) -> Result<(), Failure>;

/// A plug-in.
struct PlugIn {
    name: &'static str,
    default_on: bool,
    does: Does,
    /// The operations at which it is asked to change objects, as metrics count it.
    counted_admit: Operations,
    /// The operations at which it is asked to refuse objects, as metrics count it.
    counted_validate: Operations,
}

/// The implementation of a plug-in.
enum Does {
    /// Functions of the mutating and the validating phase.
    Steps { admit: Option<Admit>, validate: Option<Validate> },
    /// A [`DynamicPlugIn`](crate::DynamicPlugIn) of this name.
    Dynamic,
    /// The name is known, and nothing is done for it here.
    Nothing,
}

/// Operations, as bits.
type Operations = u8;

const CREATE: Operations = 1 << Operation::Create as u8;
const UPDATE: Operations = 1 << Operation::Update as u8;
const DELETE: Operations = 1 << Operation::Delete as u8;
const CONNECT: Operations = 1 << Operation::Connect as u8;
const WRITE: Operations = CREATE | UPDATE;
const ALL: Operations = WRITE | DELETE | CONNECT;

const fn mutates(name: &'static str, admit: Admit, operations: Operations) -> PlugIn {
    let does = Does::Steps { admit: Some(admit), validate: None };
    PlugIn { name, default_on: true, does, counted_admit: operations, counted_validate: 0 }
}

const fn validates(name: &'static str, validate: Validate, operations: Operations) -> PlugIn {
    let does = Does::Steps { admit: None, validate: Some(validate) };
    PlugIn { name, default_on: true, does, counted_admit: 0, counted_validate: operations }
}

const fn both(
    name: &'static str,
    admit: Admit,
    validate: Validate,
    operations: Operations,
) -> PlugIn {
    let does = Does::Steps { admit: Some(admit), validate: Some(validate) };
    PlugIn { name, default_on: true, does, counted_admit: operations, counted_validate: operations }
}

impl PlugIn {
    const fn off_by_default(self) -> PlugIn {
        PlugIn { default_on: false, ..self }
    }

    /// Counted as one that only changes objects.
    const fn counted_as_mutating(self) -> PlugIn {
        PlugIn { counted_validate: 0, ..self }
    }

    /// Whether it is counted in this phase.
    fn is_counted(&self, phase: Phase, operation: Operation) -> bool {
        let operations = match phase {
            Phase::Admit => self.counted_admit,
            Phase::Validate => self.counted_validate,
        };
        operations & 1 << operation as u8 != 0
    }
}

/// One that is known by its name and done elsewhere, if at all.
const fn nothing(
    name: &'static str,
    default_on: bool,
    counted_admit: Operations,
    counted_validate: Operations,
) -> PlugIn {
    PlugIn { name, default_on, does: Does::Nothing, counted_admit, counted_validate }
}

const fn dynamic(
    name: &'static str,
    default_on: bool,
    counted_admit: Operations,
    counted_validate: Operations,
) -> PlugIn {
    PlugIn { does: Does::Dynamic, ..nothing(name, default_on, counted_admit, counted_validate) }
}

/// The number of plug-ins.
pub(crate) const PLUG_INS_NUMBER: usize = PLUG_INS.len();

/// The numbers and names of plug-ins, in the order of the names.
pub(crate) fn plug_in_names() -> Vec<(usize, &'static str)> {
    let mut names: Vec<_> =
        PLUG_INS.iter().enumerate().map(|(number, plug_in)| (number, plug_in.name)).collect();
    names.sort_by_key(|(_, name)| *name);
    names
}

/// All plug-ins that kube-apiserver knows, in its order (`pkg/kubeapiserver/options/plugins.go`).
static PLUG_INS: [PlugIn; 41] = [
    nothing("AlwaysAdmit", false, ALL, ALL),
    nothing(NAMESPACE_AUTO_PROVISION, false, CREATE, 0),
    both(
        namespace_lifecycle::NAME,
        namespace_lifecycle::admit,
        namespace_lifecycle::validate,
        WRITE | DELETE,
    )
    .counted_as_mutating(),
    validates("NamespaceExists", small::namespace_exists, WRITE | DELETE).off_by_default(),
    validates("LimitPodHardAntiAffinityTopology", small::limit_anti_affinity, WRITE)
        .off_by_default(),
    both("LimitRanger", limit_ranger::admit, limit_ranger::validate, WRITE),
    both("ServiceAccount", service_account::admit, service_account::validate, WRITE),
    both("NodeRestriction", node_restriction::admit, node_restriction::validate, WRITE | DELETE)
        .counted_as_mutating(),
    mutates("TaintNodesByCondition", nodes::taint_new, CREATE),
    both("AlwaysPullImages", always_pull_images::admit, always_pull_images::validate, WRITE)
        .off_by_default(),
    dynamic(image_policy::NAME, false, 0, WRITE),
    validates("PodSecurity", pod_security::validate, WRITE),
    both("PodNodeSelector", pod_node_selector::admit, pod_node_selector::validate, CREATE)
        .off_by_default(),
    both("Priority", priority::admit, priority::validate, WRITE | DELETE),
    mutates("DefaultTolerationSeconds", tolerations::add_defaults, WRITE),
    both(
        "PodTolerationRestriction",
        pod_toleration_restriction::admit,
        pod_toleration_restriction::validate,
        WRITE,
    )
    .off_by_default(),
    validates("EventRateLimit", event_rate_limit::validate, WRITE).off_by_default(),
    mutates("ExtendedResourceToleration", extended_resource_toleration::admit, WRITE)
        .off_by_default(),
    mutates("DefaultStorageClass", storage::set_default_class, CREATE),
    mutates("StorageObjectInUseProtection", storage::protect, CREATE),
    mutates("PodGroupProtection", pod_groups::protect, CREATE),
    dynamic(owner_references::NAME, false, 0, WRITE),
    validates("PersistentVolumeClaimResize", storage::validate_resize, UPDATE),
    both("RuntimeClass", runtime_class::admit, runtime_class::validate, CREATE),
    nothing("CertificateApproval", true, 0, UPDATE),
    nothing("CertificateSigning", true, 0, UPDATE),
    dynamic(trust_bundle_attest::NAME, true, 0, WRITE),
    validates("CertificateSubjectRestriction", certificates::validate_subject, CREATE),
    mutates("DefaultIngressClass", ingress_class::set_default, CREATE),
    validates("DenyServiceExternalIPs", small::deny_external_ips, WRITE).off_by_default(),
    mutates("PodTopologyLabels", nodes::copy_topology, CREATE),
    validates("PodGroupWorkloadExists", pod_groups::check_workload, CREATE),
    validates("NodeDeclaredFeatureValidator", declared_features::validate, UPDATE),
    validates("JobValidation", jobs::validate, UPDATE),
    validates("PodResizeValidator", pod_resize::validate, UPDATE),
    dynamic("MutatingAdmissionPolicy", true, WRITE | CONNECT, 0),
    dynamic("MutatingAdmissionWebhook", true, ALL, 0),
    dynamic("ValidatingAdmissionPolicy", true, 0, ALL),
    dynamic("ValidatingAdmissionWebhook", true, 0, ALL),
    nothing(quota::NAME, true, 0, WRITE),
    both("AlwaysDeny", small::deny_mutation, small::deny, ALL).off_by_default(),
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
    /// Numbers in [`PLUG_INS`].
    on: Vec<usize>,
    config: Arc<PlugInConfig>,
    metrics: Arc<Metrics>,
}

impl Default for Chain {
    /// The plug-ins that kube-apiserver has on by default.
    fn default() -> Self {
        Chain::of(|plug_in| plug_in.default_on)
    }
}

impl fmt::Debug for Chain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.plug_ins().map(|(_, plug_in)| plug_in.name)).finish()
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
        Ok(Chain::of(|plug_in| (plug_in.default_on && !is(off, plug_in)) || is(on, plug_in)))
    }

    fn of(is_on: impl Fn(&PlugIn) -> bool) -> Chain {
        let on = (0..PLUG_INS.len()).filter(|number| is_on(&PLUG_INS[*number])).collect();
        Chain { on, config: Arc::default(), metrics: Arc::default() }
    }

    fn plug_ins(&self) -> impl Iterator<Item = (usize, &'static PlugIn)> {
        self.on.iter().map(|number| (*number, &PLUG_INS[*number]))
    }

    /// What is counted of admission.
    pub fn metrics(&self) -> &Metrics {
        &self.metrics
    }

    /// Counts the dynamic plug-ins that had nothing to do in a phase.
    pub fn count_idle(&self, phase: Phase, operation: Operation) {
        let step = Step { phase, operation, rejected: false };
        let dynamic = self.plug_ins().filter(|(_, plug_in)| matches!(plug_in.does, Does::Dynamic));
        for (number, plug_in) in dynamic {
            if plug_in.is_counted(phase, operation) {
                self.metrics.plug_in(number, step, Duration::ZERO);
            }
        }
    }

    /// Counts a dynamic plug-in.
    pub fn count(&self, name: &str, step: Step, begun: Instant) {
        let Some((number, plug_in)) = self.plug_ins().find(|(_, plug_in)| plug_in.name == name)
        else {
            return;
        };
        if plug_in.is_counted(step.phase, step.operation) {
            self.metrics.plug_in(number, step, begun.elapsed());
        }
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
        self.plug_ins().any(|(_, plug_in)| plug_in.name == name)
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
        let mut timer = Timer::begin(self, req.operation);
        for (number, plug_in) in self.plug_ins() {
            if let Does::Steps { admit: Some(admit), .. } = plug_in.does {
                let admitted = admit(req, obj, notes);
                timer.count(number, Phase::Admit, admitted.is_err());
                admitted?;
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
        let mut timer = Timer::begin(self, req.operation);
        for (number, plug_in) in self.plug_ins() {
            if let Does::Steps { validate: Some(validate), .. } = plug_in.does {
                let validated = validate(req, obj, notes);
                timer.count(number, Phase::Validate, validated.is_err());
                validated?;
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
    pub fn awaited(&self, req: &Request<'_>, obj: &Object) -> Option<Awaited> {
        let asks = self.has("ServiceAccount") && req.creates("", "pods");
        (asks && service_account::is_default(obj)).then_some(Awaited {
            group: "",
            resource: "serviceaccounts",
            name: service_account::DEFAULT,
        })
    }
}

/// An object in the namespace of a request that a control loop is about to make.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Awaited {
    /// Its group.
    pub group: &'static str,
    /// Its resource.
    pub resource: &'static str,
    /// Its name.
    pub name: &'static str,
}

/// Takes the time of plug-ins, from the end of one to the end of the next.
struct Timer<'a> {
    chain: &'a Chain,
    operation: Operation,
    begun: Instant,
}

impl<'a> Timer<'a> {
    fn begin(chain: &'a Chain, operation: Operation) -> Timer<'a> {
        Timer { chain, operation, begun: Instant::now() }
    }

    fn count(&mut self, number: usize, phase: Phase, rejected: bool) {
        let (plug_in, operation) = (&PLUG_INS[number], self.operation);
        // Deletions have one phase here, where upstream has two.
        let also = operation == Operation::Delete && plug_in.is_counted(Phase::Admit, operation);
        let is_counted = plug_in.is_counted(phase, operation);
        if !is_counted && !also {
            return;
        }
        let now = Instant::now();
        let took = now - self.begun;
        self.begun = now;
        for (phase, is_counted) in [(phase, is_counted), (Phase::Admit, also)] {
            if is_counted {
                self.chain.metrics.plug_in(number, Step { phase, operation, rejected }, took);
            }
        }
    }
}
