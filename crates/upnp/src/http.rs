//! The little of HTTP that routers need: one request on one connection, under limits of time and
//! length.

use std::{
    io::{self, Read, Write},
    net::{SocketAddr, TcpStream},
    time::{Duration, Instant},
};

/// How long a connection, a write and a whole answer may take.
const WITHIN: Duration = Duration::from_secs(3);

/// The longest answer. Descriptions of routers have some kilobytes.
const LONGEST: usize = 256 << 10;

#[derive(Debug, PartialEq, Eq)]
pub(super) struct Answer {
    /// 200 if all is well; 500 if the router refuses.
    pub status: u16,
    pub body: Vec<u8>,
    /// This machine's address on the way to the router.
    pub local: std::net::IpAddr,
}

/// Sends a request with these headers, each of which ends in a line break, and reads the answer.
pub(super) fn request(to: SocketAddr, line: &str, headers: &str, body: &str) -> io::Result<Answer> {
    let mut stream = TcpStream::connect_timeout(&to, WITHIN)?;
    stream.set_write_timeout(Some(WITHIN))?;
    let local = stream.local_addr()?.ip();
    let text = format!(
        "{line} HTTP/1.1\r\nHost: {to}\r\nUser-Agent: gradvine UPnP/1.1\r\nConnection: close\r\n\
         Content-Length: {}\r\n{headers}\r\n{body}",
        body.len()
    );
    stream.write_all(text.as_bytes())?;
    let (begin, mut bytes, mut part) = (Instant::now(), Vec::new(), [0; 4096]);
    loop {
        if let Some((status, body)) = parse(&bytes, false)? {
            return Ok(Answer { status, body, local });
        }
        let left = WITHIN.checked_sub(begin.elapsed()).filter(|left| !left.is_zero());
        stream.set_read_timeout(Some(left.ok_or(io::ErrorKind::TimedOut)?))?;
        let read = stream.read(&mut part)?;
        bytes.extend_from_slice(&part[..read]);
        if bytes.len() > LONGEST {
            return Err(malformed("it is too long"));
        }
        if read == 0 {
            let (status, body) = parse(&bytes, true)?.ok_or_else(|| malformed("it is cut off"))?;
            return Ok(Answer { status, body, local });
        }
    }
}

fn malformed(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("an answer that is not HTTP: {what}"))
}

/// The status and body of an answer; `None` if more bytes are to come. `ended`: no more will.
fn parse(bytes: &[u8], ended: bool) -> io::Result<Option<(u16, Vec<u8>)>> {
    let Some(end) = bytes.windows(4).position(|four| four == b"\r\n\r\n") else { return Ok(None) };
    let head = std::str::from_utf8(&bytes[..end]).map_err(|_| malformed("its head"))?;
    let body = &bytes[end + 4..];
    let mut lines = head.lines();
    let mut status = lines.next().unwrap_or_default().split(' ');
    let is_http = status.next().is_some_and(|version| version.starts_with("HTTP/1."));
    let code = status.next().and_then(|code| code.parse().ok()).filter(|_| is_http);
    let code = code.ok_or_else(|| malformed("its first line"))?;
    let header = |name: &str| header(head, name);
    if header("transfer-encoding").is_some_and(|kind| kind.eq_ignore_ascii_case("chunked")) {
        return Ok(unchunk(body)?.map(|body| (code, body)));
    }
    match header("content-length").map(str::parse) {
        Some(Ok(length)) => Ok(body.get(..length).map(|body| (code, body.to_vec()))),
        Some(Err(_)) => Err(malformed("its length")),
        None => Ok(ended.then(|| (code, body.to_vec()))),
    }
}

/// The value of a header.
pub(super) fn header<'a>(head: &'a str, name: &str) -> Option<&'a str> {
    head.lines().skip(1).find_map(|line| {
        let (found, value) = line.split_once(':')?;
        found.trim().eq_ignore_ascii_case(name).then(|| value.trim())
    })
}

/// The content of a body in chunks; `None` if more are to come.
fn unchunk(mut body: &[u8]) -> io::Result<Option<Vec<u8>>> {
    let mut content = Vec::new();
    loop {
        let Some(end) = body.windows(2).position(|two| two == b"\r\n") else { return Ok(None) };
        let size = std::str::from_utf8(&body[..end]).unwrap_or_default();
        let size = size.split(';').next().unwrap_or_default().trim();
        let size = usize::from_str_radix(size, 16).map_err(|_| malformed("a chunk's length"))?;
        if size == 0 {
            return Ok(Some(content));
        }
        let begin = end + 2;
        let Some(chunk) = begin.checked_add(size).and_then(|stop| body.get(begin..stop)) else {
            return Ok(None);
        };
        content.extend_from_slice(chunk);
        let Some(rest) = body.get(begin + size + 2..) else { return Ok(None) };
        body = rest;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_read_whole_however_they_say_their_length() {
        for (text, ended) in [
            ("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello and more", false),
            ("HTTP/1.0 200 OK\r\nServer: x\r\n\r\nhello", true),
            (
                "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhe\r\n3;x\r\nllo\r\n\
                 0\r\n\r\n",
                false,
            ),
        ] {
            let whole = parse(text.as_bytes(), ended).unwrap();
            assert_eq!(whole, Some((200, b"hello".to_vec())), "{text}");
        }
        let text = "HTTP/1.1 500 No\r\ncontent-length: 3\r\n\r\nabc";
        for length in 0..text.len() {
            assert_eq!(parse(&text.as_bytes()[..length], false).unwrap(), None);
        }
    }

    #[test]
    fn what_is_not_http_is_refused() {
        for text in [
            "SSH-2.0-OpenSSH\r\n\r\n",
            "HTTP/1.1 fine\r\n\r\n",
            "HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        ] {
            parse(text.as_bytes(), true).unwrap_err();
        }
        // A length that overflows is that of an answer that never comes.
        let text = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nffffffffffffffff\r\nab";
        assert_eq!(parse(text.as_bytes(), true).unwrap(), None);
    }
}
