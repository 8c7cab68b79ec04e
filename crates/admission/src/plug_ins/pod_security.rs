//! PodSecurity: enforces, audits and warns of the levels in a namespace's labels.

mod checks;

use crate::attributes::Recorder;
use crate::config::pod_security::{Defaults, Exempt, Exemptions, Level, Standard, minor};
use crate::config::pod_security_metrics::{Evaluated, Evaluation};
use crate::plug_ins::pod::CONTAINER_LISTS;
use crate::request::{Operation, Request};
use checks::{Template, Violation, violations};
use keelson_meta::{ErrorList, Failure, FieldError, Object, Path, Str, Value};
use std::collections::{BTreeMap, HashSet};

/// Maximum pods that are checked when a label changes.
const PODS_CHECKED_MAX: usize = 3_000;
const ENFORCE: &str = "pod-security.kubernetes.io/enforce";
/// Keys of audit annotations.
const ENFORCE_POLICY: &str = "pod-security.kubernetes.io/enforce-policy";
const AUDIT_VIOLATIONS: &str = "pod-security.kubernetes.io/audit-violations";
const EXEMPT: &str = "pod-security.kubernetes.io/exempt";
const ERROR: &str = "pod-security.kubernetes.io/error";
/// The labels for enforce, audit and warn, with those of their versions.
const LABELS: [(&str, &str); 3] = [
    (ENFORCE, "pod-security.kubernetes.io/enforce-version"),
    ("pod-security.kubernetes.io/audit", "pod-security.kubernetes.io/audit-version"),
    ("pod-security.kubernetes.io/warn", "pod-security.kubernetes.io/warn-version"),
];
/// Subresources of pods that cannot weaken security.
const IGNORED_SUBRESOURCES: [&str; 8] =
    ["exec", "attach", "binding", "eviction", "log", "portforward", "proxy", "status"];

/// Parses the labels of a namespace and returns the errors: an unknown level enforces the strictest
/// one and warns of nothing.
fn policy<'l>(own: &Defaults, label: impl Fn(&str) -> Option<&'l str>) -> (Defaults, ErrorList) {
    let mut errors = ErrorList::new();
    let metadata = Path::new("metadata");
    let labels = metadata.field("labels");
    let mut levels = *own;
    let modes = [&mut levels.enforce, &mut levels.audit, &mut levels.warn];
    for ((level_key, version_key), standard) in LABELS.into_iter().zip(modes) {
        let mut error = |key: &str, text: &str, why: &str| {
            errors.push(FieldError::invalid(&labels.key(key), text, why));
        };
        let level = match label(level_key) {
            None => standard.level,
            Some("privileged") => Level::Privileged,
            Some("baseline") => Level::Baseline,
            Some("restricted") => Level::Restricted,
            Some(other) => {
                error(level_key, other, "must be one of privileged, baseline, restricted");
                if level_key == ENFORCE { Level::Restricted } else { Level::Privileged }
            }
        };
        let minor = match label(version_key) {
            None => standard.minor,
            Some("latest") => None,
            Some(text) => {
                let minor = minor(text);
                if minor.is_none() {
                    error(version_key, text, "must be \"latest\" or \"v1.x\"");
                }
                minor
            }
        };
        *standard = Standard { level, minor };
    }
    (levels, errors)
}

pub(crate) fn validate(
    req: &Request<'_>,
    obj: &Object,
    recorder: &mut Recorder,
) -> Result<(), Failure> {
    if req.operation == Operation::Delete {
        return Ok(());
    }
    match (req.gvr.group.as_str(), req.gvr.resource.as_str()) {
        ("", "namespaces") if req.subresource.is_empty() => {
            validate_namespace(req, obj, &mut recorder.warnings)
        }
        ("", "pods") if !IGNORED_SUBRESOURCES.contains(&req.subresource) => {
            validate_pod(req, obj, recorder)
        }
        (group, resource) if req.subresource.is_empty() => {
            let template = template_of(group, resource, obj);
            template.map_or(Ok(()), |template| validate_workload(req, obj, &template, recorder))
        }
        _ => Ok(()),
    }
}

fn policy_of(req: &Request<'_>) -> (Defaults, ErrorList) {
    let labels = req.stored.labels_of(req.namespace);
    policy(&req.config.pod_security.0, |key| {
        labels.iter().find(|(name, _)| name == key).map(|(_, value)| value.as_str())
    })
}

/// Returns the pod template of a workload.
fn template_of<'o>(group: &str, resource: &str, obj: &'o Object) -> Option<Template<'o>> {
    let template = match (group, resource) {
        ("", "podtemplates") => obj.get("template"),
        ("batch", "cronjobs") => obj.at(&["spec", "jobTemplate", "spec", "template"]),
        ("", "replicationcontrollers")
        | ("apps", "replicasets" | "deployments" | "statefulsets" | "daemonsets")
        | ("batch", "jobs") => obj.at(&["spec", "template"]),
        _ => None,
    }?;
    Some(Template { metadata: template.get("metadata"), spec: template.get("spec")? })
}

fn pod_template(pod: &Object) -> Option<Template<'_>> {
    Some(Template { metadata: pod.get("metadata"), spec: pod.get("spec")? })
}

fn validate_pod(req: &Request<'_>, pod: &Object, recorder: &mut Recorder) -> Result<(), Failure> {
    let metrics = &req.config.pod_security_metrics;
    if let Some(exempt) = req.config.pod_security.1.exempts(req.namespace, &req.user.name) {
        annotate_exemption(exempt, recorder);
        metrics.exempted(evaluated(req, true));
        return Ok(());
    }
    let (policy, errors) = policy_of(req);
    if errors.is_empty() && policy.is_privileged() {
        metrics.evaluated(evaluated(req, true), policy.enforce, Evaluation::Allowed);
        annotate(recorder, ENFORCE_POLICY, Str::new_static("privileged:latest"));
        return Ok(());
    }
    let Some(template) = pod_template(pod) else {
        return Ok(());
    };
    if req.old.is_some_and(|old| !is_significant_update(pod, old)) {
        return Ok(());
    }
    evaluate(req, pod, &template, &(policy, errors), true, recorder)
}

/// Workloads are only audited and warned of; their pods are rejected one by one.
fn validate_workload(
    req: &Request<'_>,
    obj: &Object,
    template: &Template<'_>,
    recorder: &mut Recorder,
) -> Result<(), Failure> {
    if let Some(exempt) = req.config.pod_security.1.exempts(req.namespace, &req.user.name) {
        annotate_exemption(exempt, recorder);
        req.config.pod_security_metrics.exempted(evaluated(req, false));
        return Ok(());
    }
    let (policy, errors) = policy_of(req);
    if errors.is_empty() && policy.audit.is_privileged() && policy.warn.is_privileged() {
        return Ok(());
    }
    evaluate(req, obj, template, &(policy, errors), false, recorder)
}

/// Checks a pod against the levels of its namespace: violations of `enforce` reject it, those of
/// `audit` become an audit annotation, those of `warn` a warning unless the pod is rejected.
fn evaluate(
    req: &Request<'_>,
    obj: &Object,
    template: &Template<'_>,
    levels: &(Defaults, ErrorList),
    enforces: bool,
    recorder: &mut Recorder,
) -> Result<(), Failure> {
    let (policy, errors) = levels;
    if req.config.pod_security.1.exempts_class(Some(template.spec)) {
        annotate_exemption(Exempt::RuntimeClass, recorder);
        req.config.pod_security_metrics.exempted(evaluated(req, enforces));
        return Ok(());
    }
    let count = |standard: Standard, evaluation: Evaluation| {
        let metrics = &req.config.pod_security_metrics;
        metrics.evaluated(evaluated(req, enforces), standard, evaluation);
    };
    if !errors.is_empty() {
        let text = format!("Failed to parse policy: {}", errors.aggregate());
        annotate(recorder, ERROR, text.into());
    }
    let mut rejection = Ok(());
    if enforces {
        annotate(recorder, ENFORCE_POLICY, policy.enforce.to_string().into());
        if let Some(found) = violated(policy.enforce, template) {
            count(policy.enforce, Evaluation::Denied);
            rejection = Err(req.forbidden(obj, &format!("violates {found}")));
        } else {
            count(policy.enforce, Evaluation::Allowed);
        }
    }
    if let Some(found) = violated(policy.audit, template) {
        count(policy.audit, Evaluation::Audited);
        annotate(recorder, AUDIT_VIOLATIONS, format!("would violate {found}").into());
    }
    rejection?;
    if let Some(found) = violated(policy.warn, template) {
        count(policy.warn, Evaluation::Warned);
        recorder.warnings.push(format!("would violate {found}").into());
    }
    Ok(())
}

/// Returns what metrics say about a request. Pods are what policies are enforced on.
fn evaluated<'a>(req: &Request<'a>, is_pod: bool) -> Evaluated<'a> {
    let operation = if req.operation == Operation::Create { "create" } else { "update" };
    Evaluated { operation, is_pod, subresource: req.subresource }
}

fn annotate(recorder: &mut Recorder, key: &'static str, value: Str) {
    recorder.annotations.push((Str::new_static(key), value));
}

fn annotate_exemption(exempt: Exempt, recorder: &mut Recorder) {
    annotate(recorder, EXEMPT, Str::new_static(exempt.name()));
}

/// Returns `PodSecurity "LEVEL:VERSION": ` and the violations; `None` when there are none.
fn violated(standard: Standard, template: &Template<'_>) -> Option<String> {
    let found = violations(standard, template);
    (!found.is_empty()).then(|| format!("PodSecurity \"{standard}\": {}", detail(&found)))
}

fn detail(found: &[Violation]) -> String {
    let shown: Vec<String> =
        found.iter().map(|one| format!("{} ({})", one.reason, one.detail)).collect();
    shown.join(", ")
}

/// Returns whether an update of a pod may weaken its security: other images, more containers, other
/// seccomp annotations (upstream's `isSignificantPodUpdate`).
fn is_significant_update(pod: &Object, old: &Object) -> bool {
    const SECCOMP: &str = "container.seccomp.security.alpha.kubernetes.io/";
    let differs = |key: &str| pod.annotation(key) != old.annotation(key);
    if differs("seccomp.security.alpha.kubernetes.io/pod") {
        return true;
    }
    let has_annotations = [pod, old]
        .iter()
        .any(|pod| pod.meta_map("annotations").any(|(key, _)| key.starts_with(SECCOMP)));
    fn text<'v>(container: &'v Value, name: &str) -> &'v str {
        container.str_at(&[name]).unwrap_or_default()
    }
    CONTAINER_LISTS.iter().any(|list| {
        let now = pod.array_at(&["spec", list]);
        let before = old.array_at(&["spec", list]);
        now.len() != before.len()
            || now.iter().zip(before).any(|(now, before)| {
                text(now, "image") != text(before, "image")
                    || text(now, "name") != text(before, "name")
                    || (has_annotations && differs(&format!("{SECCOMP}{}", text(now, "name"))))
            })
    })
}

/// Validates the labels; a stricter level warns of existing pods that violate it.
fn validate_namespace(
    req: &Request<'_>,
    namespace: &Object,
    warnings: &mut Vec<Str>,
) -> Result<(), Failure> {
    let (own, exempt) = &req.config.pod_security;
    let (new, errors) = policy(own, |key| namespace.label(key));
    let is_exempt = exempt.has_namespace(namespace.name());
    let Some(old) = req.old else {
        if is_exempt && errors.is_empty() {
            warnings.extend(exempt_warning(namespace, &new, own).map(Str::from));
        }
        return errors.into_result("", "Namespace", namespace.name());
    };
    let (before, known) = policy(own, |key| old.label(key));
    let texts =
        |errors: &ErrorList| -> Vec<String> { errors.iter().map(ToString::to_string).collect() };
    if !errors.is_empty() && texts(&errors) != texts(&known) {
        return errors.into_result("", "Namespace", namespace.name());
    }
    if is_exempt {
        if new != before {
            warnings.extend(exempt_warning(namespace, &new, own).map(Str::from));
        }
        return Ok(());
    }
    let new = new.enforce;
    let before = before.enforce;
    let relaxed = new.minor == before.minor && new.level <= before.level;
    if new == before || new.level == Level::Privileged || relaxed {
        return Ok(());
    }
    let pods = req.stored.list("", "pods", namespace.name())?;
    let pods = prioritize(pods, exempt);
    let mut by_reason: BTreeMap<String, Vec<&str>> = BTreeMap::new();
    for pod in pods.iter().take(PODS_CHECKED_MAX) {
        let found = pod_template(pod).map(|template| violations(new, &template));
        let reasons: Vec<&str> = found.iter().flatten().map(|violation| violation.reason).collect();
        if !reasons.is_empty() {
            by_reason.entry(reasons.join(", ")).or_default().push(pod.name());
        }
    }
    if pods.len() > PODS_CHECKED_MAX {
        let text = format!(
            "new PodSecurity enforce level only checked against the first {PODS_CHECKED_MAX} of {} \
             existing pods",
            pods.len()
        );
        warnings.push(text.into());
    }
    if by_reason.is_empty() {
        return Ok(());
    }
    let name = namespace.name();
    let shown = new.to_string();
    let head = format!(
        "existing pods in namespace {name:?} violate the new PodSecurity enforce level {shown:?}"
    );
    warnings.push(head.into());
    let mut lines: Vec<String> =
        by_reason.iter().map(|(why, pods)| pods_warning(why, pods)).collect();
    lines.sort();
    warnings.extend(lines.into_iter().map(Str::from));
    Ok(())
}

/// Returns the pods without exempt runtime classes, with one pod of each controller first
/// (upstream's `prioritizePods`).
fn prioritize(pods: Vec<Object>, exempt: &Exemptions) -> Vec<Object> {
    let mut controllers = HashSet::new();
    let checked = pods.into_iter().filter(|pod| !exempt.exempts_class(pod.get("spec")));
    let (mut first, others): (Vec<Object>, Vec<Object>) = checked.partition(|pod| {
        pod.controller().is_none_or(|owner| {
            controllers.insert(owner.str_at(&["uid"]).unwrap_or_default().to_owned())
        })
    });
    first.extend(others);
    first
}

/// Returns a warning: the first pod, the number of others, and their reason.
fn pods_warning(why: &str, pods: &[&str]) -> String {
    let first = pods.iter().min().copied().unwrap_or_default();
    match pods.len() {
        1 => format!("{first}: {why}"),
        2 => format!("{first} (and 1 other pod): {why}"),
        more => format!("{first} (and {} other pods): {why}", more - 1),
    }
}

/// Returns the warning about level labels on an exempt namespace; `None` when the levels forbid
/// nothing.
fn exempt_warning(namespace: &Object, levels: &Defaults, own: &Defaults) -> Option<String> {
    let all = [("enforce", levels.enforce), ("audit", levels.audit), ("warn", levels.warn)];
    if levels == own || levels.is_privileged() {
        return None;
    }
    let has = |mode: &str| {
        let label = format!("pod-security.kubernetes.io/{mode}");
        [label.clone(), format!("{label}-version")].iter().any(|l| namespace.label(l).is_some())
    };
    let shown: Vec<String> = all
        .iter()
        .filter(|(mode, standard)| !standard.is_privileged() && has(mode))
        .map(|(mode, standard)| format!("{mode}={standard}"))
        .collect();
    Some(format!(
        "namespace {:?} is exempt from Pod Security, and the policy ({}) will be ignored",
        namespace.name(),
        shown.join(", ")
    ))
}
