//! Memory and time of decoders, in proportion to their input. Memory is counted for the whole
//! process, so other tests in it may only add a little.

use keelson_meta::{GroupVersionKind, Value};
use keelson_schema::catalogue::Catalogue;
use keelson_schema::decode::{self, Format};
use keelson_schema::{cbor, json, yaml};
use rustix::time::{ClockId, clock_gettime};
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};
use std::alloc::System;
use std::any::Any;
use std::time::Duration;

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

/// Length of the bodies. The server accepts up to 3 MiB.
const BODY_BYTES: usize = 256 << 10;
/// Maximum bytes of a value per byte of its text: 32 for a digit and a comma, and vectors double.
const KEPT_FACTOR_MAX: usize = 50;
/// Maximum bytes that are allocated per byte of text, most of them temporarily.
const ALLOCATED_FACTOR_MAX: usize = 1_000;
/// The factor by which bodies are lengthened, and the maximum factor of the time.
const LONGER: usize = 8;
const RATIO_MAX: f64 = 20.0;
/// The time that is allowed for any body.
const TIME_FREE: Duration = Duration::from_millis(30);

fn thread_time() -> Duration {
    let now = clock_gettime(ClockId::ThreadCPUTime);
    let seconds = u64::try_from(now.tv_sec).expect("time is not negative");
    Duration::new(seconds, u32::try_from(now.tv_nsec).expect("less than a second"))
}

/// Makes a body of about this length.
type Make = dyn Fn(usize) -> Vec<u8>;

/// Makes bodies of `begin` and a repeated `item`.
fn repeat(begin: &'static str, item: &'static str) -> Box<Make> {
    Box::new(move |bytes| format!("{begin}{}", item.repeat(bytes / item.len())).into_bytes())
}

/// Makes bodies of `begin`, a repeated `item`, and `end`.
fn wrapped(begin: &'static str, item: &'static str, end: &'static str) -> Box<Make> {
    Box::new(move |bytes| format!("{begin}{}{end}", item.repeat(bytes / item.len())).into_bytes())
}

/// Makes bodies of `begin` and an item for each number.
fn counted(begin: &'static str, item: fn(usize) -> String) -> Box<Make> {
    Box::new(move |bytes| {
        let count = bytes / item(bytes / 10).len();
        let items: String = (0..count).map(item).collect();
        format!("{begin}{items}").into_bytes()
    })
}

/// Nested anchors without aliases.
fn unused_anchors(bytes: usize) -> Vec<u8> {
    let depth = 200;
    let open: String = (0..depth).map(|at| format!("&a{at} [")).collect();
    format!("{open}{}{}", "x,".repeat(bytes / 2), "]".repeat(depth)).into_bytes()
}

/// Nested anchors, each with an alias.
fn nested_anchors(bytes: usize) -> Vec<u8> {
    let depth = 200;
    let mut text: String = (0..depth).map(|at| format!("&a{at} [")).collect();
    text.push_str(&"x,".repeat(bytes / 4));
    text.push_str(&"]".repeat(depth));
    let aliases: String = (0..depth).map(|at| format!(", *a{at}")).collect();
    format!("[{text}{aliases}]").into_bytes()
}

/// Maps merged into each other, each with an anchor and an alias.
fn nested_merges(_: usize) -> Vec<u8> {
    let depth = 200;
    let open: String = (0..depth).map(|at| format!("&a{at} {{k{at}: 1, <<: ")).collect();
    let aliases: String = (0..depth).map(|at| format!(", *a{at}")).collect();
    format!("[{open}{{}}{}{aliases}]", "}".repeat(depth)).into_bytes()
}

/// One large list with many aliases.
fn one_anchor(bytes: usize) -> Vec<u8> {
    format!("[&x [{}], {}]", "a,".repeat(bytes / 4), "*x,".repeat(bytes / 6)).into_bytes()
}

/// One long text with many aliases.
fn one_text(bytes: usize) -> Vec<u8> {
    format!("[&x {}, {}]", "a".repeat(bytes / 2), "*x,".repeat(bytes / 6)).into_bytes()
}

/// Ten lists, each with ten aliases of the one before (billion laughs).
fn laughs(_: usize) -> Vec<u8> {
    let line = |at: u8| {
        let this = char::from(b'b' + at);
        let last = char::from(b'a' + at);
        format!("{this}: &{this} [{}]\n", format!("*{last},").repeat(10))
    };
    format!("a: &a [x,x,x,x,x,x,x,x,x,x]\n{}", (0..10).map(line).collect::<String>()).into_bytes()
}

fn yaml_bodies() -> Vec<(&'static str, Box<Make>)> {
    vec![
        ("billion laughs", Box::new(laughs)),
        ("unused anchors", Box::new(unused_anchors)),
        ("nested anchors", Box::new(nested_anchors)),
        ("nested merges", Box::new(nested_merges)),
        ("one list, many aliases", Box::new(one_anchor)),
        ("one text, many aliases", Box::new(one_text)),
        ("anchors", repeat("", "- &a x\n")),
        ("anchors and aliases", repeat("", "- &a x\n- *a\n")),
        ("merges of one map", repeat("m: &m {a: 1, b: 2}\nl:\n", "- {<<: *m}\n")),
        ("distinct anchors", counted("", |at| format!("- &a{at} x\n"))),
        ("flow items", repeat("[", "a,")),
        ("flow maps", repeat("[", "{},")),
        ("flow keys", counted("{", |at| format!("k{at}: 1, "))),
        ("equal flow keys", repeat("{", "k: 1, ")),
        ("block items", repeat("", "- a\n")),
        ("block keys", counted("", |at| format!("k{at}: 1\n"))),
        ("block maps", repeat("", "- a: b\n  c: d\n")),
        ("open lists", repeat("", "[")),
        ("open maps", repeat("", "{a: ")),
        ("dashes", repeat("", "- ")),
        ("explicit keys", repeat("", "? a\n")),
        ("explicit keys in a line", repeat("", "? ")),
        ("comments", repeat("", "# a\n")),
        ("blank lines", repeat("a:\n", "\n")),
        ("spaces", repeat("a:", " ")),
        ("folded text", repeat("a: >\n", "  b\n")),
        ("literal text", repeat("a: |\n", "  b\n")),
        ("plain lines", repeat("a: b\n", " c\n")),
        ("quoted lines", wrapped("a: \"", "b\n ", "\"")),
        ("escapes", wrapped("a: \"", "\\u0061", "\"")),
        ("single quotes", wrapped("a: '", "''", "'")),
        ("tags", repeat("", "- !!str a\n")),
        ("documents", repeat("", "---\na\n")),
        ("colons", repeat("a", ":")),
        ("keys without values", repeat("", "a:\n")),
    ]
}

fn json_bodies() -> Vec<(&'static str, Box<Make>)> {
    vec![
        ("numbers", wrapped("[", "0,", "0]")),
        ("lists", wrapped("[", "[],", "[]]")),
        ("maps", wrapped("[", "{},", "{}]")),
        ("maps of one", wrapped("[", "{\"\":0},", "0]")),
        ("texts", wrapped("[", "\"\",", "0]")),
        ("equal keys", wrapped("{", "\"a\":0,", "\"a\":0}")),
        ("equal keys in maps", wrapped("[", "{\"a\":0,\"a\":0},", "0]")),
        ("keys", counted("{\"a\":0", |at| format!(",\"k{at}\":0"))),
        ("open lists", repeat("", "[")),
        ("open maps", repeat("", "{\"a\":")),
        ("escapes", wrapped("\"", "\\u0061", "\"")),
        ("digits", repeat("1", "1")),
    ]
}

fn cbor_bodies() -> Vec<(&'static str, Box<Make>)> {
    let of = |begin: &'static [u8], item: &'static [u8]| -> Box<Make> {
        Box::new(move |bytes| [begin, &item.repeat(bytes / item.len()), b"\xff"].concat())
    };
    vec![
        ("items", of(b"\x9f", b"\x00")),
        ("lists", of(b"\x9f", b"\x80")),
        ("maps", of(b"\x9f", b"\xa0")),
        ("texts", of(b"\x9f", b"\x40")),
        ("open lists", of(b"", b"\x9f")),
        ("a list that claims to be long", of(b"\x9b\x00\x00\x00\x01\x00\x00\x00\x00", b"\x00")),
        ("a text that claims to be long", of(b"\x7b\x00\x00\x00\x01\x00\x00\x00\x00", b"a")),
    ]
}

/// Makes protobuf Pods whose spec is a repeated `item`.
fn pod_of(item: &'static [u8]) -> Box<Make> {
    Box::new(move |bytes| {
        let spec = item.repeat(bytes / item.len());
        let field = |tag: u8, content: &[u8]| {
            let mut out = vec![tag << 3 | 2];
            let mut length = content.len();
            while length >= 0x80 {
                out.push((length & 0x7f) as u8 | 0x80);
                length >>= 7;
            }
            out.push(length as u8);
            out.extend_from_slice(content);
            out
        };
        let kind = [field(1, b"v1"), field(2, b"Pod")].concat();
        let pod = field(2, &spec);
        [b"k8s\0".to_vec(), field(1, &kind), field(2, &pod)].concat()
    })
}

/// Decodes a body and returns the result.
type Decode<'d> = dyn Fn(&[u8]) -> Box<dyn Any> + 'd;

struct Taken {
    allocated: usize,
    kept: usize,
    time: Duration,
}

fn measure(decode: &Decode<'_>, body: &[u8]) -> Taken {
    let region = Region::new(ALLOCATOR);
    let begin = thread_time();
    let result = decode(body);
    let time = thread_time() - begin;
    let change = region.change();
    drop(result);
    let kept = change.bytes_allocated.saturating_sub(change.bytes_deallocated);
    Taken { allocated: change.bytes_allocated, kept, time }
}

fn check(decode: &Decode<'_>, name: &str, make: &Make, faults: &mut Vec<String>) {
    let short = make(BODY_BYTES / LONGER);
    let long = make(BODY_BYTES);
    let taken = measure(decode, &long);
    for (what, bytes, max) in [
        ("kept", taken.kept, KEPT_FACTOR_MAX),
        ("allocated", taken.allocated, ALLOCATED_FACTOR_MAX),
    ] {
        if bytes > max * BODY_BYTES {
            faults.push(format!("{name}: {} bytes {what} a byte", bytes / long.len()));
        }
    }
    let mut most = taken.time;
    let mut least = Duration::MAX;
    for _ in 0..4 {
        if most <= TIME_FREE || most.as_secs_f64() <= RATIO_MAX * least.as_secs_f64() {
            return;
        }
        least = least.min(measure(decode, &short).time);
        most = most.min(measure(decode, &long).time);
    }
    faults.push(format!("{name}: {most:?} for {} bytes, {least:?} for an eighth", long.len()));
}

#[test]
fn memory_and_time_of_decoders_are_proportional_to_bodies() {
    let catalogue = Catalogue::shared();
    let pod = catalogue.schema(&GroupVersionKind::new("", "v1", "Pod")).expect("Pods are known");
    let typed = |format: Format| {
        let pod = pod.clone();
        move |body: &[u8]| -> Box<dyn Any> {
            Box::new(decode::decode(&pod, body, format, &|_| true))
        }
    };
    // Initialize shared data before measuring.
    drop(typed(Format::Json)(b"{}"));
    let mut faults = vec![];
    for (name, make) in yaml_bodies() {
        let decode = |body: &[u8]| -> Box<dyn Any> { Box::new(yaml::parse(body)) };
        check(&decode, &format!("YAML, {name}"), &*make, &mut faults);
    }
    for (name, make) in json_bodies() {
        check(&|body| Box::new(json::parse(body)), &format!("JSON, {name}"), &*make, &mut faults);
    }
    for (name, make) in cbor_bodies() {
        check(&|body| Box::new(cbor::parse(body)), &format!("CBOR, {name}"), &*make, &mut faults);
    }
    for (name, item) in [
        ("containers", &b"\x12\x00"[..]),
        ("volumes", b"\x0a\x00"),
        ("tolerations", b"\xb2\x01\x00"),
        ("unknown fields", b"\xf8\x3f\x00"),
    ] {
        let name = format!("protobuf, {name}");
        check(&typed(Format::Protobuf), &name, &*pod_of(item), &mut faults);
    }
    for (name, make) in [
        ("containers", wrapped("{\"spec\":{\"containers\":[", "{},", "{}]}}")),
        ("duplicate maps", wrapped("{\"spec\":{\"a\":0", ",\"nodeSelector\":{\"a\":\"b\"}", "}}")),
        ("duplicate lists", wrapped("{\"spec\":{\"a\":0", ",\"containers\":[{},{}]", "}}")),
        ("duplicate unknown fields", wrapped("{\"spec\":{\"a\":0", ",\"x\":0", "}}")),
        ("unknown fields", counted("{\"spec\":{\"a\":0", |at| format!(",\"k{at}\":0"))),
    ] {
        let make: Box<Make> = match name {
            "unknown fields" => Box::new(move |n| [make(n), b"}}".to_vec()].concat()),
            _ => make,
        };
        check(&typed(Format::Json), &format!("JSON Pod, {name}"), &*make, &mut faults);
    }
    assert!(faults.is_empty(), "{}:\n{}", faults.len(), faults.join("\n"));
    assert_eq!(
        yaml::parse("a: &x [1]\nb: *x").map(|p| p.value.at(&["b"]).cloned()).ok(),
        Some(Some(Value::Array(vec![Value::Int(1)])))
    );
}

#[test]
fn duplicate_map_keys_are_kept_once() {
    let catalogue = Catalogue::shared();
    let pod = catalogue.schema(&GroupVersionKind::new("", "v1", "Pod")).expect("Pods are known");
    let typed = |body: &[u8]| -> Box<dyn Any> {
        Box::new(decode::decode(&pod, body, Format::Protobuf, &|_| true))
    };
    // Read the types before measuring.
    drop(typed(&pod_of(b"\x3a\x00")(10)));
    let json = |body: &[u8]| -> Box<dyn Any> { Box::new(json::parse(body)) };
    for (name, decode, make) in [
        // Node selectors: entries without key and value.
        ("protobuf", &typed as &Decode<'_>, pod_of(b"\x3a\x00")),
        ("JSON", &json, wrapped("{", "\"a\":0,", "\"a\":0}")),
    ] {
        let taken = measure(decode, &make(BODY_BYTES));
        assert!(taken.kept < BODY_BYTES, "{name}: {} bytes kept", taken.kept);
    }
}

#[test]
fn an_object_holds_a_bounded_number_of_maps() {
    let catalogue = Catalogue::shared();
    let pod = catalogue.schema(&GroupVersionKind::new("", "v1", "Pod")).expect("Pods are known");
    let code = |containers: usize, fields: usize| {
        let containers = "{},".repeat(containers);
        let fields = r#""f:a":{},"#.repeat(fields);
        let body = format!(
            r#"{{"metadata":{{"managedFields":[{{"fieldsV1":{{{fields}"f:b":{{}}}}}}]}},
               "spec":{{"containers":[{containers}{{}}]}}}}"#
        );
        let decoded = decode::decode(&pod, body.as_bytes(), Format::Json, &|_| true);
        decoded.map_or_else(|status| status.code, |_| 200)
    };
    assert_eq!(code(decode::MAPS_MAX - 10, 0), 200);
    assert_eq!(code(decode::MAPS_MAX + 10, 0), 413);
    assert_eq!(code(10, decode::MAPS_MAX), 200);
}
