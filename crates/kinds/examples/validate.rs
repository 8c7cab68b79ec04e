//! Validation of a new Pod of 2 KB, to be counted in instructions: `validate ROUNDS` under callgrind. Two runs with
//! different rounds tell the cost of one. The Pod is read and completed once, before.

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
    keelson_schema::default::fill(&schema, &mut pod);
    strategy.default(&mut pod);
    strategy.prepare_create(&mut pod);
    let mut faults = 0;
    for _ in 0..rounds {
        let pod = black_box(&pod);
        let found = strategy.check(strategy.create_checks, strategy.validate, pod, None, true);
        faults += found.len();
    }
    writeln!(std::io::stdout(), "{rounds} rounds, {faults} faults")
}
