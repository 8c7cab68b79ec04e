//! Where cargo keeps the source of `k8s-openapi`.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};

const CRATE: &str = "k8s-openapi";

/// Names the folder of the crate outright, for builds that keep it elsewhere.
pub const VARIABLE: &str = "KEELSON_K8S_OPENAPI";

/// The folder of the crate: where [`VARIABLE`] says, in a `vendor` folder beside or above `below`,
/// or where cargo unpacks what it fetched. Of several versions that of `Cargo.lock` is taken.
pub fn find_source(below: &Path) -> Option<PathBuf> {
    if let Some(folder) = env::var_os(VARIABLE) {
        return Some(folder.into());
    }
    let version = below.ancestors().find_map(|folder| locked_version(&folder.join("Cargo.lock")));
    let numbered = version.map(|version| format!("{CRATE}-{version}"));
    let names: Vec<&str> = numbered.as_deref().into_iter().chain([CRATE]).collect();
    let vendored = below.ancestors().map(|folder| folder.join("vendor"));
    let fetched = cargo_homes().into_iter().flat_map(|home| {
        let registries = fs::read_dir(home.join("registry/src")).into_iter().flatten();
        registries.filter_map(|entry| Some(entry.ok()?.path()))
    });
    vendored
        .chain(fetched)
        .flat_map(|folder| names.iter().map(move |name| folder.join(name)))
        .find(|folder| folder.join("src/lib.rs").is_file())
}

/// `$CARGO_HOME`, and the folder that cargo uses when that is not set.
fn cargo_homes() -> Vec<PathBuf> {
    let named = env::var_os("CARGO_HOME").map(PathBuf::from);
    let default = ["HOME", "USERPROFILE"].into_iter().filter_map(env::var_os);
    named.into_iter().chain(default.map(|home| PathBuf::from(home).join(".cargo"))).collect()
}

fn locked_version(lock: &Path) -> Option<String> {
    let text = fs::read_to_string(lock).ok()?;
    let entry = text
        .split("[[package]]")
        .find(|entry| entry.lines().any(|line| line == format!("name = \"{CRATE}\"")))?;
    let version = entry.lines().find_map(|line| line.strip_prefix("version = \""))?;
    Some(version.trim_end_matches('"').to_owned())
}
