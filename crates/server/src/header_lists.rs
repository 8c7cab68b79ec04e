//! Headers: their text, those that are lists of words, and the removal of many.

use http::{HeaderMap, HeaderName, HeaderValue, header};

/// Whether a request asks for another protocol: as upstream, `Connection` contains the word.
pub(crate) fn is_upgrade(headers: &HeaderMap) -> bool {
    headers.get_all(header::CONNECTION).iter().any(|value| {
        let words = value.to_str().unwrap_or_default().to_ascii_lowercase();
        words.contains("upgrade")
    })
}

/// Whether a request asks for a WebSocket, whatever its method.
pub(crate) fn is_handshake(headers: &HeaderMap) -> bool {
    has_token(headers, header::UPGRADE, "websocket")
        && has_token(headers, header::CONNECTION, "upgrade")
}

/// Returns the words of a header that is a list, in all its values.
pub(crate) fn header_tokens(headers: &HeaderMap, name: HeaderName) -> impl Iterator<Item = &str> {
    let values = headers.get_all(name).into_iter().filter_map(|value| value.to_str().ok());
    values.flat_map(|text| text.split(',')).map(str::trim).filter(|word| !word.is_empty())
}

/// Whether a header that is a list has a word, in any case of its letters.
pub(crate) fn has_token(headers: &HeaderMap, name: HeaderName, word: &str) -> bool {
    header_tokens(headers, name).any(|given| given.eq_ignore_ascii_case(word))
}

/// Returns a header as text; `None` if it is absent or not visible ASCII.
pub(crate) fn text(headers: &HeaderMap, name: HeaderName) -> Option<&str> {
    headers.get(name).and_then(|value| value.to_str().ok())
}

/// Removes the headers whose names (in lower case) are picked.
pub(crate) fn remove(headers: &mut HeaderMap, is_picked: impl Fn(&str) -> bool) {
    while let Some(name) = headers.keys().find(|name| is_picked(name.as_str())) {
        let name = name.clone();
        headers.remove(name);
    }
}

/// Adds a value of a header in front of those that it has.
pub(crate) fn add_first(headers: &mut HeaderMap, name: HeaderName, value: HeaderValue) {
    let others: Vec<HeaderValue> = headers.get_all(&name).iter().cloned().collect();
    headers.insert(name.clone(), value);
    for other in others {
        headers.append(name.clone(), other);
    }
}
