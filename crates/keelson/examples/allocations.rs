//! Measures how many bytes the server allocates for a request, as a multiple of the bytes on the
//! wire. `cargo run --release -p keelson --example allocations [FILTER [ROUNDS]]`
//!
//! As a test it fails when a request allocates more than its maximum ratio.
//!
//! The client runs in the same process and allocates nothing during the measurement. `FILTER`
//! selects requests by a part of their name; requests that create objects for others always run.
//! `ROUNDS` is the number of counted rounds: under callgrind, the difference between two numbers of
//! rounds is the cost of the requests in instructions.

mod responses;

use keelson::{AdmissionChain, Keelson};
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};
use std::alloc::System;
use std::io::Write;
use std::net::TcpStream;

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

/// Default number of counted rounds of each request. As many uncounted rounds run before them.
const ROUNDS: usize = 1_000;
/// Number of digits that differ from round to round; fixed, so that all bodies have one length.
const DIGITS: usize = 8;
/// Most header lines of a request here.
const HEADER_LINES: usize = 100;
/// Maximum of allocated bytes for each byte on the wire.
const POST_RATIO_MAX: f64 = 5.5;
const PATCH_RATIO_MAX: f64 = 10.0;
const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/default/leases";
const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const PODS: &str = "/api/v1/namespaces/default/pods";
const JSON: &str = "application/json";
const MERGE: &str = "application/merge-patch+json";
const STRATEGIC: &str = "application/strategic-merge-patch+json";
const APPLY: &str = "application/apply-patch+yaml";
const APPLIED: &str = "?fieldManager=m&force=true";

type Failure = Box<dyn std::error::Error>;

/// A request in which `@` stands for the digits that differ from round to round.
struct Case {
    name: &'static str,
    method: &'static str,
    path: String,
    media: &'static str,
    body: String,
    /// Whether later requests change the object that it creates.
    is_needed: bool,
}

/// The cost of a case, summed over all rounds.
struct Cost {
    name: &'static str,
    rounds: usize,
    wire: usize,
    allocated: usize,
    ratio_max: f64,
}

impl Cost {
    fn ratio(&self) -> f64 {
        self.allocated as f64 / self.wire as f64
    }
}

fn main() -> Result<(), Failure> {
    let mut args = std::env::args().skip(1);
    let wanted = args.next().unwrap_or_default();
    let rounds = args.next().map_or(Ok(ROUNDS), |rounds| rounds.parse())?;
    let mut out = std::io::stdout();
    writeln!(
        out,
        "{:<34} {:>8} {:>10} {:>6} {:>6}",
        "request", "wire", "allocated", "ratio", "most"
    )?;
    for cost in costs(wanted, rounds)? {
        let Cost { name, rounds, wire, allocated, ratio_max } = cost;
        let ratio = cost.ratio();
        let wire = wire / rounds;
        let allocated = allocated / rounds;
        writeln!(out, "{name:<34} {wire:>8} {allocated:>10} {ratio:>6.1} {ratio_max:>6.1}")?;
    }
    Ok(())
}

/// Starts a server and measures the requests whose names contain `wanted`.
fn costs(wanted: String, rounds: usize) -> Result<Vec<Cost>, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let mut builder =
        Keelson::builder().in_memory().plain_http().no_controllers().token("t", "admin");
    // Without controllers the service account `default`, which pods need, does not exist.
    builder.admission.chain = AdmissionChain::new(&[], &["ServiceAccount".to_owned()])?;
    // What is reserved for header lines is not copied, nor touched before it is used.
    builder.serving.limits.header_lines_max = HEADER_LINES;
    let keelson = runtime.block_on(builder.start())?;
    let address = keelson.address();
    // Dropped when the client ends, also by a panic.
    let (running, ended) = tokio::sync::oneshot::channel::<()>();
    let client = std::thread::spawn(move || {
        let _running = running;
        let stream = TcpStream::connect(address).map_err(Failure::from);
        let done = stream.and_then(|stream| measure(stream, &wanted, rounds));
        done.map_err(|error| error.to_string())
    });
    runtime.block_on(async {
        let _ = ended.await;
        keelson.stop().await;
    });
    Ok(client.join().map_err(|_| "the client panicked")??)
}

/// Returns a pod like those of `keelson-bench`.
fn bench_pod(name: &str, containers: usize, padding: usize) -> String {
    let containers: Vec<String> = (0..containers)
        .map(|number| {
            let env: Vec<String> = (0..6)
                .map(|n| format!(r#"{{"name":"SETTING_{n}","value":"value-{number}-{n}"}}"#))
                .collect();
            format!(
                r#"{{"args":["--port=8080","--verbose"],"env":[{}],
                "image":"registry.example.org/team/app:1.2.3","name":"c{number}",
                "ports":[{{"containerPort":{},"name":"http"}}],
                "readinessProbe":{{"httpGet":{{"path":"/ready","port":8080}},"periodSeconds":5}},
                "resources":{{"limits":{{"memory":"128Mi"}},
                "requests":{{"cpu":"100m","memory":"64Mi"}}}},
                "volumeMounts":[{{"mountPath":"/etc/app","name":"config"}}]}}"#,
                env.join(","),
                8080 + number
            )
            .replace("\n                ", "")
        })
        .collect();
    format!(
        r#"{{"apiVersion":"v1","kind":"Pod","metadata":{{"annotations":{{"padding":"{}"}},"labels":{{"app":"bench","pod":"{name}"}},"name":"{name}"}},"spec":{{"automountServiceAccountToken":false,"containers":[{}],"nodeName":"node-0","volumes":[{{"configMap":{{"name":"config"}},"name":"config"}}]}}}}"#,
        "x".repeat(padding),
        containers.join(",")
    )
}

/// Returns a node's lease.
fn lease(name: &str) -> String {
    format!(
        r#"{{"apiVersion":"coordination.k8s.io/v1","kind":"Lease","metadata":{{"name":"{name}",
        "ownerReferences":[{{"apiVersion":"v1","kind":"Node","name":"node-0",
        "uid":"1b4e28ba-2fa1-41d2-883f-0016d3cca427"}}]}},"spec":{{"holderIdentity":"node-0",
        "leaseDurationSeconds":40,"renewTime":"2026-01-01T00:00:00.000000Z"}}}}"#
    )
}

/// Returns a pod with three containers and the usual fields.
fn pod() -> String {
    let containers: Vec<String> = (0..3)
        .map(|n| {
            format!(
                r#"{{"name":"c{n}","image":"registry.example.org/app:1","args":["--a","--b=c"],
                "env":[{{"name":"A","value":"b"}},{{"name":"C","value":"d"}}],
                "ports":[{{"containerPort":80{n}}}],
                "resources":{{"requests":{{"cpu":"100m","memory":"64Mi"}}}},
                "livenessProbe":{{"httpGet":{{"path":"/","port":80}}}}}}"#
            )
        })
        .collect();
    format!(
        r#"{{"apiVersion":"v1","kind":"Pod","metadata":{{"name":"p-@","labels":{{"app":"a"}}}},
        "spec":{{"containers":[{}]}}}}"#,
        containers.join(",")
    )
}

fn post(name: &'static str, path: &str, body: String) -> Case {
    let path = path.to_owned();
    Case { name, method: "POST", path, media: JSON, body, is_needed: false }
}

fn patch(name: &'static str, media: &'static str, path: String, body: String) -> Case {
    Case { name, method: "PATCH", path, media, body, is_needed: false }
}

fn cases() -> Vec<Case> {
    let mut cases = Vec::from(config_map_cases());
    cases.extend(pod_cases());
    cases.extend([
        Case { is_needed: true, ..post("POST a Lease", LEASES, lease("l-@")) },
        patch(
            "PATCH (merge) a Lease",
            MERGE,
            format!("{LEASES}/l-00000000"),
            r#"{"spec":{"renewTime":"2026-01-01T00:00:00.000000Z","holderIdentity":"node-@"}}"#
                .to_owned(),
        ),
    ]);
    cases
}

fn config_map_cases() -> [Case; 5] {
    let map = |name: &str, size: usize| {
        let payload = "x".repeat(size);
        format!(
            r#"{{"apiVersion":"v1","kind":"ConfigMap","metadata":{{"name":"{name}"}},
            "data":{{"round":"@","payload":"{payload}"}}}}"#
        )
    };
    let small = format!("{MAPS}/small-00000000");
    let change = || map("small-00000000", 1 << 10);
    [
        Case {
            is_needed: true,
            ..post("POST a ConfigMap of 1 KiB", MAPS, map("small-@", 1 << 10))
        },
        post("POST a ConfigMap of 100 KiB", MAPS, map("large-@", 100 << 10)),
        patch("PATCH (merge) of 1 KiB", MERGE, small.clone(), change()),
        patch("PATCH (strategic) of 1 KiB", STRATEGIC, small.clone(), change()),
        patch("PATCH (apply) of 1 KiB", APPLY, format!("{small}{APPLIED}"), change()),
    ]
}

fn pod_cases() -> [Case; 5] {
    let large = format!("{PODS}/large-00000000");
    [
        post("POST a Pod of three containers", PODS, pod()),
        post("POST a Pod of 1.6 KB", PODS, bench_pod("b-@", 1, 930)),
        Case {
            is_needed: true,
            ..post("POST a Pod of 10 KB", PODS, bench_pod("large-@", 4, 4_000))
        },
        patch(
            "PATCH (strategic) a Pod of 10 KB",
            STRATEGIC,
            large.clone(),
            r#"{"metadata":{"annotations":{"round":"@"}},
            "spec":{"containers":[{"name":"c0","image":"registry.example.org/app-@"}]}}"#
                .to_owned(),
        ),
        patch(
            "PATCH (apply) a Pod of 10 KB",
            APPLY,
            format!("{large}{APPLIED}"),
            r#"{"apiVersion":"v1","kind":"Pod","metadata":{"name":"large-00000000",
            "annotations":{"round":"@"}},
            "spec":{"containers":[{"name":"c0","image":"registry.example.org/app-@"}]}}"#
                .to_owned(),
        ),
    ]
}

fn measure(mut stream: TcpStream, wanted: &str, rounds: usize) -> Result<Vec<Cost>, Failure> {
    stream.set_nodelay(true)?;
    let mut buffer = vec![0; 1 << 20];
    let mut costs = vec![];
    for case in cases() {
        let is_wanted = case.name.contains(wanted);
        if !is_wanted && !case.is_needed {
            continue;
        }
        let rounds = if is_wanted { rounds } else { 1 };
        let length = case.body.len() + case.body.matches('@').count() * (DIGITS - 1);
        let text = format!(
            "{} {} HTTP/1.1\r\nHost: h\r\nAuthorization: Bearer t\r\nContent-Type: {}\r\n\
             Content-Length: {length}\r\n\r\n{}",
            case.method,
            case.path,
            case.media,
            case.body.replace('@', &"0".repeat(DIGITS)),
        );
        let digit_offsets: Vec<usize> = text
            .match_indices(&"0".repeat(DIGITS))
            .map(|(at, _)| at)
            .filter(|at| is_placeholder(case.method, &text[..*at]))
            .collect();
        let mut bytes = text.into_bytes();
        let mut wire = 0;
        let mut region = Region::new(ALLOCATOR);
        for round in 0..rounds * 2 {
            if round == rounds {
                region = Region::new(ALLOCATOR);
                wire = 0;
            }
            for at in &digit_offsets {
                write!(&mut bytes[*at..*at + DIGITS], "{round:0DIGITS$}")?;
            }
            stream.write_all(&bytes)?;
            let response = responses::read(&mut stream, &mut buffer)
                .map_err(|error| format!("{}: {error}", case.name))?;
            if !response.is_success() {
                return Err(
                    format!("{}: {}", case.name, String::from_utf8_lossy(response.bytes)).into()
                );
            }
            wire += bytes.len() + response.bytes.len();
        }
        let allocated = region.change().bytes_allocated;
        let ratio_max = if case.method == "POST" { POST_RATIO_MAX } else { PATCH_RATIO_MAX };
        costs.push(Cost { name: case.name, rounds, wire, allocated, ratio_max });
    }
    Ok(costs)
}

/// Whether the digits after this part of a request came from an `@`.
fn is_placeholder(method: &str, before: &str) -> bool {
    let ends: &[&str] = if method == "POST" { &["-"] } else { &["/app-", "node-"] };
    ends.iter().any(|end| before.ends_with(end)) || before.ends_with("\"round\":\"")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_request_allocates_more_than_its_maximum() {
        // Enough rounds for the history to pack replaced versions.
        let costs = costs(String::new(), 300).expect("every request succeeds");
        let over = costs.iter().filter(|cost| cost.ratio() > cost.ratio_max);
        let over: Vec<String> =
            over.map(|cost| format!("{}: {:.1}", cost.name, cost.ratio())).collect();
        assert_eq!(over, Vec::<String>::new());
    }
}
