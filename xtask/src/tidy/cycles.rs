//! Finds import cycles inside crates. Sibling modules, each with its descendants, must not use each
//! other, directly or through other siblings. A child may use its parent.
//!
//! A use is a `use` declaration, a path in the code, or a call of a method whose `impl` is in
//! another module than its type. A method counts only if no other function of the crate has its
//! name. Tests do not count.

use super::collect_rust_files;
use anyhow::Result;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

/// The path of a module from the root of its crate, for example `verbs::create`. The path of the
/// root is empty.
type ModulePath = String;

/// Module to the modules that it uses.
type Uses = BTreeMap<ModulePath, BTreeSet<ModulePath>>;

/// The modules of a crate.
struct Crate {
    /// Module to the tokens of its code.
    tokens: BTreeMap<ModulePath, Vec<String>>,
    /// The public `use` declarations: module and name to the path of the item.
    exports: BTreeMap<(ModulePath, String), Vec<String>>,
}

/// Adds a violation for each module that is in a cycle.
pub(super) fn check(violations: &mut Vec<String>) -> Result<()> {
    let mut dirs: Vec<_> = fs::read_dir("crates")?.collect::<Result<Vec<_>, _>>()?;
    dirs.sort_by_key(fs::DirEntry::file_name);
    for dir in dirs {
        let name = dir.file_name().to_string_lossy().into_owned();
        let mut uses = Crate::read(&dir.path().join("src"))?.sibling_uses();
        retain_cycles(&mut uses);
        let in_cycles = uses.iter().map(|(user, used)| {
            let used: Vec<&str> = used.iter().map(String::as_str).collect();
            format!("crates/{name}: import cycle: {user} uses {}", used.join(", "))
        });
        violations.extend(in_cycles);
    }
    Ok(())
}

/// Removes all modules except those in a cycle or on a path between two cycles.
fn retain_cycles(uses: &mut Uses) {
    loop {
        let before = uses.values().map(BTreeSet::len).sum::<usize>();
        let used: BTreeSet<ModulePath> = uses.values().flatten().cloned().collect();
        uses.retain(|user, _| used.contains(user));
        let users: BTreeSet<ModulePath> = uses.keys().cloned().collect();
        for used in uses.values_mut() {
            used.retain(|name| users.contains(name));
        }
        uses.retain(|_, used| !used.is_empty());
        if uses.values().map(BTreeSet::len).sum::<usize>() == before {
            return;
        }
    }
}

impl Crate {
    fn read(src: &Path) -> Result<Crate> {
        let mut files = vec![];
        collect_rust_files(src, &mut files)?;
        let mut tokens = BTreeMap::new();
        for path in files {
            let below = path.strip_prefix(src)?.with_extension("");
            let parts: Vec<String> =
                below.iter().map(|part| part.to_string_lossy().into_owned()).collect();
            let name = match parts.as_slice() {
                [root] if root == "lib" || root == "main" => String::new(),
                parts => parts.join("::"),
            };
            tokens.insert(name, tokenize(&fs::read_to_string(&path)?));
        }
        Ok(Crate::from_tokens(tokens))
    }

    /// Returns the crate of these modules, with their re-exports.
    fn from_tokens(tokens: BTreeMap<ModulePath, Vec<String>>) -> Crate {
        let mut krate = Crate { tokens, exports: BTreeMap::new() };
        for name in krate.tokens.keys().cloned().collect::<Vec<_>>() {
            for (path, alias, is_public) in use_declarations(&krate.tokens[&name]) {
                if is_public && let Some(path) = krate.absolute(&name, &path) {
                    krate.exports.insert((name.clone(), alias), path);
                }
            }
        }
        krate
    }

    /// Returns the uses between sibling modules. The uses of a module include those of its
    /// descendants.
    fn sibling_uses(&self) -> Uses {
        let mut sibling_uses = Uses::new();
        for (user, used) in self.uses() {
            let user: Vec<&str> = user.split("::").collect();
            let used: Vec<&str> = used.split("::").collect();
            let same = user.iter().zip(&used).take_while(|(one, other)| one == other).count();
            if same < user.len() && same < used.len() {
                let user = user[..=same].join("::");
                sibling_uses.entry(user).or_default().insert(used[..=same].join("::"));
            }
        }
        sibling_uses
    }

    /// Returns every use, as user and used module, except those by or of the root.
    fn uses(&self) -> BTreeSet<(ModulePath, ModulePath)> {
        let methods = self.remote_methods();
        let mut uses = BTreeSet::new();
        for (name, tokens) in &self.tokens {
            let declared = use_declarations(tokens).into_iter().map(|(path, ..)| path);
            let paths = declared.chain(self.paths(name, tokens));
            let used = paths.filter_map(|path| self.resolve(self.absolute(name, &path)?));
            // `self.method(`, and `registry.method(` for a method of the type `Registry`.
            let called = tokens
                .windows(4)
                .filter(|four| four[1] == "." && four[3] == "(")
                .filter_map(|four| {
                    let (type_name, module) = methods.get(&four[2])?;
                    (four[0] == "self" || four[0] == type_name.to_lowercase())
                        .then(|| module.clone())
                });
            uses.extend(used.chain(called).map(|used| (name.clone(), used)));
        }
        uses.retain(|(user, used)| !user.is_empty() && !used.is_empty());
        uses
    }

    /// Returns the paths in the code of a module that may lead to modules of the crate.
    fn paths(&self, name: &str, tokens: &[String]) -> Vec<Vec<String>> {
        let mut found = vec![];
        for (at, token) in tokens.iter().enumerate() {
            let is_start = at == 0 || tokens[at - 1] != "::";
            let is_root = ["crate", "self", "super"].contains(&token.as_str());
            let is_path = is_start && tokens.get(at + 1).is_some_and(|next| next == "::");
            if is_path && (is_root || self.tokens.contains_key(&join(name, token))) {
                let rest = tokens[at..].chunks(2);
                let mut path: Vec<String> = rest
                    .map_while(|pair| Some(pair).filter(|_| is_word(&pair[0])))
                    .scan(true, |continues, pair| {
                        let word = continues.then(|| pair[0].clone());
                        *continues = pair.get(1).is_some_and(|next| next == "::");
                        word
                    })
                    .collect();
                path.truncate(8);
                found.push(path);
            }
        }
        found
    }

    /// Returns a path that is written in the module `name` as a path from the root of the crate.
    /// `None`: the path leads to another crate.
    fn absolute(&self, name: &str, path: &[String]) -> Option<Vec<String>> {
        let mut at: Vec<String> =
            name.split("::").filter(|part| !part.is_empty()).map(str::to_owned).collect();
        let mut rest = path;
        match path.first()?.as_str() {
            "crate" => (at, rest) = (vec![], &path[1..]),
            "self" => rest = &path[1..],
            "super" => {
                while rest.first().is_some_and(|part| part == "super") {
                    at.pop();
                    rest = &rest[1..];
                }
            }
            first if !self.tokens.contains_key(&join(name, first)) => return None,
            _ => {}
        }
        at.extend_from_slice(rest);
        Some(at)
    }

    /// Returns the module that contains the item of a path. Follows re-exports.
    fn resolve(&self, mut path: Vec<String>) -> Option<ModulePath> {
        // A chain of re-exports has at most eight links.
        for _ in 0..8 {
            let length = (0..=path.len())
                .rev()
                .find(|end| self.tokens.contains_key(&path[..*end].join("::")))?;
            let name = path[..length].join("::");
            let Some(item) = path.get(length) else { return Some(name) };
            match self.exports.get(&(name.clone(), item.clone())) {
                Some(export) => path = [export.clone(), path[length + 1..].to_vec()].concat(),
                None => return Some(name),
            }
        }
        None
    }

    /// Returns the methods that are defined in another module than their type: method to type and
    /// module. Leaves out names that more than one function has.
    fn remote_methods(&self) -> BTreeMap<String, (String, ModulePath)> {
        let mut functions: BTreeMap<&str, usize> = BTreeMap::new();
        let mut types = BTreeSet::new();
        for (name, tokens) in &self.tokens {
            for pair in tokens.windows(2) {
                match pair[0].as_str() {
                    "fn" => *functions.entry(&pair[1]).or_default() += 1,
                    "struct" | "enum" => drop(types.insert((pair[1].as_str(), name.as_str()))),
                    _ => {}
                }
            }
        }
        let mut remote = BTreeMap::new();
        for (name, tokens) in &self.tokens {
            for (type_name, methods) in inherent_methods(tokens) {
                let is_own = types.contains(&(type_name, name.as_str()));
                for method in methods.into_iter().filter(|method| !is_own && functions[method] == 1)
                {
                    remote.insert(method.to_owned(), (type_name.to_owned(), name.clone()));
                }
            }
        }
        remote
    }
}

fn join(name: &str, child: &str) -> ModulePath {
    if name.is_empty() { child.to_owned() } else { format!("{name}::{child}") }
}

fn is_word(token: &str) -> bool {
    token.starts_with(|c: char| c.is_alphanumeric() || c == '_')
}

/// Returns the inherent `impl` blocks: the type and the names of its functions.
fn inherent_methods(tokens: &[String]) -> Vec<(&str, Vec<&str>)> {
    let mut found = vec![];
    let starts = tokens.iter().enumerate().filter(|(_, token)| *token == "impl");
    for (start, _) in starts {
        let Some(open) = tokens[start..].iter().position(|token| token == "{") else { continue };
        let head = &tokens[start + 1..start + open];
        let is_statement = start == 0 || ["}", ";", "]"].contains(&tokens[start - 1].as_str());
        if !is_statement || head.iter().any(|token| token == "for") {
            continue;
        }
        let mut depth = 0;
        let type_name = head.iter().find(|token| {
            depth += i32::from(*token == "<") - i32::from(*token == ">");
            depth == 0 && is_word(token)
        });
        let mut depth = 0;
        let body: Vec<&String> = tokens[start + open..]
            .iter()
            .take_while(|token| {
                depth += i32::from(*token == "{") - i32::from(*token == "}");
                depth > 0
            })
            .collect();
        let methods = body.windows(2).filter(|pair| pair[0] == "fn").map(|pair| pair[1].as_str());
        found.extend(type_name.map(|name| (name.as_str(), methods.collect())));
    }
    found
}

/// Returns the `use` declarations: path, the name that it declares, and whether it is `pub`.
fn use_declarations(tokens: &[String]) -> Vec<(Vec<String>, String, bool)> {
    let mut found = vec![];
    for (at, _) in tokens.iter().enumerate().filter(|(_, token)| *token == "use") {
        // `use<'a>` in a type is not a declaration.
        if tokens.get(at + 1).is_none_or(|next| !is_word(next)) {
            continue;
        }
        let is_public = at > 0 && ["pub", ")"].contains(&tokens[at - 1].as_str());
        let end = tokens[at..].iter().position(|token| token == ";").unwrap_or(0);
        let mut paths = vec![];
        expand_use_tree(&tokens[at + 1..at + end], &[], &mut paths);
        found.extend(paths.into_iter().map(|(path, alias)| (path, alias, is_public)));
    }
    found
}

/// Adds the paths of a use tree such as `a::{b, c as d}` to `out`, each with the name that it
/// declares. `before` is the path before the tree.
fn expand_use_tree(tokens: &[String], before: &[String], out: &mut Vec<(Vec<String>, String)>) {
    let Some(open) = tokens.iter().position(|token| token == "{") else {
        let end = tokens.iter().position(|token| token == "as").unwrap_or(tokens.len());
        let path = tokens[..end].iter().filter(|token| is_word(token)).cloned();
        let path: Vec<String> = before.iter().cloned().chain(path).collect();
        let last = tokens.last().filter(|token| is_word(token)).or(path.last()).cloned();
        out.extend(last.map(|last| (path, last)));
        return;
    };
    let stem = tokens[..open].iter().filter(|token| is_word(token)).cloned();
    let stem: Vec<String> = before.iter().cloned().chain(stem).collect();
    let mut depth = 0;
    let mut start = open + 1;
    for at in open..tokens.len() {
        match tokens[at].as_str() {
            "{" => depth += 1,
            "}" => depth -= 1,
            _ => {}
        }
        if (tokens[at] == "," && depth == 1) || (tokens[at] == "}" && depth == 0) {
            if start < at {
                expand_use_tree(&tokens[start..at], &stem, out);
            }
            start = at + 1;
        }
    }
}

/// Splits Rust code into words, `::` and single other characters. Leaves out comments, string and
/// character literals, and tests.
fn tokenize(text: &str) -> Vec<String> {
    let text = text.split("#[cfg(test)]\nmod ").next().unwrap_or_default();
    let mut tokens = vec![];
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let length = match first {
            '/' if rest.starts_with("//") => rest.find('\n').unwrap_or(rest.len()),
            'r' if rest.starts_with("r#\"") => raw_string_length(rest),
            '"' => string_length(rest),
            '\'' => char_length(rest),
            c if c.is_alphanumeric() || c == '_' => {
                let end = rest.find(|c: char| !c.is_alphanumeric() && c != '_');
                let word = &rest[..end.unwrap_or(rest.len())];
                tokens.push(word.to_owned());
                word.len()
            }
            ':' if rest.starts_with("::") => {
                tokens.push("::".to_owned());
                2
            }
            c => {
                if !c.is_whitespace() {
                    tokens.push(c.to_string());
                }
                c.len_utf8()
            }
        };
        rest = &rest[length..];
    }
    tokens
}

/// Returns the length of the string literal at the start of `text`, with its quotes.
fn string_length(text: &str) -> usize {
    let mut is_escaped = false;
    let end = text[1..].find(|c: char| {
        let is_end = c == '"' && !is_escaped;
        is_escaped = c == '\\' && !is_escaped;
        is_end
    });
    end.map_or(text.len(), |end| end + 2)
}

/// Returns the length of the raw string literal, `r#"..."#`, at the start of `text`.
fn raw_string_length(text: &str) -> usize {
    text[3..].find("\"#").map_or(text.len(), |end| end + 5)
}

/// Returns the length of the character literal at the start of `text`, with its quotes. For a
/// lifetime it is 1, the length of the quote.
fn char_length(text: &str) -> usize {
    let mut chars = text.char_indices().skip(1);
    match (chars.next(), chars.next()) {
        (Some((_, '\\')), Some((at, _))) => text[at + 1..].find('\'').map_or(1, |end| at + end + 2),
        (Some(_), Some((at, '\''))) => at + 1,
        _ => 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn modules_in_cycles(files: &[(&str, &str)]) -> Vec<String> {
        let tokens = files.iter().map(|(name, text)| ((*name).to_owned(), tokenize(text)));
        let mut uses = Crate::from_tokens(tokens.collect()).sibling_uses();
        retain_cycles(&mut uses);
        uses.into_keys().collect()
    }

    #[test]
    fn modules_that_use_each_other_are_found() {
        let b = ("b", "use crate::{c::{D, e as f}, g};");
        assert!(
            modules_in_cycles(&[("", "pub use b::B;"), b, ("c", "fn e() {}"), ("g", "")])
                .is_empty()
        );
        assert_eq!(
            modules_in_cycles(&[("", ""), b, ("c", "fn e() { crate::b::x(); }")]),
            ["b", "c"]
        );
        assert_eq!(
            modules_in_cycles(&[("", "pub use b::B;"), b, ("c", "use crate::B;")]),
            ["b", "c"]
        );
        assert!(
            modules_in_cycles(&[("", ""), b, ("c", "// crate::b\nconst B: &str = \"crate::b\";")])
                .is_empty()
        );
        assert!(
            modules_in_cycles(&[
                ("", ""),
                b,
                ("c", "#[cfg(test)]\nmod tests { use crate::b::B; }")
            ])
            .is_empty()
        );
    }

    #[test]
    fn uses_of_a_descendant_count_for_its_ancestor() {
        let deep = ("a::deep", "use crate::b::B;");
        assert_eq!(modules_in_cycles(&[("a", ""), deep, ("b", "use crate::a::A;")]), ["a", "b"]);
        assert!(
            modules_in_cycles(&[("a", "use deep::D;"), ("a::deep", "use super::A;")]).is_empty()
        );
        let sisters = [("a", ""), ("a::x", "use super::y::Y;"), ("a::y", "use super::x::X;")];
        assert_eq!(modules_in_cycles(&sisters), ["a::x", "a::y"]);
    }

    #[test]
    fn calls_of_methods_outside_the_module_of_their_type_are_uses() {
        let a = ("a", "pub struct A;\nimpl A { fn one(&self) { self.two(); } }");
        let b = ("b", "use crate::a::A;\nimpl<'a> A { fn two(&self) {} }");
        assert_eq!(modules_in_cycles(&[a, b]), ["a", "b"]);
        assert!(modules_in_cycles(&[a, b, ("c", "fn two() {}")]).is_empty(), "`two` is ambiguous");
    }
}
