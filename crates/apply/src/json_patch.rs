//! JSON Patch (RFC 6902), as the library behind a kube-apiserver applies it.
//!
//! It differs from the RFC: `replace` of a missing member adds it, `copy` of a missing member
//! copies null, indexes may be negative and count from the end, and the whole document can be
//! replaced and tested but not added, moved or removed.

use crate::PatchError;
use keelson_meta::{Map, Value};
use std::borrow::Cow;

pub use crate::error::OPERATIONS_MAX;
/// Bytes of JSON that the `copy` operations of one patch may add.
pub const COPIED_BYTES_MAX: usize = 3 * 1024 * 1024;
/// Levels of nesting that a patched document may have.
pub const DEPTH_MAX: usize = keelson_schema::json::DEPTH_MAX;
/// Items of lists and entries of large maps that insertions and removals of one patch may shift.
pub const SHIFTED_ITEMS_MAX: usize = 100_000_000;
/// How often one patch may make us measure the depth of the whole document.
const MEASURED_TIMES_MAX: usize = 100;
/// A map of more entries is sorted by itself, and to change it costs its size.
const SORTED_ENTRIES_MIN: usize = 33;

/// Applies `patch` to `doc`: all operations in order, or none. Every map on the way of an operation
/// ends up sorted by key, because upstream shows the patched text in its messages and sorts exactly
/// those.
pub fn apply(doc: Value, patch: &Value) -> Result<Value, PatchError> {
    apply_operations(doc, operations(patch)?)
}

/// The same for operations whose members may be of any type: one of a wrong type counts as missing.
pub fn apply_operations(doc: Value, operations: &[Value]) -> Result<Value, PatchError> {
    if operations.len() > OPERATIONS_MAX {
        return Err(PatchError::TooManyOperations(operations.len()));
    }
    let depth = doc.depth();
    let mut work = Work { doc, copied_bytes: 0, shifted_items: 0, depth, measured_times: 0 };
    if let Value::Object(root) = &mut work.doc {
        sort(root);
    }
    for operation in operations {
        work.run(operation)?;
    }
    Ok(work.doc)
}

/// Members of operations that no operation has, as strict decoding names them.
pub fn unknown_fields(patch: &Value) -> Vec<String> {
    const KNOWN: [&str; 4] = ["op", "path", "from", "value"];
    let mut unknown = vec![];
    for (i, operation) in patch.as_array().unwrap_or_default().iter().enumerate() {
        for (key, _) in operation.as_object().into_iter().flat_map(Map::iter) {
            if !KNOWN.contains(&key.as_str()) {
                unknown.push(format!("json patch unknown field \"[{i}].{key}\""));
            }
        }
    }
    unknown
}

/// The list of operations, with the types of their members checked.
fn operations(patch: &Value) -> Result<&[Value], PatchError> {
    let malformed = |what: &str, target: &str| {
        PatchError::Malformed(format!(
            "error decoding patch: json: cannot unmarshal {what} into {target}"
        ))
    };
    let list = match patch {
        Value::Array(list) => list.as_slice(),
        Value::Null => &[],
        other => {
            let target = "Go value of type []handlers.jsonPatchOp";
            return Err(malformed(other.type_name(), target));
        }
    };
    for operation in list {
        match operation {
            Value::Object(map) => {
                for name in ["op", "path", "from"] {
                    let member = map.get(name).unwrap_or(&Value::Null);
                    if !matches!(member, Value::String(_) | Value::Null) {
                        let target = format!("Go struct field jsonPatchOp.{name} of type string");
                        return Err(malformed(member.type_name(), &target));
                    }
                }
            }
            Value::Null => {}
            other => {
                let target = "Go value of type handlers.jsonPatchOp";
                return Err(malformed(other.type_name(), target));
            }
        }
    }
    Ok(list)
}

/// A document under change, and what the change has cost so far.
struct Work {
    doc: Value,
    copied_bytes: usize,
    shifted_items: usize,
    /// No less than the depth of `doc`.
    depth: usize,
    measured_times: usize,
}

impl Work {
    fn run(&mut self, operation: &Value) -> Result<(), PatchError> {
        let word = operation.get("op").and_then(Value::as_str).unwrap_or("unknown");
        match word {
            "add" => {
                let path = member(operation, "path", "add operation failed to decode path")?;
                let value = operation.get("value").cloned().unwrap_or_default();
                let depth = value.depth();
                self.add(path, value, depth).map_err(|fault| match fault {
                    Fault::Missing => missing(format!(
                        "add operation does not apply: doc is missing path: \"{path}\""
                    )),
                    other => other.within(format!("error in add for path: '{path}'")),
                })
            }
            "remove" => {
                let path = member(operation, "path", "remove operation failed to decode path")?;
                let taken = self.take(path).map_err(|fault| match fault {
                    Fault::Missing => missing(format!(
                        "remove operation does not apply: doc is missing path: \"{path}\""
                    )),
                    other => other.within(format!("error in remove for path: '{path}'")),
                });
                taken.map(drop)
            }
            "replace" => self.replace(operation),
            "move" => self.shift(operation),
            "test" => self.test(operation),
            "copy" => self.copy(operation),
            other => Err(PatchError::Unprocessable(format!("Unexpected kind: {other}"))),
        }
    }

    fn add(&mut self, path: &str, value: Value, depth: usize) -> Result<(), Fault> {
        self.deepen(path, depth)?;
        let (container, key) = find(&mut self.doc, path)?;
        match container {
            Container::Map(map) => {
                map.insert(key.as_ref(), value);
                sort(map);
                self.shifted_items += cost(map);
            }
            Container::List(list) => {
                let at = match key.as_ref() {
                    "-" => list.len(),
                    key => index(key, list.len() + 1)?,
                };
                self.shifted_items += list.len() - at;
                list.insert(at, value);
            }
        }
        Ok(self.check_shifts()?)
    }

    /// Takes the value at `path` out of the document.
    fn take(&mut self, path: &str) -> Result<Value, Fault> {
        let (container, key) = find(&mut self.doc, path)?;
        let taken = match container {
            Container::Map(map) => {
                self.shifted_items += cost(map);
                map.remove(&key).ok_or_else(|| {
                    let why = "Unable to remove nonexistent key";
                    Fault::Inside(format!("{why}: {key}: missing value"))
                })?
            }
            Container::List(list) => {
                let at = index(&key, list.len())?;
                self.shifted_items += list.len() - at;
                list.remove(at)
            }
        };
        self.check_shifts()?;
        Ok(taken)
    }

    fn replace(&mut self, operation: &Value) -> Result<(), PatchError> {
        let path = member(operation, "path", "replace operation failed to decode path")?;
        let value = operation.get("value").cloned().unwrap_or_default();
        self.deepen(path, value.depth())?;
        if path.is_empty() {
            if !matches!(value, Value::Object(_) | Value::Array(_)) {
                // Upstream wraps an error there that is none.
                let text = "replace operation value must be object or array: %!w(<nil>)";
                return Err(PatchError::Unprocessable(text.to_owned()));
            }
            self.doc = value;
            if let Value::Object(root) = &mut self.doc {
                sort(root);
            }
            return Ok(());
        }
        let lost = |what: &str| {
            missing(format!("replace operation does not apply: doc is missing {what}: {path}"))
        };
        let (container, key) = find(&mut self.doc, path).map_err(|_| lost("path"))?;
        match container {
            Container::Map(map) => {
                map.insert(key.as_ref(), value);
                sort(map);
                self.shifted_items += cost(map);
            }
            Container::List(list) => {
                let at = index(&key, list.len()).map_err(|_| lost("key"))?;
                list[at] = value;
            }
        }
        self.check_shifts()
    }

    fn shift(&mut self, operation: &Value) -> Result<(), PatchError> {
        const APPLY: &str = "move operation does not apply: doc is missing";
        const DECODE: &str = "move operation failed to decode from: operation, missing from field";
        let from = member(operation, "from", DECODE)?;
        let value = self.take(from).map_err(|fault| match fault {
            Fault::Missing => missing(format!("{APPLY} from path: {from}")),
            other => {
                let key = unescape(from.rsplit('/').next().unwrap_or_default());
                other.within(format!("error in move for path: '{key}'"))
            }
        })?;
        let path = member(operation, "path", "move operation failed to decode path")?;
        // Measuring what is moved would cost its size each time: a bound is enough, while it holds.
        let bound = self.depth.saturating_sub(levels(from)).max(1);
        let depth = if levels(path) + bound <= DEPTH_MAX { bound } else { value.depth() };
        self.add(path, value, depth).map_err(|fault| match fault {
            Fault::Missing => missing(format!("{APPLY} destination path: {path}")),
            other => other.within(format!("error in move for path: '{path}'")),
        })
    }

    fn test(&mut self, operation: &Value) -> Result<(), PatchError> {
        let path = member(operation, "path", "test operation failed to decode path")?;
        let wanted = operation.get("value").unwrap_or(&Value::Null);
        let equal = if path.is_empty() {
            self.doc == *wanted
        } else {
            let found = find(&mut self.doc, path).map_err(|_| {
                missing(format!("test operation does not apply: is missing path: {path}"))
            })?;
            match found {
                (Container::Map(map), key) => map.get(&key).unwrap_or(&Value::Null) == wanted,
                (Container::List(list), key) => {
                    let within = || format!("error in test for path: '{path}'");
                    let at = index(&key, list.len()).map_err(|fault| fault.within(within()))?;
                    list[at] == *wanted
                }
            }
        };
        if equal {
            return Ok(());
        }
        Err(PatchError::TestFailed(format!("testing value {path} failed: test failed")))
    }

    fn copy(&mut self, operation: &Value) -> Result<(), PatchError> {
        const APPLY: &str = "copy operation does not apply: doc is missing";
        const DECODE: &str = "copy operation failed to decode from: operation, missing from field";
        let from = member(operation, "from", DECODE)?;
        let path = member(operation, "path", "copy operation failed to decode path")?;
        let lost = |_| missing(format!("{APPLY} from path: {from}"));
        // Maps on the way to the place are sorted before the copy is made, which may hold some of them. A place
        // that is not there is told below.
        drop(find(&mut self.doc, path));
        let source = match find(&mut self.doc, from).map_err(lost)? {
            (Container::Map(map), key) => map.get(&key),
            (Container::List(list), key) => {
                let within = || format!("error in copy for from: '{from}'");
                let at = index(&key, list.len()).map_err(|fault| fault.within(within()))?;
                list.get(at)
            }
        };
        let value = source.cloned().unwrap_or_default();
        let depth = value.depth();
        if source.is_some() {
            let mut text = vec![];
            keelson_schema::json::write_value(&value, &mut text);
            self.copied_bytes += text.len();
        }
        if self.copied_bytes > COPIED_BYTES_MAX {
            return Err(PatchError::Unprocessable(format!(
                "Unable to complete the copy, the accumulated size increase of copy is {}, \
                 exceeding the limit {COPIED_BYTES_MAX}",
                self.copied_bytes
            )));
        }
        self.add(path, value, depth).map_err(|fault| match fault {
            Fault::Missing => missing(format!("{APPLY} destination path: {path}")),
            other => other.within("error while adding value during copy".to_owned()),
        })
    }

    /// Accounts for a value of `depth` levels that is put at `path`.
    fn deepen(&mut self, path: &str, depth: usize) -> Result<(), PatchError> {
        self.depth = self.depth.max(levels(path) + depth);
        if self.depth <= DEPTH_MAX {
            return Ok(());
        }
        self.measured_times += 1;
        self.depth = self.doc.depth().max(levels(path) + depth);
        if self.depth <= DEPTH_MAX && self.measured_times <= MEASURED_TIMES_MAX {
            return Ok(());
        }
        Err(PatchError::Unprocessable(format!("the document exceeds {DEPTH_MAX} levels")))
    }

    fn check_shifts(&self) -> Result<(), PatchError> {
        if self.shifted_items <= SHIFTED_ITEMS_MAX {
            return Ok(());
        }
        Err(PatchError::Unprocessable(format!("more than {SHIFTED_ITEMS_MAX} items shifted")))
    }
}

/// Why an operation cannot be done; upstream says it in other words for each operation.
enum Fault {
    /// The container of the last step is not there.
    Missing,
    /// The last step does not fit its container.
    Inside(String),
    /// A limit.
    Limit(PatchError),
}

impl Fault {
    fn within(self, what: String) -> PatchError {
        match self {
            Fault::Missing => missing(what),
            Fault::Inside(why) => PatchError::Unprocessable(format!("{what}: {why}")),
            Fault::Limit(error) => error,
        }
    }
}

impl From<PatchError> for Fault {
    fn from(error: PatchError) -> Fault {
        Fault::Limit(error)
    }
}

fn missing(what: String) -> PatchError {
    PatchError::Unprocessable(format!("{what}: missing value"))
}

/// Where a path ends: the map or list that holds the last step.
enum Container<'d> {
    Map(&'d mut Map),
    List(&'d mut Vec<Value>),
}

/// Walks to the container of a path's last step, and sorts the maps on the way. What stands before
/// the first slash does not count.
fn find<'d, 'p>(doc: &'d mut Value, path: &'p str) -> Result<(Container<'d>, Cow<'p, str>), Fault> {
    let (_, steps) = path.split_once('/').ok_or(Fault::Missing)?;
    let (parents, last) = match steps.rsplit_once('/') {
        Some((parents, last)) => (Some(parents), last),
        None => (None, steps),
    };
    let mut at = doc;
    for step in parents.into_iter().flat_map(|parents| parents.split('/')) {
        let step = unescape(step);
        at = match at {
            Value::Object(map) => map.get_mut(&step).ok_or(Fault::Missing)?,
            Value::Array(list) => {
                let place = index(&step, list.len()).map_err(|_| Fault::Missing)?;
                &mut list[place]
            }
            _ => return Err(Fault::Missing),
        };
        if let Value::Object(map) = at {
            sort(map);
        }
    }
    match at {
        Value::Object(map) => Ok((Container::Map(map), unescape(last))),
        Value::Array(list) => Ok((Container::List(list), unescape(last))),
        _ => Err(Fault::Missing),
    }
}

fn sort(map: &mut Map) {
    if map.len() < SORTED_ENTRIES_MIN {
        map.sort();
    }
}

/// Entries that an insertion or a removal may shift.
fn cost(map: &Map) -> usize {
    if map.len() < SORTED_ENTRIES_MIN { 0 } else { map.len() }
}

/// A list index below `len`; negative ones count from the end.
fn index(key: &str, len: usize) -> Result<usize, Fault> {
    let number: i64 = key.parse().map_err(|_| {
        let why = "value was not a proper array index";
        Fault::Inside(format!("{why}: '{key}': strconv.Atoi: parsing \"{key}\": invalid syntax"))
    })?;
    let place = if number < 0 {
        usize::try_from(number.unsigned_abs()).ok().and_then(|back| len.checked_sub(back))
    } else {
        usize::try_from(number).ok().filter(|place| *place < len)
    };
    place.ok_or_else(|| {
        let why = "Unable to access invalid index";
        Fault::Inside(format!("{why}: {number}: invalid index referenced"))
    })
}

/// One step of a JSON pointer as the key it means.
fn unescape(step: &str) -> Cow<'_, str> {
    if !step.contains('~') {
        return Cow::Borrowed(step);
    }
    let mut out = String::with_capacity(step.len());
    let mut rest = step;
    while let Some(at) = rest.find('~') {
        out.push_str(&rest[..at]);
        match rest.as_bytes().get(at + 1) {
            Some(b'1') => out.push('/'),
            Some(b'0') => out.push('~'),
            _ => {
                out.push('~');
                rest = &rest[at + 1..];
                continue;
            }
        }
        rest = &rest[at + 2..];
    }
    out.push_str(rest);
    Cow::Owned(out)
}

fn levels(path: &str) -> usize {
    path.bytes().filter(|byte| *byte == b'/').count()
}

fn member<'o>(operation: &'o Value, name: &str, error: &str) -> Result<&'o str, PatchError> {
    operation
        .get(name)
        .and_then(Value::as_str)
        .ok_or_else(|| PatchError::Unprocessable(format!("{error}: missing value")))
}

#[cfg(test)]
#[path = "json_patch_tests.rs"]
mod tests;
