//! The project's own tools; `cargo xtask help` lists them.

mod attack;
mod bench;
mod catalogue;
mod ci;
mod fuzz;
mod kills;
mod rbac;
mod requirements;
mod startup_order;
mod tidy;
mod transcripts;

use anyhow::{Result, bail};

const HELP: &str = "\
cargo xtask ci
    Builds everything and runs all checks and tests. Installs kubectl, etcd and cargo-nextest when missing.
cargo xtask attack [--seconds N] [--only NAME] [--list] [--strict] [--kubeconfig FILE --pid PID]
    Attacks a server on this host in some thirty ways, in a minute or so, while an administrator asks it
    every 20 ms. Fails when an answer takes 100 ms, memory passes 300 MB, or something is lost. Faults that
    are known fail only with --strict.
cargo xtask fuzz [--seconds N] [--target NAME] [--seed N] [--trace FILE] [--input FILE]
    Gives random inputs to the decoders, parsers and patches, each target for N seconds (default 60).
    A fault is told with its input and round; with --trace the last input is kept even when the
    process dies, and --input tries it again.
cargo xtask kills [--count N] [--jobs N] [--seed N]
    Kills processes that write to a store N times (default 1000) and checks after each that no acknowledged
    write is lost; some hundred in ten seconds. Ctrl-C ends it with what has been done so far.
    With --server it kills whole servers (default 20, about one a second).
cargo xtask tidy
    Checks what a machine can check of STYLE.md and ARCHITECTURE.md.
cargo xtask rbac DIR
    Writes the default roles and bindings of RBAC, crates/builtin/src/bootstrap/rbac.txt, from those of a
    kube-apiserver: DIR/clusterroles.json and so on, as `kubectl get clusterroles -A -o json` prints them.
cargo xtask record --server URL --token TOKEN [FILE|all]
cargo xtask replay --server URL --token TOKEN [FILE|all]
    Sends the requests of transcripts, crates/*/tests/**/*.transcript, to a kube-apiserver 1.36 and keeps what it
    answers; or to any server and tells what it answers otherwise. --help tells more.
cargo xtask requirements [--check]
    Writes docs/requirements.md, which test proves which requirement of the API. With --check it only
    compares, and looks for requirements without a test where ../shared/spec is at hand.
cargo xtask bench [--compare FILE.json]
    Measures a release build, in about ten minutes, and writes docs/perf: every line of the budget, growth
    up to a million objects, and the verbs one by one.
cargo xtask startup-order
    Writes crates/keelson/startup-order.txt, the functions that a start runs: the linker puts them beside each
    other, which takes 10 MB off what an idle server has resident. Needs valgrind, perf and curl. The names
    are those of one compiler; others link the same program in another order.
cargo xtask soak [--seconds N]
    Runs a small cluster against a release build for 20 minutes, with a burst in the end, and writes
    docs/perf/soak.md. Fails when memory grows, a request fails or the burst is felt for a second.
cargo xtask catalogue [--reference DIR] [--check]
    Writes crates/schema/catalogue from OpenAPI v3 and v2 documents, a protobuf descriptor set and
    aggregated discovery found in DIR (default ../shared/reference). With --check it only compares.
";

fn main() -> Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match args.first().map(String::as_str) {
        Some("attack") => attack::run(&args[1..]),
        Some("bench") => bench::run(&args[1..]),
        Some("catalogue") => catalogue::run(&args[1..]),
        Some("ci") => ci::run(),
        Some("fuzz") => fuzz::run(&args[1..]),
        Some("kills") => kills::run(&args[1..]),
        Some("startup-order") => startup_order::run(),
        Some("soak") => bench::soak(&args[1..]),
        Some("rbac") => rbac::run(&args[1..]),
        Some("requirements") => requirements::run(&args[1..]),
        Some("record" | "replay") => transcripts::run(&args),
        Some("tidy") => tidy::run(),
        Some("help" | "--help" | "-h") | None => {
            use std::io::Write;
            std::io::stdout().write_all(HELP.as_bytes())?;
            Ok(())
        }
        Some(other) => bail!("unknown task {other:?}; `cargo xtask help` lists them"),
    }
}
