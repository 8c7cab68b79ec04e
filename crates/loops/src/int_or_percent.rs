//! Numbers that may be percentages (`IntOrString`): `maxSurge`, `maxUnavailable`, `minAvailable`.

use keelson_meta::Value;

/// How a share that is no whole number is rounded.
#[derive(Clone, Copy, Debug)]
pub enum Rounding {
    /// To the next larger number.
    Up,
    /// To the next smaller number.
    Down,
}

/// Returns a number, or a percentage of `total`; 0 for what validation rejects.
pub fn resolve(value: Option<&Value>, total: i64, rounding: Rounding) -> i64 {
    value.and_then(|value| checked(value, total, rounding)).unwrap_or(0)
}

/// Returns a number, or a percentage of `total`; `None` if it is neither.
pub fn checked(value: &Value, total: i64, rounding: Rounding) -> Option<i64> {
    if let Some(number) = value.as_int() {
        return Some(number);
    }
    let percent = value.as_str()?.strip_suffix('%')?.parse::<i64>().ok()?;
    let product = percent.saturating_mul(total);
    Some(match rounding {
        Rounding::Up => product.saturating_add(99).div_euclid(100),
        Rounding::Down => product.div_euclid(100),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_rounded_as_asked() {
        let check = |value: Value, total, up, down| {
            assert_eq!(resolve(Some(&value), total, Rounding::Up), up, "{value:?} of {total}");
            assert_eq!(resolve(Some(&value), total, Rounding::Down), down, "{value:?} of {total}");
        };
        check(2.into(), 10, 2, 2);
        check("25%".into(), 10, 3, 2);
        check("25%".into(), 3, 1, 0);
        check("100%".into(), 7, 7, 7);
        check("0%".into(), 7, 0, 0);
        assert_eq!(resolve(None, 7, Rounding::Up), 0);
    }
}
