//! Embeds the descriptions of the built-in types. Without their source the build succeeds, and API
//! documents have no descriptions.

use std::env;
use std::fs;
use std::path::Path;

/// The Kubernetes version whose descriptions are embedded.
const VERSION: &str = "v1_36";

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-env-changed={}", keelson_descriptions::VARIABLE);
    let packed = texts().unwrap_or_else(|fault| {
        println!("cargo::warning=API documents will have no descriptions: {fault}");
        // A missing file reruns this script in the next build.
        println!("cargo::rerun-if-changed=no-such-file");
        keelson_descriptions::pack(&keelson_descriptions::Texts::new())
    });
    let out = env::var_os("OUT_DIR").expect("cargo sets OUT_DIR");
    let path = Path::new(&out).join("descriptions.bin");
    fs::write(&path, packed).unwrap_or_else(|fault| panic!("write {}: {fault}", path.display()));
}

fn texts() -> Result<Vec<u8>, String> {
    let here = env::var_os("CARGO_MANIFEST_DIR").expect("cargo sets CARGO_MANIFEST_DIR");
    let source = keelson_descriptions::find_source(Path::new(&here))
        .ok_or("the source of the crate k8s-openapi is not found")?;
    println!("cargo::rerun-if-changed={}", source.join("Cargo.toml").display());
    let texts = keelson_descriptions::extract(&source, VERSION)
        .map_err(|fault| format!("read {}: {fault}", source.display()))?;
    if texts.is_empty() {
        return Err(format!("{} holds none", source.display()));
    }
    Ok(keelson_descriptions::pack(&texts))
}
