//! [`CompileErrors`]: the errors of an expression, printed as cel-go prints them, with the source
//! line and a mark below the position.

use std::fmt;

/// Maximum number of errors that are reported for one expression.
pub const REPORTED_ERRORS_MAX: usize = 100;

/// An error in an expression.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Issue {
    /// Offset in characters; `None` when the error concerns the whole expression.
    pub offset: Option<u32>,
    /// The message.
    pub message: String,
}

/// The errors of an expression.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CompileErrors {
    text: String,
    /// Sorted by offset.
    issues: Vec<Issue>,
    /// Number of errors, including those beyond [`REPORTED_ERRORS_MAX`].
    count: usize,
}

impl std::error::Error for CompileErrors {}

impl CompileErrors {
    /// Returns the errors, sorted by offset.
    pub fn issues(&self) -> &[Issue] {
        &self.issues
    }
}

/// Collects errors during compilation.
#[derive(Debug, Default)]
pub(crate) struct Issues {
    found: Vec<Issue>,
    count: usize,
}

impl Issues {
    pub(crate) fn report(&mut self, offset: u32, message: impl Into<String>) {
        self.add(Some(offset), message.into());
    }

    /// Reports an error of the whole expression.
    pub(crate) fn report_whole(&mut self, message: impl Into<String>) {
        self.add(None, message.into());
    }

    fn add(&mut self, offset: Option<u32>, message: String) {
        self.count += 1;
        if self.count <= REPORTED_ERRORS_MAX {
            self.found.push(Issue { offset, message });
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.found.is_empty()
    }

    /// Returns an error if issues were reported.
    pub(crate) fn finish(mut self, text: &str) -> Result<(), CompileErrors> {
        if self.found.is_empty() {
            return Ok(());
        }
        self.found.sort_by_key(|issue| issue.offset.map_or(-1, i64::from));
        Err(CompileErrors { text: text.to_owned(), issues: self.found, count: self.count })
    }
}

impl fmt::Display for CompileErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, issue) in self.issues.iter().enumerate() {
            if at > 0 {
                f.write_str("\n")?;
            }
            write_issue(f, &self.text, issue)?;
        }
        if self.count > self.issues.len() {
            write!(f, "\n{} more errors were truncated", self.count - self.issues.len())?;
        }
        Ok(())
    }
}

fn write_issue(f: &mut fmt::Formatter<'_>, text: &str, issue: &Issue) -> fmt::Result {
    if text.is_empty() {
        return write!(f, "ERROR: <input>:1:0: {}", issue.message);
    }
    let Some(offset) = issue.offset else {
        return write!(f, "ERROR: <input>:-1:0: {}", issue.message);
    };
    let mut left = offset as usize;
    let mut number = 1;
    let mut lines = text.split('\n');
    let mut line = lines.next().unwrap_or_default();
    loop {
        let length = line.chars().count();
        if left <= length {
            break;
        }
        let Some(next) = lines.next() else { break };
        left -= length + 1;
        number += 1;
        line = next;
    }
    write!(f, "ERROR: <input>:{number}:{}: {}", left + 1, issue.message)?;
    // Non-ASCII characters get a full-width dot, so that the mark stays aligned.
    write!(f, "\n | {}\n | ", line.replace('\t', " "))?;
    let mut chars = line.chars();
    for c in chars.by_ref().take(left) {
        f.write_str(if c.is_ascii() { "." } else { "\u{ff0e}" })?;
    }
    let wide = chars.next().is_some_and(|c| !c.is_ascii());
    f.write_str(if wide { "\u{ff3e}" } else { "^" })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mark_is_below_the_error_position() {
        let check = |text: &str, offset: u32, expected: &str| {
            let mut issues = Issues::default();
            issues.report(offset, "bad");
            assert_eq!(issues.finish(text).unwrap_err().to_string(), expected);
        };
        check("1 +", 3, "ERROR: <input>:1:4: bad\n | 1 +\n | ...^");
        check("a\n\tb c", 4, "ERROR: <input>:2:3: bad\n |  b c\n | ..^");
        check("'é' == 1", 2, "ERROR: <input>:1:3: bad\n | 'é' == 1\n | .\u{ff0e}^");
        check("", 0, "ERROR: <input>:1:0: bad");
        check("é", 0, "ERROR: <input>:1:1: bad\n | é\n | \u{ff3e}");
    }

    #[test]
    fn reported_errors_are_limited() {
        let mut issues = Issues::default();
        (0..103).for_each(|_| issues.report(0, "bad"));
        let message = issues.finish("x").unwrap_err().to_string();
        assert!(message.ends_with("\n3 more errors were truncated"), "{message}");
        assert_eq!(message.matches("ERROR").count(), REPORTED_ERRORS_MAX);
    }
}
