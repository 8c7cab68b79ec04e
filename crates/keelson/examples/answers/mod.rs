//! Reads the answers of a server that counts what it allocates: into room that is there already.

use std::io::Read;

type Failure = Box<dyn std::error::Error + Send + Sync>;

/// An answer in the room that it was read into.
pub struct Answer<'a> {
    pub status: u16,
    /// Head and body.
    pub bytes: &'a [u8],
}

impl Answer<'_> {
    pub fn is_success(&self) -> bool {
        (200..300).contains(&self.status)
    }
}

/// Reads one answer whose head tells its length. Allocates nothing, unless it fails: when the
/// stream ends before the answer does, when the answer is none, or larger than the room.
pub fn read<'a>(stream: &mut impl Read, room: &'a mut [u8]) -> Result<Answer<'a>, Failure> {
    let mut got = 0_usize;
    let head = loop {
        let start = got.saturating_sub(3);
        got += more(stream, room, got)?;
        let end = room[start..got].windows(4).position(|four| four == b"\r\n\r\n");
        if let Some(end) = end {
            break start + end + 4;
        }
    };
    let text = std::str::from_utf8(&room[..head])?;
    let status = text.strip_prefix("HTTP/1.1 ").and_then(|rest| rest.get(..3));
    let status = status.ok_or("no answer of HTTP/1.1")?.parse()?;
    let length = text.lines().find_map(|line| line.strip_prefix("content-length: "));
    let total = head + length.ok_or("no length")?.parse::<usize>()?;
    while got < total {
        got += more(stream, room, got)?;
    }
    Ok(Answer { status, bytes: &room[..total] })
}

/// Reads what has come behind the first `got` bytes: at least one more.
fn more(stream: &mut impl Read, room: &mut [u8], got: usize) -> Result<usize, Failure> {
    if got == room.len() {
        return Err(format!("the answer has more than {got} bytes").into());
    }
    match stream.read(&mut room[got..])? {
        0 => Err(format!("the stream ended after {got} bytes of an answer").into()),
        more => Ok(more),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Gives a byte a read.
    struct Slow<'a>(&'a [u8]);

    impl Read for Slow<'_> {
        fn read(&mut self, into: &mut [u8]) -> std::io::Result<usize> {
            let few = into.len().min(1);
            self.0.read(&mut into[..few])
        }
    }

    fn check(text: &str, room: usize, want: Result<(u16, usize), &str>) {
        let mut room = vec![0; room];
        let got = read(&mut Slow(text.as_bytes()), &mut room);
        let got = got.map(|answer| (answer.status, answer.bytes.len()));
        assert_eq!(got.map_err(|error| error.to_string()), want.map_err(str::to_owned));
    }

    #[test]
    fn an_answer_is_read_to_its_end() {
        check("HTTP/1.1 201 Created\r\ncontent-length: 2\r\n\r\n{}", 100, Ok((201, 45)));
        check("HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\nmore", 100, Ok((404, 45)));
    }

    #[test]
    fn a_stream_that_ends_early_is_an_error() {
        let in_body = "HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\n{}";
        check(in_body, 100, Err("the stream ended after 40 bytes of an answer"));
        check("HTTP/1.1 2", 100, Err("the stream ended after 10 bytes of an answer"));
        check("", 100, Err("the stream ended after 0 bytes of an answer"));
    }

    #[test]
    fn an_answer_that_finds_no_room_is_an_error() {
        let long = "HTTP/1.1 200 OK\r\ncontent-length: 90\r\n\r\n{}";
        check(long, 40, Err("the answer has more than 40 bytes"));
    }
}
