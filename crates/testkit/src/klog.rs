//! What programs of Kubernetes log as errors, in a form in which two runs can be compared.

use std::collections::BTreeSet;

/// What lines hold that another run at another speed may have too: writes that met another write, and what ended
/// while the server or the program did.
const RACES: [&str; 4] = [
    "the object has been modified; please apply your changes to the latest version",
    // A controller waits for its informer to see what it wrote.
    "is not as new as written version",
    "context canceled",
    "StorageError: invalid object, Code: 4",
];

/// The errors of a log and whatever it says is forbidden, each once, without what differs from run to run: times,
/// names in quotes, numbers. Lines of known races are left out.
pub fn errors(log: &str) -> BTreeSet<String> {
    let is_error = |line: &&str| is_of_level(line, 'E') || line.contains("orbidden");
    let is_race = |line: &str| RACES.iter().any(|race| line.contains(race));
    let lines = log.lines().filter(is_error).filter(|line| !is_race(line));
    lines.map(|line| plain(message(line))).collect()
}

/// Whether a line begins as `E1122 21:04:06.123456`.
fn is_of_level(line: &str, level: char) -> bool {
    let mut letters = line.chars();
    letters.next() == Some(level) && letters.take(4).all(|digit| digit.is_ascii_digit())
}

/// What follows the time and the thread: `file.go:12] ...`.
fn message(line: &str) -> &str {
    let begin = line.find(".go:").and_then(|at| line[..at].rfind(' '));
    begin.map_or(line, |at| &line[at + 1..])
}

/// Numbers, names and whatever looks random become `#`, and what `KEY="..."` holds is read as well.
fn plain(message: &str) -> String {
    let words = message.split_inclusive([' ', '"', '/', ',', '=', '\\', ':', '(', ')', '[', ']']);
    let mut out = String::new();
    for word in words {
        if word.chars().any(|letter| letter.is_ascii_digit()) {
            out.push('#');
            let last = word.chars().next_back().unwrap_or_default();
            if !last.is_ascii_alphanumeric() {
                out.push(last);
            }
        } else {
            out.push_str(word);
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_are_alike_whatever_their_numbers() {
        let log = "I1122 21:00:00.1 7 a.go:1] \"fine\"\n\
            E1122 21:00:00.123456       7 job.go:12] \"failed\" err=\"pods \\\"x-7fk2\\\" gone\"\n\
            E1122 21:00:09.923456     107 job.go:12] \"failed\" err=\"pods \\\"x-9ab1\\\" gone\"\n\
            W1122 21:00:00.1 7 b.go:3] pods is forbidden: no\n\
            E1122 21:00:00.1 7 c.go:3] update: the object has been modified; please apply your \
            changes to the latest version and try again\n";
        let errors: Vec<String> = errors(log).into_iter().collect();
        let want =
            ["b.go:#] pods is forbidden: no", "job.go:#] \"failed\" err=\"pods \\\"#\" gone\""];
        assert_eq!(errors, want);
    }
}
