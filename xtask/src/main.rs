//! The project's own tools: `cargo xtask tidy`, `cargo xtask catalogue`, `cargo xtask ci`.

fn main() {}
