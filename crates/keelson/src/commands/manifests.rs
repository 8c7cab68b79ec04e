//! Reads files of manifests: YAML with several documents, JSON, folders, standard input.

use crate::documents::documents;
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
    /// Returns the place of a field in the file, and whether the field itself is there. The place
    /// is otherwise that of the innermost field around it.
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
                let file = file.clone();
                let document = document.clone();
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

#[cfg(test)]
mod tests {
    use super::*;

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
