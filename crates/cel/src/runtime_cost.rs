//! The cost of calls at evaluation, in upstream's cost units (cel-go `interpreter/runtimecost.go`,
//! apiserver `cel/library/cost.go`).

use crate::value::{EvalError, List, Map, Opaque, Val};

/// Cost of reading one character.
pub(crate) const TRAVERSAL_FACTOR: f64 = 0.1;
/// Cost of one character of a regular expression.
pub(crate) const REGEX_FACTOR: f64 = 0.25;
/// Cost of creating a list.
pub(crate) const LIST_CREATE_COST: u64 = 10;
/// Cost of creating a map.
pub(crate) const MAP_CREATE_COST: u64 = 30;
/// Cost of creating an object.
pub(crate) const STRUCT_CREATE_COST: u64 = 40;
/// Cost of one authorization check. The limit of an expression allows two.
pub(crate) const AUTHORIZER_CHECK_COST: u64 = 350_000;

/// How the cost of a call is computed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum CallCost {
    Fixed(u64),
    /// The size of the first argument, times a factor.
    Traverse(f64),
    /// The size of the second argument.
    SecondSize,
    /// The smaller of both sizes, times [`TRAVERSAL_FACTOR`].
    SmallerSize,
    /// The sum of both sizes, times [`TRAVERSAL_FACTOR`].
    SumOfSizes,
    /// The first argument matched against the regular expression in the second.
    Regex,
    /// The first argument searched for the second.
    Contains,
    /// The first argument with all values in it.
    DeepTraverse,
    /// The size of the result, times a factor.
    ResultSize(f64),
    /// Whether a CIDR contains an IP; true: the IP is a string that must be parsed.
    ContainsIp(bool),
    /// Whether a CIDR contains a CIDR; true: the inner one is a string that must be parsed.
    ContainsCidr(bool),
    /// Parsing a label selector or field selector.
    Selector,
    /// Validating a string against a named format.
    Validate,
    /// Creating a list of the size of the result.
    NewList,
    /// Flattening the first argument, and creating a list.
    Flatten,
    /// Comparing each pair of items of this argument, and creating a list.
    SelfCompare(usize),
    /// Comparing each item of one set with each of the other.
    Sets(f64),
}

/// Returns how the cost of a call is computed. `overload` is empty when several overloads match.
pub(crate) fn call_cost(function: &str, overload: &str) -> CallCost {
    match function {
        "check" => return CallCost::Fixed(AUTHORIZER_CHECK_COST),
        "fieldSelector" | "labelSelector" => return CallCost::Selector,
        "isSorted" | "sum" | "max" | "min" | "indexOf" | "lastIndexOf" => {
            return CallCost::DeepTraverse;
        }
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
        "join" => return CallCost::ResultSize(2.0 * TRAVERSAL_FACTOR),
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
        | "greater_equals_bytes" => CallCost::SmallerSize,
        "add_string" | "add_bytes" => CallCost::SumOfSizes,
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
    /// Returns the cost that is known before the call. Stops reading the arguments when the cost
    /// exceeds `remaining`.
    pub(crate) fn before_call(self, args: &[Val<'_>], remaining: u64) -> u64 {
        let size = |at: usize| args.get(at).map_or(1, Val::size);
        match self {
            CallCost::Fixed(cost) => cost,
            CallCost::Traverse(factor) => scaled(size(0), factor),
            CallCost::SecondSize => size(1),
            CallCost::SmallerSize => match args {
                [one, two] => scaled(smaller_size(one, two), TRAVERSAL_FACTOR),
                _ => 1,
            },
            CallCost::SumOfSizes => scaled(size(0).saturating_add(size(1)), TRAVERSAL_FACTOR),
            CallCost::Regex => regex_cost(size(0), size(1)),
            CallCost::Contains => {
                scaled(size(0), TRAVERSAL_FACTOR).saturating_mul(scaled(size(1), TRAVERSAL_FACTOR))
            }
            CallCost::DeepTraverse => args.first().map_or(0, |arg| traversal_cost(arg, remaining)),
            CallCost::ResultSize(_) => join_cost_min(args, remaining),
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
            // Slices and ranges are charged before they are created, so the remaining cost bounds
            // the work.
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

    /// Returns the cost that is only known from the result.
    pub(crate) fn after_call(self, result: &Val<'_>) -> u64 {
        match self {
            // A part of it was charged before the call.
            CallCost::ResultSize(factor) => {
                scaled(result.size(), factor).saturating_sub(join_cost(result.size()))
            }
            _ => 0,
        }
    }
}

/// Returns the size of the list that `slice`, `range` or `reverse` creates.
fn new_list_size(args: &[Val<'_>]) -> u64 {
    match args {
        [Val::List(_), Val::Int(start), Val::Int(end)] => end.saturating_sub(*start).max(0) as u64,
        [Val::Int(count)] => (*count).max(0) as u64,
        [list] => list.size(),
        _ => 0,
    }
}

/// Returns the part of the cost of `join` that the items determine. It is charged before they are
/// copied.
fn join_cost_min(args: &[Val<'_>], remaining: u64) -> u64 {
    let Some(Val::List(list)) = args.first() else { return 0 };
    let separator = args.get(1).map_or(0, Val::size);
    let mut chars: u64 = 0;
    for (at, item) in list.iter().enumerate() {
        if crate::meter::item().is_err() {
            return remaining.saturating_add(1);
        }
        let size = item.map_or(0, |item| item.size());
        chars = chars.saturating_add(size).saturating_add(if at > 0 { separator } else { 0 });
        if join_cost(chars) > remaining {
            break;
        }
    }
    join_cost(chars)
}

fn join_cost(chars: u64) -> u64 {
    scaled(chars, 2.0 * TRAVERSAL_FACTOR)
}

/// Returns the cost of `==` or `!=`.
#[inline]
pub(crate) fn equality_cost(left: &Val<'_>, right: &Val<'_>, negate: bool) -> u64 {
    match left {
        Val::Int(_) | Val::Bool(_) => scaled(smaller_size(left, right), TRAVERSAL_FACTOR),
        Val::Opaque(_) if !negate => 1,
        _ => scaled(smaller_size(left, right), TRAVERSAL_FACTOR),
    }
}

/// Returns the smaller of two sizes. Reads little of the larger one.
#[inline]
fn smaller_size(left: &Val<'_>, right: &Val<'_>) -> u64 {
    /// Maximum length of a character.
    const CHAR_BYTES_MAX: usize = 4;
    if let (Val::String(one), Val::String(two)) = (left, right) {
        let one_bytes = one.as_str().len();
        let two_bytes = two.as_str().len();
        if one_bytes <= two_bytes / CHAR_BYTES_MAX {
            return left.size();
        }
        if two_bytes <= one_bytes / CHAR_BYTES_MAX {
            return right.size();
        }
    }
    match (left, right) {
        (Val::String(text), Val::Int(_) | Val::Bool(_) | Val::Null)
        | (Val::Int(_) | Val::Bool(_) | Val::Null, Val::String(text)) => {
            u64::from(!text.as_str().is_empty())
        }
        _ => left.size().min(right.size()),
    }
}

/// Returns the cost of matching a text against a regular expression.
pub(crate) fn regex_cost(chars: u64, pattern_chars: u64) -> u64 {
    scaled(chars.saturating_add(1), TRAVERSAL_FACTOR)
        .saturating_mul(scaled(pattern_chars, REGEX_FACTOR))
}

/// Returns the product, rounded up.
#[inline]
pub(crate) fn scaled(size: u64, factor: f64) -> u64 {
    match size {
        0 => 0,
        // Small sizes are most common, and exact without floating point.
        1..=10 if factor == TRAVERSAL_FACTOR => 1,
        _ => (size as f64 * factor).ceil() as u64,
    }
}

/// Returns the cost of reading a value with all values in it. Stops above `remaining`.
fn traversal_cost(val: &Val<'_>, remaining: u64) -> u64 {
    match val {
        Val::String(text) => (text.as_str().len() as f64 * TRAVERSAL_FACTOR) as u64,
        Val::Bytes(bytes) => (bytes.len() as f64 * TRAVERSAL_FACTOR) as u64,
        Val::List(list) => list_traversal_cost(list, remaining),
        Val::Map(map) => map_traversal_cost(map, remaining),
        _ => 1,
    }
}

fn list_traversal_cost(list: &List<'_>, remaining: u64) -> u64 {
    let mut cost: u64 = 0;
    for item in list.iter() {
        cost = cost.saturating_add(item.map_or(1, |item| traversal_cost(&item, remaining)));
        // Empty strings cost nothing, but reading them takes time.
        if cost > remaining || crate::meter::item().is_err() {
            return remaining.saturating_add(1);
        }
    }
    cost
}

fn map_traversal_cost(map: &Map<'_>, remaining: u64) -> u64 {
    let Ok(entries) = map.entries() else { return 1 };
    let mut cost: u64 = 0;
    for (key, value) in entries {
        cost = cost.saturating_add(traversal_cost(&key, remaining));
        cost = cost.saturating_add(traversal_cost(&value, remaining));
        if cost > remaining || crate::meter::item().is_err() {
            return remaining.saturating_add(1);
        }
    }
    cost
}

/// The error of a function whose result would be too large.
pub(crate) fn too_long() -> EvalError {
    EvalError::cost_limit()
}
