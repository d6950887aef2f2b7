//! A running `nicekv up`, and a minimal Redis client.

use rustix::process::{Pid, Signal, kill_process};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::sync::mpsc;
use std::time::Duration;

/// Generous, because the machine may be building at the same time.
const READY_TIMEOUT: Duration = Duration::from_secs(60);
const REPLY_TIMEOUT: Duration = Duration::from_secs(20);

/// The binary under test. It announces its clusters in `scratch`, not in the user's directory.
pub(crate) fn nicekv(scratch: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_nicekv"));
    command.args(arguments);
    with_environment(scratch, command)
}

/// The same, with a hard limit on open files.
pub(crate) fn limited(scratch: &Path, files_max: u32, arguments: &[&str]) -> Command {
    let mut command = Command::new("sh");
    let script = format!("ulimit -n {files_max} && exec \"$0\" \"$@\"");
    command.args(["-c", &script, env!("CARGO_BIN_EXE_nicekv")]).args(arguments);
    with_environment(scratch, command)
}

fn with_environment(scratch: &Path, mut command: Command) -> Command {
    command
        .current_dir(scratch)
        .env("XDG_RUNTIME_DIR", scratch)
        // Commands must not find a lab that may run on this machine.
        .env("NICEKV_LAB", "of-no-test")
        .env_remove("NICEKV_ENDPOINT");
    command
}

/// Exit code, standard output and standard error.
pub(crate) fn outcome(mut command: Command) -> (Option<i32>, String, String) {
    let Output { status, stdout, stderr } = command.output().unwrap();
    (status.code(), String::from_utf8(stdout).unwrap(), String::from_utf8(stderr).unwrap())
}

/// A cluster in one process, which is killed when this is dropped.
pub(crate) struct Up {
    process: Child,
    /// Address for Redis clients without TLS; empty if there is none.
    pub(crate) resp: String,
    pub(crate) tls_resp: Option<String>,
    pub(crate) endpoint: String,
    /// The lines that it printed up to "ready".
    pub(crate) said: Vec<String>,
    lines: mpsc::Receiver<String>,
}

impl Up {
    /// Starts `nicekv up` on free ports, and waits until it is ready.
    pub(crate) fn start(scratch: &Path, arguments: &[&str]) -> Self {
        Self::start_on(scratch, "localhost:0", arguments)
    }

    /// The same, with this address for Redis clients.
    pub(crate) fn start_on(scratch: &Path, resp: &str, arguments: &[&str]) -> Self {
        Self::start_with(scratch, &[&["--resp", resp], arguments].concat())
    }

    /// The same, with a TLS listener only.
    pub(crate) fn start_by_tls(scratch: &Path, arguments: &[&str]) -> Self {
        Self::start_with(scratch, &[&["--tls-resp", "localhost:0"], arguments].concat())
    }

    /// The same as [`Self::start`], with a hard limit on open files.
    pub(crate) fn start_limited(scratch: &Path, files_max: u32, arguments: &[&str]) -> Self {
        let mut command = limited(scratch, files_max, &["up", "--resp", "localhost:0"]);
        command.args(arguments);
        Self::start_by(command)
    }

    fn start_with(scratch: &Path, arguments: &[&str]) -> Self {
        let mut command = nicekv(scratch, &["up"]);
        command.args(arguments);
        Self::start_by(command)
    }

    fn start_by(mut command: Command) -> Self {
        let mut process = command.stdout(Stdio::piped()).spawn().unwrap();
        let (sender, lines) = mpsc::channel();
        let output = BufReader::new(process.stdout.take().unwrap()).lines();
        std::thread::spawn(move || output.map_while(Result::ok).try_for_each(|line| sender.send(line)));
        let (resp, endpoint) = (String::new(), String::new());
        let mut up = Self { process, resp, tls_resp: None, endpoint, said: vec![], lines };
        let line = up.hear("ready");
        let value = |name: &str| {
            let word = line.split(' ').find_map(|word| word.strip_prefix(name)?.strip_prefix('='));
            word.map(str::to_owned)
        };
        up.endpoint = value("endpoint").unwrap_or_else(|| panic!("no endpoint in {line:?}"));
        (up.resp, up.tls_resp) = (value("resp").unwrap_or_default(), value("tls-resp"));
        assert!(!up.resp.is_empty() || up.tls_resp.is_some(), "{line:?}");
        up
    }

    /// Waits for the next line of output that begins with `begin`.
    pub(crate) fn hear(&mut self, begin: &str) -> String {
        loop {
            let line = self.lines.recv_timeout(READY_TIMEOUT).expect("the line appears");
            self.said.push(line.clone());
            if line.starts_with(begin) {
                return line;
            }
        }
    }

    pub(crate) fn process_id(&self) -> u32 {
        self.process.id()
    }

    pub(crate) fn redis(&self) -> Redis {
        let stream = TcpStream::connect(&self.resp).unwrap();
        stream.set_read_timeout(Some(REPLY_TIMEOUT)).unwrap();
        Redis::new(stream)
    }

    /// Sends SIGINT (Ctrl-C), and returns the exit code.
    pub(crate) fn interrupt(mut self) -> Option<i32> {
        kill_process(Pid::from_child(&self.process), Signal::INT).unwrap();
        self.process.wait().unwrap().code()
    }

    /// Sends SIGINT (Ctrl-C), and returns the last line of output.
    pub(crate) fn interrupt_and_hear(mut self) -> String {
        kill_process(Pid::from_child(&self.process), Signal::INT).unwrap();
        self.hear("stopped")
    }

    /// Kills the process like `kill -9`.
    pub(crate) fn kill(mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }
}

impl Drop for Up {
    fn drop(&mut self) {
        // The process may have ended already.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// A Redis connection for one command at a time.
pub(crate) struct Redis(BufReader<TcpStream>);

impl Redis {
    pub(crate) fn new(stream: TcpStream) -> Self {
        Self(BufReader::new(stream))
    }

    /// The reply on one line; a bulk string is `$` and its bytes, a nil reply `$-1`.
    pub(crate) fn call(&mut self, command: &[&str]) -> String {
        self.try_call(command).unwrap_or_else(|error| panic!("{command:?}: {error}"))
    }

    pub(crate) fn try_call(&mut self, command: &[&str]) -> std::io::Result<String> {
        self.send(command)?;
        self.line()
    }

    /// Sends a command; the reply is read later.
    pub(crate) fn send(&mut self, command: &[&str]) -> std::io::Result<()> {
        let mut request = format!("*{}\r\n", command.len());
        command.iter().for_each(|word| request.push_str(&format!("${}\r\n{word}\r\n", word.len())));
        self.0.get_mut().write_all(request.as_bytes())
    }

    /// Closes this side of the connection; replies may still come.
    pub(crate) fn end_sending(&mut self) {
        self.0.get_mut().shutdown(Shutdown::Write).unwrap();
    }

    /// The next reply with its elements; `None`: the other side has closed the connection.
    pub(crate) fn next_reply(&mut self) -> std::io::Result<Option<String>> {
        if self.0.fill_buf()?.is_empty() {
            return Ok(None);
        }
        let reply = self.line()?;
        Ok(Some(self.with_elements(reply)))
    }

    /// The reply with all elements of an array, such as `*[$value,:1]`.
    pub(crate) fn call_for_all(&mut self, command: &[&str]) -> String {
        let reply = self.call(command);
        self.with_elements(reply)
    }

    fn with_elements(&mut self, reply: String) -> String {
        let Some(Ok(count)) = reply.strip_prefix('*').map(str::parse::<usize>) else { return reply };
        let mut element = |_| {
            let element = self.line().unwrap_or_else(|error| panic!("an element: {error}"));
            self.with_elements(element)
        };
        format!("*[{}]", (0..count).map(&mut element).collect::<Vec<_>>().join(","))
    }

    fn line(&mut self) -> std::io::Result<String> {
        let mut line = String::new();
        if self.0.read_line(&mut line)? == 0 {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
        let line = line.trim_end().to_owned();
        match line.strip_prefix('$').map(str::parse) {
            Some(Ok(length)) => {
                let mut bytes: Vec<u8> = vec![0; length];
                self.0.read_exact(&mut bytes)?;
                self.0.read_exact(&mut [0; 2])?;
                Ok(format!("${}", String::from_utf8_lossy(&bytes)))
            }
            Some(Err::<usize, _>(_)) | None => Ok(line),
        }
    }
}

/// Whether a row of a table contains these words in sequence.
pub(crate) fn has_row(text: &str, words: &str) -> bool {
    let squeezed = |line: &str| format!(" {} ", line.split_whitespace().collect::<Vec<_>>().join(" "));
    text.lines().any(|line| squeezed(line).contains(&format!(" {words} ")))
}
