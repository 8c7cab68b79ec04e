//! List functions: Kubernetes' list library, cel-go's extended lists, and sets.

use super::{Implementation, int_arg};
use crate::equality::{compare, equal, same_type};
use crate::meter;
use crate::value::{EvalError, EvalResult, List, Val};
use keelson_meta::go_sort;
use keelson_meta::time::GoDuration;
use std::cmp::Ordering;

/// Maximum number of items that `lists.range` and `flatten` return.
const RANGE_ITEMS_MAX: i64 = 10_000_000;

/// Work of comparing two items, without that of long texts.
const PAIR_WORK: u64 = 50;

pub(crate) fn function(name: &str) -> Option<Implementation> {
    Some(match name {
        "isSorted" => is_sorted,
        "sum" => sum,
        "max" => |args| min_or_max(args, "max", Ordering::Greater),
        "min" => |args| min_or_max(args, "min", Ordering::Less),
        "slice" => slice,
        "flatten" => flatten,
        "sort" => |args| sort(args, 0),
        "@sortByAssociatedKeys" => |args| sort(args, 1),
        "lists.range" => range,
        "distinct" => distinct,
        "first" => |args| first_or_last(args, true),
        "last" => |args| first_or_last(args, false),
        "sets.contains" => |args| {
            let (one, two) = pair(args)?;
            Ok(Val::Bool(contains_all(one, two)?))
        },
        "sets.equivalent" => |args| {
            let (one, two) = pair(args)?;
            Ok(Val::Bool(contains_all(one, two)? && contains_all(two, one)?))
        },
        "sets.intersects" => intersects,
        _ => return None,
    })
}

fn list<'v, 'a>(args: &'v [Val<'a>], at: usize) -> Result<&'v List<'a>, EvalError> {
    match args.get(at) {
        Some(Val::List(list)) => Ok(list),
        _ => Err(EvalError::no_overload()),
    }
}

fn pair<'v, 'a>(args: &'v [Val<'a>]) -> Result<(&'v List<'a>, &'v List<'a>), EvalError> {
    Ok((list(args, 0)?, list(args, 1)?))
}

/// Items that cannot be compared count as sorted, as upstream does.
fn is_sorted<'a>(args: &[Val<'a>]) -> EvalResult<'a> {
    let mut previous: Option<Val<'a>> = None;
    for item in list(args, 0)?.iter() {
        meter::item()?;
        let item = item?;
        if let Some(previous) = &previous
            && matches!(compare(previous, &item), Ok(Some(Ordering::Greater)))
        {
            return Ok(Val::Bool(false));
        }
        previous = Some(item);
    }
    Ok(Val::Bool(true))
}

fn sum<'a>(args: &[Val<'a>]) -> EvalResult<'a> {
    let add = super::implementation("_+_").ok_or_else(EvalError::no_overload)?;
    let mut total: Option<Val<'a>> = None;
    for item in list(args, 0)?.iter() {
        meter::item()?;
        let item = item?;
        total = Some(match total {
            None => add(&[zero(&item)?, item])?,
            Some(total) => add(&[total, item])?,
        });
    }
    Ok(total.unwrap_or(Val::Int(0)))
}

fn zero<'a>(item: &Val<'a>) -> EvalResult<'a> {
    Ok(match item {
        Val::Int(_) => Val::Int(0),
        Val::Uint(_) => Val::Uint(0),
        Val::Double(_) => Val::Double(0.0),
        Val::Duration(_) => Val::Duration(GoDuration(0)),
        _ => return Err(EvalError::no_overload()),
    })
}

fn min_or_max<'a>(args: &[Val<'a>], name: &str, order: Ordering) -> EvalResult<'a> {
    let mut best: Option<Val<'a>> = None;
    for item in list(args, 0)?.iter() {
        meter::item()?;
        let item = item?;
        let better = match &best {
            None => true,
            Some(best) => compare(&item, best)? == Some(order),
        };
        if better {
            best = Some(item);
        }
    }
    best.ok_or_else(|| EvalError::new(format!("{name} called on empty list")))
}

pub(crate) fn index_of<'a>(args: &[Val<'a>]) -> EvalResult<'a> {
    let wanted = args.get(1).ok_or_else(EvalError::no_overload)?;
    for (at, item) in list(args, 0)?.iter().enumerate() {
        meter::item()?;
        if equal(&item?, wanted)? {
            return Ok(Val::Int(at as i64));
        }
    }
    Ok(Val::Int(-1))
}

pub(crate) fn last_index_of<'a>(args: &[Val<'a>]) -> EvalResult<'a> {
    let wanted = args.get(1).ok_or_else(EvalError::no_overload)?;
    let items = list(args, 0)?;
    for at in (0..items.len()).rev() {
        meter::item()?;
        if let Some(item) = items.get(at)
            && equal(&item?, wanted)?
        {
            return Ok(Val::Int(at as i64));
        }
    }
    Ok(Val::Int(-1))
}

fn slice<'a>(args: &[Val<'a>]) -> EvalResult<'a> {
    let items = list(args, 0)?;
    let start = int_arg(args, 1)?;
    let end = int_arg(args, 2)?;
    let fault = |why: &str| Err(EvalError::new(format!("cannot slice({start}, {end}), {why}")));
    if start < 0 || end < 0 {
        return fault("negative indexes not supported");
    }
    if start > end {
        return fault("start index must be less than or equal to end index");
    }
    if end as u64 > items.len() as u64 {
        return fault(&format!("list is length {}", items.len()));
    }
    crate::value::make_items(end.abs_diff(start) as usize)?;
    let cut = (start as usize..end as usize).filter_map(|at| items.get(at));
    Val::made_list(cut.collect::<Result<_, _>>()?)
}

fn flatten<'a>(args: &[Val<'a>]) -> EvalResult<'a> {
    let depth = if args.len() > 1 { int_arg(args, 1)? } else { 1 };
    if depth < 0 {
        return Err(EvalError::new("level must be non-negative"));
    }
    let mut out = vec![];
    flatten_into(list(args, 0)?, depth, &mut out)?;
    Val::made_list(out)
}

fn flatten_into<'a>(items: &List<'a>, depth: i64, out: &mut Vec<Val<'a>>) -> Result<(), EvalError> {
    for item in items.iter() {
        meter::item()?;
        match item? {
            Val::List(inner) if depth > 0 => flatten_into(&inner, depth - 1, out)?,
            other => {
                crate::value::make_items(1)?;
                out.push(other);
            }
        }
        if out.len() as i64 > RANGE_ITEMS_MAX {
            return Err(crate::runtime_cost::too_long());
        }
    }
    Ok(())
}

/// Sorts the first argument by the list of keys in argument `keys`, which may be the list itself.
/// Equal and unordered keys are in the order that Go's algorithm gives them.
fn sort<'a>(args: &[Val<'a>], keys: usize) -> EvalResult<'a> {
    let items = list(args, 0)?.to_vec()?;
    let keys = list(args, keys)?.to_vec()?;
    if items.len() != keys.len() {
        return Err(EvalError::new(format!(
            "@sortByAssociatedKeys() expected a list of the same size as the associated keys \
             list, but got {} and {} elements respectively",
            items.len(),
            keys.len()
        )));
    }
    let Some(first) = keys.first() else { return Val::made_list(items) };
    if compare(first, first).is_err() {
        return Err(EvalError::new("list elements must be comparable"));
    }
    if keys.iter().any(|key| !same_type(&key.ty(), &first.ty())) {
        return Err(EvalError::new("list elements must have the same type"));
    }
    let mut places: Vec<usize> = (0..items.len()).collect();
    go_sort::sort_by(&mut places, |one, two| {
        meter::work(PAIR_WORK)?;
        Ok::<bool, EvalError>(matches!(compare(&keys[*one], &keys[*two]), Ok(Some(Ordering::Less))))
    })?;
    crate::value::make_items(items.len())?;
    Val::made_list(places.into_iter().map(|at| items[at].clone()).collect())
}

fn range<'a>(args: &[Val<'a>]) -> EvalResult<'a> {
    let count = int_arg(args, 0)?;
    if count > RANGE_ITEMS_MAX {
        return Err(crate::runtime_cost::too_long());
    }
    crate::value::make_items(usize::try_from(count).unwrap_or(0))?;
    Ok(Val::list((0..count).map(Val::Int).collect()))
}

pub(crate) fn reverse<'a>(args: &[Val<'a>]) -> EvalResult<'a> {
    let mut items = list(args, 0)?.to_vec()?;
    items.reverse();
    Val::made_list(items)
}

fn distinct<'a>(args: &[Val<'a>]) -> EvalResult<'a> {
    let mut out: Vec<Val<'a>> = vec![];
    'items: for item in list(args, 0)?.iter() {
        let item = item?;
        for other in &out {
            meter::work(PAIR_WORK)?;
            if equal(&item, other)? {
                continue 'items;
            }
        }
        crate::value::make_items(1)?;
        out.push(item);
    }
    Val::made_list(out)
}

fn first_or_last<'a>(args: &[Val<'a>], front: bool) -> EvalResult<'a> {
    let items = list(args, 0)?;
    let at = if front { 0 } else { items.len().saturating_sub(1) };
    match items.get(at) {
        Some(item) => Val::made_some(item?),
        None => Ok(Val::Optional(None)),
    }
}

fn contains_all(one: &List<'_>, two: &List<'_>) -> Result<bool, EvalError> {
    'items: for item in two.iter() {
        let item = item?;
        for other in one.iter() {
            meter::work(PAIR_WORK)?;
            if equal(&item, &other?)? {
                continue 'items;
            }
        }
        return Ok(false);
    }
    Ok(true)
}

fn intersects<'a>(args: &[Val<'a>]) -> EvalResult<'a> {
    let (one, two) = pair(args)?;
    for item in one.iter() {
        let item = item?;
        for other in two.iter() {
            meter::work(PAIR_WORK)?;
            if equal(&item, &other?)? {
                return Ok(Val::Bool(true));
            }
        }
    }
    Ok(Val::Bool(false))
}
