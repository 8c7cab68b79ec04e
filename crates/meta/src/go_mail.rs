//! Addresses of electronic mail, as Go's `net/mail` reads them (RFC 5322 and its own liberties).

use std::net::IpAddr;

/// Returns whether `mail.ParseAddress` takes a text: `a@b`, `Name <a@b>`, or a group of one.
pub fn is_address(text: &str) -> bool {
    let mut parser = Parser { rest: text };
    let count = parser.address(true);
    count == Some(1) && parser.skip_comments().is_some() && parser.rest.is_empty()
}

struct Parser<'t> {
    rest: &'t str,
}

impl<'t> Parser<'t> {
    /// Reads a mailbox or a group. Returns the number of mailboxes.
    fn address(&mut self, may_be_group: bool) -> Option<usize> {
        self.skip_space();
        if let Some(rest) = self.after_mailbox() {
            self.rest = rest;
            self.skip_space();
            if self.consume('(') {
                self.comment()?;
            }
            return Some(1);
        }
        if !self.rest.starts_with('<') {
            self.phrase()?;
        }
        self.skip_space();
        if may_be_group && self.consume(':') {
            return self.group();
        }
        if !self.consume('<') {
            return None;
        }
        self.rest = self.after_mailbox()?;
        self.consume('>').then_some(1)
    }

    /// Reads the mailboxes of a group up to its semicolon.
    fn group(&mut self) -> Option<usize> {
        self.skip_space();
        let mut count = 0;
        while count > 0 || !self.consume(';') {
            count += self.address(false)?;
            self.skip_comments()?;
            if self.consume(';') {
                break;
            }
            if !self.consume(',') {
                return None;
            }
        }
        self.skip_comments().map(|()| count)
    }

    /// Returns what follows `local@domain`.
    fn after_mailbox(&self) -> Option<&'t str> {
        let mut parser = Parser { rest: self.rest };
        parser.skip_space();
        if parser.rest.starts_with('"') {
            if parser.quoted()? == 0 {
                return None;
            }
        } else {
            parser.strict_atom()?;
        }
        if !parser.consume('@') {
            return None;
        }
        parser.skip_space();
        if parser.consume('[') {
            let (literal, rest) = parser.rest.split_once(']')?;
            literal.parse::<IpAddr>().ok()?;
            return Some(rest);
        }
        parser.strict_atom()?;
        Some(parser.rest)
    }

    /// Reads words. An error after the first word only ends them.
    fn phrase(&mut self) -> Option<()> {
        let mut count = 0;
        loop {
            if count > 0 {
                self.skip_comments()?;
            }
            self.skip_space();
            let word = match self.rest.starts_with('"') {
                true => self.quoted().map(drop),
                false => self.atom().map(drop),
            };
            if word.is_none() {
                return (count > 0).then_some(());
            }
            count += 1;
        }
    }

    /// Reads a quoted text. Returns the number of characters in it.
    fn quoted(&mut self) -> Option<usize> {
        let mut count = 0;
        let mut is_escaped = false;
        for (at, c) in self.rest.char_indices().skip(1) {
            match c {
                c if is_escaped && (is_visible(c) || is_blank(c)) => is_escaped = false,
                _ if is_escaped => return None,
                '"' => {
                    self.rest = &self.rest[at + 1..];
                    return Some(count);
                }
                '\\' => {
                    is_escaped = true;
                    continue;
                }
                c if is_visible(c) || is_blank(c) => {}
                _ => return None,
            }
            count += 1;
        }
        None
    }

    fn atom(&mut self) -> Option<&'t str> {
        let end = self.rest.find(|c| !is_atom(c)).unwrap_or(self.rest.len());
        let (atom, rest) = self.rest.split_at(end);
        self.rest = rest;
        (!atom.is_empty()).then_some(atom)
    }

    /// Reads an atom whose dots stand between other characters.
    fn strict_atom(&mut self) -> Option<()> {
        let atom = self.atom()?;
        atom.split('.').all(|part| !part.is_empty()).then_some(())
    }

    fn skip_space(&mut self) {
        self.rest = self.rest.trim_start_matches(is_blank);
    }

    /// Skips blanks and comments; `None` if a comment has no end.
    fn skip_comments(&mut self) -> Option<()> {
        self.skip_space();
        while self.consume('(') {
            self.comment()?;
            self.skip_space();
        }
        Some(())
    }

    /// Reads a comment after its first parenthesis.
    fn comment(&mut self) -> Option<()> {
        let mut depth = 1;
        let mut chars = self.rest.char_indices();
        while let Some((at, c)) = chars.next() {
            match c {
                '\\' => drop(chars.next()),
                '(' => depth += 1,
                ')' => depth -= 1,
                _ => {}
            }
            if depth == 0 {
                self.rest = &self.rest[at + 1..];
                return Some(());
            }
        }
        None
    }

    fn consume(&mut self, c: char) -> bool {
        let rest = self.rest.strip_prefix(c);
        self.rest = rest.unwrap_or(self.rest);
        rest.is_some()
    }
}

fn is_blank(c: char) -> bool {
    matches!(c, ' ' | '\t')
}

fn is_visible(c: char) -> bool {
    c.is_ascii_graphic() || !c.is_ascii()
}

fn is_atom(c: char) -> bool {
    is_visible(c) && !"()<>[]:;@\\,\"".contains(c)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A kube-apiserver 1.36.3 says so of strings with the format `email`.
    #[test]
    fn addresses_are_those_of_go() {
        for text in [
            "a@b",
            "a@b.c",
            "A <a@b.c>",
            "\"x y\"@z",
            "a@[1.2.3.4]",
            " a@b.c",
            "a@b.c ",
            "a@b (c)",
            "A B <a@b>",
            "\"A, B\" <a@b>",
            "x: a@b;",
            "é@é",
            "<a@b>",
            "a!b@c",
            "A. <a@b>",
        ] {
            assert!(is_address(text), "{text}");
        }
        for text in [
            "",
            "a",
            "@",
            "a@",
            "@b",
            "a@b@c",
            "a..b@c",
            ".a@b",
            "a.@b",
            "a@b.",
            "a b@c",
            "<a@b",
            "A <a@b> x",
            "a@[b]",
            "a@b (c",
            "\"\"@a",
            "x: a@b, c@d;",
            "x:;",
            "a@b, c@d",
        ] {
            assert!(!is_address(text), "{text}");
        }
    }
}
