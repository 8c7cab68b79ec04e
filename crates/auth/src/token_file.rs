//! `--token-auth-file`: lines of `token,user,uid[,"group,group"]`.

use crate::token_digest::{Token, TokenDigest};
use crate::{AUTHENTICATED, User};
use keelson_meta::Str;
use std::collections::{BTreeSet, HashMap};
use std::fmt;

/// Known tokens, by digest, so that neither memory order nor timing reveals a token.
#[derive(Default)]
pub struct TokenFile {
    users: HashMap<TokenDigest, User>,
    /// The lengths of the tokens; other lengths need no digest.
    lengths: BTreeSet<usize>,
}

impl fmt::Debug for TokenFile {
    /// Prints the number of tokens only.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TokenFile({} tokens)", self.users.len())
    }
}

/// An invalid line.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {why}")]
pub struct TokenFileError {
    /// The line number, from 1.
    pub line: usize,
    /// The reason; never the token.
    pub why: &'static str,
}

impl TokenFileError {
    /// Returns an error for the record that begins, after empty lines, at byte `start`.
    fn at(text: &str, start: u64, why: &'static str) -> TokenFileError {
        let start = usize::try_from(start).unwrap_or_default();
        let (before, rest) = text.split_at_checked(start).unwrap_or((text, ""));
        let empty = rest.chars().take_while(|c| c.is_whitespace()).filter(|c| *c == '\n').count();
        TokenFileError { line: before.matches('\n').count() + empty + 1, why }
    }
}

impl TokenFile {
    /// Parses the file. Empty lines and lines with an empty token are skipped.
    pub fn parse(text: &str) -> Result<TokenFile, TokenFileError> {
        let mut file = TokenFile::default();
        let mut start = 0;
        let mut reader = csv::ReaderBuilder::new()
            .has_headers(false)
            .flexible(true)
            .trim(csv::Trim::All)
            .from_reader(text.as_bytes());
        for record in reader.records() {
            // The text is UTF-8, and rows may differ in length: nothing else is an error to the
            // library.
            let record = record.map_err(|_| TokenFileError::at(text, start, "cannot be read"))?;
            start = record.position().map_or(0, csv::Position::byte);
            let cell = |number: usize| record.get(number).unwrap_or_default();
            if record.len() < 3 {
                let why = "needs at least token, user name and user id";
                return Err(TokenFileError::at(text, start, why));
            }
            // The library takes a quote that does not begin a cell as text.
            if record.iter().any(|cell| cell.contains('"')) {
                return Err(TokenFileError::at(text, start, "a quote within a cell"));
            }
            if cell(0).is_empty() {
                continue;
            }
            let groups = cell(3).split(',').map(str::trim).filter(|group| !group.is_empty());
            let user = User {
                name: cell(1).into(),
                uid: cell(2).into(),
                groups: groups.map(Str::new).collect(),
                extra: vec![],
            };
            file.insert(cell(0), user);
        }
        // The library closes an open quote at the end of the text.
        if !text.matches('"').count().is_multiple_of(2) {
            return Err(TokenFileError::at(text, start, "a quote is not closed"));
        }
        Ok(file)
    }

    /// Adds one token.
    pub fn insert(&mut self, token: &str, user: User) {
        self.lengths.insert(token.len());
        self.users.insert(TokenDigest::of(token), user.with_group(AUTHENTICATED));
    }

    /// Returns the user of a token.
    pub(crate) fn user(&self, token: &Token<'_>) -> Option<User> {
        if !self.lengths.contains(&token.text.len()) {
            return None;
        }
        let digest = token.digest();
        let (known, user) = self.users.get_key_value(digest)?;
        known.is(digest).then(|| user.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_are_parsed_as_csv() {
        let text = "\n t , a ,1,\"g, h\" \n\n,nobody,2\nu,\"b, c\",3,,x\n";
        let file = TokenFile::parse(text).unwrap();
        let user = |text| file.user(&Token::new(text)).unwrap();
        assert_eq!((&*user("t").name, &*user("t").uid), ("a", "1"));
        let groups = user("t").groups;
        assert_eq!(groups.iter().map(Str::as_str).collect::<Vec<_>>(), ["g", "h", AUTHENTICATED]);
        assert_eq!(user("u").name, "b, c");
        assert_eq!(file.users.len(), 2);
    }

    #[test]
    fn errors_name_the_line_without_its_content() {
        let texts = [
            ("a,b,c\nsecret,x", 2),
            ("secret", 1),
            ("secret,u,1,\"open", 1),
            ("a,b,c\n\nsecret,u,1, \"g\"", 3),
        ];
        for (text, line) in texts {
            let error = TokenFile::parse(text).unwrap_err();
            assert_eq!(error.line, line);
            assert!(!error.to_string().contains("secret"));
        }
    }
}
