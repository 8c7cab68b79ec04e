//! Reads HTTP responses without allocating, for programs that measure allocations.

use std::io::Read;

type Failure = Box<dyn std::error::Error + Send + Sync>;

/// A response in the buffer that it was read into.
pub struct Response<'a> {
    pub status: u16,
    /// Head and body.
    pub bytes: &'a [u8],
}

impl Response<'_> {
    pub fn is_success(&self) -> bool {
        (200..300).contains(&self.status)
    }
}

/// Reads one response with a `content-length`. Allocates only on error: when the stream ends early,
/// when the response is invalid, or when it is larger than the buffer.
pub fn read<'a>(stream: &mut impl Read, buffer: &'a mut [u8]) -> Result<Response<'a>, Failure> {
    let mut filled = 0_usize;
    let head = loop {
        let start = filled.saturating_sub(3);
        filled += read_more(stream, buffer, filled)?;
        let end = buffer[start..filled].windows(4).position(|four| four == b"\r\n\r\n");
        if let Some(end) = end {
            break start + end + 4;
        }
    };
    let text = std::str::from_utf8(&buffer[..head])?;
    let status = text
        .strip_prefix("HTTP/1.1 ")
        .and_then(|rest| rest.get(..3))
        .ok_or("not an HTTP/1.1 response")?
        .parse()?;
    let length = text.lines().find_map(|line| line.strip_prefix("content-length: "));
    let total = head + length.ok_or("no length")?.parse::<usize>()?;
    while filled < total {
        filled += read_more(stream, buffer, filled)?;
    }
    Ok(Response { status, bytes: &buffer[..total] })
}

/// Reads at least one byte into the buffer after the first `filled` bytes.
fn read_more(stream: &mut impl Read, buffer: &mut [u8], filled: usize) -> Result<usize, Failure> {
    if filled == buffer.len() {
        return Err(format!("the response has more than {filled} bytes").into());
    }
    match stream.read(&mut buffer[filled..])? {
        0 => Err(format!("the stream ended after {filled} bytes of a response").into()),
        count => Ok(count),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A stream that returns one byte per read.
    struct OneByteReads<'a>(&'a [u8]);

    impl Read for OneByteReads<'_> {
        fn read(&mut self, into: &mut [u8]) -> std::io::Result<usize> {
            let count = into.len().min(1);
            self.0.read(&mut into[..count])
        }
    }

    fn check(text: &str, buffer_bytes: usize, want: Result<(u16, usize), &str>) {
        let mut buffer = vec![0; buffer_bytes];
        let got = read(&mut OneByteReads(text.as_bytes()), &mut buffer)
            .map(|response| (response.status, response.bytes.len()));
        assert_eq!(got.map_err(|error| error.to_string()), want.map_err(str::to_owned));
    }

    #[test]
    fn a_response_is_read_to_its_end() {
        check("HTTP/1.1 201 Created\r\ncontent-length: 2\r\n\r\n{}", 100, Ok((201, 45)));
        check("HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\nmore", 100, Ok((404, 45)));
    }

    #[test]
    fn a_stream_that_ends_early_is_an_error() {
        let in_body = "HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\n{}";
        check(in_body, 100, Err("the stream ended after 40 bytes of a response"));
        check("HTTP/1.1 2", 100, Err("the stream ended after 10 bytes of a response"));
        check("", 100, Err("the stream ended after 0 bytes of a response"));
    }

    #[test]
    fn a_response_larger_than_the_buffer_is_an_error() {
        let long = "HTTP/1.1 200 OK\r\ncontent-length: 90\r\n\r\n{}";
        check(long, 40, Err("the response has more than 40 bytes"));
    }
}
