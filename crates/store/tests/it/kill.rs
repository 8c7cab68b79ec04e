//! `kill -9` under load: a process writes, prints what was acknowledged, and is killed; nothing is
//! lost.

use std::collections::{BTreeMap, HashSet};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::MetadataExt;
use std::process::{Command, Stdio};
use std::sync::Arc;

use keelson_store::conformance::put;
use keelson_store::{Embedded, EmbeddedOptions, Revision, Store};
use tempfile::TempDir;

/// Environment variable of the process to be killed: the data directory.
const DIR: &str = "KEELSON_STORE_KILL_DIR";
const WRITERS: usize = 16;
const ACKNOWLEDGEMENTS: usize = 400;
const ROUNDS: usize = 6;
/// Most rounds until the file has been replaced.
const ROUNDS_MAX: usize = 60;
/// Number of revisions after which values change between small and large, so that the file is
/// rewritten.
const TURN: u64 = 90;

/// Does something only in the child process.
#[tokio::test]
async fn the_process_that_is_killed() {
    let Ok(dir) = std::env::var(DIR) else { return };
    let store = Embedded::open(EmbeddedOptions::new(dir)).expect("open");
    let writers: Vec<_> =
        (0..WRITERS).map(|n| tokio::spawn(write(Arc::clone(&store), n))).collect();
    for writer in writers {
        writer.await.unwrap();
    }
}

async fn write(store: Arc<Embedded>, writer: usize) {
    let key = format!("k{writer}");
    loop {
        let newest = store.revision().0;
        let times = if (newest / TURN).is_multiple_of(2) { 20_000 } else { 50 };
        let value = newest.to_string().repeat(times);
        let at = put(&*store, &key, &value).await;
        if at.0 % 50 == 0 {
            store.compact(Revision(at.0 - 40)).await.unwrap();
        }
        let line = format!("ack {writer} {at}\n");
        std::io::stdout().lock().write_all(line.as_bytes()).expect("parent");
    }
}

#[tokio::test]
async fn kill_loses_no_acknowledged_write() {
    let dir = TempDir::new().unwrap();
    let records = dir.path().join("records.redb");
    let mut newest = Revision(0);
    let mut files = HashSet::new();
    let mut round = 0;
    while round < ROUNDS || files.len() == 1 {
        assert!(round < ROUNDS_MAX, "the file has never been replaced");
        let acknowledged = write_and_kill(&dir, ACKNOWLEDGEMENTS + 17 * round);
        // A file system may give the number of a file that was replaced to a later one.
        let file = records.metadata().unwrap();
        files.insert((file.ino(), file.created().ok()));
        let store = Embedded::open(EmbeddedOptions::new(dir.path())).expect("open");
        for (writer, at) in acknowledged {
            assert!(at > newest, "round {round}: {at} after {newest}");
            let kv = store.get(format!("k{writer}").as_bytes()).await.unwrap();
            let found = kv.map(|kv| kv.modified);
            assert!(found >= Some(at), "round {round}: k{writer} at {found:?}, not {at}");
        }
        newest = store.revision();
        round += 1;
    }
}

/// Returns the newest acknowledged revision of each writer.
fn write_and_kill(dir: &TempDir, acknowledgements: usize) -> BTreeMap<usize, Revision> {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "kill::the_process_that_is_killed", "--nocapture"])
        .env(DIR, dir.path())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut acknowledged = BTreeMap::new();
    let mut lines = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    let mut count = 0;
    while lines.read_line(&mut line).unwrap() > 0 {
        // The kill may truncate the last line; the test harness prints other lines too.
        if let Some((_, ack)) = line.strip_suffix('\n').and_then(|line| line.split_once("ack ")) {
            let (writer, at) = ack.split_once(' ').unwrap();
            acknowledged.insert(writer.parse().unwrap(), Revision(at.parse().unwrap()));
            count += 1;
            if count == acknowledgements {
                child.kill().unwrap();
            }
        }
        line.clear();
    }
    child.wait().unwrap();
    assert!(count >= acknowledgements, "the child ended after {count}");
    acknowledged
}
