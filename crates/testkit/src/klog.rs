//! What programs of Kubernetes log as errors, in a form in which two runs can be compared.

use std::collections::BTreeSet;

/// What lines hold that another run at another speed may have too: writes that met another write, and what ended
/// while the server or the program did.
const RACES: [&str; 6] = [
    "the object has been modified; please apply your changes to the latest version",
    // A controller waits for its informer to see what it wrote.
    "is not as new as written version",
    "informer cache is out of date",
    // An object that was gone when it was to be changed.
    "\\\" not found",
    "context canceled",
    "StorageError: invalid object, Code: 4",
];

/// The errors of a log, whatever else names an error, and whatever it says is forbidden: each once, as its place, its
/// words and its error, without what differs from run to run. Lines of known races are left out.
pub fn errors(log: &str) -> BTreeSet<String> {
    let is_error =
        |line: &&str| is_of_level(line, 'E') || line.contains(" err=") || line.contains("orbidden");
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

/// `file.go:12] "words" key="names" err="why"` without its keys, and with `#` for each name and number.
fn plain(message: &str) -> String {
    let (place, rest) = message.split_once("] ").unwrap_or(("", message));
    let Some((words, fields)) = rest.strip_prefix('"').and_then(|rest| rest.split_once("\" "))
    else {
        return format!("{place}: {}", without_names(rest));
    };
    let error = fields.split_once("err=\"").map(|(_, error)| error).unwrap_or_default();
    // The quotes within are escaped.
    let end = error.match_indices('"').find(|(at, _)| !error[..*at].ends_with('\\'));
    let error = end.map_or(error, |(at, _)| &error[..at]);
    format!("{place}: {}: {}", words.trim_end_matches('"'), without_names(error))
}

/// What is in quotes, and words with digits in them, become `#`.
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
    fn errors_are_alike_whatever_their_numbers() {
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
