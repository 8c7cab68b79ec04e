//! Warnings about valid pods and pod templates (upstream `pkg/api/pod/warnings.go`).

use crate::check::Field;
use keelson_meta::status::quote;
use keelson_meta::{Map, Object, Path, Quantity, SmallSet, Str, Value, names};
use std::fmt::Display;

mod paths;
mod ports;

const CONTAINERS: [&str; 3] = ["initContainers", "containers", "ephemeralContainers"];
const SECCOMP_POD: &str = "seccomp.security.alpha.kubernetes.io/pod";
const SECCOMP_CONTAINER: &str = "container.seccomp.security.alpha.kubernetes.io/";
const APPARMOR: &str = "container.apparmor.security.beta.kubernetes.io/";

/// Characters of a single warning when a response has many.
const WARNING_CHARACTERS_MAX: usize = 256;
/// Characters of all warnings of a response.
const ALL_CHARACTERS_MAX: usize = 4096;

/// Warnings without duplicates, in the order in which they are found. Warnings that exceed the
/// headers of a response are dropped.
#[derive(Default)]
pub(crate) struct Warnings {
    texts: Vec<Str>,
    seen: SmallSet<Str>,
    characters: usize,
}

impl Warnings {
    /// Adds a warning about a path.
    pub fn push(&mut self, place: &Path<'_>, text: impl Display) {
        if !self.is_full() {
            self.add(format!("{place}: {text}"));
        }
    }

    /// Adds a warning if another label of nodes took the place of this one.
    pub fn push_renamed_label(&mut self, place: &Path<'_>, key: &str) {
        if let Some(text) = renamed_label_warning(key) {
            self.push(place, text);
        }
    }

    /// Adds a warning.
    fn add(&mut self, text: String) {
        let text = Str::from(text);
        if !self.is_full() && self.seen.insert(text.clone()) {
            self.characters += text.chars().take(WARNING_CHARACTERS_MAX).count();
            self.texts.push(text);
        }
    }

    /// Returns whether the headers of a response are full.
    fn is_full(&self) -> bool {
        self.characters > ALL_CHARACTERS_MAX
    }
}

/// Returns warnings about a new pod. Updates get none: kubelets make most of them.
pub(super) fn of_pod(pod: &Object, old: Option<&Object>) -> Vec<Str> {
    if old.is_some() {
        return vec![];
    }
    let mut warnings = Warnings::default();
    name_as_label(pod, "the Pod's hostname", &mut warnings);
    of_template(&Field::of(pod, "spec"), pod.get("metadata"), &mut warnings);
    warnings.texts
}

/// Returns warnings about the template of a workload that is new or changed outside its metadata.
pub(crate) fn of_workload(new: &Object, old: Option<&Object>) -> Vec<Str> {
    if old.is_some_and(|old| old.generation() == new.generation()) {
        return vec![];
    }
    let spec = Field::of(new, "spec");
    let template = spec.field("template");
    let mut warnings = Warnings::default();
    template_at(&template, &mut warnings);
    warnings.texts
}

/// Returns warnings about a workload, also about a name that is no label value, which its pods get.
pub(crate) fn of_named_workload(new: &Object, old: Option<&Object>) -> Vec<Str> {
    let mut warnings = Warnings::default();
    if old.is_none() {
        name_as_label(new, "Pod names and hostnames", &mut warnings);
    }
    warnings.texts.extend(of_workload(new, old));
    warnings.texts
}

/// Returns warnings about a PodTemplate.
pub(super) fn of_pod_template(new: &Object, old: Option<&Object>) -> Vec<Str> {
    if old.is_some_and(|old| old.generation() == new.generation()) {
        return vec![];
    }
    let mut warnings = Warnings::default();
    template_at(&Field::of(new, "template"), &mut warnings);
    warnings.texts
}

/// Returns warnings about a CronJob.
pub(crate) fn of_cron_job(new: &Object, old: Option<&Object>) -> Vec<Str> {
    let mut warnings = Warnings::default();
    if old.is_none() {
        name_as_label(new, "Pod names and hostnames", &mut warnings);
    }
    if old.is_none_or(|old| old.generation() != new.generation()) {
        let spec = Field::of(new, "spec");
        let job = spec.field("jobTemplate");
        let inner = "spec";
        template_at(&job.field(inner).field("template"), &mut warnings);
    }
    warnings.texts
}

fn name_as_label(obj: &Object, what: &str, warnings: &mut Warnings) {
    let messages = names::is_dns1123_label(obj.name());
    if !messages.is_empty() {
        let metadata = Path::new("metadata");
        let text = format!(
            "this is used in {what}, which can result in surprising behavior; a DNS label is \
             recommended: [{}]",
            messages.join(" ")
        );
        warnings.push(&metadata.field("name"), text);
    }
}

fn template_at(template: &Field<'_, '_>, warnings: &mut Warnings) {
    let spec = template.field("spec");
    of_template(&spec, template.value.get("metadata"), warnings);
    let metadata = template.path.field("metadata");
    let annotations = metadata.field("annotations");
    let has_profile = |of: &Field<'_, '_>| of.field("securityContext").has("appArmorProfile");
    for list in CONTAINERS {
        for container in spec.field(list).items() {
            let key = format!("{APPARMOR}{}", container.str("name"));
            if noted(template, &key) && !has_profile(&spec) && !has_profile(&container) {
                let text = "deprecated since v1.30; use the \"appArmorProfile\" field instead";
                warnings.push(&annotations.key(&key), text);
            }
        }
    }
}

fn noted(template: &Field<'_, '_>, key: &str) -> bool {
    let metadata = template.value.get("metadata");
    metadata.and_then(|m| m.get("annotations")).is_some_and(|a| a.get(key).is_some())
}

/// Adds the warnings that pods and templates share.
fn of_template(spec: &Field<'_, '_>, metadata: Option<&Value>, warnings: &mut Warnings) {
    let none = Value::Null;
    let annotations = metadata.and_then(|m| m.get("annotations")).unwrap_or(&none);
    node_labels(spec, warnings);
    old_annotations(spec, annotations, warnings);
    volumes(&spec.field("volumes"), warnings);
    paths::overlaps(&spec.field("volumes"), warnings);
    repeated(&spec.field("hostAliases"), "ip", warnings);
    repeated(&spec.field("imagePullSecrets"), "name", warnings);
    for secret in spec.field("imagePullSecrets").items() {
        if secret.str("name").is_empty() {
            warnings.push(&secret.path.field("name"), "invalid empty name \"\"");
        }
    }
    let overhead = spec.field("overhead");
    for what in ["memory", "ephemeral-storage"] {
        fraction(overhead.get(what), &overhead.path.key(what), warnings);
    }
    seccomp_annotation(spec, SECCOMP_POD, spec.value, annotations, warnings);
    let mut noted = annotations.as_object().into_iter().flat_map(Map::iter);
    let is_noted = noted.any(|(key, _)| key.starts_with(SECCOMP_CONTAINER));
    for list in CONTAINERS {
        for container in spec.field(list).items() {
            if is_noted {
                let key = format!("{SECCOMP_CONTAINER}{}", container.str("name"));
                seccomp_annotation(spec, &key, container.value, annotations, warnings);
            }
            let resources = container.field("resources");
            for (what, side) in [
                ("memory", "limits"),
                ("memory", "requests"),
                ("ephemeral-storage", "limits"),
                ("ephemeral-storage", "requests"),
            ] {
                let side = resources.field(side);
                fraction(side.get(what), &side.path.key(what), warnings);
            }
            duplicate_variables(&container.field("env"), warnings);
        }
    }
    ports::conflicts(spec, warnings);
    let grace = spec.field("terminationGracePeriodSeconds");
    if grace.number() < 0 {
        let text = "must be >= 0; negative values are invalid and will be treated as 1";
        warnings.push(&grace.path, text);
    }
    affinity(&spec.field("affinity"), warnings);
}

/// Labels of nodes that others took the place of, since which version, and those.
const RENAMED_LABELS: [(&str, &str, &str); 5] = [
    ("beta.kubernetes.io/arch", "v1.14", "kubernetes.io/arch"),
    ("beta.kubernetes.io/os", "v1.14", "kubernetes.io/os"),
    ("failure-domain.beta.kubernetes.io/region", "v1.17", "topology.kubernetes.io/region"),
    ("failure-domain.beta.kubernetes.io/zone", "v1.17", "topology.kubernetes.io/zone"),
    ("beta.kubernetes.io/instance-type", "v1.17", "node.kubernetes.io/instance-type"),
];

/// Returns since when another label is in the place of a label of nodes, and that one.
pub(crate) fn renamed_node_label(key: &str) -> Option<(&'static str, &'static str)> {
    let found = RENAMED_LABELS.iter().find(|(old, ..)| *old == key);
    found.map(|(_, since, label)| (*since, *label))
}

/// Returns the warning of a label of nodes that another took the place of.
fn renamed_label_warning(key: &str) -> Option<String> {
    if key == "node-role.kubernetes.io/master" {
        // It may still be on nodes, so that no volume follows this change.
        return Some("use \"node-role.kubernetes.io/control-plane\" instead".to_owned());
    }
    let (since, label) = renamed_node_label(key)?;
    Some(format!("deprecated since {since}; use \"{label}\" instead"))
}

fn node_labels(spec: &Field<'_, '_>, warnings: &mut Warnings) {
    let selector = spec.field("nodeSelector");
    for (key, at) in selector.entries() {
        warnings.push_renamed_label(&at.path, key);
    }
    let all = spec.field("affinity");
    let affinity = all.field("nodeAffinity");
    let required = affinity.field("requiredDuringSchedulingIgnoredDuringExecution");
    for term in required.field("nodeSelectorTerms").items() {
        node_label_expressions(&term, warnings);
    }
    for term in affinity.field("preferredDuringSchedulingIgnoredDuringExecution").items() {
        node_label_expressions(&term.field("preference"), warnings);
    }
    for constraint in spec.field("topologySpreadConstraints").items() {
        let key = constraint.field("topologyKey");
        if let Some(text) = renamed_label_warning(key.text()) {
            warnings.push(&key.path, format!("{} is {text}", key.text()));
        }
        null_selector(&constraint, warnings);
    }
}

/// Warns of deprecated labels in a term of a node selector.
pub(crate) fn node_label_expressions(term: &Field<'_, '_>, warnings: &mut Warnings) {
    for expression in term.field("matchExpressions").items() {
        let key = expression.field("key");
        if let Some(text) = renamed_label_warning(key.text()) {
            warnings.push(&key.path, format!("{} is {text}", key.text()));
        }
    }
}

fn null_selector(of: &Field<'_, '_>, warnings: &mut Warnings) {
    let selector = of.field("labelSelector");
    if !selector.is_set() {
        warnings.push(&selector.path, "a null labelSelector results in matching no pod");
    }
}

/// Warns of an annotation in the metadata beside a spec.
fn warn_of_annotation(spec: &Field<'_, '_>, key: &str, text: &str, warnings: &mut Warnings) {
    let shown = spec.path.to_string();
    let prefix = shown.strip_suffix("spec").unwrap_or_default();
    warnings.add(format!("{prefix}metadata.annotations[{key}]: {text}"));
}

fn old_annotations(spec: &Field<'_, '_>, annotations: &Value, warnings: &mut Warnings) {
    let sysctls = "non-functional in v1.11+; use the \"sysctls\" field instead";
    for (key, text) in [
        (
            "scheduler.alpha.kubernetes.io/critical-pod",
            "non-functional in v1.16+; use the \"priorityClassName\" field instead",
        ),
        ("security.alpha.kubernetes.io/sysctls", sysctls),
        ("security.alpha.kubernetes.io/unsafe-sysctls", sysctls),
    ] {
        if annotations.get(key).is_some() {
            warn_of_annotation(spec, key, text, warnings);
        }
    }
}

fn seccomp_annotation(
    spec: &Field<'_, '_>,
    key: &str,
    of: &Value,
    annotations: &Value,
    warnings: &mut Warnings,
) {
    let field = of.at(&["securityContext", "seccompProfile"]);
    if field.is_none() && annotations.get(key).is_some() {
        let text = "non-functional in v1.27+; use the \"seccompProfile\" field instead";
        warn_of_annotation(spec, key, text, warnings);
    }
}

/// Deprecated volume sources.
const DEPRECATED_VOLUMES: [(&str, &str); 9] = [
    ("photonPersistentDisk", "deprecated in v1.11, non-functional in v1.16+"),
    ("gitRepo", "deprecated in v1.11, and disabled by default in v1.33+"),
    ("scaleIO", "deprecated in v1.16, non-functional in v1.22+"),
    ("flocker", "deprecated in v1.22, non-functional in v1.25+"),
    ("storageos", "deprecated in v1.22, non-functional in v1.25+"),
    ("quobyte", "deprecated in v1.22, non-functional in v1.25+"),
    ("glusterfs", "deprecated in v1.25, non-functional in v1.26+"),
    ("cephfs", "deprecated in v1.28, non-functional in v1.31+"),
    ("rbd", "deprecated in v1.28, non-functional in v1.31+"),
];

/// Warns of a deprecated source of a volume or PersistentVolume.
pub(crate) fn deprecated_volume(source: &Field<'_, '_>, warnings: &mut Warnings) {
    for (kind, text) in DEPRECATED_VOLUMES {
        if source.has(kind) {
            let shown = if kind == "storageos" { "storageOS" } else { kind };
            warnings.push(&source.path.field(shown), text);
        }
    }
}

fn volumes(volumes: &Field<'_, '_>, warnings: &mut Warnings) {
    for volume in volumes.items() {
        deprecated_volume(&volume, warnings);
        let ephemeral = volume.field("ephemeral");
        let template = ephemeral.field("volumeClaimTemplate");
        claim_sizes(&template.field("spec"), warnings);
    }
}

/// Warns of storage sizes with fractions of a byte.
pub(crate) fn claim_sizes(spec: &Field<'_, '_>, warnings: &mut Warnings) {
    let resources = spec.field("resources");
    for side in ["requests", "limits"] {
        let side = resources.field(side);
        fraction(side.get("storage"), &side.path.key("storage"), warnings);
    }
}

fn fraction(amount: &Value, place: &Path<'_>, warnings: &mut Warnings) {
    let amount: Option<Quantity> = amount.as_str().and_then(|text| text.parse().ok());
    if let Some(amount) = amount.filter(|amount| !amount.is_integer()) {
        let shown = quote(&amount.to_string());
        let text = format!("fractional byte value {shown} is invalid, must be an integer");
        warnings.push(place, text);
    }
}

/// Warns of list items with the same value of a field.
fn repeated(list: &Field<'_, '_>, member: &str, warnings: &mut Warnings) {
    let mut seen: SmallSet<&str> = SmallSet::new();
    for item in list.items() {
        let text = item.str(member);
        if !seen.insert(text) {
            let place = item.path.field(member);
            warnings.push(&place, format_args!("duplicate {member} {}", quote(text)));
        }
    }
}

/// Warns of a variable that is set again without a reference to its previous value.
fn duplicate_variables(env: &Field<'_, '_>, warnings: &mut Warnings) {
    let mut seen: SmallSet<&str> = SmallSet::new();
    for item in env.items() {
        let name = item.str("name");
        let value = item.str("value");
        let keeps = || {
            let before = format!("$({name})");
            !item.has("valueFrom") && value != before && value.contains(&before)
        };
        if !seen.insert(name) && !keeps() {
            let shown = quote(name);
            let text = format!(
                "hides previous definition of {shown}, which may be dropped when using apply"
            );
            warnings.push(&item.path, text);
        }
    }
}

fn affinity(affinity: &Field<'_, '_>, warnings: &mut Warnings) {
    for kind in ["podAffinity", "podAntiAffinity"] {
        let rules = affinity.field(kind);
        for term in rules.field("requiredDuringSchedulingIgnoredDuringExecution").items() {
            null_selector(&term, warnings);
        }
        for term in rules.field("preferredDuringSchedulingIgnoredDuringExecution").items() {
            null_selector(&term.field("podAffinityTerm"), warnings);
        }
    }
}

/// Collects the warnings that `find` adds.
pub(crate) fn collect_warnings(find: impl FnOnce(&mut Warnings)) -> Vec<Str> {
    let mut warnings = Warnings::default();
    find(&mut warnings);
    warnings.texts
}
