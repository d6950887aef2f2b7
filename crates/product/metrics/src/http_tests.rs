use super::*;
use std::net::SocketAddr;
use std::thread::JoinHandle;
use std::time::Instant;

struct Running {
    address: SocketAddr,
    stop: Stop,
    thread: JoinHandle<io::Result<()>>,
}

impl Running {
    fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let (address, stop) = (listener.local_addr().unwrap(), Stop::new());
        let owned = stop.clone();
        let thread = std::thread::spawn(move || serve(listener, Page::new(Vec::new()), &owned));
        Self { address, stop, thread }
    }

    fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(self.address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        stream
    }

    /// Sends these bytes, and returns everything that the server sends until it closes.
    fn exchange(&self, request: &[u8]) -> String {
        let mut stream = self.connect();
        stream.write_all(request).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    }

    fn scrape(&self) -> String {
        self.exchange(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")
    }

    fn end(self) {
        self.stop.stop();
        self.thread.join().unwrap().unwrap();
    }
}

#[test]
fn metrics_path_is_served_and_others_are_refused() {
    let running = Running::start();
    let answer = running.scrape();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with("HTTP/1.1 200 OK\r\n") && head.contains(CONTENT_TYPE), "{head}");
    assert!(head.contains(&format!("Content-Length: {}\r\n", body.len())), "{head}");
    assert!(body.contains("\nprocess_open_fds ") && body.ends_with("# EOF\n"), "{body}");
    assert!(!body.contains("nicekv_node_"), "the process has no node: {body}");
    let head = running.exchange(b"HEAD /metrics?x=y HTTP/1.0\r\n\r\n");
    assert!(head.starts_with("HTTP/1.1 200 ") && head.ends_with("\r\n\r\n"), "{head}");
    let long = [b"GET /metrics HTTP/1.1\r\nX: ".as_slice(), &[b'x'; REQUEST_BYTES_MAX]].concat();
    for (request, status) in [
        (b"GET / HTTP/1.1\r\n\r\n".as_slice(), "404"),
        (b"POST /metrics HTTP/1.1\r\n\r\n", "405"),
        (b"\x16\x03\x01\x02\0\x01\0\x01\xfc\x03\x03", "400"),
        (b"*1\r\n$4\r\nPING\r\n", "400"),
        (&long, "431"),
    ] {
        let answer = running.exchange(request);
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{answer}");
    }
    running.end();
}

#[test]
fn idle_and_partial_clients_do_not_block_others() {
    let running = Running::start();
    let mut silent: Vec<_> = (0..4 * CONNECTIONS_MAX).map(|_| running.connect()).collect();
    for (number, stream) in silent.iter_mut().enumerate() {
        // Connections that were displaced already may refuse the bytes.
        let _ = stream.write_all(&b"GET /metrics HTTP/1.1\r\nHost: "[..number % 20]);
    }
    let began = Instant::now();
    for _ in 0..2 * CONNECTIONS_MAX {
        assert!(running.scrape().ends_with("# EOF\n"));
    }
    assert!(began.elapsed() < EXCHANGE_MAX, "the request waited for idle connections to expire");
    running.end();
}

#[test]
fn pages_are_generated_at_a_bounded_rate() {
    let running = Running::start();
    let pages = |answer: &str| -> u64 {
        let line = answer.lines().find_map(|line| line.strip_prefix("nicekv_metrics_pages_total "));
        line.unwrap().parse().unwrap()
    };
    let began = Instant::now();
    let mut last = 0;
    for _ in 0..200 {
        last = pages(&running.scrape());
    }
    let most = 1 + began.elapsed().as_millis() as u64 / PAGE_LIFETIME.as_millis() as u64;
    assert!((1..=most).contains(&last), "{last} pages, {most} at most");
    running.end();
}
