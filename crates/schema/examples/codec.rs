//! Runs the codecs on a Pod of 2 KB, to count instructions:
//!
//! `valgrind --tool=callgrind target/release/examples/codec MODE ROUNDS`, where MODE is `decode`
//! (JSON to a canonical object), `json` (the same, and to JSON), `proto` (the same, and to
//! protobuf), `unproto` (protobuf to object) or `cbor`. The difference of two runs with different
//! ROUNDS is the cost of the additional rounds.

use keelson_meta::GroupVersionKind;
use keelson_schema::catalogue::Catalogue;
use keelson_schema::decode::{Format, decode};
use keelson_schema::{cbor, json, proto};
use std::io::Write;

// The server's allocator.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const POD: &str = include_str!("pod.json");

fn main() -> std::io::Result<()> {
    let mut args = std::env::args().skip(1);
    let mode = args.next().unwrap_or_else(|| "json".to_owned());
    let rounds: u64 = args.next().and_then(|text| text.parse().ok()).unwrap_or(1000);
    let schema = Catalogue::shared()
        .schema(&GroupVersionKind::new("", "v1", "Pod"))
        .expect("a Pod is built in");
    let read =
        |body: &[u8], format| decode(&schema, body, format, &|_| true).expect("a Pod").object;
    let body = POD.trim_end().as_bytes();
    let first = read(body, Format::Json);
    let mut again = vec![];
    let mut packed = vec![];
    json::encode(&schema, &first, &mut again);
    proto::encode(&schema, &first, &mut packed).expect("a Pod fits");
    let mut out = vec![];
    let mut total = 0;
    for _ in 0..rounds {
        out.clear();
        match mode.as_str() {
            "unproto" => total += read(&packed, Format::Protobuf).root.len(),
            mode => {
                let obj = read(body, Format::Json);
                match mode {
                    "json" => drop(json::encode(&schema, &obj, &mut out)),
                    "proto" => proto::encode(&schema, &obj, &mut out).expect("a Pod fits"),
                    "cbor" => cbor::encode(&schema, &obj, &mut out),
                    _ => total += obj.root.len(),
                }
            }
        }
        total += out.len();
    }
    let json = again.len();
    let proto = packed.len();
    writeln!(
        std::io::stdout(),
        "{mode}: {rounds} rounds, {total} bytes; JSON {json}, protobuf {proto}"
    )
}
