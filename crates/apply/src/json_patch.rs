//! JSON Patch (RFC 6902) with the deviations of the library that kube-apiserver uses:
//! `replace` of a missing member adds it, `copy` of a missing member copies null, indexes may be
//! negative and count from the end, and the whole document can be replaced and tested but not
//! added, moved or removed.

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
/// Times that one patch may measure the depth of the whole document.
const DEPTH_MEASUREMENTS_MAX: usize = 100;
/// A [`Map`] with at least this many entries stays sorted, and a change of it costs O(entries).
const SORTED_ENTRIES_MIN: usize = 33;

/// Applies `patch` to `doc`: all operations in order, or none. Sorts every map along the path of an
/// operation, because upstream sorts the same maps and shows the patched text in messages.
pub fn apply(doc: Value, patch: &Value) -> Result<Value, PatchError> {
    apply_operations(doc, operations(patch)?)
}

/// Applies operations as [`apply`] does, but treats members of the wrong type as missing.
pub fn apply_operations(doc: Value, operations: &[Value]) -> Result<Value, PatchError> {
    if operations.len() > OPERATIONS_MAX {
        return Err(PatchError::TooManyOperations(operations.len()));
    }
    let depth = doc.depth();
    let mut patcher =
        Patcher { doc, copied_bytes: 0, shifted_items: 0, depth, depth_measurements: 0 };
    if let Value::Object(root) = &mut patcher.doc {
        sort(root);
    }
    for operation in operations {
        patcher.run(operation)?;
    }
    Ok(patcher.doc)
}

/// Returns the unknown members of the operations, as messages of strict field validation.
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

/// Returns the list of operations after checking the types of their members.
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

/// A document being patched, with the cost of the operations so far.
struct Patcher {
    doc: Value,
    copied_bytes: usize,
    shifted_items: usize,
    /// An upper bound of the depth of `doc`.
    depth: usize,
    depth_measurements: usize,
}

impl Patcher {
    fn run(&mut self, operation: &Value) -> Result<(), PatchError> {
        let op = operation.get("op").and_then(Value::as_str).unwrap_or("unknown");
        match op {
            "add" => {
                let path = member(operation, "path", "add operation failed to decode path")?;
                let value = operation.get("value").cloned().unwrap_or_default();
                let depth = value.depth();
                self.add(path, value, depth).map_err(|error| match error {
                    OperationError::PathNotFound => missing(format!(
                        "add operation does not apply: doc is missing path: \"{path}\""
                    )),
                    other => other.within(format!("error in add for path: '{path}'")),
                })
            }
            "remove" => {
                let path = member(operation, "path", "remove operation failed to decode path")?;
                let removed = self.remove(path).map_err(|error| match error {
                    OperationError::PathNotFound => missing(format!(
                        "remove operation does not apply: doc is missing path: \"{path}\""
                    )),
                    other => other.within(format!("error in remove for path: '{path}'")),
                });
                removed.map(drop)
            }
            "replace" => self.replace(operation),
            "move" => self.move_value(operation),
            "test" => self.test(operation),
            "copy" => self.copy(operation),
            other => Err(PatchError::Unprocessable(format!("Unexpected kind: {other}"))),
        }
    }

    fn add(&mut self, path: &str, value: Value, depth: usize) -> Result<(), OperationError> {
        self.track_depth(path, depth)?;
        let (container, key) = find(&mut self.doc, path)?;
        match container {
            Container::Map(map) => {
                map.insert(key.as_ref(), value);
                sort(map);
                self.shifted_items += shift_cost(map);
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

    /// Removes and returns the value at `path`.
    fn remove(&mut self, path: &str) -> Result<Value, OperationError> {
        let (container, key) = find(&mut self.doc, path)?;
        let removed = match container {
            Container::Map(map) => {
                self.shifted_items += shift_cost(map);
                map.remove(&key).ok_or_else(|| {
                    let why = "Unable to remove nonexistent key";
                    OperationError::InvalidKey(format!("{why}: {key}: missing value"))
                })?
            }
            Container::List(list) => {
                let at = index(&key, list.len())?;
                self.shifted_items += list.len() - at;
                list.remove(at)
            }
        };
        self.check_shifts()?;
        Ok(removed)
    }

    fn replace(&mut self, operation: &Value) -> Result<(), PatchError> {
        let path = member(operation, "path", "replace operation failed to decode path")?;
        let value = operation.get("value").cloned().unwrap_or_default();
        self.track_depth(path, value.depth())?;
        if path.is_empty() {
            if !matches!(value, Value::Object(_) | Value::Array(_)) {
                // Upstream formats a nil error with %w here.
                let text = "replace operation value must be object or array: %!w(<nil>)";
                return Err(PatchError::Unprocessable(text.to_owned()));
            }
            self.doc = value;
            if let Value::Object(root) = &mut self.doc {
                sort(root);
            }
            return Ok(());
        }
        let not_found = |what: &str| {
            missing(format!("replace operation does not apply: doc is missing {what}: {path}"))
        };
        let (container, key) = find(&mut self.doc, path).map_err(|_| not_found("path"))?;
        match container {
            Container::Map(map) => {
                map.insert(key.as_ref(), value);
                sort(map);
                self.shifted_items += shift_cost(map);
            }
            Container::List(list) => {
                let at = index(&key, list.len()).map_err(|_| not_found("key"))?;
                list[at] = value;
            }
        }
        self.check_shifts()
    }

    fn move_value(&mut self, operation: &Value) -> Result<(), PatchError> {
        const APPLY: &str = "move operation does not apply: doc is missing";
        const DECODE: &str = "move operation failed to decode from: operation, missing from field";
        let from = member(operation, "from", DECODE)?;
        let value = self.remove(from).map_err(|error| match error {
            OperationError::PathNotFound => missing(format!("{APPLY} from path: {from}")),
            other => {
                let key = unescape(from.rsplit('/').next().unwrap_or_default());
                other.within(format!("error in move for path: '{key}'"))
            }
        })?;
        let path = member(operation, "path", "move operation failed to decode path")?;
        // Measuring the moved value costs O(size) each time; an upper bound of its depth is enough
        // at first.
        let bound = self.depth.saturating_sub(levels(from)).max(1);
        let depth = if levels(path) + bound <= DEPTH_MAX { bound } else { value.depth() };
        self.add(path, value, depth).map_err(|error| match error {
            OperationError::PathNotFound => missing(format!("{APPLY} destination path: {path}")),
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
                    let at = index(&key, list.len()).map_err(|error| error.within(within()))?;
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
        let not_found = |_| missing(format!("{APPLY} from path: {from}"));
        // Sort the maps along the target path first: the copied value may contain some of them. A
        // missing target is reported by `add` below.
        drop(find(&mut self.doc, path));
        let source = match find(&mut self.doc, from).map_err(not_found)? {
            (Container::Map(map), key) => map.get(&key),
            (Container::List(list), key) => {
                let within = || format!("error in copy for from: '{from}'");
                let at = index(&key, list.len()).map_err(|error| error.within(within()))?;
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
        self.add(path, value, depth).map_err(|error| match error {
            OperationError::PathNotFound => missing(format!("{APPLY} destination path: {path}")),
            other => other.within("error while adding value during copy".to_owned()),
        })
    }

    /// Checks that a value of `depth` levels at `path` stays within [`DEPTH_MAX`].
    fn track_depth(&mut self, path: &str, depth: usize) -> Result<(), PatchError> {
        self.depth = self.depth.max(levels(path) + depth);
        if self.depth <= DEPTH_MAX {
            return Ok(());
        }
        self.depth_measurements += 1;
        self.depth = self.doc.depth().max(levels(path) + depth);
        if self.depth <= DEPTH_MAX && self.depth_measurements <= DEPTH_MEASUREMENTS_MAX {
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

/// Why an operation failed. Each operation has its own message for it.
enum OperationError {
    /// The parent of the path's last step does not exist.
    PathNotFound,
    /// The last step of the path is no valid key or index of its parent.
    InvalidKey(String),
    /// A limit was exceeded.
    LimitExceeded(PatchError),
}

impl OperationError {
    /// Prefixes the message with its context.
    fn within(self, what: String) -> PatchError {
        match self {
            OperationError::PathNotFound => missing(what),
            OperationError::InvalidKey(why) => PatchError::Unprocessable(format!("{what}: {why}")),
            OperationError::LimitExceeded(error) => error,
        }
    }
}

impl From<PatchError> for OperationError {
    fn from(error: PatchError) -> OperationError {
        OperationError::LimitExceeded(error)
    }
}

fn missing(what: String) -> PatchError {
    PatchError::Unprocessable(format!("{what}: missing value"))
}

/// The map or list that holds the last step of a path.
enum Container<'d> {
    Map(&'d mut Map),
    List(&'d mut Vec<Value>),
}

/// Returns the container and key of a path's last step, and sorts the maps along the path. Text
/// before the first slash is ignored.
fn find<'d, 'p>(
    doc: &'d mut Value,
    path: &'p str,
) -> Result<(Container<'d>, Cow<'p, str>), OperationError> {
    let (_, steps) = path.split_once('/').ok_or(OperationError::PathNotFound)?;
    let (parents, last) = match steps.rsplit_once('/') {
        Some((parents, last)) => (Some(parents), last),
        None => (None, steps),
    };
    let mut at = doc;
    for step in parents.into_iter().flat_map(|parents| parents.split('/')) {
        let step = unescape(step);
        at = match at {
            Value::Object(map) => map.get_mut(&step).ok_or(OperationError::PathNotFound)?,
            Value::Array(list) => {
                let place = index(&step, list.len()).map_err(|_| OperationError::PathNotFound)?;
                &mut list[place]
            }
            _ => return Err(OperationError::PathNotFound),
        };
        if let Value::Object(map) = at {
            sort(map);
        }
    }
    match at {
        Value::Object(map) => Ok((Container::Map(map), unescape(last))),
        Value::Array(list) => Ok((Container::List(list), unescape(last))),
        _ => Err(OperationError::PathNotFound),
    }
}

fn sort(map: &mut Map) {
    if map.len() < SORTED_ENTRIES_MIN {
        map.sort();
    }
}

/// Returns the entries that an insertion or removal may shift.
fn shift_cost(map: &Map) -> usize {
    if map.len() < SORTED_ENTRIES_MIN { 0 } else { map.len() }
}

/// Parses a list index below `len`. A negative index counts from the end.
fn index(key: &str, len: usize) -> Result<usize, OperationError> {
    let number: i64 = key.parse().map_err(|_| {
        let why = "value was not a proper array index";
        OperationError::InvalidKey(format!(
            "{why}: '{key}': strconv.Atoi: parsing \"{key}\": invalid syntax"
        ))
    })?;
    let place = if number < 0 {
        usize::try_from(number.unsigned_abs()).ok().and_then(|back| len.checked_sub(back))
    } else {
        usize::try_from(number).ok().filter(|place| *place < len)
    };
    place.ok_or_else(|| {
        let why = "Unable to access invalid index";
        OperationError::InvalidKey(format!("{why}: {number}: invalid index referenced"))
    })
}

/// Unescapes one step of a JSON pointer (RFC 6901): `~1` is `/`, `~0` is `~`.
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
