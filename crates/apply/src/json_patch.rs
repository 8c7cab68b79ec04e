//! JSON Patch (RFC 6902), as the library behind a kube-apiserver applies it.
//!
//! It differs from the RFC: `replace` of a missing member adds it, `copy` of a missing member
//! copies null, indexes may be negative and count from the end, and the whole document can be
//! replaced and tested but not added, moved or removed.

use crate::PatchError;
use keelson_meta::status::quote;
use keelson_meta::{Map, Value};
use std::borrow::Cow;
use std::fmt;

/// Operations in one patch.
pub const OPERATIONS_MAX: usize = 10_000;
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
    let operations = operations(patch)?;
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
    if list.len() > OPERATIONS_MAX {
        return Err(PatchError::TooManyOperations(list.len()));
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
            "add" => self.add(operation),
            "remove" => self.remove(operation),
            "replace" => self.replace(operation),
            "move" => self.shift(operation),
            "test" => self.test(operation),
            "copy" => self.copy(operation),
            other => Err(PatchError::Unprocessable(format!("Unexpected kind: {other}"))),
        }
    }

    fn add(&mut self, operation: &Value) -> Result<(), PatchError> {
        let path = member(operation, "path", "add")?;
        let value = operation.get("value").cloned().unwrap_or_default();
        let depth = value.depth();
        let missing = format_args!("add operation does not apply: doc is missing path: \"{path}\"");
        let failed = format_args!("error in add for path: '{path}'");
        self.put(path, value, depth, missing, failed)
    }

    /// Puts a value at a path. The words are those of an operation: where there is no such place, and for
    /// any other error.
    fn put(
        &mut self,
        path: &str,
        value: Value,
        depth: usize,
        missing: fmt::Arguments<'_>,
        failed: fmt::Arguments<'_>,
    ) -> Result<(), PatchError> {
        self.deepen(path, depth)?;
        let (container, key) = find(&mut self.doc, path).ok_or_else(|| missing_value(missing))?;
        match container {
            Container::Map(map) => {
                map.insert(key.as_ref(), value);
                sort(map);
                self.shifted_items += cost(map);
            }
            Container::List(list) => {
                let at = match key.as_ref() {
                    "-" => list.len(),
                    key => index(key, list.len() + 1).map_err(|why| refused(failed, &why))?,
                };
                self.shifted_items += list.len() - at;
                list.insert(at, value);
            }
        }
        self.check_shifts()
    }

    fn remove(&mut self, operation: &Value) -> Result<(), PatchError> {
        let path = member(operation, "path", "remove")?;
        let missing =
            format_args!("remove operation does not apply: doc is missing path: \"{path}\"");
        self.take(path, missing, |_| format!("error in remove for path: '{path}'")).map(|_| ())
    }

    /// Takes the value at `path` out of the document; `failed` is told the last step.
    fn take(
        &mut self,
        path: &str,
        missing: fmt::Arguments<'_>,
        failed: impl Fn(&str) -> String,
    ) -> Result<Value, PatchError> {
        let (container, key) = find(&mut self.doc, path).ok_or_else(|| missing_value(missing))?;
        let refused = |why: &str| refused(format_args!("{}", failed(&key)), why);
        let taken = match container {
            Container::Map(map) => {
                self.shifted_items += cost(map);
                map.remove(&key).ok_or_else(|| {
                    refused(&format!("Unable to remove nonexistent key: {key}: missing value"))
                })?
            }
            Container::List(list) => {
                let at = index(&key, list.len()).map_err(|why| refused(&why))?;
                self.shifted_items += list.len() - at;
                list.remove(at)
            }
        };
        self.check_shifts()?;
        Ok(taken)
    }

    fn replace(&mut self, operation: &Value) -> Result<(), PatchError> {
        let path = member(operation, "path", "replace")?;
        let value = operation.get("value").cloned().unwrap_or_default();
        self.deepen(path, value.depth())?;
        if path.is_empty() {
            if !matches!(value, Value::Object(_) | Value::Array(_)) {
                let text = "replace operation value must be object or array";
                return Err(PatchError::Unprocessable(text.to_owned()));
            }
            self.doc = value;
            if let Value::Object(root) = &mut self.doc {
                sort(root);
            }
            return Ok(());
        }
        let words = "replace operation does not apply: doc is missing";
        let (container, key) = find(&mut self.doc, path)
            .ok_or_else(|| missing_value(format_args!("{words} path: {path}")))?;
        match container {
            Container::Map(map) => {
                map.insert(key.as_ref(), value);
                sort(map);
                self.shifted_items += cost(map);
            }
            Container::List(list) => {
                let at = index(&key, list.len())
                    .map_err(|_| missing_value(format_args!("{words} key: {path}")))?;
                list[at] = value;
            }
        }
        self.check_shifts()
    }

    fn shift(&mut self, operation: &Value) -> Result<(), PatchError> {
        let from = member(operation, "from", "move")?;
        let words = "move operation does not apply: doc is missing";
        let missing = format_args!("{words} from path: {from}");
        let value = self.take(from, missing, |key| format!("error in move for path: '{key}'"))?;
        let path = member(operation, "path", "move")?;
        // Measuring what is moved would cost its size each time: a bound is enough, while it holds.
        let bound = self.depth.saturating_sub(levels(from)).max(1);
        let depth = if levels(path) + bound <= DEPTH_MAX { bound } else { value.depth() };
        let missing = format_args!("{words} destination path: {path}");
        self.put(path, value, depth, missing, format_args!("error in move for path: '{path}'"))
    }

    fn test(&mut self, operation: &Value) -> Result<(), PatchError> {
        let path = member(operation, "path", "test")?;
        let missing = format_args!("test operation does not apply: is missing path: {path}");
        let wanted = operation.get("value").unwrap_or(&Value::Null);
        let equal = if path.is_empty() {
            self.doc == *wanted
        } else {
            match find(&mut self.doc, path).ok_or_else(|| missing_value(missing))? {
                (Container::Map(map), key) => map.get(&key).unwrap_or(&Value::Null) == wanted,
                (Container::List(list), key) => {
                    let failed = |why: String| {
                        refused(format_args!("error in test for path: '{path}'"), &why)
                    };
                    let at = index(&key, list.len()).map_err(failed)?;
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
        let from = member(operation, "from", "copy")?;
        let path = member(operation, "path", "copy")?;
        let words = "copy operation does not apply: doc is missing";
        let found = find(&mut self.doc, from);
        let missing = || missing_value(format_args!("{words} from path: {from}"));
        let source = match found.ok_or_else(missing)? {
            (Container::Map(map), key) => map.get(&key),
            (Container::List(list), key) => {
                let failed =
                    |why: String| refused(format_args!("error in copy for from: '{from}'"), &why);
                let at = index(&key, list.len()).map_err(failed)?;
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
        let missing = format_args!("{words} destination path: {path}");
        let failed = format_args!("error while adding value during copy");
        self.put(path, value, depth, missing, failed)
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

/// Where a path ends: the map or list that holds the last step.
enum Container<'d> {
    Map(&'d mut Map),
    List(&'d mut Vec<Value>),
}

/// Walks to the container of a path's last step, and sorts the maps on the way. What stands before
/// the first slash does not count.
fn find<'d, 'p>(doc: &'d mut Value, path: &'p str) -> Option<(Container<'d>, Cow<'p, str>)> {
    let (_, steps) = path.split_once('/')?;
    let (parents, last) = match steps.rsplit_once('/') {
        Some((parents, last)) => (Some(parents), last),
        None => (None, steps),
    };
    let mut at = doc;
    for step in parents.into_iter().flat_map(|parents| parents.split('/')) {
        let step = unescape(step);
        at = match at {
            Value::Object(map) => map.get_mut(&step)?,
            Value::Array(list) => {
                let place = index(&step, list.len()).ok()?;
                &mut list[place]
            }
            _ => return None,
        };
        if let Value::Object(map) = at {
            sort(map);
        }
    }
    match at {
        Value::Object(map) => Some((Container::Map(map), unescape(last))),
        Value::Array(list) => Some((Container::List(list), unescape(last))),
        _ => None,
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
fn index(key: &str, len: usize) -> Result<usize, String> {
    let number: i64 = key.parse().map_err(|_| {
        let why = format!("strconv.Atoi: parsing {}: invalid syntax", quote(key));
        format!("value was not a proper array index: '{key}': {why}")
    })?;
    let place = if number < 0 {
        usize::try_from(number.unsigned_abs()).ok().and_then(|back| len.checked_sub(back))
    } else {
        usize::try_from(number).ok().filter(|place| *place < len)
    };
    place.ok_or_else(|| {
        format!("Unable to access invalid index: {number}: invalid index referenced")
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

/// The text of a member that an operation must have.
fn member<'o>(operation: &'o Value, name: &str, kind: &str) -> Result<&'o str, PatchError> {
    operation.get(name).and_then(Value::as_str).ok_or_else(|| {
        missing_value(format_args!(
            "{kind} operation failed to decode {name}: operation, missing {name} field"
        ))
    })
}

fn missing_value(words: fmt::Arguments<'_>) -> PatchError {
    PatchError::Unprocessable(format!("{words}: missing value"))
}

fn refused(words: fmt::Arguments<'_>, why: &str) -> PatchError {
    PatchError::Unprocessable(format!("{words}: {why}"))
}

#[cfg(test)]
#[path = "json_patch_tests.rs"]
mod tests;
