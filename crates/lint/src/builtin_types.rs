//! Recognizes built-in types that a schema embeds, such as PodSpec: their fields are not the
//! author's.

use keelson_schema::catalogue::Catalogue;
use std::collections::HashMap;
use std::sync::LazyLock;

/// Fields that a type must have to be recognized by all of its fields.
const WHOLE_FIELDS_MIN: usize = 3;
/// Fields that a schema must have to be recognized by a part of a type's fields.
const PART_FIELDS_MIN: usize = 4;
/// The share of a type's fields in percent that such a part must be: older and trimmed versions of
/// a type have fewer.
const PART_PERCENT_MIN: usize = 60;

/// The fields of LabelSelector, which has too few to be recognized otherwise, and which no other
/// type has.
const LABEL_SELECTOR: [&str; 2] = ["matchExpressions", "matchLabels"];

/// The types of the catalogue, by the names of their fields.
struct Known {
    /// Number of fields of each type.
    sizes: Vec<usize>,
    /// The types that have a field of this name.
    by_field: HashMap<&'static str, Vec<usize>>,
}

static KNOWN: LazyLock<Known> = LazyLock::new(|| {
    let mut known = Known { sizes: vec![], by_field: HashMap::new() };
    for (_, structure) in Catalogue::shared().types.iter() {
        let number = known.sizes.len();
        known.sizes.push(structure.fields.len());
        for field in &structure.fields {
            known.by_field.entry(field.name.as_str()).or_default().push(number);
        }
    }
    known
});

/// Returns whether an object with these fields is most likely of a built-in type.
pub fn is_builtin<'n>(names: impl ExactSizeIterator<Item = &'n str>) -> bool {
    let names: Vec<&str> = names.collect();
    let count = names.len();
    if count < WHOLE_FIELDS_MIN {
        return count == LABEL_SELECTOR.len()
            && LABEL_SELECTOR.iter().all(|name| names.contains(name));
    }
    let mut common: HashMap<usize, usize> = HashMap::new();
    for name in names {
        let Some(types) = KNOWN.by_field.get(name) else { return false };
        types.iter().for_each(|number| *common.entry(*number).or_default() += 1);
    }
    common.into_iter().filter(|(_, in_common)| *in_common == count).any(|(number, _)| {
        let size = KNOWN.sizes[number];
        count == size || (count >= PART_FIELDS_MIN && count * 100 >= size * PART_PERCENT_MIN)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_built_in_type_is_recognized_by_its_fields() {
        let check = |names: &[&str], want: bool| {
            assert_eq!(is_builtin(names.iter().copied()), want, "{names:?}");
        };
        check(&["key", "operator", "value", "effect", "tolerationSeconds"], true);
        check(&["key", "operator", "value", "effect"], true);
        check(&["name", "value", "valueFrom"], true);
        check(&["matchLabels", "matchExpressions"], true);
        check(&["name", "namespace"], false);
        check(&["name", "value", "color"], false);
        check(&["replicas", "selector", "template"], false);
    }
}
