//! Kills processes that write to a store, again and again, and checks that nothing acknowledged is
//! lost.
//!
//! A kill is a SIGKILL of a process that has the store open with eight writers: after a random
//! number of acknowledgements, or, one in eight, at a random moment of its opening. The next
//! process opens the same data directory and tells what it finds, which must be the last
//! acknowledged write of each writer or the one that was under way. Values are small for a while
//! and large for a while, some writes are deletes, and history is compacted, so that the file is
//! also copied and replaced between kills.
//!
//! `cargo xtask kills --count 1000` runs it; Ctrl-C ends it with what has been done so far.
#![allow(clippy::print_stdout, clippy::unwrap_used, clippy::disallowed_methods)]

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use keelson_store::conformance::Rng;
use keelson_store::{Embedded, EmbeddedOptions, Op, Revision, Store, Txn, TxnOutcome};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Environment variable of the child: the data directory.
const DIR: &str = "KEELSON_KILLS_DIR";
const WRITERS: usize = 8;
/// The most acknowledgements before a kill.
const ACKNOWLEDGED_MAX: u64 = 60;
/// One in this many is killed while it opens the store.
const OPENING_PART: u64 = 8;
/// Longest time until a kill during opening.
const OPENING_MICROS_MAX: u64 = 4000;
/// Every `DELETE_EACH`-th write of a writer is a delete.
const DELETE_EACH: u64 = 7;
/// Number of revisions after which values change between small and large.
const TURN: u64 = 400;
const LARGE_REPEATS: usize = 8000;
/// Interval of progress lines.
const PROGRESS: Duration = Duration::from_secs(5);

fn main() {
    if let Ok(dir) = std::env::var(DIR) {
        return write_until_killed(Path::new(&dir));
    }
    let mut count = 1000;
    let mut jobs = 2;
    let mut seed = 1;
    let mut args = std::env::args().skip(1);
    while let Some(flag) = args.next() {
        let number = args.next().and_then(|text| text.parse().ok());
        match (flag.as_str(), number) {
            ("--count", Some(number)) => count = number,
            ("--jobs", Some(number)) => jobs = number,
            ("--seed", Some(number)) => seed = number,
            _ => panic!("--count N, --jobs N, --seed N; not {flag}"),
        }
    }
    let totals = Arc::new(Totals { count, ..Totals::default() });
    end_on_interrupt(Arc::clone(&totals));
    let start = Instant::now();
    std::thread::scope(|scope| {
        for job in 0..jobs {
            let totals = &totals;
            scope.spawn(move || run(totals, Rng(seed * 1000 + job)));
        }
        let mut last_progress = Instant::now();
        while !totals.is_over() {
            std::thread::sleep(Duration::from_millis(50));
            if last_progress.elapsed() >= PROGRESS {
                last_progress = Instant::now();
                println!("{}", totals.line(start));
            }
        }
    });
    println!("{}", totals.line(start));
    if totals.lost.load(Relaxed) > 0 {
        std::process::exit(1);
    }
}

/// Counters of all jobs.
#[derive(Default)]
struct Totals {
    count: u64,
    started: AtomicU64,
    kills: AtomicU64,
    openings: AtomicU64,
    acknowledged: AtomicU64,
    lost: AtomicU64,
    is_interrupted: AtomicBool,
}

impl Totals {
    fn is_over(&self) -> bool {
        self.is_interrupted.load(Relaxed) || self.kills.load(Relaxed) >= self.count
    }

    fn line(&self, start: Instant) -> String {
        let kills = self.kills.load(Relaxed);
        let time = start.elapsed().as_secs_f64();
        format!(
            "{kills} kills ({} while opening), {} writes acknowledged, {} lost, {time:.0} s, {:.0} kills/s",
            self.openings.load(Relaxed),
            self.acknowledged.load(Relaxed),
            self.lost.load(Relaxed),
            kills as f64 / time,
        )
    }
}

fn end_on_interrupt(totals: Arc<Totals>) {
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        if runtime.block_on(tokio::signal::ctrl_c()).is_ok() {
            totals.is_interrupted.store(true, Relaxed);
        }
    });
}

/// The newest write of a writer that must be there.
#[derive(Clone, Copy, Default, Debug)]
struct Known {
    /// Number of the write; 0 before the first.
    number: u64,
    revision: u64,
}

/// Kills one process after the other on a directory of its own.
fn run(totals: &Totals, mut rng: Rng) {
    let dir = tempfile::tempdir().unwrap();
    let mut known = [Known::default(); WRITERS];
    while totals.started.fetch_add(1, Relaxed) < totals.count
        && !totals.is_interrupted.load(Relaxed)
    {
        let mut child = start(dir.path(), &known);
        let mut lines = BufReader::new(child.stdout.take().unwrap());
        if rng.below(OPENING_PART) == 0 {
            std::thread::sleep(Duration::from_micros(rng.below(OPENING_MICROS_MAX)));
            totals.openings.fetch_add(1, Relaxed);
            child.kill().unwrap();
        }
        let killed_after = 1 + rng.below(ACKNOWLEDGED_MAX);
        let acknowledged = follow(&mut lines, &mut child, &mut known, killed_after);
        // Also after an error.
        child.kill().unwrap();
        child.wait().unwrap();
        totals.kills.fetch_add(1, Relaxed);
        match acknowledged {
            Ok(count) => totals.acknowledged.fetch_add(count, Relaxed),
            Err(_) if totals.is_interrupted.load(Relaxed) => 0,
            Err(what) => {
                println!("LOST in {}: {what}", dir.path().display());
                // The directory is evidence.
                let _ = dir.keep();
                totals.lost.fetch_add(1, Relaxed);
                totals.is_interrupted.store(true, Relaxed);
                return;
            }
        };
    }
}

fn start(dir: &Path, known: &[Known]) -> Child {
    let numbers: Vec<String> = known.iter().map(|known| known.number.to_string()).collect();
    Command::new(std::env::current_exe().unwrap())
        .args(numbers)
        .env(DIR, dir)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap()
}

/// Reads and checks the lines of the child, and kills it. Returns the number of acknowledged
/// writes.
fn follow(
    lines: &mut BufReader<ChildStdout>,
    child: &mut Child,
    known: &mut [Known],
    killed_after: u64,
) -> Result<u64, String> {
    let mut line = String::new();
    let mut count = 0;
    let mut newest = 0;
    loop {
        line.clear();
        if lines.read_line(&mut line).unwrap() == 0 || !line.ends_with('\n') {
            return Ok(count);
        }
        let words: Vec<&str> = line.split_whitespace().collect();
        let number = |place: usize| words[place].parse::<u64>().unwrap();
        let acknowledged = known.iter().map(|known| known.revision).max().unwrap_or_default();
        match words[0] {
            "opened" if number(1) < acknowledged => {
                return Err(format!("revision {} after {acknowledged}", number(1)));
            }
            "opened" => newest = number(1),
            "has" => {
                let known = &mut known[number(1) as usize];
                let found = number(2);
                let revision = number(3);
                if found != known.number && found != known.number + 1 {
                    return Err(format!("{line} and not {known:?}"));
                }
                if found == known.number && revision != 0 && revision != known.revision {
                    return Err(format!("{line} and not {known:?}"));
                }
                if found > known.number {
                    let revision = if revision == 0 { newest } else { revision };
                    *known = Known { number: found, revision };
                }
            }
            "ack" => {
                known[number(1) as usize] = Known { number: number(2), revision: number(3) };
                count += 1;
                if count == killed_after {
                    child.kill().unwrap();
                }
            }
            _ => return Err(line),
        }
    }
}

/// The child: prints what it finds, then writes and prints what is acknowledged.
fn write_until_killed(dir: &Path) {
    let known: Vec<u64> = std::env::args().skip(1).map(|text| text.parse().unwrap()).collect();
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(async {
        let store = Embedded::open(EmbeddedOptions::new(dir)).unwrap();
        print_line(&format!("opened {}\n", store.revision()));
        let mut writers = vec![];
        for (writer, known) in known.into_iter().enumerate() {
            let kv = store.get(key(writer).as_bytes()).await.unwrap();
            let (number, revision) = match &kv {
                // A delete has no number: it must be the one expected here.
                None => (if is_delete(known) { known } else { known + 1 }, 0),
                Some(kv) => {
                    let text = std::str::from_utf8(&kv.value).unwrap();
                    let number = text.split(' ').next().unwrap().parse().unwrap();
                    assert!(text.replace(&format!("{number} "), "").is_empty(), "a value is torn");
                    (number, kv.modified.0)
                }
            };
            if kv.is_some() == is_delete(number) {
                print_line(&format!("wrong {writer} {number} {revision}\n"));
                return;
            }
            print_line(&format!("has {writer} {number} {revision}\n"));
            writers.push(tokio::spawn(write(Arc::clone(&store), writer, number)));
        }
        for writer in writers {
            writer.await.unwrap();
        }
    });
}

async fn write(store: Arc<Embedded>, writer: usize, mut number: u64) {
    loop {
        number += 1;
        let newest = store.revision().0;
        let is_large = (newest / TURN) % 2 == 1;
        let repeats = if is_large { LARGE_REPEATS } else { 20 };
        let op = if is_delete(number) {
            Op::Delete { key: key(writer).into() }
        } else {
            Op::put(key(writer), format!("{number} ").repeat(repeats))
        };
        let done = store.txn(Txn { compare: vec![], ops: vec![op] }).await.unwrap();
        let TxnOutcome::Committed(at) = done else { panic!("{done:?}") };
        print_line(&format!("ack {writer} {number} {at}\n"));
        if at.0 % 50 == 0 {
            store.compact(Revision(at.0 - 40)).await.unwrap();
        }
    }
}

fn key(writer: usize) -> String {
    format!("k{writer}")
}

/// Before the first write a key is absent, as after a delete.
fn is_delete(number: u64) -> bool {
    number.is_multiple_of(DELETE_EACH)
}

fn print_line(line: &str) {
    // The parent has exited.
    if std::io::stdout().lock().write_all(line.as_bytes()).is_err() {
        std::process::exit(1);
    }
}
