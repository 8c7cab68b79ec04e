//! `Maintenance.Snapshot`: a file that etcd's own tools read and restore, as etcd 3.6 writes it.
//!
//! It is the state of one revision, with the history that is not compacted, and the leases with
//! their full time to live. It is written to a temporary file without a name in the data folder
//! before it is sent, since its first pages say where the last ones are.

mod bolt;

use std::fs::File;
use std::io::{self, BufWriter, Read, Seek, SeekFrom};
use std::ops::ControlFlow;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::Stream;
use futures_util::stream::unfold;
use keelson_store::Store;
use prost::Message;
use serde_json::json;
use sha2::{Digest, Sha256};
use tokio::sync::mpsc;
use tonic::Status;

use crate::engine::{Engine, TERM};
use crate::error::EtcdError;
use crate::hash::{KEY_BUCKET, Row};
use crate::limits::SNAPSHOT_PIECE_BYTES;
use crate::proto::{EmptyRequest, SnapshotResponse, StoredLease};
use crate::record::{from_etcd, to_etcd};
use crate::service::STORAGE_VERSION;

use bolt::BoltFile;

/// Pieces that are read ahead of the client.
const PIECES_MAX: usize = 4;

/// Makes a snapshot, and returns its pieces: those of the file, then its checksum.
pub(crate) fn stream(
    engine: Arc<Engine>,
    _: EmptyRequest,
) -> impl Stream<Item = Result<SnapshotResponse, Status>> + Send + 'static {
    let (sender, receiver) = mpsc::channel(PIECES_MAX);
    let making = async move {
        let Ok(permit) = Arc::clone(&engine.long_reads).acquire_owned().await else { return };
        // Ends early when the client is gone, since then no piece can be sent.
        let sending = tokio::task::spawn_blocking(move || {
            let _permit = permit;
            if let Err(error) = write(&engine).and_then(|file| send(&engine, file, &sender)) {
                let _ = sender.blocking_send(Err(error.into()));
            }
        });
        let _ = sending.await;
    };
    tokio::spawn(making);
    unfold(receiver, |mut receiver| async move {
        let piece = receiver.recv().await?;
        Some((piece, receiver))
    })
}

/// Writes the file.
fn write(engine: &Engine) -> Result<File, EtcdError> {
    let file = match &engine.options.data_dir {
        Some(dir) => tempfile::tempfile_in(dir),
        None => tempfile::tempfile(),
    };
    let mut bolt = file.and_then(|file| BoltFile::new(BufWriter::new(file))).map_err(io_error)?;
    let compacted = engine.compacted();
    let newest = engine.store.revision();
    let write = || -> Result<BufWriter<File>, EtcdError> {
        let member = format!("{:x}", engine.ids.member);
        let meta = meta_rows(engine, compacted, to_etcd(newest));
        // In the order of their names.
        for name in ["alarm", "auth", "authRoles", "authUsers", "cluster"] {
            let mut bucket = bolt.bucket(name.as_bytes());
            if name == "cluster" {
                bucket.push(b"clusterVersion", STORAGE_VERSION.as_bytes()).map_err(io_error)?;
            }
            bucket.finish().map_err(io_error)?;
        }
        write_keys(engine, &mut bolt, compacted, newest)?;
        write_leases(engine, &mut bolt)?;
        let mut members = bolt.bucket(b"members");
        let shown = member_json(engine).to_string();
        members.push(member.as_bytes(), shown.as_bytes()).map_err(io_error)?;
        members.finish().map_err(io_error)?;
        bolt.bucket(b"members_removed").finish().map_err(io_error)?;
        let mut bucket = bolt.bucket(b"meta");
        for (name, value) in meta {
            bucket.push(name, &value).map_err(io_error)?;
        }
        bucket.finish().map_err(io_error)?;
        bolt.finish().map_err(io_error)
    };
    let mut file = write()?.into_inner().map_err(|error| io_error(error.into_error()))?;
    file.seek(SeekFrom::Start(0)).map_err(io_error)?;
    Ok(file)
}

/// Rows of the bucket of the file itself, in order.
fn meta_rows(engine: &Engine, compacted: i64, newest: i64) -> Vec<(&'static [u8], Vec<u8>)> {
    let members = json!({"voters": [engine.ids.member], "auto_leave": false});
    let mut rows: Vec<(&'static [u8], Vec<u8>)> = vec![
        (b"confState", members.to_string().into_bytes()),
        // Of a log that there is not; whoever restores it begins a new one.
        (b"consistent_index", newest.to_be_bytes().to_vec()),
    ];
    if compacted > 0 {
        let mut revision = compacted.to_be_bytes().to_vec();
        revision.push(b'_');
        revision.extend_from_slice(&[0; 8]);
        rows.push((b"finishedCompactRev", revision.clone()));
        rows.push((b"scheduledCompactRev", revision));
    }
    rows.push((b"storageVersion", STORAGE_VERSION.as_bytes().to_vec()));
    rows.push((b"term", TERM.to_be_bytes().to_vec()));
    rows
}

fn member_json(engine: &Engine) -> serde_json::Value {
    json!({
        "id": engine.ids.member,
        "peerURLs": engine.options.peer_urls,
        "name": engine.options.name,
        "clientURLs": engine.options.client_urls,
    })
}

fn write_keys(
    engine: &Engine,
    bolt: &mut BoltFile<BufWriter<File>>,
    compacted: i64,
    newest: keelson_store::Revision,
) -> Result<(), EtcdError> {
    let mut bucket = bolt.bucket(KEY_BUCKET);
    let mut written = Ok(());
    engine.store.records(from_etcd(compacted), newest, &mut |record| {
        written = Row::of(record)
            .and_then(|Row { key, value }| bucket.push(&key, &value).map_err(io_error));
        if written.is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    })?;
    written?;
    bucket.finish().map_err(io_error)
}

fn write_leases(engine: &Engine, bolt: &mut BoltFile<BufWriter<File>>) -> Result<(), EtcdError> {
    let mut leases = engine.leases.table().granted();
    leases.sort_unstable_by_key(|(id, _)| id.cast_unsigned());
    let mut bucket = bolt.bucket(b"lease");
    for (id, ttl) in leases {
        let value = StoredLease { id, ttl, remaining_ttl: 0 }.encode_to_vec();
        bucket.push(&id.to_be_bytes(), &value).map_err(io_error)?;
    }
    bucket.finish().map_err(io_error)
}

/// Sends the file and its checksum.
fn send(
    engine: &Engine,
    mut file: File,
    sender: &mpsc::Sender<Result<SnapshotResponse, Status>>,
) -> Result<(), EtcdError> {
    let mut remaining = file.metadata().map_err(io_error)?.len();
    let header = Some(engine.header(engine.revision()));
    let response = |blob: Bytes, remaining_bytes: u64| SnapshotResponse {
        header,
        remaining_bytes,
        blob,
        version: STORAGE_VERSION.to_owned(),
    };
    let mut sum = Sha256::new();
    while remaining > 0 {
        let mut piece =
            vec![0; SNAPSHOT_PIECE_BYTES.min(usize::try_from(remaining).unwrap_or(usize::MAX))];
        file.read_exact(&mut piece).map_err(io_error)?;
        sum.update(&piece);
        remaining -= piece.len() as u64;
        if sender.blocking_send(Ok(response(piece.into(), remaining))).is_err() {
            return Ok(());
        }
    }
    let sum = Bytes::copy_from_slice(&sum.finalize());
    // The client may be gone.
    let _ = sender.blocking_send(Ok(response(sum, 0)));
    Ok(())
}

fn io_error(error: io::Error) -> EtcdError {
    EtcdError::Storage(error.to_string())
}
