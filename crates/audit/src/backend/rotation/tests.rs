//! Tests of names, removal and compression of rotated files.

use super::*;
use std::io::Read;
use std::os::unix::fs::PermissionsExt;

fn noon() -> Timestamp {
    Timestamp::parse("2026-05-01T12:00:00.25Z").expect("a time")
}

/// Returns the files of a folder with their content, sorted by name.
fn files(folder: &Path) -> Vec<(String, String)> {
    let read = |entry: io::Result<fs::DirEntry>| {
        let path = entry.expect("an entry").path();
        let name = path.file_name().expect("a name").to_string_lossy().into_owned();
        let mut text = String::new();
        let file = File::open(&path).expect("a file");
        let done = if name.ends_with(COMPRESSED) {
            flate2::read::GzDecoder::new(file).read_to_string(&mut text)
        } else {
            (&file).read_to_string(&mut text)
        };
        done.expect("a text");
        (name, text)
    };
    let mut files: Vec<_> = fs::read_dir(folder).expect("a folder").map(read).collect();
    files.sort();
    files
}

fn texts(expected: &[(&str, &str)]) -> Vec<(String, String)> {
    expected.iter().map(|(name, text)| ((*name).to_owned(), (*text).to_owned())).collect()
}

fn write_line(file: &mut RotatedFile, line: &str) {
    file.write(line.as_bytes(), [line.len()]).expect("a write");
}

fn write(rotation: Rotation, lines: &[&str], folder: &Path) {
    let path = folder.join("audit.log");
    let mut file = RotatedFile::open(path, rotation, noon).expect("a log");
    for line in lines {
        write_line(&mut file, line);
        if let Some(cleaning) = file.cleaning.take() {
            cleaning.join().expect("the thread of the rotation");
        }
    }
}

#[test]
fn a_full_file_gets_the_time_in_its_name() {
    let folder = tempfile::tempdir().expect("a folder");
    write(
        Rotation { bytes: 8, ..Rotation::default() },
        &["aaa\n", "bbb\n", "ccc\n"],
        folder.path(),
    );
    // A server that starts again appends.
    write(Rotation { bytes: 8, ..Rotation::default() }, &["ddd\n", "eee\n"], folder.path());
    let expected = [
        ("audit-2026-05-01T12-00-00.250.log", "aaa\nbbb\n"),
        ("audit-2026-05-01T12-00-00.251.log", "ccc\nddd\n"),
        ("audit.log", "eee\n"),
    ];
    assert_eq!(files(folder.path()), texts(&expected));
    let mode = fs::metadata(folder.path().join("audit.log")).expect("a file").permissions().mode();
    assert_eq!(mode & 0o777, FILE_MODE);
}

#[test]
fn too_many_and_too_old_files_are_removed_and_others_compressed() {
    let folder = tempfile::tempdir().expect("a folder");
    let put = |name: &str| fs::write(folder.path().join(name), "old\n").expect("a file");
    put("audit-2026-04-29T12-00-00.000.log");
    put("audit-2026-04-30T12-30-00.000.log");
    put("audit-other.log");
    let rotation = Rotation { bytes: 4, days_max: 1, backups_max: 2, compresses: true };
    write(rotation, &["aaa\n", "bbb\n"], folder.path());
    let expected = [
        ("audit-2026-04-30T12-30-00.000.log.gz", "old\n"),
        ("audit-2026-05-01T12-00-00.250.log.gz", "aaa\n"),
        ("audit-other.log", "old\n"),
        ("audit.log", "bbb\n"),
    ];
    assert_eq!(files(folder.path()), texts(&expected));
    write(rotation, &["ccc\n"], folder.path());
    let names: Vec<String> = files(folder.path()).into_iter().map(|(name, _)| name).collect();
    let expected = [
        "audit-2026-05-01T12-00-00.250.log.gz",
        "audit-2026-05-01T12-00-00.251.log.gz",
        "audit-other.log",
        "audit.log",
    ];
    assert_eq!(names, expected);
}

#[test]
fn a_line_longer_than_a_file_is_refused_and_a_torn_line_ended() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("deep/er/audit");
    let rotation = Rotation { bytes: 20, ..Rotation::default() };
    let mut file = RotatedFile::open(path.clone(), rotation, noon).expect("a log");
    let refused = check_length(21, file.line_bytes_max());
    assert_eq!(refused, Err("write length 21 exceeds maximum file size 20".to_owned()));
    assert_eq!(check_length(20, file.line_bytes_max()), Ok(()));
    write_line(&mut file, "half");
    drop(file);
    let mut file = RotatedFile::open(path.clone(), rotation, noon).expect("a log");
    write_line(&mut file, "next\n");
    assert_eq!(fs::read_to_string(path).expect("a text"), "half\nnext\n");
}

#[test]
fn lines_written_together_are_those_of_single_writes() {
    let single = tempfile::tempdir().expect("a folder");
    let together = tempfile::tempdir().expect("a folder");
    let lines = ["aaa\n", "bbb\n", "cccc\n", "d\n", "eeeeeee\n"];
    let rotation = Rotation { bytes: 8, ..Rotation::default() };
    write(rotation, &lines, single.path());
    let mut file =
        RotatedFile::open(together.path().join("audit.log"), rotation, noon).expect("a log");
    file.write(lines.concat().as_bytes(), lines.map(str::len)).expect("a write");
    assert_eq!(files(together.path()), files(single.path()));
}
