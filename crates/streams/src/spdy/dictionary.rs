//! The text with which SPDY/3 primes the compression of headers: words, each with its length, and a
//! text of frequent values (SPDY/3 draft, section 2.6.10.1).

/// The checksum by which a compressed stream names the dictionary.
pub(super) const DICTIONARY_ID: u32 = 0xe3c6_a7c2;

const WORDS: &str = "options head post put delete trace accept accept-charset accept-encoding \
    accept-language accept-ranges age allow authorization cache-control connection content-base \
    content-encoding content-language content-length content-location content-md5 content-range \
    content-type date etag expect expires from host if-match if-modified-since if-none-match \
    if-range if-unmodified-since last-modified location max-forwards pragma proxy-authenticate \
    proxy-authorization range referer retry-after server te trailer transfer-encoding upgrade \
    user-agent vary via warning www-authenticate method get status";

const VALUES: &str = "100101201202205206300302303304305306307402405406407408409410411412413414415\
    416417502504505203 Non-Authoritative Information204 No Content301 Moved Permanently400 Bad \
    Request401 Unauthorized403 Forbidden404 Not Found500 Internal Server Error501 Not \
    Implemented503 Service UnavailableJan Feb Mar Apr May Jun Jul Aug Sept Oct Nov Dec 00:00:00 \
    Mon, Tue, Wed, Thu, Fri, Sat, Sun, GMTchunked,text/html,image/png,image/jpg,image/gif,\
    application/xml,application/xhtml+xml,text/plain,text/javascript,publicprivatemax-age=gzip,\
    deflate,sdchcharset=utf-8charset=iso-8859-1,utf-,*,enq=0.";

/// Returns the dictionary.
pub(super) fn dictionary() -> Vec<u8> {
    let mut out = vec![];
    let mut push = |word: &str| {
        out.extend_from_slice(&(word.len() as u32).to_be_bytes());
        out.extend_from_slice(word.as_bytes());
    };
    WORDS.split_ascii_whitespace().for_each(&mut push);
    ["200 OK", "version", "HTTP/1.1", "url", "public", "set-cookie", "keep-alive", "origin"]
        .into_iter()
        .for_each(&mut push);
    out.extend_from_slice(VALUES.as_bytes());
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn adler32(bytes: &[u8]) -> u32 {
        let mut low = 1_u32;
        let mut high = 0_u32;
        for byte in bytes {
            low = (low + u32::from(*byte)) % 65_521;
            high = (high + low) % 65_521;
        }
        high << 16 | low
    }

    #[test]
    fn the_dictionary_has_its_known_checksum() {
        assert_eq!(dictionary().len(), 1_423);
        assert_eq!(adler32(&dictionary()), DICTIONARY_ID);
    }
}
