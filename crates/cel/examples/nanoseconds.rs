//! Measures how long expressions take to compile and to evaluate: `cargo run --profile dist -p
//! keelson-cel --example nanoseconds`. With a number it only evaluates each expression so many
//! times, to count instructions: `valgrind --tool=callgrind target/dist/examples/nanoseconds 2000`.

use keelson_cel::{
    DeclField, DeclType, Environment, Limits, ListKind, ObjectType, Shape, Version, adapt,
};
use keelson_meta::value;
use std::hint::black_box;
use std::io::Write;
use std::sync::Arc;
use std::time::{Duration, Instant};

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

fn main() -> std::io::Result<()> {
    let decl_type = decl_type();
    let env =
        Environment::kubernetes(Version::NEW_EXPRESSIONS).with_decl_type("self", decl_type.clone());
    let object = value!({
        "minReplicas": 1, "replicas": 3, "maxReplicas": 10, "name": "web", "memory": "512Mi",
        "labels": {"app": "web", "app.kubernetes.io/name": "web"},
        "ports": [{"name": "http", "port": 80}, {"name": "https", "port": 8443}]
    });
    let rounds = std::env::args().nth(1).and_then(|text| text.parse::<usize>().ok());
    let mut out = std::io::stdout().lock();
    if rounds.is_none() {
        writeln!(out, "{:>12} {:>12}  expression", "compile ns", "evaluate ns")?;
    }
    for text in EXPRESSIONS {
        let Ok(compiled) = env.compile(text) else { continue };
        let evaluate = || {
            let variables = [adapt(black_box(&object), Some(&decl_type)).ok()];
            let outcome = compiled.program.evaluate(&variables, &Limits::default());
            black_box(outcome.result.is_ok());
        };
        if let Some(rounds) = rounds {
            (0..rounds).for_each(|_| evaluate());
            continue;
        }
        let evaluate = nanoseconds(evaluate);
        let compile = nanoseconds(|| {
            black_box(env.compile(black_box(text)).is_ok());
        });
        writeln!(out, "{compile:>12.0} {evaluate:>12.0}  {text}")?;
    }
    Ok(())
}

/// Returns the time of one run, the best of several rounds.
fn nanoseconds(mut run: impl FnMut()) -> f64 {
    // Rounds are short, so that some are undisturbed on a busy machine.
    const ROUND: Duration = Duration::from_millis(1);
    let mut best = f64::MAX;
    for _ in 0..200 {
        let begun = Instant::now();
        let mut runs = 0_u32;
        while begun.elapsed() < ROUND {
            for _ in 0..20 {
                run();
            }
            runs += 20;
        }
        best = best.min(begun.elapsed().as_nanos() as f64 / f64::from(runs));
    }
    best
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
