//! PriorityLevelConfigurations.

use super::{validate_conditions, validate_fixed_level};
use crate::check::{Field, Go, GoMembers, child, default, default_empty};
use crate::strategy::Strategy;
use keelson_meta::{ErrorList, Object};

const QUEUES: GoMembers =
    &[("Queues", Go::Number), ("HandSize", Go::Number), ("QueueLengthLimit", Go::Number)];
const RESPONSE: GoMembers = &[("Type", Go::Text), ("Queuing", Go::Struct(QUEUES))];
const LIMITED: GoMembers = &[
    ("NominalConcurrencyShares", Go::Number),
    ("LimitResponse", Go::Value(RESPONSE)),
    ("LendablePercent", Go::Pointer),
    ("BorrowingLimitPercent", Go::Pointer),
];
const EXEMPT: GoMembers =
    &[("NominalConcurrencyShares", Go::Pointer), ("LendablePercent", Go::Pointer)];
/// The spec of a PriorityLevelConfiguration in messages.
pub(super) const LEVEL: GoMembers =
    &[("Type", Go::Text), ("Limited", Go::Struct(LIMITED)), ("Exempt", Go::Struct(EXEMPT))];

/// PriorityLevelConfigurations.
pub(super) const fn priority_level(base: Strategy) -> Strategy {
    Strategy {
        default: default_level,
        validate: |new, _| validate_level(new),
        validate_status: |new, _| validate_conditions(new),
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
    let exempt = spec.field("exempt");
    let limited = spec.field("limited");
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
        _ => kind.required_one_of(&mut errors, &["Exempt", "Limited"]),
    }
    validate_fixed_level(new, &mut errors);
    errors
}

fn level_shares(at: &Field<'_, '_>, errors: &mut ErrorList) {
    let shares = at.field("nominalConcurrencyShares");
    let lendable = at.field("lendablePercent");
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
        _ => response.field("type").required_one_of(errors, &["Queue", "Reject"]),
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
    let count = at.field("queues");
    let hand = at.field("handSize");
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
