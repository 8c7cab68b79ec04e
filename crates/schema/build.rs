//! Embeds the descriptions of the built-in types. Without their source the build succeeds, and API
//! documents have no descriptions.

use keelson_descriptions::Texts;
use std::env;
use std::fs;
use std::path::Path;

/// The Kubernetes version whose descriptions are embedded.
const VERSION: &str = "v1_36";

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-env-changed={}", keelson_descriptions::VARIABLE);
    let texts = texts().unwrap_or_else(|fault| {
        println!("cargo::warning=API documents will have no descriptions: {fault}");
        // A missing file reruns this script in the next build.
        println!("cargo::rerun-if-changed=no-such-file");
        Texts::new()
    });
    write("descriptions.bin", &keelson_descriptions::pack(&texts));
    write("standard.rs", standard(&texts).as_bytes());
}

fn write(name: &str, content: &[u8]) {
    let out = env::var_os("OUT_DIR").expect("cargo sets OUT_DIR");
    let path = Path::new(&out).join(name);
    fs::write(&path, content).unwrap_or_else(|fault| panic!("write {}: {fault}", path.display()));
}

/// Returns constants with the descriptions of the members that every object has.
fn standard(texts: &Texts) -> String {
    let pod = texts.get("io.k8s.api.core.v1.Pod");
    ["apiVersion", "kind", "metadata"]
        .map(|member| {
            let text = pod.and_then(|pod| pod.get(member)).map_or("", String::as_str);
            let name =
                if member == "apiVersion" { "API_VERSION".into() } else { member.to_uppercase() };
            format!("pub const {name}: &str = {text:?};\n")
        })
        .concat()
}

fn texts() -> Result<Texts, String> {
    let here = env::var_os("CARGO_MANIFEST_DIR").expect("cargo sets CARGO_MANIFEST_DIR");
    let source = keelson_descriptions::find_source(Path::new(&here))
        .ok_or("the source of the crate k8s-openapi is not found")?;
    println!("cargo::rerun-if-changed={}", source.join("Cargo.toml").display());
    let texts = keelson_descriptions::extract(&source, VERSION)
        .map_err(|fault| format!("read {}: {fault}", source.display()))?;
    if texts.is_empty() {
        return Err(format!("{} holds none", source.display()));
    }
    Ok(texts)
}
