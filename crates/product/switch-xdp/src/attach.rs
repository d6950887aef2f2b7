//! Registers the ports with the programs, then attaches the programs to each port: at the requested
//! hook, or at the one that suits the interface.
//!
//! Links are file descriptors, also the links to tc (which need Linux 6.6): when the process ends,
//! however it ends, the kernel detaches all ports. A filter that outlived the process would go on
//! with tables that nobody updates.

use std::io;
use std::os::fd::AsFd as _;

use aya::Ebpf;
use aya::maps::{HashMap, MapData, MapError};
use aya::programs::links::LinkOrder;
use aya::programs::tc::TcAttachOptions;
use aya::programs::{Program, ProgramError, ProgramFd, SchedClassifier, TcAttachType, Xdp, XdpMode};
use rustix::net::netdevice::name_to_index;
use rustix::net::{AddressFamily, SocketType, socket};

use crate::error::{KERNEL_ADVICE, PORT_ADVICE, XdpError};
use crate::hook::Hook;
use crate::interface::Interface;
use crate::layout::{Cable, Fault, PORT_TWINS, Place};
use crate::{KernelSwitch, Port, faults, generation, sys};

/// The program at XDP.
pub(crate) const XDP: &str = "nicekv_xdp";
/// The program at tc ingress.
pub(crate) const TC: &str = "nicekv_tc";
/// The program for frames that XDP sends out of a port.
pub(crate) const EGRESS: &str = "nicekv_egress";

/// The segmenter: a veth pair within the switch's namespace that segments GSO batches. A batch
/// enters at the first end, and single datagrams come out at the second.
///
/// ```text
/// ip link add nicekv-cut0 type veth peer name nicekv-cut1
/// ethtool -K nicekv-cut0 tx-udp-segmentation off
/// ip link set nicekv-cut0 mtu 65535 arp off up
/// ip link set nicekv-cut1 mtu 65535 arp off up
/// ```
pub const CUTTER: [&str; 2] = ["nicekv-cut0", "nicekv-cut1"];

/// The interface indexes of the segmenter ([`CUTTER`]), if the namespace has one.
pub(crate) fn cutter() -> Option<[u32; 2]> {
    let asks = socket(AddressFamily::INET, SocketType::DGRAM, None).ok()?;
    let [near, far] = CUTTER.map(|name| name_to_index(&asks, name));
    Some([near.ok()?, far.ok()?])
}

/// Upper bound of attempts to load a program. The kernel gives up loading when a signal arrives.
const INTERRUPTIONS_MAX: usize = 100;

/// Loads a program if it is not loaded yet.
fn load(programs: &mut Ebpf, name: &'static str) -> Result<(), ProgramError> {
    let program = programs.program_mut(name).expect("the object holds the programs");
    let mut load_once = || match &mut *program {
        program if program.fd().is_ok() => Ok(()),
        Program::Xdp(program) => program.load(),
        Program::SchedClassifier(program) => program.load(),
        _ => unreachable!("by the sections that the source gives them"),
    };
    let mut result = load_once();
    for _ in 0..INTERRUPTIONS_MAX {
        if !result.as_ref().is_err_and(is_interruption) {
            break;
        }
        result = load_once();
    }
    result
}

fn is_interruption(error: &ProgramError) -> bool {
    let ProgramError::LoadError { io_error, .. } = error else { return false };
    matches!(io_error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted)
}

fn program<'a, P>(programs: &'a mut Ebpf, name: &'static str) -> &'a mut P
where
    &'a mut P: TryFrom<&'a mut aya::programs::Program, Error = ProgramError>,
{
    let program = programs.program_mut(name).expect("the object holds the programs");
    program.try_into().expect("by the section that the source gives it")
}

impl KernelSwitch {
    /// Attaches all ports. The maps of ports are filled before the first port receives frames.
    pub(crate) fn attach(&mut self) -> Result<(), XdpError> {
        let mut interfaces = Vec::new();
        for (place, port) in self.ports.iter().collect::<Vec<_>>() {
            let step =
                format!("read the properties of port {} (interface index {})", port.index, port.ifindex);
            let interface = Interface::of(port.ifindex);
            let interface = interface.map_err(|error| XdpError::new(step, &error, PORT_ADVICE))?;
            self.register(place, port, &interface)?;
            interfaces.push(interface);
        }
        let ports: Vec<_> = self.ports.iter().map(|(_, port)| port).collect();
        for (port, interface) in ports.into_iter().zip(&interfaces) {
            if port.hook == Hook::None {
                continue;
            }
            let hook = self.attach_port(port, interface)?;
            self.hooks.push(hook);
        }
        Ok(())
    }

    /// Attaches the tc program to the far end of the segmenter, where single datagrams come out.
    pub(crate) fn attach_cutter(&mut self, far: u32) -> Result<(), XdpError> {
        let step = || format!("attach tc to the segmenter, interface {}", CUTTER[1]);
        self.prepare(Hook::Tc)?;
        attach_hook(&mut self.programs, Hook::Tc, far, CUTTER[1])
            .map_err(|error| XdpError::new(step(), &error, PORT_ADVICE))
    }

    fn register(&mut self, place: u32, port: Port, interface: &Interface) -> Result<(), XdpError> {
        let Port { index, ifindex, .. } = port;
        let step = || format!("register port {index} (interface index {ifindex})");
        let known = Place { ifindex, port: place, number: index.into() };
        let cable = Cable { ifindex, has_peer: interface.has_peer.into() };
        let mut result = if port.is_trunk { Ok(()) } else { self.maps.cables.set(place, cable, 0) };
        if port.hook != Hook::None {
            if !port.is_trunk {
                result = result.and_then(|()| self.maps.places.set(self.ports.cell(ifindex), known, 0));
            }
            result = result.and_then(|()| self.faults()?.insert(ifindex, Fault::default(), 0));
        }
        result.map_err(|error| XdpError::new(step(), &error, PORT_ADVICE))
    }

    fn faults(&mut self) -> Result<HashMap<&mut MapData, u32, Fault>, MapError> {
        self.programs.map_mut(faults::FAULTS).expect("the object holds the map").try_into()
    }

    /// Attaches the first hook that works, and returns it. If none works, returns the error of the
    /// first one tried.
    fn attach_port(&mut self, port: Port, interface: &Interface) -> Result<Hook, XdpError> {
        let mut first = None;
        for &hook in port.hook.candidates(interface) {
            let step = || format!("attach {hook} to port {} (interface {})", port.index, interface.name);
            self.prepare(hook)?;
            match attach_hook(&mut self.programs, hook, port.ifindex, &interface.name) {
                Ok(()) => return Ok(hook),
                Err(error) => first = first.or_else(|| Some(XdpError::new(step(), &error, PORT_ADVICE))),
            }
        }
        Err(first.expect("something is always tried"))
    }

    /// Loads the programs of a hook when the first port needs them.
    fn prepare(&mut self, hook: Hook) -> Result<(), XdpError> {
        let failed = |name| move |error| XdpError::new(format!("load {name}"), &error, KERNEL_ADVICE);
        // XDP passes scans that have to be split to tc.
        load(&mut self.programs, TC).map_err(failed(TC))?;
        if hook != Hook::Xdp || self.egress.is_some() {
            return Ok(());
        }
        load(&mut self.programs, XDP).map_err(failed(XDP))?;
        load(&mut self.programs, EGRESS).map_err(failed(EGRESS))?;
        let egress = program::<Xdp>(&mut self.programs, EGRESS).fd().and_then(|fd| Ok(fd.try_clone()?));
        let egress = egress.map_err(failed(EGRESS))?;
        self.connect_ports(&egress)?;
        self.egress = Some(egress);
        Ok(())
    }

    /// Fills the device maps with all ports, whatever their hooks: one map with each port once, and
    /// one with each port twice, for duplicated frames.
    fn connect_ports(&mut self, egress: &ProgramFd) -> Result<(), XdpError> {
        let mut twins = Vec::new();
        for (place, Port { index, ifindex, .. }) in self.ports.iter() {
            let step = || format!("connect port {index} (interface index {ifindex})");
            let result = self.maps.ports.set(place, ifindex, Some(egress), 0);
            result.map_err(|error| XdpError::new(step(), &error, PORT_ADVICE))?;
            let group = generation::build_group(&[ifindex], 2, egress);
            let group = group.map_err(|error| XdpError::new(step(), &error, PORT_ADVICE))?;
            twins.push((PORT_TWINS + place, group));
        }
        let entries: Vec<_> = twins.iter().map(|(slot, group)| (*slot, group.as_fd())).collect();
        sys::update_batch(self.maps.groups.fd().as_fd(), &entries)
            .map_err(|error| XdpError::new("write the map of duplicated ports", &error, KERNEL_ADVICE))
    }
}

/// Attaches the programs of a hook. A port with XDP also gets tc, which makes the copies of the
/// pieces of a scan that XDP cannot make.
fn attach_hook(programs: &mut Ebpf, hook: Hook, ifindex: u32, name: &str) -> Result<(), ProgramError> {
    let order = TcAttachOptions::TcxOrder(LinkOrder::default());
    let tc = program::<SchedClassifier>(programs, TC);
    let attached = tc.attach_with_options(name, TcAttachType::Ingress, order)?;
    if hook != Hook::Xdp {
        return Ok(());
    }
    let xdp = program::<Xdp>(programs, XDP).attach_to_if_index(ifindex, XdpMode::Driver);
    // If XDP fails, tc is detached again, so that no port keeps half of its programs.
    xdp.map(drop).or_else(|error| program::<SchedClassifier>(programs, TC).detach(attached).and(Err(error)))
}
