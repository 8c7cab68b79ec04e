//! Compresses the files of `web/` and writes the table that `src/lib.rs` includes: one `Asset` for
//! each file, sorted by path.

use flate2::Compression;
use flate2::write::GzEncoder;
use sha2::{Digest, Sha256};
use std::error::Error;
use std::fmt::Write as _;
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};

/// Bytes of the hash in an entity tag.
const TAG_BYTES: usize = 12;
const FOLDER: &str = "web";

fn main() -> Result<(), Box<dyn Error>> {
    let out = PathBuf::from(std::env::var_os("OUT_DIR").ok_or("OUT_DIR is not set")?);
    let mut files = vec![];
    collect(Path::new(FOLDER), &mut files)?;
    files.sort();
    let mut table = String::from("&[\n");
    for (number, file) in files.iter().enumerate() {
        println!("cargo::rerun-if-changed={}", file.display());
        let text = fs::read(file)?;
        let compressed = out.join(format!("{number}.gz"));
        let mut encoder = GzEncoder::new(vec![], Compression::best());
        encoder.write_all(&text)?;
        fs::write(&compressed, encoder.finish()?)?;
        let path = file.strip_prefix(FOLDER)?.to_str().ok_or("a name that is no UTF-8")?;
        let media_type = media_type(file).ok_or(format!("{path}: no media type"))?;
        let digest = Sha256::digest(&text);
        let tag: String = digest.iter().take(TAG_BYTES).map(|byte| format!("{byte:02x}")).collect();
        let quoted = format!("\"{tag}\"");
        writeln!(
            table,
            "    Asset {{ path: {path:?}, media_type: {media_type:?}, etag: {quoted:?}, \
             gzip: include_bytes!({:?}) }},",
            compressed.display().to_string()
        )?;
    }
    table.push(']');
    println!("cargo::rerun-if-changed={FOLDER}");
    fs::write(out.join("assets.rs"), table)?;
    Ok(())
}

fn collect(folder: &Path, files: &mut Vec<PathBuf>) -> std::io::Result<()> {
    println!("cargo::rerun-if-changed={}", folder.display());
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            collect(&path, files)?;
        } else {
            files.push(path);
        }
    }
    Ok(())
}

fn media_type(file: &Path) -> Option<&'static str> {
    Some(match file.extension()?.to_str()? {
        "html" => "text/html; charset=utf-8",
        "css" => "text/css; charset=utf-8",
        "js" | "mjs" => "text/javascript; charset=utf-8",
        "svg" => "image/svg+xml",
        "txt" => "text/plain; charset=utf-8",
        _ => return None,
    })
}
