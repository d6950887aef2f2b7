//! The metrics endpoint: as much of HTTP/1.1 as a scraper needs, on one thread.
//!
//! Anyone may connect, so no client may block others or load the roles: the number and duration of
//! connections, the length of requests, and the rate of generated pages are bounded. If there are
//! too many connections, a new one displaces the oldest.

use crate::Page;
use httparse::Status;
use nicekv_proto::{Duration, Now};
use nicekv_runtime::{Stop, Waker, interest, is_ready, now, readable, wait};
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::rc::Rc;

/// Maximum open connections; a further one displaces the oldest.
const CONNECTIONS_MAX: usize = 16;
/// Maximum connections accepted in a row before the open ones are served.
const ACCEPTS_MAX: usize = 16;
/// Maximum bytes of a request.
const REQUEST_BYTES_MAX: usize = 8 << 10;
/// Maximum header lines of a request.
const HEADERS_MAX: usize = 64;
/// Maximum duration of a connection, whatever the client sends.
const EXCHANGE_MAX: Duration = Duration::from_secs(10);
/// Pause after accept has failed, for example for lack of descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// How long a generated page is reused.
const PAGE_LIFETIME: Duration = Duration::from_millis(200);
const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Answers `GET /metrics` until `stop`.
pub fn serve(listener: TcpListener, page: Page, stop: &Stop) -> io::Result<()> {
    listener.set_nonblocking(true)?;
    let waker = Waker::new()?;
    stop.register(&waker);
    let mut server = Server { listener, page, made: None, open: Vec::new(), accept_at_ns: 0 };
    while !stop.is_stopped() {
        let ready = server.sleep(&waker)?;
        waker.clear();
        server.turn(now(), &ready);
    }
    Ok(())
}

struct Server {
    listener: TcpListener,
    page: Page,
    /// The last page, and when it expires.
    made: Option<(Rc<[u8]>, u64)>,
    /// Open connections, oldest first.
    open: Vec<Connection>,
    accept_at_ns: u64,
}

impl Server {
    /// Waits for events. Returns which connections are ready.
    fn sleep(&self, waker: &Waker) -> io::Result<Vec<bool>> {
        let accepts = now().boot_ns >= self.accept_at_ns;
        let mut descriptors = vec![readable(waker), interest(&self.listener, accepts, false)];
        descriptors
            .extend(self.open.iter().map(|one| interest(&one.stream, !one.has_ended, one.has_output())));
        let pause = (!accepts).then_some(self.accept_at_ns);
        let deadline_ns = self.open.iter().map(|one| one.ends_ns).chain(pause).min();
        wait(&mut descriptors, deadline_ns)?;
        Ok(descriptors[2..].iter().map(is_ready).collect())
    }

    fn turn(&mut self, now: Now, ready: &[bool]) {
        let mut index = 0;
        for is_ready in ready {
            let goes_on = !is_ready || self.serve(now, index);
            if goes_on && now.boot_ns < self.open[index].ends_ns {
                index += 1;
            } else {
                self.open.remove(index);
            }
        }
        if now.boot_ns >= self.accept_at_ns {
            self.accept(now);
        }
    }

    fn accept(&mut self, now: Now) {
        for _ in 0..ACCEPTS_MAX {
            match self.listener.accept() {
                Ok((stream, _)) if stream.set_nonblocking(true).is_ok() => {
                    if self.open.len() >= CONNECTIONS_MAX {
                        self.open.remove(0);
                    }
                    self.open.push(Connection::new(stream, now.after(EXCHANGE_MAX)));
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                // The client has already disconnected.
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => {
                    self.accept_at_ns = now.after(ACCEPT_PAUSE);
                    return;
                }
            }
        }
    }

    /// Serves a connection. Returns false if it has to be closed.
    fn serve(&mut self, now: Now, index: usize) -> bool {
        let is_sound = self.open[index].read().is_ok();
        if let Some(asked) = self.open[index].take_request() {
            let answer = self.answer(now, asked);
            self.open[index].answer = Some(answer);
        }
        let connection = &mut self.open[index];
        is_sound && connection.write().is_ok() && (!connection.has_ended || connection.has_output())
    }

    fn answer(&mut self, now: Now, asked: Asked) -> Answer {
        let (status, content_type, body): (_, _, Rc<[u8]>) = match asked {
            Asked::Metrics { .. } => ("200 OK", CONTENT_TYPE, self.text(now)),
            Asked::Other(status) => {
                (status, "text/plain", format!("{status}: GET /metrics\n").into_bytes().into())
            }
        };
        let length = body.len();
        let head = format!(
            "HTTP/1.1 {status}\r\nContent-Type: {content_type}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n"
        );
        let body = if asked == (Asked::Metrics { has_body: false }) { Rc::default() } else { body };
        Answer { head: head.into_bytes(), body, sent: 0 }
    }

    fn text(&mut self, now: Now) -> Rc<[u8]> {
        if let Some((text, _)) = self.made.as_ref().filter(|(_, until_ns)| now.boot_ns < *until_ns) {
            return text.clone();
        }
        let text: Rc<[u8]> = self.page.text().into_bytes().into();
        // The page expires this long after it was generated, because generating it may have taken a
        // while.
        self.made = Some((text.clone(), nicekv_runtime::now().after(PAGE_LIFETIME)));
        text
    }
}

/// The subject of an HTTP request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Asked {
    Metrics { has_body: bool },
    Other(&'static str),
}

struct Answer {
    head: Vec<u8>,
    body: Rc<[u8]>,
    sent: usize,
}

/// A connection with its one request and the response. Bytes after the request are discarded until
/// the client closes.
struct Connection {
    stream: TcpStream,
    ends_ns: u64,
    request: Vec<u8>,
    answer: Option<Answer>,
    /// The client has closed its side.
    has_ended: bool,
}

impl Connection {
    fn new(stream: TcpStream, ends_ns: u64) -> Self {
        Self { stream, ends_ns, request: Vec::new(), answer: None, has_ended: false }
    }

    fn has_output(&self) -> bool {
        self.answer.as_ref().is_some_and(|answer| answer.sent < answer.head.len() + answer.body.len())
    }

    /// Reads once; bytes after the request are discarded.
    fn read(&mut self) -> io::Result<()> {
        let mut buffer = [0; REQUEST_BYTES_MAX];
        match self.stream.read(&mut buffer) {
            Ok(0) => {
                self.has_ended = true;
                Ok(())
            }
            Ok(count) => {
                if self.answer.is_none() {
                    self.request.extend_from_slice(&buffer[..count]);
                }
                Ok(())
            }
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// The request, if it is complete and has no response yet.
    fn take_request(&self) -> Option<Asked> {
        if self.answer.is_some() { None } else { asked(&self.request) }
    }

    fn write(&mut self) -> io::Result<()> {
        let Some(Answer { head, body, sent }) = &mut self.answer else { return Ok(()) };
        while *sent < head.len() + body.len() {
            let rest = head.get(*sent..).filter(|rest| !rest.is_empty());
            match self.stream.write(rest.unwrap_or_else(|| &body[*sent - head.len()..])) {
                Ok(count) => *sent += count,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        // Only the sending side is closed: closing with unread input would reset the connection and
        // could lose the response. The client closes first.
        self.stream.shutdown(Shutdown::Write)
    }
}

fn asked(bytes: &[u8]) -> Option<Asked> {
    let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
    let mut request = httparse::Request::new(&mut headers);
    match request.parse(bytes) {
        Ok(Status::Partial) if bytes.len() < REQUEST_BYTES_MAX => None,
        Ok(Status::Partial) | Err(httparse::Error::TooManyHeaders) => {
            Some(Asked::Other("431 Request Header Fields Too Large"))
        }
        Err(_) => Some(Asked::Other("400 Bad Request")),
        Ok(Status::Complete(_)) => {
            let path = request.path.unwrap_or_default().split('?').next();
            Some(match (request.method, path) {
                (Some("GET"), Some("/metrics")) => Asked::Metrics { has_body: true },
                (Some("HEAD"), Some("/metrics")) => Asked::Metrics { has_body: false },
                (Some("GET" | "HEAD"), _) => Asked::Other("404 Not Found"),
                _ => Asked::Other("405 Method Not Allowed"),
            })
        }
    }
}

#[cfg(test)]
#[path = "http_tests.rs"]
mod tests;
