//! Extracts the errors of klog output in a form in which two runs can be compared.

use std::collections::BTreeSet;

/// Texts of errors that depend on timing: write conflicts, and requests that a shutdown interrupts.
const RACES: [&str; 6] = [
    "the object has been modified; please apply your changes to the latest version",
    // A controller waits until its informer has its own write.
    "is not as new as written version",
    "informer cache is out of date",
    // An object was deleted before it was changed.
    "\\\" not found",
    "context canceled",
    "StorageError: invalid object, Code: 4",
];

/// Returns the distinct errors of a log: lines of level E, with `err=`, or about forbidden
/// requests, each as source position, message and error. Names, numbers and known races are left
/// out.
pub fn errors(log: &str) -> BTreeSet<String> {
    let is_error =
        |line: &&str| is_of_level(line, 'E') || line.contains(" err=") || line.contains("orbidden");
    let is_race = |line: &str| RACES.iter().any(|race| line.contains(race));
    let lines = log.lines().filter(is_error).filter(|line| !is_race(line));
    lines.map(|line| normalize(message(line))).collect()
}

/// Returns whether a line begins with a level and a date: `E1122 21:04:06.123456`.
fn is_of_level(line: &str, level: char) -> bool {
    let mut letters = line.chars();
    letters.next() == Some(level) && letters.take(4).all(|digit| digit.is_ascii_digit())
}

/// Returns what follows the time and the thread: `file.go:12] ...`.
fn message(line: &str) -> &str {
    let begin = line.find(".go:").and_then(|at| line[..at].rfind(' '));
    begin.map_or(line, |at| &line[at + 1..])
}

/// Returns position, message and error of `file.go:12] "words" key="names" err="why"`, with `#` for
/// names and numbers.
fn normalize(message: &str) -> String {
    let (position, rest) = message.split_once("] ").unwrap_or(("", message));
    let Some((words, fields)) = rest.strip_prefix('"').and_then(|rest| rest.split_once("\" "))
    else {
        return format!("{position}: {}", without_names(rest));
    };
    let error = fields.split_once("err=\"").map(|(_, error)| error).unwrap_or_default();
    // Quotes within the error are escaped.
    let end = error.match_indices('"').find(|(at, _)| !error[..*at].ends_with('\\'));
    let error = end.map_or(error, |(at, _)| &error[..at]);
    format!("{position}: {}: {}", words.trim_end_matches('"'), without_names(error))
}

/// Replaces quoted text and words with digits by `#`.
fn without_names(text: &str) -> String {
    let mut out = String::new();
    for (number, part) in text.replace("\\\"", "\"").split('"').enumerate() {
        if number % 2 == 1 {
            out.push_str("\"#\"");
            continue;
        }
        for word in part.split_inclusive([' ', '/', ',', ':', '(', ')', '[', ']']) {
            if word.chars().any(|letter| letter.is_ascii_digit()) {
                out.push('#');
                let last = word.chars().next_back().filter(|last| !last.is_ascii_alphanumeric());
                out.extend(last);
            } else {
                out.push_str(word);
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_are_equal_except_for_names_and_numbers() {
        let log = "I1122 21:00:00.1 7 a.go:1] \"fine\" key=\"a\"\n\
            E1122 21:00:00.123456       7 job.go:12] \"failed\" pod=\"x-abcde\" err=\"pods \\\"x\\\" gone: 7\"\n\
            E1122 21:00:09.923456     107 job.go:12] \"failed\" pod=\"y\" err=\"pods \\\"y\\\" gone: 9\" a=\"b\"\n\
            I1122 21:00:09.923456     107 job.go:13] \"retrying\" err=\"no\"\n\
            W1122 21:00:00.1 7 b.go:3] pods is forbidden: User \"x\" cannot\n\
            E1122 21:00:00.1 7 c.go:3] update: the object has been modified; please apply your \
            changes to the latest version and try again\n";
        let errors: Vec<String> = errors(log).into_iter().collect();
        let want = [
            "b.go:3: pods is forbidden: User \"#\" cannot",
            "job.go:12: failed: pods \"#\" gone: #",
            "job.go:13: retrying: no",
        ];
        assert_eq!(errors, want);
    }
}
