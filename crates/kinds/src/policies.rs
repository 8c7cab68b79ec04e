//! PriorityClasses, RuntimeClasses and PriorityLevelConfigurations.

use super::check::{Field, child, default, default_empty};
use super::flow;
use crate::strategy::Strategy;
use keelson_meta::{ErrorList, FieldError, Object, SmallSet, Value, names, value};

/// PriorityClasses.
pub(super) fn priority_class(base: Strategy) -> Strategy {
    Strategy {
        default: |class| default(&mut class.root, "preemptionPolicy", "PreemptLowerPriority"),
        validate: validate_priority_class,
        deletion_forbidden: |name| {
            let is_system = SYSTEM_CLASSES.iter().any(|(known, _)| *known == name);
            is_system.then_some("this is a system priority class and cannot be deleted")
        },
        ..base
    }
}

/// The system priority classes.
const SYSTEM_CLASSES: [(&str, i64); 2] =
    [("system-node-critical", 2_000_001_000), ("system-cluster-critical", 2_000_000_000)];
const USER_PRIORITY_MAX: i64 = 1_000_000_000;

fn validate_priority_class(new: &Object, old: Option<&Object>) -> ErrorList {
    let mut errors = ErrorList::new();
    let number = Field::of(new, "value");
    let policy = Field::of(new, "preemptionPolicy");
    if let Some(old) = old {
        if number.number() != old.int_at(&["value"]).unwrap_or(0) {
            number.forbidden(&mut errors, "may not be changed in an update.");
        }
        policy.unchanged(&mut errors, old.get("preemptionPolicy").unwrap_or(&Value::Null));
        return errors;
    }
    let name = new.name();
    if name.starts_with("system-") {
        let known = SYSTEM_CLASSES.iter().find(|(known, _)| *known == name);
        let why = match known {
            Some((_, expected)) if *expected == number.number() => None,
            Some((_, expected)) => {
                Some(format!("value of {name} PriorityClass must be {expected}"))
            }
            None => Some(format!("{name} is not a known system priority class")),
        };
        if let Some(why) = why {
            let words = format!(
                "priority class names with 'system-' prefix are reserved for system use only. \
                 error: {why}"
            );
            Field::of(new, "metadata").field("name").forbidden(&mut errors, &words);
        }
    } else if number.number() > USER_PRIORITY_MAX {
        let words =
            format!("maximum allowed value of a user defined priority is {USER_PRIORITY_MAX}");
        number.forbidden(&mut errors, &words);
    }
    if policy.is_set() {
        policy.required_one_of(&mut errors, &["PreemptLowerPriority", "Never"]);
    }
    errors
}

/// RuntimeClasses.
pub(super) fn runtime_class(base: Strategy) -> Strategy {
    Strategy {
        validate: |new, _| validate_runtime_class(new),
        validate_change: |new, old| {
            let mut errors = ErrorList::new();
            let stored = old.and_then(|old| old.get("handler")).unwrap_or(&Value::Null);
            Field::of(new, "handler").unchanged_value(&mut errors, stored);
            errors
        },
        ..base
    }
}

fn validate_runtime_class(new: &Object) -> ErrorList {
    let mut errors = ErrorList::new();
    Field::of(new, "handler").required_rule(&mut errors, names::is_dns1123_label);
    let overhead = Field::of(new, "overhead");
    super::pod::resources::overhead(&overhead, overhead.get("podFixed"), &mut errors);
    let scheduling = Field::of(new, "scheduling");
    scheduling.field("nodeSelector").labels(&mut errors);
    let tolerations = scheduling.field("tolerations");
    super::pod::scheduling::plain_tolerations(&tolerations, &mut errors);
    let mut seen: SmallSet<[String; 4]> = SmallSet::new();
    for toleration in tolerations.items() {
        let text = |name: &str| toleration.str(name).to_owned();
        // Tolerations that differ only in `tolerationSeconds` are duplicates.
        if !seen.insert(["key", "operator", "value", "effect"].map(text)) {
            let seconds = toleration.get("tolerationSeconds").clone();
            // The message shows the Go struct.
            let shown = value!({
                "Key": (text("key")), "Operator": (text("operator")), "Value": (text("value")),
                "Effect": (text("effect")), "TolerationSeconds": (seconds)
            });
            errors.push(FieldError::duplicate(&toleration.path, shown));
        }
    }
    errors
}

/// PriorityLevelConfigurations.
pub(super) fn priority_level(base: Strategy) -> Strategy {
    Strategy {
        default: default_level,
        validate: |new, _| validate_level(new),
        validate_status: |new, _| flow::validate_conditions(new),
        ..base
    }
}

fn default_level(level: &mut Object) {
    let spec = level.object_mut("spec");
    if let Some(exempt) = child(spec, "exempt") {
        default(exempt, "nominalConcurrencyShares", 0);
        default(exempt, "lendablePercent", 0);
    }
    if let Some(limited) = child(spec, "limited") {
        default(limited, "nominalConcurrencyShares", 30);
        default(limited, "lendablePercent", 0);
        let response = child(limited, "limitResponse");
        if let Some(queuing) = response.and_then(|r| child(r, "queuing")) {
            default_empty(queuing, "queues", 64);
            default_empty(queuing, "handSize", 8);
            default_empty(queuing, "queueLengthLimit", 50);
        }
    }
}

fn validate_level(new: &Object) -> ErrorList {
    let mut errors = ErrorList::new();
    let spec = Field::of(new, "spec");
    let kind = spec.field("type");
    let is_exempt_name = new.name() == "exempt";
    if (kind.text() == "Exempt") != is_exempt_name {
        let words = "must be 'Exempt' if and only if `name` is 'exempt'";
        kind.invalid_as(&mut errors, kind.text(), words);
    }
    let (exempt, limited) = (spec.field("exempt"), spec.field("limited"));
    match kind.text() {
        "Exempt" => {
            if limited.is_set() {
                limited.forbidden(&mut errors, "must be nil if the type is not Limited");
            }
            level_shares(&exempt, &mut errors);
        }
        "Limited" => {
            if exempt.is_set() {
                exempt.forbidden(&mut errors, "must be nil if the type is Limited");
            }
            if limited.is_set() {
                limited_level(&limited, &mut errors);
            } else {
                limited.required(&mut errors, "must not be empty when type is Limited");
            }
        }
        _ => kind.not_supported(&mut errors, &["Exempt", "Limited"]),
    }
    flow::validate_fixed_level(new, &mut errors);
    errors
}

fn level_shares(at: &Field<'_, '_>, errors: &mut ErrorList) {
    let (shares, lendable) = (at.field("nominalConcurrencyShares"), at.field("lendablePercent"));
    if shares.number() < 0 {
        shares.invalid(errors, "must be a non-negative integer");
    }
    lendable.in_range_if_set(errors, 0, 100);
}

fn limited_level(at: &Field<'_, '_>, errors: &mut ErrorList) {
    let shares = at.field("nominalConcurrencyShares");
    if shares.number() < 0 {
        shares.invalid(errors, "must be a non-negative integer");
    }
    let response = at.field("limitResponse");
    let queuing = response.field("queuing");
    match response.str("type") {
        "Queue" if !queuing.is_set() => {
            let words = "must not be empty if limited.limitResponse.type is Limited";
            queuing.required(errors, words);
        }
        "Queue" => queues(&queuing, errors),
        "Reject" => {
            if queuing.is_set() {
                let words = "must be nil if limited.limitResponse.type is not Limited";
                queuing.forbidden(errors, words);
            }
        }
        _ => response.field("type").not_supported(errors, &["Queue", "Reject"]),
    }
    at.field("lendablePercent").in_range_if_set(errors, 0, 100);
    let borrowing = at.field("borrowingLimitPercent");
    if borrowing.number() < 0 {
        borrowing.invalid(errors, "if specified, must be a non-negative integer");
    }
}

fn queues(at: &Field<'_, '_>, errors: &mut ErrorList) {
    const QUEUES_MAX: i64 = 10_000_000;
    const HAND_BITS_MAX: f64 = 60.0;
    let (count, hand) = (at.field("queues"), at.field("handSize"));
    for field in [at.field("queueLengthLimit"), count, hand] {
        if field.number() <= 0 {
            field.invalid_as(errors, field.number(), "must be positive");
        }
    }
    if count.number() > QUEUES_MAX {
        count.invalid(errors, &format!("must not be greater than {QUEUES_MAX}"));
    }
    if hand.number() > count.number() {
        let words = format!("should not be greater than queues ({})", count.number());
        hand.invalid(errors, &words);
    } else if count.number() > 0 {
        // The bits that shuffle sharding takes from a 64-bit hash for a hand.
        let bits = ((count.number() as f64).log2() * hand.number() as f64).ceil();
        if bits > HAND_BITS_MAX {
            let words = format!(
                "required entropy bits of deckSize {} and handSize {} should not be greater than \
                 {HAND_BITS_MAX}",
                count.number(),
                hand.number()
            );
            hand.invalid(errors, &words);
        }
    }
}
