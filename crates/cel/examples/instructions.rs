//! Evaluates expressions a fixed number of times, so that instructions can be counted:
//! `valgrind --tool=callgrind target/.../instructions`.

use keelson_cel::{
    DeclField, DeclType, Environment, Limits, ListKind, ObjectType, Shape, Version, adapt,
};
use keelson_meta::value;
use std::hint::black_box;
use std::sync::Arc;

/// How often each expression is evaluated.
const ROUNDS: usize = 2_000;

const EXPRESSIONS: &[&str] = &[
    "self.minReplicas <= self.replicas",
    "self.minReplicas <= self.replicas && self.replicas <= self.maxReplicas",
    "self.name == 'web'",
    "has(self.name) && self.name.matches('^[a-z]([-a-z0-9]*[a-z0-9])?$')",
    "self.ports.all(p, p.port > 0 && p.port < 65536)",
    "self.ports.filter(p, p.port > 1000).map(p, p.name).join(',') != ''",
    "self.labels.all(k, k.startsWith('app') || self.labels[k] != '')",
    "quantity(self.memory).isLessThan(quantity('1Gi'))",
];

fn main() {
    let decl_type = decl_type();
    let env =
        Environment::kubernetes(Version::NEW_EXPRESSIONS).with_decl_type("self", decl_type.clone());
    let object = value!({
        "minReplicas": 1, "replicas": 3, "maxReplicas": 10, "name": "web", "memory": "512Mi",
        "labels": {"app": "web", "app.kubernetes.io/name": "web"},
        "ports": [{"name": "http", "port": 80}, {"name": "https", "port": 8443}]
    });
    for text in EXPRESSIONS {
        let Ok(compiled) = env.compile(text) else { continue };
        for _ in 0..ROUNDS {
            let variables = [adapt(black_box(&object), Some(&decl_type)).ok()];
            let outcome = compiled.program.evaluate(&variables, &Limits::default());
            black_box(outcome.result.is_ok());
        }
    }
}

fn object(name: &str, fields: Vec<(&str, Arc<DeclType>)>) -> Arc<DeclType> {
    let field = |(name, decl_type): (&str, Arc<DeclType>)| DeclField {
        name: name.into(),
        property: name.into(),
        decl_type,
    };
    let fields = fields.into_iter().map(field).collect();
    Arc::new(DeclType::new(Shape::Object(Arc::new(ObjectType::new(name, fields)))))
}

fn decl_type() -> Arc<DeclType> {
    let of = |shape: Shape| Arc::new(DeclType::new(shape).with_size_max(100));
    let int = || Arc::new(DeclType::new(Shape::Int));
    let port = object("port", vec![("name", of(Shape::String)), ("port", int())]);
    object(
        "self",
        vec![
            ("minReplicas", int()),
            ("replicas", int()),
            ("maxReplicas", int()),
            ("name", of(Shape::String)),
            ("memory", of(Shape::String)),
            ("labels", of(Shape::Map(of(Shape::String)))),
            ("ports", of(Shape::List(port, ListKind::Atomic))),
        ],
    )
}
