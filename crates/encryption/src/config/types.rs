//! The types of a configuration file, as the schema engine has them.

use keelson_schema::types::{ListShape, Types};
use keelson_schema::{Field, Shape, Struct, StructId};
use std::sync::LazyLock;

/// The package of the types, which error messages name.
const PACKAGE: &str = "io.k8s.apiserver.pkg.apis.apiserver.v1";

const KEY: StructId = StructId(0);
const KEYS: StructId = StructId(1);
const IDENTITY: StructId = StructId(2);
const KMS: StructId = StructId(3);
const PROVIDER: StructId = StructId(4);
const RESOURCE: StructId = StructId(5);
/// The type of a file.
pub(super) const ROOT: StructId = StructId(6);

/// The types of a file.
pub(super) static TYPES: LazyLock<Types> = LazyLock::new(|| {
    Types::new(vec![
        named("Key", vec![text("name"), text("secret")]),
        named("AESConfiguration", vec![list("keys", Shape::Struct(KEY))]),
        named("IdentityConfiguration", vec![]),
        named(
            "KMSConfiguration",
            vec![
                text("apiVersion"),
                text("name"),
                Field::new("cachesize", Shape::Int32),
                text("endpoint"),
                Field::new("timeout", Shape::Duration),
            ],
        ),
        named(
            "ProviderConfiguration",
            vec![
                Field::new("aesgcm", Shape::Struct(KEYS)),
                Field::new("aescbc", Shape::Struct(KEYS)),
                Field::new("secretbox", Shape::Struct(KEYS)),
                Field::new("identity", Shape::Struct(IDENTITY)),
                Field::new("kms", Shape::Struct(KMS)),
            ],
        ),
        named(
            "ResourceConfiguration",
            vec![list("resources", Shape::String), list("providers", Shape::Struct(PROVIDER))],
        ),
        named(
            "EncryptionConfiguration",
            vec![text("kind"), text("apiVersion"), list("resources", Shape::Struct(RESOURCE))],
        ),
    ])
});

fn named(name: &str, fields: Vec<Field>) -> Struct {
    Struct::new(format!("{PACKAGE}.{name}"), fields)
}

fn text(name: &'static str) -> Field {
    Field::omit_empty(name, Shape::String)
}

fn list(name: &'static str, item: Shape) -> Field {
    Field::omit_empty(name, Shape::List(Box::new(ListShape::atomic(item))))
}
