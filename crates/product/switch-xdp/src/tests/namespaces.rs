//! A switch with veth ports in one namespace, and sockets at the hosts' ends of the ports in
//! another.
//!
//! ```text
//!   nicekv-test-PID-N-hosts            nicekv-test-PID-N-switch
//!     h0 h1 h2 h3 h4  ═════ veth ═════  p0 p1 p2 p3 p4
//! ```
//!
//! The interfaces have no IP addresses, so that the kernel sends no frames by itself.

#![allow(unsafe_code, reason = "setns(2) and packet(7) sockets have no safe form in libc")]

use std::fs::File;
use std::io;
use std::mem::zeroed;
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use aya::programs::{SchedClassifier, TcAttachType};
use nicekv_switch_fixtures::ROUTER_MAC;

use crate::{Hook, Port};

/// How long a receiver waits for an expected frame.
pub(super) const RECEIVE_TIMEOUT: Duration = Duration::from_secs(20);
/// Large enough that a station loses no frame while it does not receive.
const RECEIVE_BUFFER_BYTES: i32 = 256 << 20;
const FRAME_BYTES_MAX: usize = 2048;

static NETWORKS: AtomicU32 = AtomicU32::new(0);

/// Both namespaces. Dropping it removes them, also after a panic.
pub(super) struct Network {
    switch: String,
    hosts: String,
    pub(super) ports: Vec<Port>,
    /// A socket at the hosts' end of each port.
    pub(super) stations: Vec<Station>,
}

impl Network {
    /// Creates the network and moves the calling thread into the switch's namespace.
    pub(super) fn enter(ports: u16, hook_of: impl Fn(u16) -> Hook) -> Self {
        let number = NETWORKS.fetch_add(1, Ordering::Relaxed);
        let name = |role| format!("nicekv-test-{}-{number}-{role}", std::process::id());
        let mut network =
            Self { switch: name("switch"), hosts: name("hosts"), ports: Vec::new(), stations: Vec::new() };
        let (switch, hosts) = (network.switch.clone(), network.hosts.clone());
        for namespace in [&switch, &hosts] {
            run(&["ip", "netns", "add", namespace]);
            let quiet = "echo 1 > /proc/sys/net/ipv6/conf/default/disable_ipv6";
            run(&["ip", "netns", "exec", namespace, "sh", "-c", quiet]);
        }
        for port in 0..ports {
            let (inner, outer) = (format!("p{port}"), format!("h{port}"));
            run(&[
                "ip", "-n", &switch, "link", "add", &inner, "type", "veth", "peer", &outer, "netns", &hosts,
            ]);
            // The settings of host ends that lib.rs requires.
            let features = match (0..ports).any(|port| hook_of(port) == Hook::Xdp) {
                true => "gro on tx off rx off txvlan off tx-udp-segmentation off",
                false => "gro on tx-udp-segmentation off",
            };
            let ethtool: Vec<&str> =
                ["ethtool", "-K", &outer].into_iter().chain(features.split(' ')).collect();
            run(&[&["ip", "netns", "exec", &hosts][..], &ethtool].concat());
            if hook_of(port) == Hook::Tc {
                run(&["ip", "netns", "exec", &switch, "ethtool", "-K", &inner, "tso", "off"]);
            }
            run(&["ip", "-n", &hosts, "link", "set", &outer, "up"]);
            run(&["ip", "-n", &switch, "link", "set", &inner, "up"]);
        }
        set_namespace(&hosts);
        network.stations =
            (0..ports).map(|port| Station::open(interface_index(&format!("h{port}")))).collect();
        set_namespace(&switch);
        let port = |index| Port {
            index,
            ifindex: interface_index(&format!("p{index}")),
            hook: hook_of(index),
            is_trunk: false,
        };
        network.ports = (0..ports).map(port).collect();
        network
    }

    /// Moves the far end of a port into its own namespace and makes it a host, as `nicekv lab`
    /// does.
    pub(super) fn give_host(&self, port: u16, ip: [u8; 4], mac: [u8; 6]) -> Namespace {
        let (name, device) = (format!("{}-{port}", self.hosts), format!("h{port}"));
        let [a, b, c, d] = ip;
        let hex = |mac: [u8; 6]| mac.map(|byte| format!("{byte:02x}")).join(":");
        run(&["ip", "netns", "add", &name]);
        let host = Namespace(name);
        run(&["ip", "-n", &self.hosts, "link", "set", &device, "netns", &host.0]);
        for command in [
            format!("link set {device} address {}", hex(mac)),
            format!("link set {device} up"),
            format!("addr add {a}.{b}.{c}.{d}/16 dev {device}"),
            format!("addr add fd00::{d:x}/64 dev {device} nodad"),
            // The switch's own address is the gateway to all rings.
            format!("neigh add 10.0.255.254 lladdr {} dev {device} nud permanent", hex(ROUTER_MAC)),
            format!("route add 10.10.0.0/15 via 10.0.255.254 dev {device}"),
            format!("route add 10.64.0.0/12 via 10.0.255.254 dev {device}"),
        ] {
            run(&[&["ip", "-n", &host.0][..], &command.split(' ').collect::<Vec<_>>()].concat());
        }
        host
    }

    /// Creates the segmenter. Call it before the programs are loaded.
    pub(super) fn add_cutter(&self) {
        let [near, far] = crate::CUTTER;
        for command in [
            format!("ip link add {near} type veth peer name {far}"),
            format!("ethtool -K {near} tx-udp-segmentation off"),
            format!("ip link set {near} mtu 65535 arp off up"),
            format!("ip link set {far} mtu 65535 arp off up"),
        ] {
            run(&command.split(' ').collect::<Vec<_>>());
        }
    }

    /// Keeps GSO batches whole up to the switch. At tc the far end of the port stops segmenting
    /// them; at XDP, where batches must be segmented, the port merges the segments again.
    pub(super) fn disable_segmentation(&self, port: u16) {
        let (inner, outer) = (format!("p{port}"), format!("h{port}"));
        if self.ports[usize::from(port)].hook == Hook::Xdp {
            run(&["ethtool", "-K", &inner, "gro", "on", "rx-udp-gro-forwarding", "on"]);
        } else {
            run(&["ip", "netns", "exec", &self.hosts, "ethtool", "-K", &outer, "tx-udp-segmentation", "on"]);
        }
    }

    /// Lets a kernel thread process the frames received by a port, so that frames sent in a burst
    /// are processed in one batch.
    pub(super) fn batch_port(&self, port: u16) {
        let command = format!("echo 1 > /sys/class/net/p{port}/threaded");
        run(&["ip", "netns", "exec", &self.switch, "sh", "-c", &command]);
    }

    /// Turns the switch's namespace into a plain Ethernet switch.
    pub(super) fn bridge(&self) {
        run(&["ip", "-n", &self.switch, "link", "add", "bridge", "type", "bridge"]);
        run(&["ip", "-n", &self.switch, "link", "set", "bridge", "up"]);
        for Port { index, .. } in &self.ports {
            run(&["ip", "-n", &self.switch, "link", "set", &format!("p{index}"), "master", "bridge"]);
        }
    }

    /// Deletes the link of a port.
    pub(super) fn remove_port(&mut self, port: u16) {
        run(&["ip", "-n", &self.switch, "link", "del", &format!("p{port}")]);
    }

    /// Number of ports at which a program is attached to the hook. The caller must be in the
    /// switch's namespace.
    pub(super) fn attached(&self, hook: Hook) -> usize {
        if hook == Hook::Tc {
            let programs = |port: &Port| {
                let name = format!("p{}", port.index);
                SchedClassifier::query_tcx(&name, TcAttachType::Ingress).expect("tcx").1.len()
            };
            return self.ports.iter().map(programs).sum();
        }
        // bpftool shows native XDP as "driver", and other modes under other words.
        let command = Command::new("ip").args(["netns", "exec", &self.switch, "bpftool", "net"]).output();
        String::from_utf8(command.expect("bpftool").stdout).expect("text").matches("driver").count()
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        for namespace in [&self.switch, &self.hosts] {
            delete_namespace(namespace);
        }
    }
}

/// A namespace with one host. Dropping it removes the namespace.
pub(super) struct Namespace(String);

impl Namespace {
    /// Replaces the host's route to the vrings by the veth pair of an edge switch, as lib.rs
    /// describes. Returns the interface indexes of the pair's far end and of the host's own
    /// interface.
    pub(super) fn add_edge_link(&self, port: u16, mac: [u8; 6]) -> (u32, u32) {
        let mac = mac.map(|byte| format!("{byte:02x}")).join(":");
        let router = ROUTER_MAC.map(|byte| format!("{byte:02x}")).join(":");
        for command in [
            "link add vring0 type veth peer name vring1".into(),
            format!("link set vring0 address {mac} arp off up"),
            "link set vring1 arp off up".into(),
            "route del 10.10.0.0/15".into(),
            format!("neigh add 10.0.255.254 lladdr {router} dev vring0 nud permanent"),
            "route add 10.10.0.0/15 via 10.0.255.254 dev vring0 onlink".into(),
        ] {
            run(&[&["ip", "-n", &self.0][..], &command.split(' ').collect::<Vec<_>>()].concat());
        }
        let accept = "echo 1 > /proc/sys/net/ipv4/conf/vring0/accept_local";
        run(&["ip", "netns", "exec", &self.0, "sh", "-c", accept]);
        run(&["ip", "netns", "exec", &self.0, "ethtool", "-K", "vring0", "tx-udp-segmentation", "off"]);
        self.run(|| (interface_index("vring1"), interface_index(&format!("h{port}"))))
    }

    /// Runs a function inside the namespace. Sockets that it opens stay there.
    pub(super) fn run<T: Send>(&self, function: impl FnOnce() -> T + Send) -> T {
        let inside = || {
            set_namespace(&self.0);
            function()
        };
        std::thread::scope(|scope| scope.spawn(inside).join()).expect("a function that does not panic")
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        delete_namespace(&self.0);
    }
}

/// A packet socket on one interface: it sends and receives raw frames there.
pub(super) struct Station {
    socket: OwnedFd,
}

impl Station {
    fn open(ifindex: u32) -> Self {
        // SAFETY: these are plain system calls; the address and the options outlive them.
        unsafe {
            let protocol = (libc::ETH_P_ALL as u16).to_be();
            let fd = libc::socket(libc::AF_PACKET, libc::SOCK_RAW | libc::SOCK_CLOEXEC, 0);
            assert!(fd >= 0, "packet socket: {}", io::Error::last_os_error());
            let station = Self { socket: OwnedFd::from_raw_fd(fd) };
            station.set_option(libc::SOL_PACKET, libc::PACKET_AUXDATA, &1i32);
            station.set_option(libc::SOL_PACKET, libc::PACKET_IGNORE_OUTGOING, &1i32);
            station.set_option(libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, &RECEIVE_BUFFER_BYTES);
            let timeout = libc::timeval { tv_sec: RECEIVE_TIMEOUT.as_secs() as i64, tv_usec: 0 };
            station.set_option(libc::SOL_SOCKET, libc::SO_RCVTIMEO, &timeout);
            let mut address: libc::sockaddr_ll = zeroed();
            address.sll_family = libc::AF_PACKET as u16;
            address.sll_protocol = protocol;
            address.sll_ifindex = ifindex as i32;
            let bound = libc::bind(fd, (&raw const address).cast(), size_of_val(&address) as u32);
            assert_eq!(bound, 0, "bind: {}", io::Error::last_os_error());
            station
        }
    }

    /// # Safety
    /// `value` must have the type of the option.
    unsafe fn set_option<T>(&self, level: i32, option: i32, value: &T) {
        let (value, bytes) = ((&raw const *value).cast(), size_of::<T>() as u32);
        // SAFETY: the caller guarantees the type; the value outlives the call.
        let result = unsafe { libc::setsockopt(self.socket.as_raw_fd(), level, option, value, bytes) };
        assert_eq!(result, 0, "socket option {option}: {}", io::Error::last_os_error());
    }

    pub(super) fn send(&self, frame: &[u8]) {
        // SAFETY: the frame outlives the call.
        let sent = unsafe { libc::send(self.socket.as_raw_fd(), frame.as_ptr().cast(), frame.len(), 0) };
        assert_eq!(sent, frame.len() as isize, "send: {}", io::Error::last_os_error());
    }

    /// The next frame that is received. Panics after [`RECEIVE_TIMEOUT`].
    pub(super) fn receive(&self) -> Vec<u8> {
        let mut frame = vec![0u8; FRAME_BYTES_MAX];
        let mut control = [0u64; 16];
        // SAFETY: the buffers outlive the call, their lengths are right, and the control message is
        // read only within what the kernel has filled.
        unsafe {
            let mut part = libc::iovec { iov_base: frame.as_mut_ptr().cast(), iov_len: frame.len() };
            let mut message: libc::msghdr = zeroed();
            message.msg_iov = &raw mut part;
            message.msg_iovlen = 1;
            message.msg_control = control.as_mut_ptr().cast();
            message.msg_controllen = size_of_val(&control);
            let bytes = libc::recvmsg(self.socket.as_raw_fd(), &raw mut message, 0);
            assert!(bytes >= 0, "no frame received: {}", io::Error::last_os_error());
            frame.truncate(bytes as usize);
            let header = libc::CMSG_FIRSTHDR(&raw const message);
            if !header.is_null() && (*header).cmsg_type == libc::PACKET_AUXDATA {
                let auxiliary: libc::tpacket_auxdata =
                    libc::CMSG_DATA(header).cast::<libc::tpacket_auxdata>().read_unaligned();
                restore_vlan_tag(&mut frame, &auxiliary);
            }
        }
        frame
    }
}

/// Puts the outer VLAN tag back, which the kernel removes from a frame before a packet socket
/// receives it.
fn restore_vlan_tag(frame: &mut Vec<u8>, auxiliary: &libc::tpacket_auxdata) {
    if auxiliary.tp_status & libc::TP_STATUS_VLAN_VALID != 0 {
        let tag = [auxiliary.tp_vlan_tpid.to_be_bytes(), auxiliary.tp_vlan_tci.to_be_bytes()].concat();
        frame.splice(12..12, tag);
    }
}

/// Runs `test` in a new thread, because it changes the thread's namespace. Reports the test as not
/// run without root.
pub(super) fn as_root(name: &str, test: impl FnOnce() + Send) {
    // SAFETY: the function has no arguments and cannot fail.
    if unsafe { libc::geteuid() } != 0 {
        nicekv_testkit::not_run("root", name);
        return;
    }
    let result = std::thread::scope(|scope| scope.spawn(test).join());
    if let Err(panic) = result {
        std::panic::resume_unwind(panic);
    }
}

/// Takes all privileges from the calling thread.
pub(super) fn become_nobody() {
    const NOBODY: libc::c_long = 65534;
    // SAFETY: this is a plain system call. Unlike the libc function it affects only this thread.
    let result = unsafe { libc::syscall(libc::SYS_setresuid, NOBODY, NOBODY, NOBODY) };
    assert_eq!(result, 0, "setresuid: {}", io::Error::last_os_error());
}

/// Sets `UDP_SEGMENT`: the kernel divides each message of the socket into datagrams of this length.
pub(super) fn enable_gso(socket: &std::net::UdpSocket, datagram_bytes: usize) {
    let bytes = datagram_bytes as i32;
    // SAFETY: the option takes an integer, which outlives the call.
    let result = unsafe {
        let value = (&raw const bytes).cast();
        libc::setsockopt(socket.as_raw_fd(), libc::SOL_UDP, libc::UDP_SEGMENT, value, size_of::<i32>() as u32)
    };
    assert_eq!(result, 0, "UDP_SEGMENT: {}", io::Error::last_os_error());
}

/// Removes a namespace. Ignores errors: the namespace may not exist, and the caller may be
/// panicking already.
fn delete_namespace(name: &str) {
    let _ = Command::new("ip").args(["netns", "del", name]).status();
}

fn set_namespace(name: &str) {
    let file = File::open(format!("/run/netns/{name}")).expect("a namespace that was just created");
    // SAFETY: this is a plain system call with a valid file descriptor.
    let result = unsafe { libc::setns(file.as_raw_fd(), libc::CLONE_NEWNET) };
    assert_eq!(result, 0, "setns {name}: {}", io::Error::last_os_error());
}

fn interface_index(name: &str) -> u32 {
    let c_name = std::ffi::CString::new(name).expect("a name without zeros");
    // SAFETY: the name outlives the call.
    let index = unsafe { libc::if_nametoindex(c_name.as_ptr()) };
    assert_ne!(index, 0, "interface {name}: {}", io::Error::last_os_error());
    index
}

fn run(command: &[&str]) {
    let output = Command::new(command[0]).args(&command[1..]).output().expect(command[0]);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}: {stderr}", command.join(" "));
}
