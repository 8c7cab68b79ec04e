//! The hash of a pod template, as kube-controller-manager computes it: FNV-1a of a text that Go's
//! reflection prints, with the names of Go's types and fields.
//!
//! `template_hash/types.txt` lists those types. It and the recorded hashes of generated templates
//! are printed by a program, which must be run again for another version of Kubernetes:
//!
//! ```sh
//! cd tests/go/templates
//! go run . types > ../../../crates/workloads/src/template_hash/types.txt
//! go run . hashes 1 400 > ../../../crates/workloads/src/template_hash/recorded.jsonl
//! ```
//!
//! Times within a template (other than absent ones) and its managedFields are printed as absent: Go
//! prints the time zone of its process with them.

mod dump;
mod quantities;
mod types;

use keelson_meta::Value;
use std::fmt::Write;

/// Returns the hash of a pod template, with the number of collisions so far.
pub(crate) fn of_template(template: &Value, collisions: Option<i64>) -> String {
    let mut hash = Fnv::default();
    // Writing to a hash cannot fail.
    let _ = dump::pod_template(template, &mut hash);
    if let Some(count) = collisions {
        // Eight bytes, of which the first four are the number.
        hash.update(&(count as u32).to_le_bytes());
        hash.update(&[0; 4]);
    }
    safe_text(hash.0)
}

/// Returns the hash of the data of a ControllerRevision, with the number of collisions so far as a
/// text behind it: FNV-1, which multiplies before it mixes a byte in.
pub(crate) fn of_data(data: &[u8], collisions: i64) -> String {
    let count = collisions.to_string();
    let bytes = data.iter().chain(count.as_bytes());
    let mix = |hash: u32, byte: &u8| hash.wrapping_mul(PRIME) ^ u32::from(*byte);
    safe_text(bytes.fold(BASIS, mix))
}

const BASIS: u32 = 0x811c_9dc5;
const PRIME: u32 = 0x0100_0193;

/// FNV-1a with 32 bits.
struct Fnv(u32);

impl Default for Fnv {
    fn default() -> Self {
        Fnv(BASIS)
    }
}

impl Fnv {
    fn update(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 ^ u32::from(*byte)).wrapping_mul(PRIME);
        }
    }
}

impl Write for Fnv {
    fn write_str(&mut self, text: &str) -> std::fmt::Result {
        self.update(text.as_bytes());
        Ok(())
    }
}

/// Returns the decimal digits of a hash as letters and digits that form no words.
fn safe_text(hash: u32) -> String {
    const LETTERS: &[u8; 27] = b"bcdfghjklmnpqrstvwxz2456789";
    let digits = hash.to_string();
    digits.bytes().map(|digit| char::from(LETTERS[usize::from(digit) % LETTERS.len()])).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use keelson_schema::json;

    #[test]
    fn generated_templates_have_the_hashes_that_go_computes() {
        let mut count = 0;
        for line in include_str!("template_hash/recorded.jsonl").lines() {
            let case = json::parse(line.as_bytes()).expect("a recorded case").value;
            let template = case.get("template").expect("a template");
            let hash = of_template(template, case.int_at(&["collisions"]));
            assert_eq!(Some(hash.as_str()), case.str_at(&["hash"]), "{line}");
            count += 1;
        }
        assert_eq!(count, 400);
    }
}
