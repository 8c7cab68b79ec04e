//! Reads files of manifests: YAML with several documents, JSON, folders, standard input.

use crate::flags::STDIO;
use anyhow::{Context, Result, bail};
use keelson_meta::Value;
use keelson_schema::yaml::{self, Place, Places};
use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::rc::Rc;

/// Maximum size of a file.
const FILE_BYTES_MAX: u64 = 256 << 20;
/// Maximum nesting of folders.
const FOLDER_DEPTH_MAX: usize = 64;
/// The endings of the files of a folder that are read, as kubectl reads them.
const ENDINGS: [&str; 3] = ["json", "yaml", "yml"];
/// The kind whose items are manifests.
const LIST: &str = "List";

/// An object in a file.
pub struct Manifest {
    /// The file as it was named; `-` for standard input.
    pub file: Rc<str>,
    pub value: Value,
    /// The document that has it.
    document: Rc<Document>,
    /// The path of the object in its document: empty, or `items[0]` of a List.
    prefix: String,
}

/// A document of a file.
struct Document {
    /// Number of lines of the file before it.
    lines_before: u32,
    text: Vec<u8>,
    places: Places,
}

/// What was read.
#[derive(Default)]
pub struct Manifests {
    pub manifests: Vec<Manifest>,
    /// Why files or documents cannot be read: `FILE:LINE: reason`.
    pub errors: Vec<String>,
}

impl Manifest {
    /// Returns the place of a field in the file, and whether the field itself is there. The place is otherwise that
    /// of the innermost field around it.
    pub fn find(&self, field: &str) -> (Place, bool) {
        let dot = if self.prefix.is_empty() || field.is_empty() || field.starts_with('[') {
            ""
        } else {
            "."
        };
        let found = self.document.places.find(&format!("{}{dot}{field}", self.prefix));
        let line = found.place.line.saturating_add(self.document.lines_before);
        (Place { line, ..found.place }, found.is_whole)
    }

    /// Returns the text of the object, if a whole document has it.
    pub fn text(&self) -> Option<&[u8]> {
        self.prefix.is_empty().then_some(self.document.text.as_slice())
    }

    /// Translates a line of the document, from 1, to one of the file.
    pub fn line(&self, line: u32) -> u32 {
        line.saturating_add(self.document.lines_before)
    }
}

/// Reads all files. What cannot be read is among the errors.
pub fn read(files: &[String], recursive: bool) -> Manifests {
    let mut manifests = Manifests::default();
    for name in files {
        match files_of(name, recursive) {
            Ok(files) => files.iter().for_each(|file| manifests.read_file(file)),
            Err(error) => manifests.errors.push(format!("{error:#}")),
        }
    }
    manifests
}

/// Returns the files of a folder, sorted, or the file itself.
fn files_of(name: &str, recursive: bool) -> Result<Vec<String>> {
    let path = Path::new(name);
    if name == STDIO || !path.is_dir() {
        return Ok(vec![name.to_owned()]);
    }
    let mut files = vec![];
    add_folder(path, recursive, 0, &mut files)?;
    if files.is_empty() {
        bail!("{name}: has no file that ends in .yaml, .yml or .json");
    }
    Ok(files)
}

fn add_folder(folder: &Path, recursive: bool, depth: usize, files: &mut Vec<String>) -> Result<()> {
    if depth > FOLDER_DEPTH_MAX {
        bail!("{}: folders are nested too deep", folder.display());
    }
    let entries = fs::read_dir(folder).with_context(|| folder.display().to_string())?;
    let entries: Result<Vec<PathBuf>, _> =
        entries.map(|entry| entry.map(|entry| entry.path())).collect();
    let mut entries = entries.with_context(|| folder.display().to_string())?;
    entries.sort();
    for path in entries {
        let ending = path.extension().and_then(|ending| ending.to_str()).unwrap_or_default();
        if path.is_dir() {
            if recursive {
                add_folder(&path, recursive, depth + 1, files)?;
            }
        } else if ENDINGS.contains(&ending) {
            files.push(path.to_string_lossy().into_owned());
        }
    }
    Ok(())
}

fn bytes_of(file: &str) -> Result<Vec<u8>> {
    let mut bytes = vec![];
    let input = super::open_input(file)?;
    input.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes).with_context(|| file.to_owned())?;
    if bytes.len() as u64 > FILE_BYTES_MAX {
        bail!("{file}: is larger than {} MiB", FILE_BYTES_MAX >> 20);
    }
    Ok(bytes)
}

impl Manifests {
    fn read_file(&mut self, file: &str) {
        match bytes_of(file) {
            Ok(bytes) => self.add_text(file, &bytes),
            Err(error) => self.errors.push(format!("{error:#}")),
        }
    }

    /// Adds the manifests of a text.
    pub fn add_text(&mut self, file: &str, text: &[u8]) {
        let name: Rc<str> = file.into();
        for (lines_before, text) in documents(text) {
            match yaml::parse_with_places(text) {
                Ok((parsed, _)) if parsed.value.is_null() => {}
                Ok((parsed, places)) => {
                    let document = Rc::new(Document { lines_before, text: text.to_vec(), places });
                    self.add(&name, parsed.value, &document, String::new());
                }
                Err(error) => {
                    let line = lines_before.saturating_add(line_of(&error));
                    self.errors.push(format!("{file}:{line}: {error}"));
                }
            }
        }
    }

    /// Adds an object, or the objects of a List.
    fn add(&mut self, file: &Rc<str>, value: Value, document: &Rc<Document>, prefix: String) {
        let is_list =
            value.str_at(&["kind"]) == Some(LIST) && value.str_at(&["apiVersion"]) == Some("v1");
        match value {
            Value::Object(mut list) if is_list && prefix.is_empty() => {
                let Some(Value::Array(items)) = list.remove("items") else { return };
                for (i, item) in items.into_iter().enumerate() {
                    self.add(file, item, document, format!("items[{i}]"));
                }
            }
            value @ Value::Object(_) => {
                let (file, document) = (file.clone(), document.clone());
                self.manifests.push(Manifest { file, value, document, prefix });
            }
            other => {
                let line =
                    document.lines_before.saturating_add(document.places.find(&prefix).place.line);
                let message = format!(
                    "{file}:{line}: is no object, but a value of type {}",
                    other.type_name()
                );
                self.errors.push(message);
            }
        }
    }
}

/// Returns the line that an error names, from 1.
fn line_of(error: &yaml::YamlError) -> u32 {
    match error {
        yaml::YamlError::Syntax(line, _) => u32::try_from(*line).unwrap_or(u32::MAX).max(1),
        _ => 1,
    }
}

/// Splits a text into documents, each with the number of lines before it, as kubectl does: at lines that have only
/// `---` and perhaps a comment, and between JSON objects.
fn documents(text: &[u8]) -> Vec<(u32, &[u8])> {
    if let Some(objects) = json_objects(text) {
        return objects;
    }
    let mut documents = vec![];
    let (mut start, mut first_line) = (0, 0);
    let (mut at, mut line) = (0, 0_u32);
    while at < text.len() {
        let end = text[at..]
            .iter()
            .position(|byte| *byte == b'\n')
            .map_or(text.len(), |end| at + end + 1);
        if is_separator(&text[at..end]) {
            documents.push((first_line, &text[start..at]));
            (start, first_line) = (end, line + 1);
        }
        line += 1;
        at = end;
    }
    documents.push((first_line, &text[start..]));
    documents
}

fn is_separator(line: &[u8]) -> bool {
    line.strip_prefix(b"---").is_some_and(|rest| {
        let rest = rest.trim_ascii();
        rest.is_empty() || rest.starts_with(b"#")
    })
}

/// Returns the objects of a text that is JSON, one after the other; `None` if it is something else.
fn json_objects(text: &[u8]) -> Option<Vec<(u32, &[u8])>> {
    if !text.trim_ascii_start().starts_with(b"{") {
        return None;
    }
    let mut stream =
        serde_json::Deserializer::from_slice(text).into_iter::<serde::de::IgnoredAny>();
    let (mut objects, mut start, mut line) = (vec![], 0, 0_u32);
    while let Some(object) = stream.next() {
        object.ok()?;
        let end = stream.byte_offset();
        objects.push((line, &text[start..end]));
        line += u32::try_from(text[start..end].iter().filter(|byte| **byte == b'\n').count())
            .unwrap_or(u32::MAX);
        start = end;
    }
    Some(objects)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, want: &[(u32, &str)]) {
        let found = documents(text.as_bytes());
        let found: Vec<(u32, &str)> = found
            .iter()
            .map(|(line, text)| (*line, std::str::from_utf8(text).expect("the text is UTF-8")))
            .collect();
        assert_eq!(found, want);
    }

    #[test]
    fn documents_are_split_where_kubectl_splits_them() {
        check("a: 1\n", &[(0, "a: 1\n")]);
        check("a: 1\n---\nb: 2\n--- # c\nc: 3", &[(0, "a: 1\n"), (2, "b: 2\n"), (4, "c: 3")]);
        check("---\na: |\n  ---\n", &[(0, ""), (1, "a: |\n  ---\n")]);
        check("--- a\n", &[(0, "--- a\n")]);
        check("{\"a\":1}\n{\"b\":\n2}", &[(0, "{\"a\":1}"), (0, "\n{\"b\":\n2}")]);
        check("{a: 1}\n", &[(0, "{a: 1}\n")]);
    }

    #[test]
    fn an_object_knows_its_lines_in_the_file() {
        let mut manifests = Manifests::default();
        let text = "# Nothing.\n---\nkind: A\nspec:\n  x: 1\n---\napiVersion: v1\nkind: List\nitems:\n- kind: B\n";
        manifests.add_text("f.yaml", text.as_bytes());
        assert_eq!(manifests.errors, Vec::<String>::new());
        let [first, second] = manifests.manifests.as_slice() else { panic!("two objects") };
        assert_eq!(first.find("spec.x"), (Place { line: 5, column: 3 }, true));
        assert_eq!(first.find("spec.y"), (Place { line: 4, column: 1 }, false));
        assert_eq!(second.find("kind"), (Place { line: 10, column: 3 }, true));
        assert!(first.text().is_some() && second.text().is_none());
    }

    #[test]
    fn what_is_no_object_is_an_error_with_its_line() {
        let mut manifests = Manifests::default();
        manifests.add_text("f.yaml", b"kind: A\n---\n- 1\n---\na: {{ b }}\n  c: 1\n");
        assert_eq!(manifests.manifests.len(), 1);
        assert!(
            manifests.errors[0].starts_with("f.yaml:3: is no object"),
            "{:?}",
            manifests.errors
        );
        assert!(manifests.errors[1].starts_with("f.yaml:"), "{:?}", manifests.errors);
    }
}
