//! The kinds of `apiregistration.k8s.io`: APIServices, the group versions that this server or an
//! aggregated one serves.

use super::check::{Field, child, default};
use crate::row::Row;
use crate::strategy::{Check, StatusMetadata, Strategy};
use keelson_meta::{ErrorList, Object, Value, names, value};

/// The resources of the group.
pub(crate) const ROWS: &[Row] = &[Row {
    resource: "apiservices",
    strategy: api_service(Strategy {
        unconditional_update: false,
        status_metadata: StatusMetadata::KeepUserFields,
        update_checks: &[Check::MetadataChange, Check::Metadata, Check::Rules],
        ..Strategy::GENERIC
    }),
    storage_prefix: "apiregistration.k8s.io/apiservices",
    ..Row::PLAIN
}];

const PORT: i64 = 443;
const GROUP_PRIORITY_MAX: i64 = 20_000;
const VERSION_PRIORITY_MAX: i64 = 1000;
const STATUSES: &[&str] = &["True", "False", "Unknown"];

/// The APIServices of this server's own group versions: group, version, priority of the group and
/// of the version.
pub const PRIORITIES: &[(&str, &str, i64, i64)] = &[
    ("", "v1", 18000, 1),
    ("admissionregistration.k8s.io", "v1", 16700, 15),
    ("admissionregistration.k8s.io", "v1beta1", 16700, 12),
    ("admissionregistration.k8s.io", "v1alpha1", 16700, 9),
    ("apiextensions.k8s.io", "v1", 16700, 15),
    ("apps", "v1", 17800, 15),
    ("authentication.k8s.io", "v1", 17700, 15),
    ("authorization.k8s.io", "v1", 17600, 15),
    ("autoscaling", "v1", 17500, 15),
    ("autoscaling", "v2", 17500, 30),
    ("batch", "v1", 17400, 15),
    ("certificates.k8s.io", "v1", 17300, 15),
    ("certificates.k8s.io", "v1beta1", 17300, 9),
    ("certificates.k8s.io", "v1alpha1", 17300, 1),
    ("coordination.k8s.io", "v1", 16500, 15),
    ("coordination.k8s.io", "v1beta1", 16500, 13),
    ("coordination.k8s.io", "v1alpha2", 16500, 12),
    ("discovery.k8s.io", "v1", 16200, 15),
    ("events.k8s.io", "v1", 17750, 15),
    ("flowcontrol.apiserver.k8s.io", "v1", 16100, 21),
    ("internal.apiserver.k8s.io", "v1alpha1", 16000, 9),
    ("networking.k8s.io", "v1", 17200, 15),
    ("networking.k8s.io", "v1beta1", 17200, 9),
    ("node.k8s.io", "v1", 16300, 15),
    ("policy", "v1", 17100, 15),
    ("rbac.authorization.k8s.io", "v1", 17000, 15),
    ("resource.k8s.io", "v1", 16200, 21),
    ("resource.k8s.io", "v1beta2", 16200, 15),
    ("resource.k8s.io", "v1beta1", 16200, 9),
    ("resource.k8s.io", "v1alpha3", 16200, 1),
    ("scheduling.k8s.io", "v1", 16600, 15),
    ("scheduling.k8s.io", "v1alpha2", 16600, 2),
    ("storage.k8s.io", "v1", 16800, 15),
    ("storage.k8s.io", "v1beta1", 16800, 9),
    ("storagemigration.k8s.io", "v1beta1", 15800, 9),
];

/// The priorities of group versions of custom resources: of the group and of the version.
pub const CUSTOM_PRIORITIES: (i64, i64) = (1000, 100);

/// The aggregator's own group comes before all others.
const AGGREGATOR: (&str, i64) = ("apiregistration.k8s.io", 20_001);

/// Returns the priorities of a group version that this server serves itself: of the group and of
/// the version.
pub fn priorities(group: &str, version: &str) -> (i64, i64) {
    if group == AGGREGATOR.0 {
        return (AGGREGATOR.1, 0);
    }
    let row = PRIORITIES.iter().find(|row| row.0 == group && row.1 == version);
    row.map_or(CUSTOM_PRIORITIES, |row| (row.2, row.3))
}

/// APIServices.
pub(super) const fn api_service(base: Strategy) -> Strategy {
    Strategy {
        name_rule: names::name_is_path_segment,
        default: |service| {
            if let Some(spec) = child(&mut service.root, "spec")
                && let Some(reference) = child(spec, "service")
            {
                default(reference, "port", PORT);
            }
        },
        prepare_create: |service| {
            let now = service.creation_timestamp().to_owned();
            service.root.insert("status", keelson_meta::Map::new());
            if is_local(service) {
                set_available(service, &now, &local());
            }
        },
        validate: |new, _| validate(new),
        validate_status: |new, _| {
            let mut errors = ErrorList::new();
            for condition in Field::of(new, "status").field("conditions").items() {
                condition.field("status").one_of(&mut errors, STATUSES);
            }
            errors
        },
        ..base
    }
}

/// Returns whether this server serves the group version itself.
pub fn is_local(service: &Object) -> bool {
    service.at(&["spec", "service"]).is_none_or(Value::is_null)
}

/// The condition `Available` of an APIService.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Available {
    /// The condition's status.
    pub is_available: bool,
    /// The condition's reason, in CamelCase.
    pub reason: &'static str,
    /// The condition's message.
    pub message: String,
}

/// Returns the condition of an APIService that this server serves itself.
pub fn local() -> Available {
    let message = "Local APIServices are always available".to_owned();
    Available { is_available: true, reason: "Local", message }
}

/// Sets the condition `Available`. `lastTransitionTime` changes only with the status. Returns
/// whether the condition changed.
pub fn set_available(service: &mut Object, now: &str, wanted: &Available) -> bool {
    let status = if wanted.is_available { "True" } else { "False" };
    let conditions = service.object_mut("status").entry_or("conditions", || Value::Array(vec![]));
    if conditions.is_null() {
        *conditions = Value::Array(vec![]);
    }
    let Value::Array(conditions) = conditions else { return false };
    let known = conditions.iter_mut().find(|c| c.str_at(&["type"]) == Some("Available"));
    let text = |condition: &Value, name: &str| -> String {
        condition.str_at(&[name]).unwrap_or_default().to_owned()
    };
    let is_same = known.as_deref().is_some_and(|known| {
        text(known, "status") == status
            && text(known, "reason") == wanted.reason
            && text(known, "message") == wanted.message
    });
    if is_same {
        return false;
    }
    let since = match known.as_deref() {
        Some(known) if text(known, "status") == status => text(known, "lastTransitionTime"),
        _ => now.to_owned(),
    };
    let condition = value!({
        "type": "Available", "status": status, "lastTransitionTime": (since.as_str()),
        "reason": (wanted.reason), "message": (wanted.message.as_str())
    });
    match known {
        Some(known) => *known = condition,
        None => conditions.push(condition),
    }
    true
}

fn validate(new: &Object) -> ErrorList {
    let mut errors = ErrorList::new();
    let spec = Field::of(new, "spec");
    let group = spec.field("group");
    let version = spec.field("version");
    let wanted = format!("{}.{}", version.text(), group.text());
    if new.name() != wanted && names::is_path_segment_name(new.name()).is_empty() {
        let metadata = Field::of(new, "metadata");
        let words = format!("must be `spec.version+\".\"+spec.group`: {wanted:?}");
        metadata.field("name").invalid(&mut errors, &words);
    }
    if group.text().is_empty() && version.text() != "v1" {
        group.required(&mut errors, "only v1 may have an empty group and it better be legacy kube");
    }
    group.rule_if_set(&mut errors, names::is_dns1123_subdomain);
    version.rule(&mut errors, names::is_dns1035_label);
    for (name, most) in
        [("groupPriorityMinimum", GROUP_PRIORITY_MAX), ("versionPriority", VERSION_PRIORITY_MAX)]
    {
        let priority = spec.field(name);
        if priority.number() <= 0 || priority.number() > most {
            let words = format!("must be positive and less than {most}");
            priority.invalid_as(&mut errors, priority.number(), &words);
        }
    }
    let bundle = spec.field("caBundle");
    let insecure = spec.field("insecureSkipTLSVerify");
    let service = spec.field("service");
    if service.is_set() {
        service.field("namespace").not_empty(&mut errors, "");
        service.field("name").not_empty(&mut errors, "");
        let port = service.field("port");
        for why in names::is_valid_port_num(port.number()) {
            let words = format!("port is not valid: {why}");
            port.invalid_as(&mut errors, port.number(), &words);
        }
    } else {
        if !bundle.text().is_empty() {
            let shown = format!("{} bytes", decoded_bytes(bundle.text()));
            bundle.invalid_as(&mut errors, shown, "local APIServices may not have a caBundle");
        }
        if spec.flag("insecureSkipTLSVerify") {
            let words = "local APIServices may not have insecureSkipTLSVerify";
            insecure.invalid(&mut errors, words);
        }
    }
    if spec.flag("insecureSkipTLSVerify") && !bundle.text().is_empty() {
        insecure.invalid(&mut errors, "may not be true if caBundle is present");
    }
    errors
}

/// Returns the number of bytes that a base64 text encodes.
fn decoded_bytes(base64: &str) -> usize {
    base64.trim_end_matches('=').len() * 3 / 4
}
