//! Has the linker put the functions that a start runs beside each other. The kernel maps 64 kB around each page that
//! is touched: in any other order most of the program is resident once a server has started.

use std::path::Path;

/// The names of these functions, made by `cargo xtask startup-order`.
const ORDER: &str = "startup-order.txt";
/// Where rustc links by its own `lld`, the linker that reads such a file.
const LLD_TARGET: &str = "x86_64-unknown-linux-gnu";

fn main() {
    println!("cargo::rerun-if-changed={ORDER}");
    println!("cargo::rerun-if-env-changed=RUSTC_LINKER");
    let variable = |name: &str| std::env::var(name).unwrap_or_default();
    let flags = variable("CARGO_ENCODED_RUSTFLAGS");
    let has_own_linker = !variable("RUSTC_LINKER").is_empty()
        || ["linker", "fuse-ld", "link-self-contained"].iter().any(|word| flags.contains(word));
    let order = Path::new(&variable("CARGO_MANIFEST_DIR")).join(ORDER);
    if variable("PROFILE") == "release" && variable("TARGET") == LLD_TARGET && !has_own_linker {
        let order = format!("--symbol-ordering-file={}", order.display());
        // Another compiler has other names for the same functions.
        for argument in [&order, "--no-warn-symbol-ordering"] {
            println!("cargo::rustc-link-arg-bins=-Xlinker");
            println!("cargo::rustc-link-arg-bins={argument}");
        }
    }
}
