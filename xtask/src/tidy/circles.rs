//! No import circle inside a crate: of the modules below one parent, each taken with all that is below it, none uses
//! another that uses it in turn. A child may use its parent, which is one with it.
//!
//! What counts: `use` declarations, paths in the code, and calls of methods of an `impl` that stands in another module
//! than its type, where no other function of the crate has that name. Tests do not count.

use super::collect;
use anyhow::Result;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

/// A module's path from the root of its crate: `verbs::create`; the root is empty.
type Name = String;

/// The modules that each module uses.
type Uses = BTreeMap<Name, BTreeSet<Name>>;

/// The modules of a crate.
struct Crate {
    /// Their code as tokens.
    tokens: BTreeMap<Name, Vec<String>>,
    /// What they make known under other names: module, name, path.
    exports: BTreeMap<(Name, String), Vec<String>>,
}

/// Adds the circles of all crates to the faults.
pub(super) fn check(faults: &mut Vec<String>) -> Result<()> {
    let mut dirs: Vec<_> = fs::read_dir("crates")?.collect::<Result<Vec<_>, _>>()?;
    dirs.sort_by_key(fs::DirEntry::file_name);
    for dir in dirs {
        let name = dir.file_name().to_string_lossy().into_owned();
        let mut uses = Crate::read(&dir.path().join("src"))?.levels();
        retain_circles(&mut uses);
        let shown = uses.iter().map(|(user, used)| {
            let used: Vec<&str> = used.iter().map(String::as_str).collect();
            format!("crates/{name}: circle: {user} uses {}", used.join(", "))
        });
        faults.extend(shown);
    }
    Ok(())
}

/// Leaves the modules that are in circles, or between two.
fn retain_circles(uses: &mut Uses) {
    loop {
        let before = uses.values().map(BTreeSet::len).sum::<usize>();
        let used: BTreeSet<Name> = uses.values().flatten().cloned().collect();
        uses.retain(|user, _| used.contains(user));
        let users: BTreeSet<Name> = uses.keys().cloned().collect();
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
        collect(src, &mut files)?;
        let mut tokens = BTreeMap::new();
        for path in files {
            let below = path.strip_prefix(src)?.with_extension("");
            let parts: Vec<String> =
                below.iter().map(|part| part.to_string_lossy().into_owned()).collect();
            let name = match parts.as_slice() {
                [root] if root == "lib" || root == "main" => String::new(),
                parts => parts.join("::"),
            };
            tokens.insert(name, tokens_of(&fs::read_to_string(&path)?));
        }
        Ok(Crate::of(tokens))
    }

    /// A crate of these modules, with what they export.
    fn of(tokens: BTreeMap<Name, Vec<String>>) -> Crate {
        let mut all = Crate { tokens, exports: BTreeMap::new() };
        for name in all.tokens.keys().cloned().collect::<Vec<_>>() {
            for (path, alias, is_public) in declared(&all.tokens[&name]) {
                if is_public && let Some(path) = all.absolute(&name, &path) {
                    all.exports.insert((name.clone(), alias), path);
                }
            }
        }
        all
    }

    /// What modules below one parent use of each other, each with all that is below it.
    fn levels(&self) -> Uses {
        let mut levels = Uses::new();
        for (user, used) in self.uses() {
            let (user, used): (Vec<&str>, Vec<&str>) =
                (user.split("::").collect(), used.split("::").collect());
            let same = user.iter().zip(&used).take_while(|(one, other)| one == other).count();
            if same < user.len() && same < used.len() {
                let user = user[..=same].join("::");
                levels.entry(user).or_default().insert(used[..=same].join("::"));
            }
        }
        levels
    }

    /// Every use of one module by another, without those of the root.
    fn uses(&self) -> BTreeSet<(Name, Name)> {
        let methods = self.spread_methods();
        let mut uses = BTreeSet::new();
        for (name, tokens) in &self.tokens {
            let declared = declared(tokens).into_iter().map(|(path, ..)| path);
            let paths = declared.chain(self.paths(name, tokens));
            let used = paths.filter_map(|path| self.resolve(self.absolute(name, &path)?));
            // `self.method(` and `registry.method(`, of the type Registry.
            let called = tokens.windows(4).filter(|four| four[1] == "." && four[3] == "(");
            let called = called.filter_map(|four| {
                let (of, place) = methods.get(&four[2])?;
                (four[0] == "self" || four[0] == of.to_lowercase()).then(|| place.clone())
            });
            uses.extend(used.chain(called).map(|used| (name.clone(), used)));
        }
        uses.retain(|(user, used)| !user.is_empty() && !used.is_empty());
        uses
    }

    /// The paths in the code of a module that may lead to modules.
    fn paths(&self, name: &str, tokens: &[String]) -> Vec<Vec<String>> {
        let mut found = vec![];
        for (at, token) in tokens.iter().enumerate() {
            let begins = at == 0 || tokens[at - 1] != "::";
            let is_root = ["crate", "self", "super"].contains(&token.as_str());
            let is_path = begins && tokens.get(at + 1).is_some_and(|next| next == "::");
            if is_path && (is_root || self.tokens.contains_key(&join(name, token))) {
                let rest = tokens[at..].chunks(2);
                let path = rest.map_while(|pair| Some(pair).filter(|_| is_word(&pair[0])));
                let mut path: Vec<String> = path
                    .scan(true, |goes_on, pair| {
                        let word = goes_on.then(|| pair[0].clone());
                        *goes_on = pair.get(1).is_some_and(|next| next == "::");
                        word
                    })
                    .collect();
                path.truncate(8);
                found.push(path);
            }
        }
        found
    }

    /// A path from the root of the crate, if it is one inside of it.
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

    /// The module in which a path ends, through what modules make known under other names.
    fn resolve(&self, mut path: Vec<String>) -> Option<Name> {
        // As many as there are modules that pass a name on.
        for _ in 0..8 {
            let known = (0..=path.len())
                .rev()
                .find(|end| self.tokens.contains_key(&path[..*end].join("::")))?;
            let name = path[..known].join("::");
            let Some(item) = path.get(known) else { return Some(name) };
            match self.exports.get(&(name.clone(), item.clone())) {
                Some(export) => path = [export.clone(), path[known + 1..].to_vec()].concat(),
                None => return Some(name),
            }
        }
        None
    }

    /// Methods that stand in another module than their type, with both, where their names are those of one function.
    fn spread_methods(&self) -> BTreeMap<String, (String, Name)> {
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
        let mut spread = BTreeMap::new();
        for (name, tokens) in &self.tokens {
            for (of, methods) in inherent_methods(tokens) {
                let is_own = types.contains(&(of, name.as_str()));
                for method in methods.into_iter().filter(|method| !is_own && functions[method] == 1)
                {
                    spread.insert(method.to_owned(), (of.to_owned(), name.clone()));
                }
            }
        }
        spread
    }
}

fn join(name: &str, child: &str) -> Name {
    if name.is_empty() { child.to_owned() } else { format!("{name}::{child}") }
}

fn is_word(token: &str) -> bool {
    token.starts_with(|c: char| c.is_alphanumeric() || c == '_')
}

/// The types that have `impl` blocks without a trait, and the methods in these.
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
        let of = head.iter().find(|token| {
            depth += i32::from(*token == "<") - i32::from(*token == ">");
            depth == 0 && is_word(token)
        });
        let mut depth = 0;
        let body = tokens[start + open..].iter().take_while(|token| {
            depth += i32::from(*token == "{") - i32::from(*token == "}");
            depth > 0
        });
        let body: Vec<&String> = body.collect();
        let methods = body.windows(2).filter(|pair| pair[0] == "fn").map(|pair| pair[1].as_str());
        found.extend(of.map(|of| (of.as_str(), methods.collect())));
    }
    found
}

/// The `use` declarations: path, the name that it gets, and whether others see it.
fn declared(tokens: &[String]) -> Vec<(Vec<String>, String, bool)> {
    let mut found = vec![];
    for (at, _) in tokens.iter().enumerate().filter(|(_, token)| *token == "use") {
        // `use<'a>` of a type is none.
        if tokens.get(at + 1).is_none_or(|next| !is_word(next)) {
            continue;
        }
        let is_public = at > 0 && ["pub", ")"].contains(&tokens[at - 1].as_str());
        let end = tokens[at..].iter().position(|token| token == ";").unwrap_or(0);
        let mut paths = vec![];
        tree(&tokens[at + 1..at + end], &[], &mut paths);
        found.extend(paths.into_iter().map(|(path, alias)| (path, alias, is_public)));
    }
    found
}

/// The paths of a tree such as `a::{b, c as d}`, behind `before`.
fn tree(tokens: &[String], before: &[String], out: &mut Vec<(Vec<String>, String)>) {
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
    let (mut depth, mut start) = (0, open + 1);
    for at in open..tokens.len() {
        match tokens[at].as_str() {
            "{" => depth += 1,
            "}" => depth -= 1,
            _ => {}
        }
        if (tokens[at] == "," && depth == 1) || (tokens[at] == "}" && depth == 0) {
            if start < at {
                tree(&tokens[start..at], &stem, out);
            }
            start = at + 1;
        }
    }
}

/// Words, `::` and single characters, without comments, texts and tests.
fn tokens_of(text: &str) -> Vec<String> {
    let text = text.split("#[cfg(test)]\nmod ").next().unwrap_or_default();
    let mut tokens = vec![];
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let length = match first {
            '/' if rest.starts_with("//") => rest.find('\n').unwrap_or(rest.len()),
            'r' if rest.starts_with("r#\"") => raw_length(rest),
            '"' => text_length(rest),
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

/// The length of a text, with its quotes.
fn text_length(text: &str) -> usize {
    let mut is_escaped = false;
    let end = text[1..].find(|c: char| {
        let ends = c == '"' && !is_escaped;
        is_escaped = c == '\\' && !is_escaped;
        ends
    });
    end.map_or(text.len(), |end| end + 2)
}

/// The length of a text without escapes: `r#"..."#`.
fn raw_length(text: &str) -> usize {
    text[3..].find("\"#").map_or(text.len(), |end| end + 5)
}

/// The length of a character with its quotes; of a lifetime, that of its quote.
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

    fn levels(files: &[(&str, &str)]) -> Vec<String> {
        let tokens = files.iter().map(|(name, text)| ((*name).to_owned(), tokens_of(text)));
        let mut uses = Crate::of(tokens.collect()).levels();
        retain_circles(&mut uses);
        uses.into_keys().collect()
    }

    #[test]
    fn modules_that_use_each_other_are_found() {
        let b = ("b", "use crate::{c::{D, e as f}, g};");
        assert!(levels(&[("", "pub use b::B;"), b, ("c", "fn e() {}"), ("g", "")]).is_empty());
        assert_eq!(levels(&[("", ""), b, ("c", "fn e() { crate::b::x(); }")]), ["b", "c"]);
        assert_eq!(levels(&[("", "pub use b::B;"), b, ("c", "use crate::B;")]), ["b", "c"]);
        assert!(
            levels(&[("", ""), b, ("c", "// crate::b\nconst B: &str = \"crate::b\";")]).is_empty()
        );
        assert!(
            levels(&[("", ""), b, ("c", "#[cfg(test)]\nmod tests { use crate::b::B; }")])
                .is_empty()
        );
    }

    #[test]
    fn what_is_below_a_module_counts_as_it() {
        let deep = ("a::deep", "use crate::b::B;");
        assert_eq!(levels(&[("a", ""), deep, ("b", "use crate::a::A;")]), ["a", "b"]);
        assert!(levels(&[("a", "use deep::D;"), ("a::deep", "use super::A;")]).is_empty());
        let sisters = [("a", ""), ("a::x", "use super::y::Y;"), ("a::y", "use super::x::X;")];
        assert_eq!(levels(&sisters), ["a::x", "a::y"]);
    }

    #[test]
    fn methods_far_from_their_type_are_uses() {
        let a = ("a", "pub struct A;\nimpl A { fn one(&self) { self.two(); } }");
        let b = ("b", "use crate::a::A;\nimpl<'a> A { fn two(&self) {} }");
        assert_eq!(levels(&[a, b]), ["a", "b"]);
        assert!(levels(&[a, b, ("c", "fn two() {}")]).is_empty(), "the name may be another's");
    }
}
