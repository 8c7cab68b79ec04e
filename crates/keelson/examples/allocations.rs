//! What a request costs in memory: bytes that the server allocates, as a multiple of the bytes that
//! go over the wire. `cargo run --release -p keelson --example allocations`
//!
//! The client is in the same process and allocates nothing while it is counted. An argument leaves out
//! the requests whose names do not have it, but for those that make what others change. A second one says
//! how many turns are counted: under callgrind, the difference between two numbers of turns is what the
//! requests cost in instructions.

use keelson::{AdmissionChain, Keelson};
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};
use std::alloc::System;
use std::io::{Read, Write};
use std::net::TcpStream;

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

/// Requests of each kind that are counted unless told otherwise, after as many that are not.
const TURNS: usize = 1_000;
/// Digits that differ from turn to turn, so that every body is as long as the others.
const DIGITS: usize = 8;
const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const PODS: &str = "/api/v1/namespaces/default/pods";
const JSON: &str = "application/json";

type Failure = Box<dyn std::error::Error>;

/// A request in which `@` stands for what differs.
struct Case {
    name: &'static str,
    method: &'static str,
    path: String,
    media: &'static str,
    body: String,
    /// What it makes, later requests change.
    is_needed: bool,
}

fn main() -> Result<(), Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let mut builder =
        Keelson::builder().in_memory().plain_http().no_controllers().token("t", "admin");
    // Nobody makes the account that pods ask for.
    builder.admission = AdmissionChain::new(&[], &["ServiceAccount".to_owned()])?;
    let keelson = runtime.block_on(builder.start())?;
    let address = keelson.address();
    // Dropped when the client ends, however it does.
    let (running, ended) = tokio::sync::oneshot::channel::<()>();
    let client = std::thread::spawn(move || {
        let _running = running;
        let done = TcpStream::connect(address).map_err(Failure::from).and_then(measure);
        done.map_err(|error| error.to_string())
    });
    runtime.block_on(async {
        let _ = ended.await;
        keelson.stop().await;
    });
    client.join().map_err(|_| "the client panicked")??;
    Ok(())
}

/// A pod as `keelson-bench` makes it.
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

/// The middle of a pod's body: as much as a real one says.
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

fn cases() -> Vec<Case> {
    let map = |name: &str, size: usize| {
        let payload = "x".repeat(size);
        format!(
            r#"{{"apiVersion":"v1","kind":"ConfigMap","metadata":{{"name":"{name}"}},
            "data":{{"turn":"@","payload":"{payload}"}}}}"#
        )
    };
    let post = |name, path: &str, body| Case {
        name,
        method: "POST",
        path: path.to_owned(),
        media: JSON,
        body,
        is_needed: false,
    };
    let patch = |name, media, query: &str, body| {
        let path = format!("{MAPS}/small-00000000{query}");
        Case { name, method: "PATCH", path, media, body, is_needed: false }
    };
    vec![
        Case {
            is_needed: true,
            ..post("POST a ConfigMap of 1 KiB", MAPS, map("small-@", 1 << 10))
        },
        post("POST a ConfigMap of 100 KiB", MAPS, map("large-@", 100 << 10)),
        post("POST a Pod of three containers", PODS, pod()),
        patch(
            "PATCH (merge) of 1 KiB",
            "application/merge-patch+json",
            "",
            map("small-00000000", 1 << 10),
        ),
        patch(
            "PATCH (strategic) of 1 KiB",
            "application/strategic-merge-patch+json",
            "",
            map("small-00000000", 1 << 10),
        ),
        patch(
            "PATCH (apply) of 1 KiB",
            "application/apply-patch+yaml",
            "?fieldManager=m&force=true",
            map("small-00000000", 1 << 10),
        ),
        post("POST a Pod of 1.6 KB", PODS, bench_pod("b-@", 1, 930)),
        Case {
            is_needed: true,
            ..post("POST a Pod of 10 KB", PODS, bench_pod("large-@", 4, 4_000))
        },
        Case {
            name: "PATCH (strategic) a Pod of 10 KB",
            method: "PATCH",
            path: format!("{PODS}/large-00000000"),
            media: "application/strategic-merge-patch+json",
            body: r#"{"metadata":{"annotations":{"turn":"@"}},
            "spec":{"containers":[{"name":"c0","image":"registry.example.org/app-@"}]}}"#
                .to_owned(),
            is_needed: false,
        },
    ]
}

fn measure(mut stream: TcpStream) -> Result<(), Failure> {
    stream.set_nodelay(true)?;
    let mut answer = vec![0; 1 << 20];
    let mut out = std::io::stdout();
    writeln!(out, "{:<32} {:>10} {:>10} {:>7}", "request", "wire", "allocated", "ratio")?;
    let mut args = std::env::args().skip(1);
    let wanted = args.next().unwrap_or_default();
    let turns = args.next().map_or(Ok(TURNS), |turns| turns.parse())?;
    for case in cases() {
        let is_wanted = case.name.contains(&wanted);
        if !is_wanted && !case.is_needed {
            continue;
        }
        let turns = if is_wanted { turns } else { 1 };
        let length = case.body.len() + case.body.matches('@').count() * (DIGITS - 1);
        let text = format!(
            "{} {} HTTP/1.1\r\nHost: h\r\nAuthorization: Bearer t\r\nContent-Type: {}\r\n\
             Content-Length: {length}\r\n\r\n{}",
            case.method,
            case.path,
            case.media,
            case.body.replace('@', &"0".repeat(DIGITS)),
        );
        let marks: Vec<usize> = text
            .match_indices(&"0".repeat(DIGITS))
            .map(|(at, _)| at)
            .filter(|at| differs(case.method, &text[..*at]))
            .collect();
        let mut bytes = text.into_bytes();
        let mut wire = 0;
        let mut region = Region::new(ALLOCATOR);
        for turn in 0..turns * 2 {
            if turn == turns {
                region = Region::new(ALLOCATOR);
                wire = 0;
            }
            for at in &marks {
                write!(&mut bytes[*at..*at + DIGITS], "{turn:0DIGITS$}")?;
            }
            stream.write_all(&bytes)?;
            wire += bytes.len() + exchange(&mut stream, &mut answer, case.name)?;
        }
        let allocated = region.change().bytes_allocated;
        writeln!(
            out,
            "{:<32} {:>10} {:>10} {:>7.1}",
            case.name,
            wire / turns,
            allocated / turns,
            allocated as f64 / wire as f64
        )?;
    }
    Ok(())
}

/// Whether the digits behind this beginning of a request differ from turn to turn.
fn differs(method: &str, before: &str) -> bool {
    let ends = if method == "POST" { "-" } else { "/app-" };
    before.ends_with(ends) || before.ends_with("\"turn\":\"")
}

/// Reads an answer whose length is told; how many bytes it has.
fn exchange(stream: &mut TcpStream, buffer: &mut [u8], name: &str) -> Result<usize, Failure> {
    let mut got = 0;
    loop {
        let more = stream.read(&mut buffer[got..])?;
        got += more;
        let end = buffer[..got].windows(4).position(|four| four == b"\r\n\r\n");
        let Some(end) = end.map(|at| at + 4) else {
            if more == 0 {
                return Err(format!("{name}: no answer").into());
            }
            continue;
        };
        let head = std::str::from_utf8(&buffer[..end])?;
        if !head.starts_with("HTTP/1.1 20") {
            return Err(format!("{name}: {}", String::from_utf8_lossy(&buffer[..got])).into());
        }
        let word = "content-length: ";
        let length = head.lines().find_map(|line| line.strip_prefix(word));
        let total = end + length.ok_or("no length")?.parse::<usize>()?;
        if got >= total {
            return Ok(total);
        }
    }
}
