//! Validates the spec of a pod, in upstream's order of errors.

use super::context::Context;
use super::{annotations, containers, resources, scheduling, security, volumes};
use crate::check::Field;
use keelson_meta::names;
use keelson_meta::object_meta::{validate_annotations, validate_labels};
use keelson_meta::{ErrorList, FieldError, SmallSet, Value, ip, value};

pub(super) const RESTART_POLICIES: &[&str] = &["Always", "OnFailure", "Never"];
const DNS_POLICIES: &[&str] = &["ClusterFirstWithHostNet", "ClusterFirst", "Default", "None"];
const NAMESERVERS_MAX: usize = 3;
const SEARCHES_MAX: usize = 32;
const SEARCH_CHARACTERS_MAX: usize = 2048;

/// Validates the labels and annotations of a template. Upstream's paths lack `metadata`.
pub(crate) fn template_metadata(at: &Field<'_, '_>, errors: &mut ErrorList) {
    let metadata = at.field("metadata");
    let map = |name: &str| metadata.get(name).as_object();
    errors.extend(validate_labels(map("labels"), &at.path.field("labels")));
    errors.extend(validate_annotations(map("annotations"), &at.path.field("annotations")));
}

/// Validates the pod template of a workload.
pub(crate) fn template(at: &Field<'_, '_>, errors: &mut ErrorList) {
    template_metadata(at, errors);
    let spec = at.field("spec");
    let metadata = at.field("metadata");
    let annotations =
        Field { value: metadata.get("annotations"), path: at.path.field("annotations") };
    annotations::validate(&annotations, &spec, true, errors);
    pod_spec(&spec, None, errors);
    annotations::match_fields(&annotations, &spec, errors);
    let ephemeral = spec.field("ephemeralContainers");
    if !ephemeral.array().is_empty() {
        ephemeral.forbidden(errors, "ephemeral containers not allowed in pod template");
    }
}

/// Validates the spec of a pod or template. `pod` is the name of the pod.
pub(crate) fn pod_spec(at: &Field<'_, '_>, pod: Option<&str>, errors: &mut ErrorList) {
    let is_pod = pod.is_some();
    let valid_volumes = volumes::list(&at.field("volumes"), pod, errors);
    let claims = at.field("resourceClaims");
    let claim_names: Vec<&str> =
        claims.array().iter().filter_map(|c| c.str_at(&["name"])).collect();
    let os = at.field("os");
    let context = Context {
        os: os.str("name"),
        volumes: valid_volumes,
        claims: claim_names.iter().copied().collect(),
        claim_names,
        restart_policy: at.str("restartPolicy"),
        grace_seconds: at.int("terminationGracePeriodSeconds").unwrap_or(0),
        host_users: at.get("hostUsers").as_bool() != Some(false),
        is_pod,
    };
    resource_claims(&claims, errors);
    containers::regular(at, &context, errors);
    containers::init(at, &context, errors);
    containers::ephemeral(at, &context, errors);
    resources::pod(&at.field("resources"), at, &context, errors);
    at.field("restartPolicy").required_one_of(errors, RESTART_POLICIES);
    at.field("dnsPolicy").required_one_of(errors, DNS_POLICIES);
    at.field("nodeSelector").labels(errors);
    security::pod(at, &context, errors);
    scheduling::affinity(&at.field("affinity"), errors);
    dns_config(at, errors);
    for gate in at.field("readinessGates").items() {
        gate.field("conditionType").rule(errors, names::is_qualified_name);
    }
    scheduling::gates(&at.field("schedulingGates"), errors);
    scheduling::spread(&at.field("topologySpreadConstraints"), errors);
    security::host_process(at, errors);
    security::host_users(at, &context, errors);
    references(at, errors);
    scheduling::tolerations(&at.field("tolerations"), errors);
    for alias in at.field("hostAliases").items() {
        alias.field("ip").rule(errors, ip::is_valid_ip);
        let hosts = alias.field("hostnames");
        hosts.items().for_each(|host| host.rule(errors, names::is_dns1123_subdomain));
    }
    at.field("priorityClassName").rule_if_set(errors, names::is_dns1123_subdomain);
    let class = at.field("runtimeClassName");
    if class.is_set() {
        class.rule(errors, names::is_dns1123_subdomain);
    }
    let policies = &["PreemptLowerPriority", "Never"];
    let preemption = at.field("preemptionPolicy");
    if preemption.is_set() {
        preemption.required_one_of(errors, policies);
    }
    let group = at.field("schedulingGroup");
    if group.is_set() {
        let name = group.field("podGroupName");
        if name.is_set() {
            name.rule(errors, names::is_dns1123_subdomain);
        } else {
            name.invalid(errors, "must specify one of: `podGroupName`");
        }
    }
    let overhead = at.field("overhead");
    resources::overhead(&overhead, overhead.value, errors);
    security::operating_system(at, errors);
}

/// Validates references to other objects, and the host names of the pod.
fn references(at: &Field<'_, '_>, errors: &mut ErrorList) {
    let host = at.field("hostnameOverride");
    if host.is_set() {
        if at.flag("setHostnameAsFQDN") {
            host.forbidden(errors, "may not be specified when setHostnameAsFQDN is true");
        }
        if at.flag("hostNetwork") {
            host.forbidden(errors, "may not be specified when hostNetwork is true");
        }
        if host.text().len() > 64 {
            errors.push(FieldError::too_long(&host.path, 64));
        }
        host.rule(errors, names::is_dns1123_subdomain);
    }
    at.field("serviceAccountName").rule_if_set(errors, names::is_dns1123_subdomain);
    at.field("nodeName").rule_if_set(errors, names::is_dns1123_subdomain);
    let deadline = at.field("activeDeadlineSeconds");
    deadline.in_range_if_set(errors, 1, i64::from(i32::MAX));
    at.field("hostname").rule_if_set(errors, names::is_dns1123_label);
    at.field("subdomain").rule_if_set(errors, names::is_dns1123_label);
}

fn resource_claims(at: &Field<'_, '_>, errors: &mut ErrorList) {
    let mut seen: SmallSet<&str> = SmallSet::new();
    for claim in at.items() {
        let name = claim.field("name");
        if name.text().is_empty() {
            name.required(errors, "");
        } else if !seen.insert(name.text()) {
            name.duplicate(errors);
        } else {
            name.rule(errors, names::is_dns1123_label);
        }
        // The message shows the Go struct.
        let [named, template] = ["resourceClaimName", "resourceClaimTemplateName"];
        let shown = || {
            let named = claim.get(named).clone();
            let template = claim.get(template).clone();
            value!({
                "Name": (name.text()), "ResourceClaimName": (named),
                "ResourceClaimTemplateName": (template)
            })
        };
        match (claim.has(named), claim.has(template)) {
            (true, true) => claim.invalid_as(
                errors,
                shown(),
                "at most one of `resourceClaimName` or `resourceClaimTemplateName` may be \
                 specified",
            ),
            (false, false) => claim.invalid_as(
                errors,
                shown(),
                "must specify one of: `resourceClaimName`, `resourceClaimTemplateName`",
            ),
            _ => {}
        }
        for at in [claim.field(named), claim.field(template)] {
            if at.is_set() {
                at.rule(errors, names::is_dns1123_subdomain);
            }
        }
    }
}

fn dns_config(spec: &Field<'_, '_>, errors: &mut ErrorList) {
    let at = spec.field("dnsConfig");
    let servers = at.field("nameservers");
    if spec.str("dnsPolicy") == "None" {
        if !at.is_set() {
            return at.required(errors, "must provide `dnsConfig` when `dnsPolicy` is None");
        }
        if servers.array().is_empty() {
            let words = "must provide at least one DNS nameserver when `dnsPolicy` is None";
            return servers.required(errors, words);
        }
    }
    if servers.array().len() > NAMESERVERS_MAX {
        servers.invalid(errors, &format!("must not have more than {NAMESERVERS_MAX} nameservers"));
    }
    servers.items().for_each(|server| server.rule(errors, ip::is_valid_ip));
    let searches = at.field("searches");
    let listed = searches.array();
    if listed.len() > SEARCHES_MAX {
        searches.invalid(errors, &format!("must not have more than {SEARCHES_MAX} search paths"));
    }
    let characters: usize = listed.iter().filter_map(Value::as_str).map(|s| s.len() + 1).sum();
    if characters > SEARCH_CHARACTERS_MAX + 1 {
        let words = format!(
            "must not have more than {SEARCH_CHARACTERS_MAX} characters (including spaces) in the \
             search list"
        );
        searches.invalid(errors, &words);
    }
    for search in searches.items().filter(|search| search.text() != ".") {
        let text = search.text().strip_suffix('.').unwrap_or(search.text());
        for why in names::is_dns1123_subdomain_with_underscore(text) {
            search.invalid_as(errors, text, &why);
        }
    }
    for option in at.field("options").items() {
        if option.str("name").is_empty() {
            option.required(errors, "must not be empty");
        }
    }
}
