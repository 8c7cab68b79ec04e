//! Numbers of scores.

/// Returns a quotient of counts.
#[allow(clippy::cast_precision_loss, reason = "counts of nodes are small")]
pub fn share(part: i64, whole: i64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}

/// Returns a number without its fraction.
#[allow(clippy::cast_possible_truncation, reason = "scores are small")]
pub fn truncated(number: f64) -> i64 {
    number as i64
}
