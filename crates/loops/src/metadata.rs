//! [`Metadata`]: the metadata that control loops need of every object. It is read from the JSON
//! without decoding the object.

use keelson_meta::{Str, Value};
use keelson_records::Entry;
use keelson_schema::json;
use memchr::{memchr2, memmem};
use std::borrow::Cow;

/// Finalizer of the propagation policy Foreground.
pub const FOREGROUND: &str = "foregroundDeletion";
/// Finalizer of the propagation policy Orphan.
pub const ORPHAN: &str = "orphan";

/// Some fields of an object's metadata.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Metadata<'a> {
    /// Empty if there is none.
    pub uid: Cow<'a, str>,
    /// Whether the object is being deleted.
    pub is_deleting: bool,
    /// The JSON of the finalizers.
    finalizers: Option<Cow<'a, [u8]>>,
    /// The JSON of the owner references.
    owners: Option<Cow<'a, [u8]>>,
}

/// An entry of `ownerReferences`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OwnerReference {
    /// Group and version of the owner.
    pub api_version: Str,
    /// The kind of the owner.
    pub kind: Str,
    /// The name of the owner.
    pub name: Str,
    /// The uid of the owner.
    pub uid: Str,
    /// `blockOwnerDeletion`.
    pub blocks: bool,
    /// `controller`.
    pub is_controller: bool,
}

impl<'a> Metadata<'a> {
    /// Reads the metadata of a stored object.
    pub fn of(entry: &'a Entry) -> Metadata<'a> {
        match entry.json_slice() {
            Cow::Borrowed(json) => Metadata::read(json).unwrap_or_default(),
            Cow::Owned(json) => Metadata::read(&json).unwrap_or_default().into_owned(),
        }
    }

    fn into_owned(self) -> Metadata<'static> {
        let owned = |json: Option<Cow<'_, [u8]>>| json.map(|json| Cow::Owned(json.into_owned()));
        Metadata {
            uid: Cow::Owned(self.uid.into_owned()),
            is_deleting: self.is_deleting,
            finalizers: owned(self.finalizers),
            owners: owned(self.owners),
        }
    }

    /// Reads the metadata from compact JSON.
    fn read(json: &'a [u8]) -> Option<Metadata<'a>> {
        let mut found = Metadata::default();
        for_each_member(json, |name, metadata| {
            if name != b"metadata" {
                return true;
            }
            for_each_member(metadata, |name, value| {
                match name {
                    b"uid" => found.uid = text(value).into(),
                    b"deletionTimestamp" => found.is_deleting = !text(value).is_empty(),
                    b"finalizers" => found.finalizers = Some(value.into()),
                    b"ownerReferences" => found.owners = Some(value.into()),
                    _ => {}
                }
                true
            });
            false
        })?;
        Some(found)
    }

    /// Whether the object has this finalizer.
    pub fn has_finalizer(&self, name: &str) -> bool {
        self.finalizers().iter().any(|finalizer| finalizer.as_str() == Some(name))
    }

    /// Returns the finalizers.
    pub fn finalizers(&self) -> Vec<Value> {
        list(self.finalizers.as_deref())
    }

    /// Whether the object has owner references.
    pub fn has_owners(&self) -> bool {
        self.owners.is_some()
    }

    /// Whether the owner references of two versions of an object are the same text.
    pub fn has_same_owners(&self, other: &Metadata<'_>) -> bool {
        self.owners == other.owners
    }

    /// Returns the owner references.
    pub fn owners(&self) -> Vec<OwnerReference> {
        list(self.owners.as_deref()).iter().map(OwnerReference::read).collect()
    }

    /// Returns the reference to the controller.
    pub fn controller(&self) -> Option<OwnerReference> {
        self.owners().into_iter().find(|owner| owner.is_controller)
    }

    /// Returns the owner references as JSON values.
    pub fn owner_values(&self) -> Vec<Value> {
        list(self.owners.as_deref())
    }

    /// Whether the object is being deleted in the foreground.
    pub fn is_deleting_dependents(&self) -> bool {
        self.is_deleting && self.has_finalizer(FOREGROUND)
    }

    /// Whether the object is being deleted and its dependents are being orphaned.
    pub fn is_orphaning_dependents(&self) -> bool {
        self.is_deleting && self.has_finalizer(ORPHAN)
    }
}

impl OwnerReference {
    /// Reads an entry of `ownerReferences`.
    pub fn read(value: &Value) -> OwnerReference {
        let text = |name: &str| value.str_at(&[name]).map(Str::new).unwrap_or_default();
        OwnerReference {
            api_version: text("apiVersion"),
            kind: text("kind"),
            name: text("name"),
            uid: text("uid"),
            blocks: value.get("blockOwnerDeletion").and_then(Value::as_bool).unwrap_or(false),
            is_controller: value.get("controller").and_then(Value::as_bool).unwrap_or(false),
        }
    }
}

/// Whether an object may have owners or be deleted. It may return true for other objects; it takes
/// a fraction of a microsecond.
pub fn may_have_owners_or_be_deleting(entry: &Entry) -> bool {
    let json = &*entry.json_slice();
    memmem::find(json, b"\"ownerReferences\":[").is_some()
        || memmem::find(json, b"\"deletionTimestamp\":\"").is_some()
}

fn list(json: Option<&[u8]>) -> Vec<Value> {
    let parsed = json.and_then(|json| json::parse(json).ok()).map(|parsed| parsed.value);
    match parsed {
        Some(Value::Array(items)) => items,
        _ => vec![],
    }
}

/// Returns the content of a string without escapes, such as a uid or a time.
fn text(value: &[u8]) -> &str {
    let text = value.strip_prefix(b"\"").and_then(|rest| rest.strip_suffix(b"\""));
    std::str::from_utf8(text.unwrap_or_default()).unwrap_or_default()
}

/// Calls `visit` with the members of an object in compact JSON until it returns false. `None`: not
/// an object.
fn for_each_member<'a>(
    json: &'a [u8],
    mut visit: impl FnMut(&'a [u8], &'a [u8]) -> bool,
) -> Option<()> {
    let mut rest = json.strip_prefix(b"{")?;
    while let Some(after) = rest.strip_prefix(b"\"") {
        let name_end = string_end(after)?;
        let name = &after[..name_end - 1];
        let value = after[name_end..].strip_prefix(b":")?;
        let end = value_end(value)?;
        if !visit(name, &value[..end]) {
            return Some(());
        }
        rest = &value[end..];
        rest = rest.strip_prefix(b",").unwrap_or(rest);
    }
    Some(())
}

/// Returns the length of a string with its closing quote; `text` begins after the opening quote.
fn string_end(text: &[u8]) -> Option<usize> {
    let mut at = 0;
    loop {
        at += memchr2(b'"', b'\\', text.get(at..)?)?;
        if text[at] == b'"' {
            return Some(at + 1);
        }
        at += 2;
    }
}

/// Returns the length of the value at the beginning of `text`.
fn value_end(text: &[u8]) -> Option<usize> {
    let mut at = 0;
    let mut depth = 0_usize;
    loop {
        match *text.get(at)? {
            b'"' => at += string_end(&text[at + 1..])? + 1,
            b'{' | b'[' => {
                depth += 1;
                at += 1;
                continue;
            }
            b'}' | b']' => {
                depth = depth.checked_sub(1)?;
                at += 1;
            }
            b',' | b':' => {
                at += 1;
                continue;
            }
            _ => {
                let ends = |byte: &u8| matches!(byte, b',' | b'}' | b']');
                at += text[at..].iter().position(ends).unwrap_or(text.len() - at);
            }
        }
        if depth == 0 {
            return Some(at);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metadata_is_read_from_the_json_of_any_kind() {
        let json = br#"{"kind":"X","apiVersion":"a/v1","spec":{"metadata":{"uid":"no"},"t":"}\\\"{"},"n":[1,{"a":[]},-2.5e3,null,true],"metadata":{"name":"a","labels":{"uid":"no"},"deletionTimestamp":"2026-01-01T00:00:00Z","finalizers":["foregroundDeletion","a/b"],"ownerReferences":[{"apiVersion":"v1","kind":"Pod","name":"]}\"","uid":"u","blockOwnerDeletion":true}],"uid":"the-uid"}}"#;
        let metadata = Metadata::read(json).expect("a map");
        assert_eq!((&*metadata.uid, metadata.is_deleting), ("the-uid", true));
        assert!(metadata.is_deleting_dependents() && !metadata.is_orphaning_dependents());
        let owner = OwnerReference {
            api_version: "v1".into(),
            kind: "Pod".into(),
            name: "]}\"".into(),
            uid: "u".into(),
            blocks: true,
            is_controller: false,
        };
        assert_eq!(metadata.owners(), [owner]);
    }

    #[test]
    fn what_is_no_object_has_no_metadata() {
        for text in
            ["", "{", "[]", "{\"a\":", "{\"metadata\":1}", "{\"metadata\":{\"uid\":\"", "{}"]
        {
            let metadata = Metadata::read(text.as_bytes()).unwrap_or_default();
            assert_eq!(metadata, Metadata::default(), "{text}");
        }
    }
}
