//! `--token-auth-file`: lines of `token,user,uid[,"group,group"]`.

use crate::token_digest::{Token, TokenDigest};
use crate::{AUTHENTICATED, User};
use keelson_meta::Str;
use std::collections::{BTreeSet, HashMap};
use std::fmt;

/// Known tokens. Kept and looked up by digest, so that neither memory order nor timing tells a token.
#[derive(Default)]
pub struct TokenFile {
    users: HashMap<TokenDigest, User>,
    /// Bytes that tokens have: of others no digest is made.
    lengths: BTreeSet<usize>,
}

impl fmt::Debug for TokenFile {
    /// Says how many, never what they are.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TokenFile({} tokens)", self.users.len())
    }
}

/// A line that is not of the form.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenFileError {
    /// Counted from 1.
    pub line: usize,
    /// What is wrong; never the token.
    pub why: &'static str,
}

impl fmt::Display for TokenFileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {}", self.line, self.why)
    }
}

impl std::error::Error for TokenFileError {}

impl TokenFile {
    /// Reads the file's text. Empty lines and lines with an empty token are skipped.
    pub fn parse(text: &str) -> Result<TokenFile, TokenFileError> {
        let mut file = TokenFile::default();
        for (i, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
            let fail = |why| TokenFileError { line: i + 1, why };
            let cells = cells(line).ok_or_else(|| fail("a quote is not closed"))?;
            let [token, name, uid, rest @ ..] = cells.as_slice() else {
                return Err(fail("needs at least token, user name and user id"));
            };
            if token.is_empty() {
                continue;
            }
            let groups = rest.first().map(String::as_str).unwrap_or_default();
            let groups = groups.split(',').map(str::trim).filter(|g| !g.is_empty());
            let user = User {
                name: name.as_str().into(),
                uid: uid.as_str().into(),
                groups: groups.map(Str::new).collect(),
                extra: vec![],
            };
            file.insert(token, user);
        }
        Ok(file)
    }

    /// Adds one token, for instance one made at start.
    pub fn insert(&mut self, token: &str, user: User) {
        self.lengths.insert(token.len());
        self.users.insert(TokenDigest::of(token), user.with_group(AUTHENTICATED));
    }

    /// The user of a token.
    pub(crate) fn user(&self, token: &Token<'_>) -> Option<User> {
        if !self.lengths.contains(&token.text.len()) {
            return None;
        }
        let digest = token.digest();
        let (known, user) = self.users.get_key_value(digest)?;
        known.is(digest).then(|| user.clone())
    }
}

/// The cells of a CSV line (RFC 4180, spaces around cells dropped); `None` for an open quote.
fn cells(line: &str) -> Option<Vec<String>> {
    let mut cells = vec![];
    let mut rest = line.trim();
    loop {
        if let Some(quoted) = rest.strip_prefix('"') {
            let end = quoted.find('"')?;
            cells.push(quoted[..end].to_owned());
            rest = quoted[end + 1..].trim_start();
        } else {
            let end = rest.find(',').unwrap_or(rest.len());
            cells.push(rest[..end].trim().to_owned());
            rest = &rest[end..];
        }
        match rest.strip_prefix(',') {
            Some(next) => rest = next.trim_start(),
            None => return Some(cells),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_broken_line_is_named_without_its_content() {
        for (text, line) in [("a,b,c\nsecret,x", 2), ("secret", 1), ("secret,u,1,\"open", 1)] {
            let error = TokenFile::parse(text).unwrap_err();
            assert_eq!(error.line, line);
            assert!(!error.to_string().contains("secret"));
        }
    }
}
