//! The Go types of a pod template: parses `types.txt`.

use std::sync::LazyLock;

/// A Go type.
#[derive(Debug)]
pub(super) struct GoType {
    /// As Go prints it.
    pub name: &'static str,
    pub shape: Shape,
}

/// What values of a type are. Numbers are indices of [`TYPES`].
#[derive(Debug)]
pub(super) enum Shape {
    Struct(Vec<Field>),
    Pointer(usize),
    List(usize),
    Map(usize),
    Text,
    Flag,
    Number,
    Quantity,
    Time,
    IntOrString,
    /// The fields of a managedFields entry.
    Fields,
}

/// A field of a struct.
#[derive(Debug)]
pub(super) struct Field {
    pub go_name: &'static str,
    /// `None`: its fields are members of the same JSON object.
    pub json_name: Option<&'static str>,
    pub of: usize,
}

/// All types. The first one is that of pod templates.
pub(super) static TYPES: LazyLock<Vec<GoType>> = LazyLock::new(|| parse(include_str!("types.txt")));

/// Parses the table. It is part of the program, so that a malformed one is a bug.
fn parse(table: &'static str) -> Vec<GoType> {
    let mut types: Vec<GoType> = vec![];
    for line in table.lines() {
        let words: Vec<&'static str> = line.split_whitespace().collect();
        if line.starts_with(' ') {
            let [go_name, json_name, of] = words[..] else { unreachable!("a field: {line}") };
            let json_name = Some(json_name).filter(|name| *name != ".");
            let field = Field { go_name, json_name, of: number(of) };
            match types.last_mut().map(|last| &mut last.shape) {
                Some(Shape::Struct(fields)) => fields.push(field),
                _ => unreachable!("a field outside a struct: {line}"),
            }
            continue;
        }
        assert_eq!(number(words[0]), types.len(), "types are numbered: {line}");
        let shape = match words[2..] {
            ["struct"] => Shape::Struct(vec![]),
            ["pointer", of] => Shape::Pointer(number(of)),
            ["list", of] => Shape::List(number(of)),
            ["map", _, of] => Shape::Map(number(of)),
            ["text"] => Shape::Text,
            ["flag"] => Shape::Flag,
            ["number"] => Shape::Number,
            ["quantity"] => Shape::Quantity,
            ["time"] => Shape::Time,
            ["int-or-string"] => Shape::IntOrString,
            ["fields"] => Shape::Fields,
            _ => unreachable!("a type: {line}"),
        };
        types.push(GoType { name: words[1], shape });
    }
    types
}

fn number(word: &str) -> usize {
    word.parse().unwrap_or(usize::MAX)
}
