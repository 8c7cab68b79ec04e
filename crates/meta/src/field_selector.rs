//! Field selectors: `metadata.name=a,status.phase!=Running`. Parsing, escapes and matching; each
//! kind defines its selectable fields.

use crate::Str;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

/// One condition on one field.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct FieldTerm {
    /// `metadata.name`.
    pub field: Str,
    /// Without escapes.
    pub value: Str,
    /// True for `!=`.
    pub negated: bool,
}

/// Conditions that must all be met.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct FieldSelector {
    terms: Vec<FieldTerm>,
    /// The conditions by field if they are many; kinds have few fields.
    by_field: Option<Arc<BTreeMap<Str, Conditions>>>,
}

/// Up to this number, conditions are checked one by one.
const LINEAR_TERMS_MAX: usize = 8;

/// All conditions on one field.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct Conditions {
    /// Sorted, without duplicates. A field has one value, so two are never met.
    required: Vec<Str>,
    /// Sorted.
    excluded: Vec<Str>,
}

impl Conditions {
    fn are_met(&self, value: &str) -> bool {
        let is_required = match self.required.as_slice() {
            [] => true,
            [required] => required == value,
            _ => false,
        };
        is_required && self.excluded.binary_search_by(|it| it.as_str().cmp(value)).is_err()
    }
}

impl FieldSelector {
    /// Matches every object.
    pub const EVERYTHING: FieldSelector = FieldSelector { terms: Vec::new(), by_field: None };

    fn of(terms: Vec<FieldTerm>) -> FieldSelector {
        let by_field = (terms.len() > LINEAR_TERMS_MAX).then(|| Arc::new(by_field(&terms)));
        FieldSelector { terms, by_field }
    }

    /// Parses `a=b,c!=d`; the error is the text for the client.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut parts = split_terms(text);
        parts.sort_unstable();
        let mut terms = vec![];
        for part in parts.into_iter().filter(|part| !part.is_empty()) {
            let Some((field, negated, value)) = split_term(part) else {
                return Err(format!("invalid selector: '{text}'; can't understand '{part}'"));
            };
            terms.push(FieldTerm { field: field.into(), value: unescape(value)?, negated });
        }
        Ok(FieldSelector::of(terms))
    }

    /// Returns the selector `field=value`.
    pub fn equals(field: &str, value: &str) -> Self {
        let term = FieldTerm { field: field.into(), value: value.into(), negated: false };
        FieldSelector::of(vec![term])
    }

    /// Returns the conditions in the order of the text.
    pub fn terms(&self) -> &[FieldTerm] {
        &self.terms
    }

    /// Returns whether every object matches.
    pub fn is_everything(&self) -> bool {
        self.terms.is_empty()
    }

    /// Returns whether the fields match. `find` looks up a field; an absent field is an empty
    /// string.
    pub fn matches<'a>(&self, find: impl Fn(&str) -> Option<&'a str>) -> bool {
        if let Some(by_field) = &self.by_field {
            let value = |field: &str| find(field).unwrap_or_default();
            return by_field.iter().all(|(field, conditions)| conditions.are_met(value(field)));
        }
        let holds = |term: &FieldTerm| {
            (find(&term.field).unwrap_or_default() == term.value) != term.negated
        };
        self.terms.iter().all(holds)
    }

    /// Returns the value that a condition requires of `field`.
    pub fn required_value(&self, field: &str) -> Option<&str> {
        let exact = |term: &&FieldTerm| !term.negated && term.field == field;
        self.terms.iter().find(exact).map(|term| term.value.as_str())
    }

    /// Converts each term with `convert`, which may rename, change or reject it.
    pub fn transform<E>(
        &self,
        convert: impl FnMut(&FieldTerm) -> Result<FieldTerm, E>,
    ) -> Result<Self, E> {
        let terms = self.terms.iter().map(convert).collect::<Result<_, _>>()?;
        Ok(FieldSelector::of(terms))
    }
}

fn by_field(terms: &[FieldTerm]) -> BTreeMap<Str, Conditions> {
    let mut by_field: BTreeMap<Str, Conditions> = BTreeMap::new();
    for term in terms {
        let conditions = by_field.entry(term.field.clone()).or_default();
        let values = if term.negated { &mut conditions.excluded } else { &mut conditions.required };
        values.push(term.value.clone());
    }
    for conditions in by_field.values_mut() {
        for values in [&mut conditions.required, &mut conditions.excluded] {
            values.sort_unstable();
            values.dedup();
        }
    }
    by_field
}

/// Returns the error for a field that is not selectable.
pub fn not_supported(field: &str) -> String {
    format!("field label not supported: {field}")
}

/// Returns the error for a field other than name and namespace, for kinds that have only these.
pub fn not_known(field: &str) -> String {
    let quoted = crate::status::quote(field);
    format!(
        "{quoted} is not a known field selector: only \"metadata.name\", \"metadata.namespace\""
    )
}

impl fmt::Display for FieldSelector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, term) in self.terms.iter().enumerate() {
            let comma = if index > 0 { "," } else { "" };
            let operator = if term.negated { "!=" } else { "=" };
            write!(f, "{comma}{}{operator}{}", term.field, escape(&term.value))?;
        }
        Ok(())
    }
}

/// Escapes a value with backslashes.
pub fn escape(value: &str) -> String {
    let mut out = String::with_capacity(value.len());
    for c in value.chars() {
        if matches!(c, '\\' | ',' | '=') {
            out.push('\\');
        }
        out.push(c);
    }
    out
}

fn unescape(value: &str) -> Result<Str, String> {
    if !value.contains(['\\', ',', '=']) {
        return Ok(value.into());
    }
    let mut out = String::with_capacity(value.len());
    let mut chars = value.chars();
    while let Some(c) = chars.next() {
        match c {
            '\\' => match chars.next() {
                Some(escaped @ ('\\' | ',' | '=')) => out.push(escaped),
                Some(other) => return Err(bad_escape(&format!("\\{other}"))),
                None => return Err(bad_escape("\\")),
            },
            ',' | '=' => {
                // Upstream prints the character as a number.
                let code = u32::from(c);
                return Err(format!(
                    "invalid field selector: unescaped character in value: {code}"
                ));
            }
            c => out.push(c),
        }
    }
    Ok(out.into())
}

fn bad_escape(sequence: &str) -> String {
    format!("invalid field selector: invalid escape sequence: {sequence}")
}

/// Splits at unescaped commas.
fn split_terms(text: &str) -> Vec<&str> {
    let mut escaped = false;
    let is_end = move |c: char| {
        let end = c == ',' && !escaped;
        escaped = c == '\\' && !escaped;
        end
    };
    text.split(is_end).collect()
}

/// Returns field, whether it is negated, and value; splits at the first operator.
fn split_term(term: &str) -> Option<(&str, bool, &str)> {
    for (at, c) in term.char_indices() {
        let rest = &term[at..];
        let operator = match c {
            '!' if rest.starts_with("!=") => "!=",
            '=' if rest.starts_with("==") => "==",
            '=' => "=",
            _ => continue,
        };
        return Some((&term[..at], operator == "!=", &rest[operator.len()..]));
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expected: &str) {
        let parsed = match FieldSelector::parse(text) {
            Ok(selector) => selector.to_string(),
            Err(error) => format!("error: {error}"),
        };
        assert_eq!(parsed, expected, "{text:?}");
    }

    #[test]
    fn printed_selectors_are_sorted_and_escaped() {
        check("", "");
        check(",,", "");
        check("b!=2,a==1", "a=1,b!=2");
        check(r"a=x\,y\=z\\", r"a=x\,y\=z\\");
        check("a=", "a=");
    }

    #[test]
    fn errors_are_worded_as_upstream_words_them() {
        check("nonsense", "error: invalid selector: 'nonsense'; can't understand 'nonsense'");
        check("a=b,c", "error: invalid selector: 'a=b,c'; can't understand 'c'");
        check(r"a=\x", r"error: invalid field selector: invalid escape sequence: \x");
        check("a=b=c", "error: invalid field selector: unescaped character in value: 61");
        check(r"a=b\", r"error: invalid field selector: invalid escape sequence: \");
    }

    #[test]
    fn a_wide_selector_matches_as_its_conditions_do() {
        let excluded: String = (0..=LINEAR_TERMS_MAX).map(|at| format!(",n!=v{at}")).collect();
        let terms = ["a=1", "a!=1", "a=2", "a=", "b=", "b!=", "b!=x"];
        let objects: [&[(&str, &str)]; 4] =
            [&[], &[("a", "1"), ("b", "x")], &[("a", "2")], &[("a", "1"), ("n", "v3")]];
        for (one, two) in terms.iter().flat_map(|one| terms.iter().map(move |two| (one, two))) {
            let parse = |text: &str| FieldSelector::parse(text).expect("the selector is valid");
            let few = parse(&format!("{one},{two}"));
            let wide = parse(&format!("{one},{two}{excluded}"));
            for fields in objects {
                let find = |name: &str| fields.iter().find(|(k, _)| *k == name).map(|(_, v)| *v);
                let want = few.matches(find) && find("n").is_none();
                assert_eq!(wide.matches(find), want, "{wide} {fields:?}");
            }
        }
    }

    #[test]
    fn an_absent_field_matches_the_empty_string() {
        let matches = |text: &str| {
            let selector = FieldSelector::parse(text).expect("the selector is valid");
            selector.matches(|field| (field == "metadata.name").then_some("a"))
        };
        assert!(matches("metadata.name=a"));
        assert!(matches("metadata.name!=b,x="));
        assert!(!matches("metadata.name=a,x!="));
        assert_eq!(FieldSelector::equals("a", "b").required_value("a"), Some("b"));
    }
}
