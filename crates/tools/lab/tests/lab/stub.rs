//! A stub program with the roles of `nicekv`. Its switch is the real one in the kernel, without
//! tables; its node echoes what it receives over TCP; its metadata service is ready at once; its
//! gateway can store one value.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::Parser;
use nicekv_lab::{LabCommand, Plan, PlannedSwitch};
use nicekv_runtime::admin;
use nicekv_runtime::control_plane::{AdminRequest, decode};
use nicekv_switch::{Backend as _, Prefix, TableSet, VringConfig};
use nicekv_switch_xdp::{Hook, KernelSwitch, Port};
use serde_json::{Value, json};

/// First arguments with which the program is called as `nicekv`, and not as a test.
pub(crate) const ROLES: [&str; 7] = ["lab", "switch", "metadata", "node", "gateway", "status", "tcp"];
/// Names the host whose process exits at once. `ready` means a metadata service that never becomes
/// ready.
pub(crate) const FAIL_VARIABLE: &str = "NICEKV_STUB_FAIL";
const TCP_BYTES: usize = 1 << 20;

#[derive(Parser)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(clap::Subcommand)]
enum Command {
    #[command(subcommand)]
    Lab(LabCommand),
    Switch(Role),
    Metadata(Role),
    Node(Role),
    Gateway(Role),
    Status {
        #[arg(long)]
        endpoint: std::net::SocketAddrV4,
        #[arg(long)]
        json: bool,
    },
    /// Sends bytes to a node and expects them back.
    Tcp {
        to: SocketAddr,
        #[arg(long, default_value_t = 20_000)]
        timeout_ms: u64,
    },
}

#[derive(clap::Args)]
struct Role {
    #[arg(long)]
    config: std::path::PathBuf,
    #[arg(long, default_value = "metadata")]
    name: String,
}

impl Role {
    fn config(&self) -> Value {
        serde_json::from_slice(&std::fs::read(&self.config).unwrap()).unwrap()
    }
}

pub(crate) fn main(arguments: &[String]) -> ExitCode {
    let program = std::iter::once("stub".to_owned());
    let command = Arguments::parse_from(program.chain(arguments.iter().cloned())).command;
    match command {
        Command::Lab(command) => {
            return nicekv_lab::run(
                command,
                nicekv_lab::Roles { program: Path::new(&crate::program()), configure: &configure },
            )
            .unwrap_or_else(|error| {
                eprintln!("{error}");
                ExitCode::from(error.exit_code())
            });
        }
        Command::Status { endpoint, json } => {
            let answer = admin::ask(&[endpoint], &AdminRequest::Status, Duration::from_secs(5)).unwrap();
            println!("{}{}", if json { "" } else { "cluster " }, String::from_utf8_lossy(&answer));
        }
        Command::Tcp { to, timeout_ms } => exchange(to, Duration::from_millis(timeout_ms)),
        Command::Switch(role) | Command::Metadata(role) | Command::Node(role) | Command::Gateway(role)
            if fails(&role.name) =>
        {
            println!("as the test demands\n");
            return ExitCode::FAILURE;
        }
        Command::Switch(role) => switch(&role.config(), &role.name),
        Command::Metadata(role) => metadata(&role.config()),
        Command::Node(role) => node(&role.config()["nodes"][&role.name]),
        Command::Gateway(role) => gateway(&role.config()),
    }
    ExitCode::SUCCESS
}

fn fails(what: &str) -> bool {
    std::env::var(FAIL_VARIABLE).is_ok_and(|fails| fails == what)
}

fn configure(plan: &Plan) -> Result<String, String> {
    let nodes: serde_json::Map<String, Value> = plan
        .nodes
        .iter()
        .map(|node| (node.name.clone(), json!(SocketAddr::new(node.address.into(), plan.wire_port))))
        .collect();
    let ports = |switch: &PlannedSwitch| {
        let ports = switch.ports.iter().map(|port| json!((port.number, &port.device, port.is_trunk)));
        (switch.name.clone(), ports.collect::<Value>())
    };
    let ports: serde_json::Map<String, Value> = plan.switches.iter().map(ports).collect();
    let config = json!({
        "router_mac": plan.router_mac, "hook": plan.data_plane, "ports": ports, "nodes": nodes, "metadata": plan.metadata[0].address, "resp": plan.resp,
    });
    Ok(config.to_string())
}

fn switch(config: &Value, name: &str) {
    let ports: Vec<(u16, String, bool)> = serde_json::from_value(config["ports"][name].clone()).unwrap();
    let socket = std::net::UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let hook: Hook = serde_json::from_value(config["hook"].clone()).unwrap();
    let port = |(index, name, is_trunk): (u16, String, bool)| Port {
        index,
        hook,
        is_trunk,
        ifindex: rustix::net::netdevice::name_to_index(&socket, &name).unwrap(),
    };
    let vrings =
        VringConfig { unicast: Prefix::new([10, 10, 0, 0], 16), multicast: Prefix::new([10, 11, 0, 0], 16) };
    let router_mac = serde_json::from_value(config["router_mac"].clone()).unwrap();
    let ports: Vec<Port> = ports.into_iter().map(port).collect();
    let mut attached = KernelSwitch::load(vrings, router_mac, &ports).unwrap();
    let trunks = ports.iter().filter(|port| port.is_trunk).map(|port| port.index).collect();
    attached.install(&TableSet { generation: 1, trunks, ..TableSet::default() }).unwrap();
    loop {
        std::thread::park();
    }
}

fn listen(address: &Value) -> impl Iterator<Item = TcpStream> {
    let listener = TcpListener::bind(address.as_str().unwrap()).unwrap();
    std::iter::from_fn(move || Some(listener.accept().unwrap().0))
}

fn node(address: &Value) {
    for mut stream in listen(address) {
        std::thread::spawn(move || std::io::copy(&mut stream.try_clone().unwrap(), &mut stream));
    }
}

fn metadata(config: &Value) {
    for mut stream in listen(&config["metadata"]) {
        let mut frame = || {
            let mut length = [0; 4];
            stream.read_exact(&mut length).ok()?;
            let mut frame = vec![0; u32::from_be_bytes(length) as usize];
            stream.read_exact(&mut frame).ok().map(|()| frame)
        };
        let Some(request) = frame().and_then(|_greeting| frame()) else { continue };
        let answer = match decode(&request).unwrap() {
            // The real metadata service, too, does not answer this while a node is missing.
            AdminRequest::Ready if std::env::var_os(FAIL_VARIABLE).is_some() => continue,
            AdminRequest::Ready => json!(true),
            _ => json!({ "nodes": [], "why_not_ready": "it is a stub" }),
        };
        let answer = answer.to_string();
        // The client may have closed the connection.
        let _ = stream.write_all(&[&(answer.len() as u32).to_be_bytes(), answer.as_bytes()].concat());
    }
}

fn gateway(config: &Value) {
    for mut stream in listen(&config["resp"]) {
        let mut value = String::new();
        let mut buffer = [0; 1024];
        while let Ok(length @ 1..) = stream.read(&mut buffer) {
            let command = String::from_utf8_lossy(&buffer[..length]).into_owned();
            let words: Vec<&str> = command.split("\r\n").collect();
            let answer = match words[2] {
                "SET" => {
                    value = words[6].to_owned();
                    "+OK\r\n".to_owned()
                }
                "GET" => format!("${}\r\n{value}\r\n", value.len()),
                _ => ":1\r\n".to_owned(),
            };
            stream.write_all(answer.as_bytes()).unwrap();
        }
    }
}

fn exchange(to: SocketAddr, timeout: Duration) {
    let deadline = Instant::now() + timeout;
    let mut stream = loop {
        match TcpStream::connect_timeout(&to, timeout) {
            Ok(stream) => break stream,
            // The node may not be listening yet.
            Err(error) => assert!(Instant::now() < deadline, "{error}"),
        }
    };
    let sent: Vec<u8> = (0..TCP_BYTES).map(|index| (index % 251) as u8).collect();
    let writer = {
        let (mut stream, sent) = (stream.try_clone().unwrap(), sent.clone());
        std::thread::spawn(move || stream.write_all(&sent).unwrap())
    };
    let mut received = vec![0; sent.len()];
    stream.read_exact(&mut received).unwrap();
    writer.join().unwrap();
    assert!(sent == received, "bytes have changed on the way");
}
