//! Reads the texts in the source files: each describes one type, in a schema that is written as
//! JSON.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::Path;

/// Texts by full name of the type and name of the member; an empty name stands for the type itself.
pub type Texts = BTreeMap<String, BTreeMap<String, String>>;

/// Reads the texts of one Kubernetes version, for instance `v1_36`, from the folder of the crate.
pub fn extract(source: &Path, version: &str) -> io::Result<Texts> {
    let mut out = Texts::new();
    let mut folders = vec![source.join("src").join(version)];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder)? {
            let path = entry?.path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                read_file(&fs::read_to_string(&path)?, &mut out);
            }
        }
    }
    Ok(out)
}

/// Reads one file. Its schema looks like this, and the indentation tells types from members:
///
/// ```text
///     fn schema_name() -> std::borrow::Cow<'static, str> {
///         "io.k8s.api.core.v1.Volume".into()
///     }
///             "description": "..",
///             "properties": {
///                 "name": {
///                     "description": "..",
///                 "nfs": ({
///                     schema_obj.ensure_object().insert("description".into(), "..".into());
/// ```
fn read_file(text: &str, out: &mut Texts) {
    let mut lines = text.lines().skip_while(|line| !line.contains("fn schema_name()"));
    let Some(name) = lines.nth(1).and_then(|line| literal(line.trim_start())) else { return };
    let texts = out.entry(name).or_default();
    let mut member = String::new();
    for line in lines {
        let rest = line.trim_start();
        let depth = line.len() - rest.len();
        if depth == 16 && (rest.ends_with("\": {") || rest.ends_with("\": ({")) {
            member = literal(rest).unwrap_or_default();
            continue;
        }
        let found = rest.strip_prefix("\"description\": ").or_else(|| {
            rest.strip_prefix("schema_obj.ensure_object().insert(\"description\".into(), ")
        });
        let of = match depth {
            12 => "",
            20 => member.as_str(),
            _ => continue,
        };
        if let Some(text) = found.and_then(literal) {
            texts.insert(of.to_owned(), text);
        }
    }
}

/// The content of the string literal with which `text` begins.
fn literal(text: &str) -> Option<String> {
    let mut characters = text.strip_prefix('"')?.chars();
    let mut out = String::new();
    loop {
        match characters.next()? {
            '"' => return Some(out),
            '\\' => match characters.next()? {
                'n' => out.push('\n'),
                'r' => out.push('\r'),
                't' => out.push('\t'),
                'u' => {
                    let code: String =
                        characters.by_ref().skip(1).take_while(|c| *c != '}').collect();
                    out.push(u32::from_str_radix(&code, 16).ok().and_then(char::from_u32)?);
                }
                other => out.push(other),
            },
            other => out.push(other),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::expect;

    #[test]
    fn types_and_members_are_told_apart() {
        let source = r#"
/// A comment.
pub struct Volume;
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "io.k8s.api.core.v1.Volume".into()
    }
        crate::schemars::json_schema!({
            "description": "A \"volume\".\nOr so.",
            "type": "object",
            "properties": {
                "name": {
                    "description": "The name.",
                    "type": "string",
                },
                "nfs": ({
                    let mut schema_obj = __gen.subschema_for::<crate::NFS>();
                    schema_obj.ensure_object().insert("description".into(), "A \u{e9}port.".into());
                    schema_obj
                }),
"#;
        let mut out = Texts::new();
        read_file(source, &mut out);
        expect![[r#"
            {
                "io.k8s.api.core.v1.Volume": {
                    "": "A \"volume\".\nOr so.",
                    "name": "The name.",
                    "nfs": "A éport.",
                },
            }
        "#]]
        .assert_debug_eq(&out);
    }
}
