//! What a Stage does to an object: the steps as requests, computed from templates.

use super::rule::{TemplatedApply, TemplatedPatch};
use super::template::{StageTemplate, TemplateFacts};
use keelson_meta::{Map, Object, Str, Value};
use keelson_registry::options::PatchForm;
use keelson_schema::yaml;

/// Renders the patch of a step. Returns its form, too; `None`: the template renders nothing.
pub fn patch(
    patch: &TemplatedPatch,
    object: &Object,
    facts: &TemplateFacts,
) -> Result<Option<(PatchForm, Value)>, String> {
    let rendered = rendered(&patch.template, object, facts)?;
    if rendered.is_null() {
        return Ok(None);
    }
    let is_core = object.api_version() == "v1";
    let form = patch.form.unwrap_or(match object.kind() {
        "Pod" | "Node" if is_core => PatchForm::Strategic,
        _ => PatchForm::Merge,
    });
    if patch.root.is_empty() {
        return Ok(Some((form, rendered)));
    }
    if form != PatchForm::Json {
        let mut whole = Map::new();
        whole.insert(patch.root.as_str(), rendered);
        return Ok(Some((form, whole.into())));
    }
    let Value::Array(mut operations) = rendered else {
        return Err("a JSON patch must be a list of operations".to_owned());
    };
    for operation in &mut operations {
        let path = operation.str_at(&["path"]).unwrap_or_default();
        let path = format!("/{}{path}", patch.root);
        let operation = operation.as_object_mut().ok_or("an operation is no map")?;
        operation.insert("path", path);
    }
    Ok(Some((form, operations.into())))
}

/// Renders the object of an apply step.
pub fn applied(
    apply: &TemplatedApply,
    object: &Object,
    facts: &TemplateFacts,
) -> Result<Object, String> {
    let rendered = rendered(&apply.template, object, facts)?;
    Object::from_value(rendered).ok_or_else(|| "the applied template is no object".to_owned())
}

fn rendered(
    template: &StageTemplate,
    object: &Object,
    facts: &TemplateFacts,
) -> Result<Value, String> {
    let value = object.clone().into_value();
    let text = template.render(&value, facts).map_err(|error| error.to_string())?;
    Ok(yaml::parse(&text).map_err(|error| error.to_string())?.value)
}

/// Changes the finalizers of an object. Returns whether anything changed.
pub fn change_finalizers(
    object: &mut Object,
    adds: &[Str],
    removes: &[Str],
    empties: bool,
) -> bool {
    let before: Vec<Str> = object.finalizers().map(Str::new).collect();
    let mut after: Vec<Str> = before.clone();
    after.retain(|name| !empties && !removes.contains(name));
    for name in adds {
        if !after.contains(name) {
            after.push(name.clone());
        }
    }
    if after == before {
        return false;
    }
    if after.is_empty() {
        object.metadata_mut().remove("finalizers");
    } else {
        let names: Vec<Value> = after.into_iter().map(Value::String).collect();
        object.metadata_mut().insert("finalizers", names);
    }
    true
}

#[cfg(test)]
mod tests {
    use super::super::read;
    use super::super::rule::StageStep;
    use super::*;
    use keelson_meta::status::show_json;
    use keelson_meta::value;

    fn pod() -> Object {
        let pod = value!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p",
            "finalizers": ["a", "b"]}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
        Object::from_value(pod).expect("a pod")
    }

    /// Returns the form and the text of the first patch of a Stage.
    fn patch_of(spec: Value) -> String {
        let mut spec = spec;
        let of = value!({"kind": "Pod"});
        spec.as_object_mut().expect("a map").insert("resourceRef", of);
        spec.as_object_mut().expect("a map").insert("selector", value!({}));
        let rule = read::rule(&value!({"spec": (spec)})).expect("a Stage").expect("a rule");
        let Some(StageStep::Patch(step)) = rule.steps.first() else { panic!("no patch") };
        match patch(step, &pod(), &TemplateFacts::default()) {
            Ok(Some((form, patch))) => format!("{form:?} {}", show_json(&patch)),
            Ok(None) => "nothing".to_owned(),
            Err(why) => why,
        }
    }

    #[test]
    fn a_template_becomes_a_patch_below_its_root() {
        let status = "phase: Running\ncontainerStatuses:\n{{ range .spec.containers }}\n\
            - name: {{ .name | Quote }}\n{{ end }}";
        let old = patch_of(value!({"next": {"statusTemplate": status}}));
        let want = "Strategic {\"status\":{\"phase\":\"Running\",\"containerStatuses\":[{\"name\":\"c\"}]}}";
        assert_eq!(old, want);
        let step = |fields: Value| patch_of(value!({"steps": [{"patch": (fields)}]}));
        let merge = value!({"root": "status", "subresource": "status", "type": "merge",
            "template": "a: {{ .metadata.name }}"});
        assert_eq!(step(merge), "Merge {\"status\":{\"a\":\"p\"}}");
        let json = value!({"root": "metadata", "type": "json",
            "template": "- {op: remove, path: /finalizers}"});
        assert_eq!(step(json), "Json [{\"op\":\"remove\",\"path\":\"/metadata/finalizers\"}]");
        assert_eq!(step(value!({"template": "{{ if .no }}a: 1{{ end }}"})), "nothing");
        let wrong = step(value!({"template": "{{ .metadata.name.x }}"}));
        assert!(wrong.contains("has no field \"x\""), "{wrong}");
    }

    #[test]
    fn finalizers_are_added_and_removed() {
        let check = |adds: &[&str], removes: &[&str], empties: bool, want: &str| {
            let mut pod = pod();
            let names =
                |names: &[&str]| names.iter().map(|name| Str::new(*name)).collect::<Vec<_>>();
            let changed = change_finalizers(&mut pod, &names(adds), &names(removes), empties);
            let left: Vec<&str> = pod.finalizers().collect();
            assert_eq!(format!("{changed} {}", left.join(",")), want);
        };
        check(&["c"], &[], false, "true a,b,c");
        check(&["a"], &[], false, "false a,b");
        check(&[], &["a", "x"], false, "true b");
        check(&["d"], &["a"], true, "true d");
        check(&[], &[], true, "true ");
    }
}
