//! What calls cost at evaluation, in upstream's units.

use crate::value::{EvalError, List, Map, Opaque, Val};

/// What one character costs that is looked at.
pub(crate) const TRAVERSAL_FACTOR: f64 = 0.1;
/// What one character of a regular expression costs.
pub(crate) const REGEX_FACTOR: f64 = 0.25;
/// What making a list costs.
pub(crate) const LIST_CREATE_COST: u64 = 10;
/// What making a map costs.
pub(crate) const MAP_CREATE_COST: u64 = 30;
/// What making an object costs.
pub(crate) const STRUCT_CREATE_COST: u64 = 40;
/// What one check of the authorizer costs: two fit into the limit of an expression.
pub(crate) const AUTHORIZER_CHECK_COST: u64 = 350_000;

/// How the cost of a call is computed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum CallCost {
    Fixed(u64),
    /// The size of the first argument, times a factor.
    Traverse(f64),
    /// The size of the second argument.
    SecondSize,
    /// The smaller of both sizes.
    Smaller,
    /// Both sizes together.
    Together,
    /// The first argument against the regular expression that is the second.
    Regex,
    /// The first argument against each place of the second.
    Contains,
    /// All that is in the first argument.
    Deep,
    /// The size of the result.
    Result(f64),
    /// An address in a network; whether it is text that must be parsed.
    ContainsIp(bool),
    /// A network in a network; whether it is text that must be parsed.
    ContainsCidr(bool),
    /// A selector of labels or fields.
    Selector,
    /// A named format.
    Validate,
    /// The result, and making a list.
    NewList,
    /// The first argument as often as it is flattened, and making a list.
    Flatten,
    /// Each item of this argument against each other, and making a list.
    SelfCompare(usize),
    /// Each item of one set against each of the other.
    Sets(f64),
}

/// How a call costs, by the function and by the overload when there is only one.
pub(crate) fn call_cost(function: &str, overload: &str) -> CallCost {
    match function {
        "check" => return CallCost::Fixed(AUTHORIZER_CHECK_COST),
        "fieldSelector" | "labelSelector" => return CallCost::Selector,
        "isSorted" | "sum" | "max" | "min" | "indexOf" | "lastIndexOf" => return CallCost::Deep,
        "url"
        | "lowerAscii"
        | "upperAscii"
        | "substring"
        | "trim"
        | "jsonpatch.escapeKey"
        | "cidr"
        | "isIP"
        | "isCIDR"
        | "quantity"
        | "isQuantity"
        | "semver"
        | "isSemver" => {
            return CallCost::Traverse(TRAVERSAL_FACTOR);
        }
        "ip" if overload != "cidr_ip" => return CallCost::Traverse(TRAVERSAL_FACTOR),
        "replace" | "split" | "ip.isCanonical" => {
            return CallCost::Traverse(2.0 * TRAVERSAL_FACTOR);
        }
        "join" => return CallCost::Result(2.0 * TRAVERSAL_FACTOR),
        "find" | "findAll" => return CallCost::Regex,
        "containsIP" => return CallCost::ContainsIp(overload == "cidr_contains_ip_string"),
        "containsCIDR" => return CallCost::ContainsCidr(overload == "cidr_contains_cidr_string"),
        "validate" => return CallCost::Validate,
        _ => {}
    }
    match overload {
        "starts_with_string" | "ends_with_string" | "string_to_bytes" | "bytes_to_string" => {
            CallCost::Traverse(TRAVERSAL_FACTOR)
        }
        "in_list" => CallCost::SecondSize,
        "less_string"
        | "greater_string"
        | "less_equals_string"
        | "greater_equals_string"
        | "less_bytes"
        | "greater_bytes"
        | "less_equals_bytes"
        | "greater_equals_bytes" => CallCost::Smaller,
        "add_string" | "add_bytes" => CallCost::Together,
        "matches_string" => CallCost::Regex,
        "contains_string" => CallCost::Contains,
        "list_slice" | "lists_range" | "list_reverse" => CallCost::NewList,
        "list_flatten" | "list_flatten_int" => CallCost::Flatten,
        "list_distinct" => CallCost::SelfCompare(0),
        "list_sets_contains_list" | "list_sets_intersects_list" => CallCost::Sets(1.0),
        "list_sets_equivalent_list" => CallCost::Sets(2.0),
        _ if overload.ends_with("_sortByAssociatedKeys") => CallCost::SelfCompare(1),
        _ if overload.ends_with("_sort") => CallCost::SelfCompare(0),
        _ => CallCost::Fixed(1),
    }
}

impl CallCost {
    /// What is known from the arguments, before the call. Looking at them ends where `left` is spent.
    pub(crate) fn before(self, args: &[Val<'_>], left: u64) -> u64 {
        let size = |at: usize| args.get(at).map_or(1, Val::size);
        match self {
            CallCost::Fixed(cost) => cost,
            CallCost::Traverse(factor) => scaled(size(0), factor),
            CallCost::SecondSize => size(1),
            CallCost::Smaller => scaled(size(0).min(size(1)), TRAVERSAL_FACTOR),
            CallCost::Together => scaled(size(0).saturating_add(size(1)), TRAVERSAL_FACTOR),
            CallCost::Regex => regex_cost(size(0), size(1)),
            CallCost::Contains => {
                scaled(size(0), TRAVERSAL_FACTOR).saturating_mul(scaled(size(1), TRAVERSAL_FACTOR))
            }
            CallCost::Deep => args.first().map_or(0, |arg| traversal_cost(arg, left)),
            CallCost::Result(_) => joined_floor(args, left),
            CallCost::ContainsIp(parse) => {
                let parsed = if parse { scaled(size(1), TRAVERSAL_FACTOR) } else { 0 };
                scaled(2 * size(0), TRAVERSAL_FACTOR) + parsed
            }
            CallCost::ContainsCidr(parse) => {
                let parsed = if parse { scaled(size(1), TRAVERSAL_FACTOR) } else { 0 };
                scaled(2 * size(0), TRAVERSAL_FACTOR)
                    + scaled(size(0), TRAVERSAL_FACTOR)
                    + 1
                    + parsed
            }
            CallCost::Selector => {
                let requirements = scaled(size(1), 0.5);
                let each = (LIST_CREATE_COST + STRUCT_CREATE_COST) as f64;
                LIST_CREATE_COST + scaled(size(1), TRAVERSAL_FACTOR) + scaled(requirements, each)
            }
            CallCost::Validate => match args.first() {
                Some(Val::Opaque(opaque)) => match &**opaque {
                    Opaque::Format(format) => regex_cost(size(1), format.regex_chars),
                    _ => 1,
                },
                _ => 1,
            },
            // The part that depends on the result comes after the call; the work is bounded by `left`
            // already, for slices and ranges are cut to what can still be paid.
            CallCost::NewList => 1 + LIST_CREATE_COST + new_list_size(args),
            CallCost::Flatten => {
                let depth = match args.get(1) {
                    Some(Val::Int(depth)) => (*depth).max(0) as f64,
                    _ => 1.0,
                };
                1 + LIST_CREATE_COST + (size(0) as f64 * depth) as u64
            }
            CallCost::SelfCompare(at) => {
                let text = match args.get(at) {
                    Some(Val::List(list)) => {
                        matches!(list.get(0), Some(Ok(Val::String(_) | Val::Bytes(_))))
                    }
                    _ => false,
                };
                let factor = if text { 2.0 + TRAVERSAL_FACTOR } else { 2.0 };
                let squared = size(at).saturating_mul(size(at));
                ((squared as f64 * factor) as u64).saturating_add(1 + LIST_CREATE_COST)
            }
            CallCost::Sets(factor) => {
                let product = size(0).saturating_mul(size(1));
                ((product as f64 * factor) as u64).saturating_add(1)
            }
        }
    }

    /// What is known from the result.
    pub(crate) fn after(self, result: &Val<'_>) -> u64 {
        match self {
            // What was charged before the call is a part of this.
            CallCost::Result(factor) => {
                scaled(result.size(), factor).saturating_sub(joined_part(result.size()))
            }
            _ => 0,
        }
    }
}

/// The size of the list that `slice`, `range` and `reverse` make.
fn new_list_size(args: &[Val<'_>]) -> u64 {
    match args {
        [Val::List(_), Val::Int(start), Val::Int(end)] => end.saturating_sub(*start).max(0) as u64,
        [Val::Int(count)] => (*count).max(0) as u64,
        [list] => list.size(),
        _ => 0,
    }
}

/// A part of what joining costs, from the characters of the items; it is charged before they are copied.
fn joined_floor(args: &[Val<'_>], left: u64) -> u64 {
    let Some(Val::List(list)) = args.first() else { return 0 };
    let separator = args.get(1).map_or(0, Val::size);
    let mut chars: u64 = 0;
    for (at, item) in list.iter().enumerate() {
        if crate::steps::take().is_err() {
            return left.saturating_add(1);
        }
        let size = item.map_or(0, |item| item.size());
        chars = chars.saturating_add(size).saturating_add(if at > 0 { separator } else { 0 });
        if joined_part(chars) > left {
            break;
        }
    }
    joined_part(chars)
}

fn joined_part(chars: u64) -> u64 {
    scaled(chars, 2.0 * TRAVERSAL_FACTOR)
}

/// What comparing two values by equality costs.
#[inline]
pub(crate) fn equality_cost(one: &Val<'_>, two: &Val<'_>, negate: bool) -> u64 {
    match one {
        Val::Int(_) | Val::Bool(_) => scaled(two.size().min(1), TRAVERSAL_FACTOR),
        Val::Opaque(_) if !negate => 1,
        _ => scaled(one.size().min(two.size()), TRAVERSAL_FACTOR),
    }
}

/// What matching a text against a regular expression costs.
pub(crate) fn regex_cost(chars: u64, pattern_chars: u64) -> u64 {
    scaled(chars.saturating_add(1), TRAVERSAL_FACTOR)
        .saturating_mul(scaled(pattern_chars, REGEX_FACTOR))
}

/// The product, rounded up.
#[inline]
pub(crate) fn scaled(size: u64, factor: f64) -> u64 {
    match size {
        0 => 0,
        // Small sizes are most common, and exact without floating point.
        1..=10 if factor == TRAVERSAL_FACTOR => 1,
        _ => (size as f64 * factor).ceil() as u64,
    }
}

/// What going through a value with all that is in it costs; ends early above `left`.
fn traversal_cost(val: &Val<'_>, left: u64) -> u64 {
    match val {
        Val::String(text) => (text.as_str().len() as f64 * TRAVERSAL_FACTOR) as u64,
        Val::Bytes(bytes) => (bytes.len() as f64 * TRAVERSAL_FACTOR) as u64,
        Val::List(list) => list_traversal_cost(list, left),
        Val::Map(map) => map_traversal_cost(map, left),
        _ => 1,
    }
}

fn list_traversal_cost(list: &List<'_>, left: u64) -> u64 {
    let mut cost: u64 = 0;
    for item in list.iter() {
        cost = cost.saturating_add(item.map_or(1, |item| traversal_cost(&item, left)));
        // Empty texts cost nothing, but looking at them takes time.
        if cost > left || crate::steps::take().is_err() {
            return left.saturating_add(1);
        }
    }
    cost
}

fn map_traversal_cost(map: &Map<'_>, left: u64) -> u64 {
    let Ok(entries) = map.entries() else { return 1 };
    let mut cost: u64 = 0;
    for (key, value) in entries {
        cost = cost.saturating_add(traversal_cost(&key, left));
        cost = cost.saturating_add(traversal_cost(&value, left));
        if cost > left || crate::steps::take().is_err() {
            return left.saturating_add(1);
        }
    }
    cost
}

/// The error for a text that is too long to be made.
pub(crate) fn too_long() -> EvalError {
    EvalError::cost_limit()
}
