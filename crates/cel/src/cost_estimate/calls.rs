//! Cost estimates of single calls: standard functions and Kubernetes' libraries.

use super::{Argument, Estimate, Estimator, Step};
use crate::ast::ExprKind;
use crate::literal::Literal;
use crate::runtime_cost::TRAVERSAL_FACTOR;
use crate::runtime_cost::{
    AUTHORIZER_CHECK_COST, LIST_CREATE_COST, REGEX_FACTOR, STRUCT_CREATE_COST,
};
use crate::types::Type;

/// The longest regular expression of a named format, in characters, as upstream counts it.
const FORMAT_REGEX_CHARS_MAX: f64 = 128.0;
/// The longest name of a named format, in characters.
const FORMAT_NAME_CHARS_MAX: u64 = 64;

/// The cost of a call without its arguments, and the size of its result if it is known.
pub(crate) struct CallEstimate {
    pub(crate) cost: Estimate,
    pub(crate) size: Option<Estimate>,
}

fn cost_only(cost: Estimate) -> Option<CallEstimate> {
    Some(CallEstimate { cost, size: None })
}

fn cost_and_size(cost: Estimate, size: Estimate) -> Option<CallEstimate> {
    Some(CallEstimate { cost, size: Some(size) })
}

const ONE: Estimate = Estimate::fixed(1);

/// Estimates a standard function.
pub(crate) fn standard(
    overload: &str,
    target: Option<&Argument<'_>>,
    args: &[Argument<'_>],
) -> CallEstimate {
    let size = |at: usize| args.get(at).map_or(Estimate::UNKNOWN, Argument::size_or_unknown);
    let target_size = target.map_or(Estimate::UNKNOWN, Argument::size_or_unknown);
    let (cost, result) = match overload {
        "string_to_bytes" => {
            let size = size(0);
            let max = size.max.wrapping_mul(4);
            (size.traversal(), Some(Estimate { min: size.min, max }))
        }
        "bytes_to_string" => {
            let size = size(0);
            (size.traversal(), Some(Estimate { min: size.min / 4, max: size.max }))
        }
        "strings_quote" => {
            let size = size(0);
            let max = size.max.wrapping_mul(2).wrapping_add(2);
            (size.traversal(), Some(Estimate { min: size.min.wrapping_add(2), max }))
        }
        "string_format" => (target_size.traversal(), None),
        "starts_with_string" | "ends_with_string" => (size(0).traversal(), None),
        "in_list" => (size(1).scale(1.0), None),
        "matches_string" => {
            (target_size.add(ONE).traversal().multiply(size(0).scale(REGEX_FACTOR)), None)
        }
        "contains_string" => (target_size.traversal().multiply(size(0).traversal()), None),
        "add_list" => (ONE, Some(size(0).add(size(1)))),
        "add_string" | "add_bytes" => {
            let sum = size(0).add(size(1));
            (sum.traversal(), Some(sum))
        }
        "equals"
        | "not_equals"
        | "less_string"
        | "greater_string"
        | "less_equals_string"
        | "greater_equals_string"
        | "less_bytes"
        | "greater_bytes"
        | "less_equals_bytes"
        | "greater_equals_bytes" => {
            let max = size(0).max.min(size(1).max);
            (Estimate { min: max.min(1), max }.traversal(), None)
        }
        _ => (ONE, None),
    };
    CallEstimate { cost, size: result }
}

/// Estimates a library function; `None` for a standard function.
pub(crate) fn library(
    estimator: &Estimator<'_>,
    function: &str,
    overload: &str,
    target: Option<&Argument<'_>>,
    args: &[Argument<'_>],
) -> Option<CallEstimate> {
    if let Some(found) = lists_and_sets(overload, target, args) {
        return Some(found);
    }
    if let Some(cost) = fixed_cost(function) {
        return cost_only(Estimate::fixed(cost));
    }
    let size = |at: usize| args.get(at).map_or(Estimate::UNKNOWN, Argument::size_or_unknown);
    let target_size = target.map_or(Estimate::UNKNOWN, Argument::size_or_unknown);
    match function {
        "fieldSelector" | "labelSelector" if args.len() == 1 => {
            let each = (LIST_CREATE_COST + STRUCT_CREATE_COST) as f64;
            let requirements = size(0).scale(0.5).scale(each);
            cost_only(Estimate::fixed(LIST_CREATE_COST).add(size(0).traversal()).add(requirements))
        }
        "isSorted" | "sum" | "max" | "min" | "indexOf" | "lastIndexOf" => {
            target.and_then(|target| traversal(estimator, target))
        }
        "url" | "jsonpatch.escapeKey" if args.len() == 1 => {
            cost_and_size(size(0).traversal(), size(0))
        }
        "lowerAscii" | "upperAscii" | "substring" | "trim" if target.is_some() => {
            cost_and_size(target_size.traversal(), target_size)
        }
        "replace" if target.is_some() && args.len() >= 2 => {
            let result = replaced_size(target_size, size(0), size(1));
            cost_and_size(target_size.scale(2.0 * TRAVERSAL_FACTOR), result)
        }
        "split" if target.is_some() => {
            let max =
                args.get(1).and_then(literal_int).map_or(target_size.max, |limit| limit as u64);
            cost_and_size(target_size.scale(2.0 * TRAVERSAL_FACTOR), Estimate { min: 0, max })
        }
        "join" => target.and_then(|target| join(estimator, target, args)),
        "find" | "findAll" if target.is_some() && !args.is_empty() => {
            let cost = target_size.add(ONE).traversal().multiply(size(0).scale(REGEX_FACTOR));
            cost_and_size(cost, Estimate { min: 0, max: target_size.max })
        }
        "containsIP" | "containsCIDR" if target.is_some() && !args.is_empty() => {
            cost_only(containment_cost(overload, size(0)))
        }
        "ip" if target.is_some() => cost_only(ONE),
        "validate" if target.is_some() => {
            cost_only(size(0).traversal().scale(FORMAT_REGEX_CHARS_MAX * REGEX_FACTOR))
        }
        "cidr" | "isIP" | "isCIDR" | "ip" | "quantity" | "isQuantity" | "semver" | "isSemver" => {
            cost_only(size(0).traversal())
        }
        "ip.isCanonical" => cost_only(size(0).scale(2.0 * TRAVERSAL_FACTOR)),
        "_==_" => equality(args),
        _ => None,
    }
}

/// Returns the cost of a function whose cost does not depend on its arguments.
fn fixed_cost(function: &str) -> Option<u64> {
    match function {
        "check" => Some(AUTHORIZER_CHECK_COST),
        "serviceAccount" | "path" | "group" | "resource" | "subresource" | "namespace" | "name"
        | "allowed" | "reason" | "error" | "errored" => Some(1),
        "format.named"
        | "masked"
        | "prefixLength"
        | "family"
        | "isUnspecified"
        | "isLoopback"
        | "isLinkLocalMulticast"
        | "isLinkLocalUnicast"
        | "isGlobalUnicast" => Some(1),
        "sign" | "asInteger" | "isInteger" | "asApproximateFloat" | "isGreaterThan"
        | "isLessThan" | "compareTo" | "add" | "sub" | "major" | "minor" | "patch" => Some(1),
        "getScheme" | "getHostname" | "getHost" | "getPort" | "getEscapedPath" | "getQuery" => {
            Some(1)
        }
        _ => None,
    }
}

/// Estimates equality of library types.
fn equality(args: &[Argument<'_>]) -> Option<CallEstimate> {
    let [one, two] = args else { return None };
    let (Type::Opaque(name), true) = (&one.ty, one.ty == two.ty) else { return None };
    match *name {
        "kubernetes.NamedFormat" => {
            cost_only(Estimate { min: 1, max: FORMAT_NAME_CHARS_MAX }.traversal())
        }
        "kubernetes.URL" => {
            let max = two.size.map_or(1, |size| size.max);
            cost_only(Estimate { min: 1, max }.traversal())
        }
        _ => cost_only(ONE),
    }
}

/// Returns the type and size of the elements of a list.
fn element(estimator: &Estimator<'_>, list: &Argument<'_>) -> Option<(Type, Estimate)> {
    let Type::List(item) = &list.ty else { return None };
    let mut path = list.path.clone();
    if !path.is_empty() {
        path.push(Step::Items);
    }
    let size = estimator.decl_type_size(&path).unwrap_or(Estimate::UNKNOWN);
    Some(((**item).clone(), size))
}

fn traversal(estimator: &Estimator<'_>, target: &Argument<'_>) -> Option<CallEstimate> {
    let target_size = target.size_or_unknown();
    match element(estimator, target) {
        Some((ty, size)) => {
            let mut each = ONE;
            if matches!(ty, Type::String | Type::Bytes) {
                each = each.add(size.traversal());
            }
            cost_only(target_size.multiply(each))
        }
        None => cost_only(target_size.traversal()),
    }
}

fn join(
    estimator: &Estimator<'_>,
    target: &Argument<'_>,
    args: &[Argument<'_>],
) -> Option<CallEstimate> {
    let target_size = target.size_or_unknown();
    let mut size = match element(estimator, target) {
        Some((_, item)) => target_size.multiply(item),
        None => Estimate::default(),
    };
    if let Some(separator) = args.first() {
        let between = Estimate {
            min: target_size.min.saturating_sub(1),
            max: target_size.max.saturating_sub(1),
        };
        size = size.add(separator.size_or_unknown().multiply(between));
    }
    cost_and_size(size.traversal(), size)
}

/// Returns the length of a string after `replace`.
fn replaced_size(text: Estimate, old: Estimate, new: Estimate) -> Estimate {
    let ratio = |all: u64, part: u64| (all as f64 / part as f64).ceil() as u64;
    let (max_count, max_kept) = if old.min == 0 {
        (text.max.saturating_add(1), text.max)
    } else if new.max <= old.min {
        (0, text.max)
    } else {
        (ratio(text.max, old.min), 0)
    };
    let (min_count, min_kept) = if old.max == 0 {
        (text.min.saturating_add(1), text.min)
    } else if old.max <= new.min {
        (0, text.min)
    } else {
        (ratio(text.min, old.max), 0)
    };
    let count = Estimate { min: min_count, max: max_count };
    count.multiply(new).add(Estimate { min: min_kept, max: max_kept })
}

fn containment_cost(overload: &str, text: Estimate) -> Estimate {
    const ADDRESS_BYTES: Estimate = Estimate { min: 4, max: 16 };
    let mut cost = ADDRESS_BYTES.add(ADDRESS_BYTES).traversal();
    if overload.starts_with("cidr_contains_cidr") {
        cost = cost.add(ADDRESS_BYTES.traversal()).add(ONE);
    }
    if overload.ends_with("_string") {
        cost = cost.add(text.traversal());
    }
    cost
}

fn literal_int(arg: &Argument<'_>) -> Option<i64> {
    match arg.expr.map(|expr| &expr.kind) {
        Some(ExprKind::Literal(Literal::Int(number))) => Some(*number),
        _ => None,
    }
}

/// Estimates cel-go's extended list functions and the set functions.
fn lists_and_sets(
    overload: &str,
    target: Option<&Argument<'_>>,
    args: &[Argument<'_>],
) -> Option<CallEstimate> {
    let target_size = target.map_or(Estimate::UNKNOWN, Argument::size_or_unknown);
    let size = |at: usize| args.get(at).map_or(Estimate::UNKNOWN, Argument::size_or_unknown);
    let list = |factor: f64, size: Estimate| {
        cost_and_size(size.scale(factor).add(ONE).add(Estimate::fixed(LIST_CREATE_COST)), size)
    };
    let number = |at: usize, otherwise: u64| {
        args.get(at).and_then(literal_int).map_or(otherwise, |number| number as u64)
    };
    let sets = |factor: f64| cost_only(size(0).multiply(size(1)).scale(factor).add(ONE));
    let sort = |keys: Estimate| {
        let text = overload.starts_with("list_string") || overload.starts_with("list_bytes");
        let factor = if text { 2.0 + TRAVERSAL_FACTOR } else { 2.0 };
        list(factor, keys.multiply(keys))
    };
    match overload {
        "list_slice" => {
            let count = number(1, target_size.max).wrapping_sub(number(0, 0));
            list(1.0, Estimate::fixed(count))
        }
        "lists_range" => list(1.0, Estimate::fixed(number(0, u64::MAX))),
        "list_reverse" => list(1.0, target_size),
        "list_flatten" => list(1.0, target_size),
        "list_flatten_int" => list(number(0, u64::MAX) as f64, target_size),
        "list_distinct" => list(2.0, target_size.multiply(target_size)),
        "list_sets_contains_list" | "list_sets_intersects_list" => sets(1.0),
        "list_sets_equivalent_list" => sets(2.0),
        _ if overload.ends_with("_sortByAssociatedKeys") => sort(size(0)),
        _ if overload.ends_with("_sort") => sort(target_size),
        _ => None,
    }
}
