//! The figures of `docs/storage.md`: `cargo run --release -p keelson-store --example figures`.
//!
//! Each part runs in a process of its own, so that its memory is its own. Arguments: the number of
//! objects (200000), and the directory to work in (a temporary one).

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use keelson_store::{
    CompactionWindow, Embedded, EmbeddedOptions, Op, Revision, Store, Txn, TxnOutcome,
};

/// The allocator of the server.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const WRITERS: u64 = 64;
const PARTS: [&str; 10] = [
    "empty",
    "latency",
    "rate-1k",
    "rate-4k",
    "updates",
    "fill",
    "killed",
    "clean",
    "churn",
    "empty-out",
];
/// Number of objects that a million updates are spread over.
const UPDATED: u64 = 10_000;
const UPDATES: u64 = 1_000_000;
/// The size of a directory is stable if it does not change for this long.
const STABLE_TIME: Duration = Duration::from_secs(5);

type Failure = Box<dyn std::error::Error>;

fn main() -> Result<(), Failure> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let objects = args.first().map_or(Ok(200_000), |text| text.parse())?;
    let dir = args.get(1).map_or_else(|| std::env::temp_dir().join("figures"), PathBuf::from);
    if let Some(part) = args.get(2) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build()?;
        return runtime.block_on(run(part, objects, &dir));
    }
    for part in PARTS {
        let part_args = [objects.to_string(), dir.display().to_string(), part.to_owned()];
        Command::new(std::env::current_exe()?).args(part_args).status()?;
    }
    std::fs::remove_dir_all(dir)?;
    Ok(())
}

async fn run(part: &str, objects: u64, dir: &Path) -> Result<(), Failure> {
    let small = dir.join(part);
    let large = dir.join("large");
    match part {
        "empty" => empty(&small).await,
        "latency" => latency(&small).await,
        "rate-1k" => rate(&small, 40_000, 1024).await,
        "rate-4k" => rate(&small, 40_000, 4096).await,
        "updates" => updates(&small).await,
        "fill" => {
            rate(&large, objects, 2048).await?;
            let store = open(&large)?;
            write_all(&store, WRITERS, 2048).await?;
            // Dies without closing the store, as with `kill -9`.
            std::process::abort();
        }
        "killed" | "clean" => load(part, &large).await,
        "churn" => churn(objects, &large).await,
        _ => empty_out(objects, &large).await,
    }
}

async fn empty(dir: &Path) -> Result<(), Failure> {
    for round in 0..3 {
        let start = Instant::now();
        let store = open(&dir.join(round.to_string()))?;
        let opened = start.elapsed();
        put(&store, 0, 100).await?;
        drop(store);
        let start = Instant::now();
        let store = open(&dir.join(round.to_string()))?;
        let opened = millis(opened);
        let again = millis(start.elapsed());
        print_line(format_args!("open empty {opened:.1} ms, again {again:.1} ms, {}", memory()?))?;
        drop(store);
    }
    Ok(())
}

async fn latency(dir: &Path) -> Result<(), Failure> {
    let store = open(dir)?;
    let mut times = Vec::new();
    for n in 0..4000 {
        let start = Instant::now();
        put(&store, n, 1024).await?;
        times.push(millis(start.elapsed()));
    }
    times.sort_by(f64::total_cmp);
    let half = times[2000];
    let most = times[3960];
    let last = times[3999];
    print_line(format_args!("1 writer, 1 KB: p50 {half:.3} p99 {most:.3} worst {last:.3} ms"))
}

async fn rate(dir: &Path, objects: u64, bytes: usize) -> Result<(), Failure> {
    let store = open(dir)?;
    let start = Instant::now();
    write_all(&store, objects, bytes).await?;
    let rate = objects as f64 / start.elapsed().as_secs_f64();
    let size = size(dir)?;
    print_line(format_args!(
        "{WRITERS} writers, {objects} objects of {bytes} bytes: {rate:.0}/s, disk {size:.0} MB, {}",
        memory()?
    ))
}

async fn load(part: &str, dir: &Path) -> Result<(), Failure> {
    let start = Instant::now();
    let store = open(dir)?;
    let opened = millis(start.elapsed());
    let indexed = memory()?;
    let start = Instant::now();
    let mut keys = 0;
    let mut bytes = 0;
    let mut count = |kv: keelson_store::KeyValue| {
        keys += 1;
        bytes += kv.value.len();
    };
    store.load(b"", None, &mut count).await?;
    let loaded = millis(start.elapsed());
    print_line(format_args!(
        "{part}: open {opened:.0} ms ({indexed}), load {keys} keys {} MB in {loaded:.0} ms, {}",
        bytes >> 20,
        memory()?
    ))
}

/// Updates the same objects repeatedly, while compaction follows a second behind.
async fn updates(dir: &Path) -> Result<(), Failure> {
    let store = open(dir)?;
    write_all(&store, UPDATED, 2048).await?;
    print_line(format_args!("{UPDATED} objects of 2048 bytes: disk {:.0} MB", size(dir)?))?;
    let start = Instant::now();
    let mut window = CompactionWindow::new(Duration::from_secs(1));
    let mut largest: f64 = 0.0;
    for _ in 0..UPDATES / UPDATED {
        write_all(&store, UPDATED, 2048).await?;
        if let Some(through) = window.observe(start.elapsed(), store.revision()) {
            store.compact(through).await?;
        }
        largest = largest.max(size(dir)?);
    }
    let rate = UPDATES as f64 / start.elapsed().as_secs_f64();
    print_line(format_args!(
        "{UPDATES} updates of them: {rate:.0}/s, disk {largest:.0} MB at most"
    ))?;
    store.compact(store.revision()).await?;
    let (size, after) = stable_size(dir).await?;
    print_line(format_args!(
        "history forgotten: disk {size:.0} MB, {after:.0} ms later, {}",
        memory()?
    ))
}

/// Waits until the size of the directory is stable. Returns it and the milliseconds until then.
async fn stable_size(dir: &Path) -> Result<(f64, f64), Failure> {
    let start = Instant::now();
    let mut last = size(dir)?;
    let mut since = start;
    while since.elapsed() < STABLE_TIME {
        tokio::time::sleep(Duration::from_millis(5)).await;
        let now = size(dir)?;
        if now != last {
            (last, since) = (now, Instant::now());
        }
    }
    Ok((last, millis(since - start)))
}

/// Writes every object again, twice, while compaction follows.
async fn churn(objects: u64, dir: &Path) -> Result<(), Failure> {
    let store = open(dir)?;
    print_line(format_args!("churn: disk {:.0} MB before", size(dir)?))?;
    let start = Instant::now();
    let mut window = CompactionWindow::new(Duration::from_secs(1));
    for quarter in 1..=8 {
        write_all(&store, objects / 4, 2048).await?;
        if let Some(through) = window.observe(start.elapsed(), store.revision()) {
            store.compact(through).await?;
        }
        print_line(format_args!("  after {quarter}/4: disk {:.0} MB", size(dir)?))?;
    }
    let rate = objects as f64 * 2.0 / start.elapsed().as_secs_f64();
    print_line(format_args!("churn: {rate:.0}/s, disk {:.0} MB, {}", size(dir)?, memory()?))?;
    store.compact(store.revision()).await?;
    let (size, after) = stable_size(dir).await?;
    print_line(format_args!("history forgotten: disk {size:.0} MB, {after:.0} ms later"))
}

async fn empty_out(objects: u64, dir: &Path) -> Result<(), Failure> {
    let store = open(dir)?;
    for first in (0..objects).step_by(1000) {
        let keys = first..(first + 1000).min(objects);
        let ops = keys.map(|n| Op::Delete { key: key(n).into() }).collect();
        store.txn(Txn { compare: vec![], ops }).await?;
    }
    store.compact(store.revision()).await?;
    let (rest, after) = stable_size(dir).await?;
    print_line(format_args!("all deleted and compacted: disk {rest:.0} MB, {after:.0} ms later"))?;
    drop(store);
    let start = Instant::now();
    let store = open(dir)?;
    let opened = millis(start.elapsed());
    print_line(format_args!("opened again in {opened:.1} ms: disk {:.0} MB", size(dir)?))?;
    drop(store);
    Ok(())
}

async fn write_all(store: &Arc<Embedded>, objects: u64, bytes: usize) -> Result<(), Failure> {
    let writers: Vec<_> = (0..WRITERS)
        .map(|writer| {
            let store = Arc::clone(store);
            tokio::spawn(async move {
                for n in (writer..objects).step_by(WRITERS as usize) {
                    put(&store, n, bytes).await.map_err(|error| error.to_string())?;
                }
                Ok::<_, String>(())
            })
        })
        .collect();
    for writer in writers {
        writer.await??;
    }
    Ok(())
}

async fn put(store: &Embedded, n: u64, bytes: usize) -> Result<Revision, Failure> {
    let op = Op::Put { key: key(n).into(), value: value(n, bytes).into(), lease: None };
    match store.txn(Txn { compare: vec![], ops: vec![op] }).await? {
        TxnOutcome::Committed(at) => Ok(at),
        TxnOutcome::Conflict { .. } => Err("a conflict without a compare".into()),
    }
}

fn key(n: u64) -> String {
    format!("/registry/pods/namespace-{:04}/deployment-0123456789-{n:010}", n % 1000)
}

/// Returns incompressible bytes.
fn value(n: u64, bytes: usize) -> Vec<u8> {
    let mut mixed = n.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let words = std::iter::repeat_with(|| {
        mixed ^= mixed << 13;
        mixed ^= mixed >> 7;
        mixed ^= mixed << 17;
        mixed.to_le_bytes()
    });
    words.take(bytes / 8).flatten().collect()
}

fn open(dir: &Path) -> Result<Arc<Embedded>, Failure> {
    Ok(Embedded::open(EmbeddedOptions::new(dir))?)
}

fn millis(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

/// Megabytes on disk, holes not counted.
fn size(dir: &Path) -> Result<f64, Failure> {
    let output = Command::new("du").arg("-sk").arg(dir).output()?;
    let text = String::from_utf8(output.stdout)?;
    let kilobytes: f64 = text.split_whitespace().next().unwrap_or("0").parse()?;
    Ok(kilobytes / 1024.0)
}

fn memory() -> Result<String, Failure> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find(|line| line.starts_with("VmRSS")).unwrap_or_default();
    let kilobytes: f64 = line.split_whitespace().nth(1).unwrap_or("0").parse()?;
    Ok(format!("resident {:.1} MB", kilobytes / 1024.0))
}

fn print_line(line: std::fmt::Arguments<'_>) -> Result<(), Failure> {
    Ok(writeln!(io::stdout(), "{line}")?)
}
