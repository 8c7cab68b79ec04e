//! Measures what many kinds cost that are added at run time, with 20 fields each.
//! `cargo run --release -p keelson --example kinds [KINDS]`
//!
//! Prints the resident memory of the process before and after, and the wall time and CPU time of
//! creating a ConfigMap. The client runs in the same process.

use keelson::Keelson;
use keelson::producer::{DefinedVersion, Definition};
use keelson_meta::{GroupVersionKind, Str};
use keelson_schema::catalogue::Catalogue;
use keelson_schema::{Field, Presence, Schema, Shape, Struct, StructId};
use rustix::time::{ClockId, clock_gettime};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

const KINDS: usize = 5_000;
const FIELDS: usize = 20;
const CREATES: usize = 5_000;

type Failure = Box<dyn std::error::Error>;

fn main() -> Result<(), Failure> {
    // The allocator of the server, so that the results are comparable.
    keelson_platform::allocator::give_back_soon();
    let kinds = std::env::args().nth(1).map_or(Ok(KINDS), |count| count.parse())?;
    let runtime = tokio::runtime::Runtime::new()?;
    let builder = Keelson::builder().in_memory().plain_http().no_controllers().token("t", "admin");
    let keelson = runtime.block_on(builder.start())?;
    let mut client = TcpStream::connect(keelson.address())?;
    client.set_nodelay(true)?;
    creates(&mut client, "warm")?;
    let latency = creates(&mut client, "before")?;
    let mut out = std::io::stdout();
    writeln!(out, "create before: {latency}; resident: {} MiB", resident_mib()?)?;
    let began = Instant::now();
    let cpu_began = cpu_time()?;
    for number in 0..kinds {
        keelson.registry().serve(&definition(number))?;
    }
    let wall = began.elapsed();
    let cpu = cpu_time()? - cpu_began;
    writeln!(out, "{kinds} kinds of {FIELDS} fields served in {wall:?}, CPU {cpu:?}")?;
    let latency = creates(&mut client, "after")?;
    writeln!(out, "create after: {latency}; resident: {} MiB", resident_mib()?)?;
    runtime.block_on(keelson.stop());
    Ok(())
}

fn definition(number: usize) -> Definition {
    let group = Str::from(format!("group{number}.example.com"));
    let gvk = GroupVersionKind::new(group.clone(), "v1", "Widget");
    let version = DefinedVersion {
        name: "v1".into(),
        is_served: true,
        schema: schema(gvk),
        structural: None,
        scale: None,
        selectable: vec![],
        columns: Default::default(),
        has_status: true,
        deprecation: None,
        openapi: Default::default(),
    };
    Definition {
        group,
        resource: "widgets".into(),
        singular: "widget".into(),
        kind: "Widget".into(),
        list_kind: "WidgetList".into(),
        short_names: vec![],
        categories: vec![],
        namespaced: true,
        since: None,
        definition: None,
        storage_version: "v1".into(),
        versions: vec![version],
    }
}

/// Returns the schema of an object whose `spec` has string fields.
fn schema(gvk: GroupVersionKind) -> Schema {
    let types = Catalogue::shared().types_with_object_meta(|meta, first| {
        let text = |n: usize| Field::new(format!("field{n}"), Shape::String);
        let metadata =
            Field { presence: Presence::Always, ..Field::new("metadata", Shape::Struct(meta)) };
        let widget = vec![
            Field::new("kind", Shape::String),
            Field::new("apiVersion", Shape::String),
            metadata,
            Field::new("spec", Shape::Struct(StructId(first.0 + 1))),
        ];
        vec![Struct::new("Widget", widget), Struct::new("spec", (0..FIELDS).map(text).collect())]
    });
    Schema { gvk, types: types.into(), root: Catalogue::shared().first_after_object_meta() }
}

/// Creates ConfigMaps one after the other, and returns the latencies as text.
fn creates(client: &mut TcpStream, prefix: &str) -> Result<String, Failure> {
    let mut times = Vec::with_capacity(CREATES);
    let cpu_began = cpu_time()?;
    for number in 0..CREATES {
        let body = format!(
            r#"{{"kind":"ConfigMap","apiVersion":"v1","metadata":{{"name":"{prefix}{number}"}}}}"#
        );
        let began = Instant::now();
        post(client, "/api/v1/namespaces/default/configmaps", &body)?;
        times.push(began.elapsed());
    }
    times.sort_unstable();
    let quantile = |q: f64| times[(CREATES as f64 * q) as usize];
    let p50: Duration = quantile(0.5);
    let p99: Duration = quantile(0.99);
    let cpu = (cpu_time()? - cpu_began) / u32::try_from(CREATES)?;
    Ok(format!("p50 {p50:?}, p99 {p99:?}, CPU {cpu:?} each"))
}

fn post(client: &mut TcpStream, path: &str, body: &str) -> Result<(), Failure> {
    let length = body.len();
    // One write: a second one would wait 40 ms for the delayed acknowledgement of the first.
    let request = format!(
        "POST {path} HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer t\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n\r\n{body}"
    );
    client.write_all(request.as_bytes())?;
    let mut answer = vec![];
    let mut buffer = [0; 16 << 10];
    loop {
        let count = client.read(&mut buffer)?;
        answer.extend_from_slice(&buffer[..count]);
        let text = String::from_utf8_lossy(&answer);
        let Some((head, rest)) = text.split_once("\r\n\r\n") else { continue };
        if !head.starts_with("HTTP/1.1 201") {
            return Err(text.into_owned().into());
        }
        let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
        if rest.len() >= length.unwrap_or("0").parse()? {
            return Ok(());
        }
    }
}

/// Returns the CPU time of the process.
fn cpu_time() -> Result<Duration, Failure> {
    let now = clock_gettime(ClockId::ProcessCPUTime);
    Ok(Duration::new(u64::try_from(now.tv_sec)?, u32::try_from(now.tv_nsec)?))
}

/// Returns `VmRSS` of this process.
fn resident_mib() -> Result<u64, Failure> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).ok_or("no VmRSS")?;
    Ok(line.trim().trim_end_matches(" kB").parse::<u64>()? / 1024)
}
