//! Values as Go prints them, for messages that contain them.

use keelson_meta::Value;
use std::collections::BTreeMap;

/// Returns a LabelSelector as Go prints it; `nil` if there is none.
pub fn label_selector(selector: Option<&Value>) -> String {
    if selector.is_none_or(Value::is_null) {
        return "nil".to_owned();
    }
    let labels: BTreeMap<&str, &str> = selector
        .and_then(|selector| selector.get("matchLabels")?.as_object())
        .into_iter()
        .flat_map(|labels| labels.iter())
        .map(|(name, text)| (name.as_str(), text.as_str().unwrap_or_default()))
        .collect();
    let labels: String = labels.iter().map(|(name, text)| format!("{name}: {text},")).collect();
    let labels = if labels.is_empty() {
        "map[string]string{}".to_owned()
    } else {
        format!("map[string]string{{{labels}}}")
    };
    let expressions: String = selector
        .map_or(&[][..], |selector| selector.array_at(&["matchExpressions"]))
        .iter()
        .map(|one| {
            let text = |name: &str| one.str_at(&[name]).unwrap_or_default();
            let values = one
                .array_at(&["values"])
                .iter()
                .filter_map(Value::as_str)
                .collect::<Vec<_>>()
                .join(" ");
            let key = text("key");
            let operator = text("operator");
            format!("LabelSelectorRequirement{{Key:{key},Operator:{operator},Values:[{values}],}},")
        })
        .collect();
    format!(
        "&LabelSelector{{MatchLabels:{labels},MatchExpressions:[]LabelSelectorRequirement{{{expressions}}},}}"
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use keelson_meta::value;

    #[test]
    fn a_selector_prints_its_fields() {
        let check = |selector: Option<Value>, want: &str| {
            assert_eq!(label_selector(selector.as_ref()), want);
        };
        check(None, "nil");
        let empty = "&LabelSelector{MatchLabels:map[string]string{},\
                     MatchExpressions:[]LabelSelectorRequirement{},}";
        check(Some(value!({})), empty);
        let both = "&LabelSelector{MatchLabels:map[string]string{a: b,c: d,},\
                    MatchExpressions:[]LabelSelectorRequirement{\
                    LabelSelectorRequirement{Key:e,Operator:In,Values:[f g],},},}";
        let expression = value!({"key": "e", "operator": "In", "values": ["f", "g"]});
        check(
            Some(value!({"matchLabels": {"c": "d", "a": "b"}, "matchExpressions": [(expression)]})),
            both,
        );
    }
}
