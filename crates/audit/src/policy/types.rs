//! The types of a policy file, as the schema engine has them.

use keelson_meta::GroupVersionKind;
use keelson_schema::catalogue::Catalogue;
use keelson_schema::types::ListShape;
use keelson_schema::{Field, Presence, Schema, Shape, Struct, StructId};
use std::sync::LazyLock;

/// The package of the types, which error messages name.
const PACKAGE: &str = "io.k8s.apiserver.pkg.apis.audit.v1";

/// The schema of a policy file.
pub(super) static POLICY: LazyLock<Schema> = LazyLock::new(|| {
    let mut root = StructId(0);
    let types = Catalogue::shared().types_with_object_meta(|meta, first| {
        let id = |place: u32| StructId(first.0 + place);
        root = id(2);
        vec![resources(), rule(id(0)), policy(meta, id(1))]
    });
    Schema { gvk: GroupVersionKind::new("audit.k8s.io", "v1", "Policy"), types: types.into(), root }
});

fn policy(meta: StructId, rule: StructId) -> Struct {
    let fields = vec![
        text("kind"),
        text("apiVersion"),
        Field::new("metadata", Shape::Struct(meta)),
        list("rules", Shape::Struct(rule)),
        texts("omitStages"),
        flag("omitManagedFields", Presence::OmitEmpty),
    ];
    Struct::new(format!("{PACKAGE}.Policy"), fields)
}

fn rule(resources: StructId) -> Struct {
    let fields = vec![
        text("level"),
        texts("users"),
        texts("userGroups"),
        texts("verbs"),
        list("resources", Shape::Struct(resources)),
        texts("namespaces"),
        texts("nonResourceURLs"),
        texts("omitStages"),
        flag("omitManagedFields", Presence::Pointer),
    ];
    Struct::new(format!("{PACKAGE}.PolicyRule"), fields)
}

fn resources() -> Struct {
    let fields = vec![text("group"), texts("resources"), texts("resourceNames")];
    Struct::new(format!("{PACKAGE}.GroupResources"), fields)
}

fn text(name: &'static str) -> Field {
    Field::omit_empty(name, Shape::String)
}

fn flag(name: &'static str, presence: Presence) -> Field {
    Field { presence, ..Field::new(name, Shape::Bool) }
}

fn texts(name: &'static str) -> Field {
    list(name, Shape::String)
}

fn list(name: &'static str, item: Shape) -> Field {
    Field::omit_empty(name, Shape::List(Box::new(ListShape::atomic(item))))
}
