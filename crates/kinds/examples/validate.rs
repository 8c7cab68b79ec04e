//! Validates a new Pod of 2 KB many times, to count instructions: `validate ROUNDS` under
//! callgrind. The difference of two runs with different rounds is the cost of one round. The Pod is
//! decoded and defaulted once, before the rounds.

use keelson_meta::{Features, GroupVersionKind};
use keelson_schema::catalogue::Catalogue;
use keelson_schema::decode::{Format, decode};
use std::hint::black_box;
use std::io::Write;

const POD: &str = include_str!("../../schema/examples/pod.json");

fn main() -> std::io::Result<()> {
    let rounds: u64 = std::env::args().nth(1).and_then(|text| text.parse().ok()).unwrap_or(1000);
    let schema = Catalogue::shared()
        .schema(&GroupVersionKind::new("", "v1", "Pod"))
        .expect("a Pod is built in");
    let mut pod =
        decode(&schema, POD.trim_end().as_bytes(), Format::Json, &|_| true).expect("a Pod").object;
    let strategy = keelson_kinds::strategy("", "pods", Features::default());
    keelson_schema::default::fill(&schema, &mut pod).expect("a small object");
    strategy.default(&mut pod);
    strategy.prepare_create(&mut pod);
    let mut errors = 0;
    for _ in 0..rounds {
        let pod = black_box(&pod);
        let found = strategy.check(strategy.create_checks, strategy.validate, pod, None, true);
        errors += found.len();
    }
    writeln!(std::io::stdout(), "{rounds} rounds, {errors} errors")
}
