//! Registers the ports with the programs, then attaches these, at each port to the hook that is asked for or suits the interface.
//!
//! Links are file descriptors, also those to tc (which is why that needs Linux 6.6): whatever ends the process detaches all ports. A filter that
//! outlived it would go on with tables that nobody keeps up to date.

use std::os::fd::AsFd as _;

use aya::Ebpf;
use aya::maps::{HashMap, MapData, MapError};
use aya::programs::links::LinkOrder;
use aya::programs::tc::TcAttachOptions;
use aya::programs::{ProgramError, ProgramFd, SchedClassifier, TcAttachType, Xdp, XdpMode};

use crate::error::{KERNEL_ADVICE, PORT_ADVICE, XdpError};
use crate::hook::Hook;
use crate::interface::Interface;
use crate::layout::{Cable, Fault, PORT_TWINS, Place};
use crate::{KernelSwitch, Port, faults, generation, sys};

/// At XDP.
pub(crate) const XDP: &str = "nicekv_xdp";
/// At tc ingress.
pub(crate) const TC: &str = "nicekv_tc";
/// For what leaves a port after XDP.
const EGRESS: &str = "nicekv_egress";

/// Loads all programs; the one for what leaves a port goes into device maps.
pub(crate) fn load_programs(programs: &mut Ebpf) -> Result<ProgramFd, XdpError> {
    let failed = |name| move |error| XdpError::new(format!("load {name}"), &error, KERNEL_ADVICE);
    program::<Xdp>(programs, XDP).load().map_err(failed(XDP))?;
    program::<SchedClassifier>(programs, TC).load().map_err(failed(TC))?;
    let egress = program::<Xdp>(programs, EGRESS);
    egress.load().and_then(|()| Ok(egress.fd()?.try_clone()?)).map_err(failed(EGRESS))
}

fn program<'a, P>(programs: &'a mut Ebpf, name: &'static str) -> &'a mut P
where
    &'a mut P: TryFrom<&'a mut aya::programs::Program, Error = ProgramError>,
{
    let program = programs.program_mut(name).expect("the object holds the programs");
    program.try_into().expect("by the section that the source gives it")
}

impl KernelSwitch {
    /// Fills the maps of ports before the first of them receives.
    pub(crate) fn attach(&mut self) -> Result<(), XdpError> {
        let mut interfaces = Vec::new();
        for (place, port) in self.ports.iter().collect::<Vec<_>>() {
            let step = format!("look at port {} (interface index {})", port.index, port.ifindex);
            let interface = Interface::of(port.ifindex);
            let interface = interface.map_err(|error| XdpError::new(step, &error, PORT_ADVICE))?;
            self.register(place, port, &interface)?;
            interfaces.push(interface);
        }
        for ((_, port), interface) in self.ports.iter().zip(&interfaces) {
            self.hooks.push(attach_port(&mut self.programs, port, interface)?);
        }
        if self.has_xdp() { self.double_ports() } else { Ok(()) }
    }

    fn register(&mut self, place: u32, port: Port, interface: &Interface) -> Result<(), XdpError> {
        let Port { index, ifindex, .. } = port;
        let step = || format!("register port {index} (interface index {ifindex})");
        let result = self.maps.ports.set(place, ifindex, Some(&self.egress), 0);
        result.map_err(|error| XdpError::new(step(), &error, PORT_ADVICE))?;
        let known = Place { ifindex, port: place, number: index.into() };
        let cable = Cable { ifindex, has_peer: interface.has_peer.into() };
        let result = self.maps.places.set(self.ports.cell(ifindex), known, 0);
        let result = result.and_then(|()| self.maps.cables.set(place, cable, 0));
        let result = result.and_then(|()| self.faults()?.insert(ifindex, Fault::default(), 0));
        result.map_err(|error| XdpError::new(step(), &error, PORT_ADVICE))
    }

    fn faults(&mut self) -> Result<HashMap<&mut MapData, u32, Fault>, MapError> {
        self.programs.map_mut(faults::FAULTS).expect("the object holds the map").try_into()
    }

    /// Makes a group of each port twice, for frames that are doubled on purpose.
    fn double_ports(&mut self) -> Result<(), XdpError> {
        let mut twins = Vec::new();
        for (place, Port { index, ifindex, .. }) in self.ports.iter() {
            let step = || format!("double port {index} (interface index {ifindex})");
            let group = generation::build_group(&[ifindex], 2, &self.egress);
            let group = group.map_err(|error| XdpError::new(step(), &error, PORT_ADVICE))?;
            twins.push((PORT_TWINS + place, group));
        }
        let entries: Vec<_> = twins.iter().map(|(slot, group)| (*slot, group.as_fd())).collect();
        sys::update_batch(self.maps.groups.fd().as_fd(), &entries)
            .map_err(|error| XdpError::new("connect the doubled ports", &error, KERNEL_ADVICE))
    }
}

/// Returns what was attached: the first that can be. If none can, the first one's error tells why.
fn attach_port(programs: &mut Ebpf, port: Port, interface: &Interface) -> Result<Hook, XdpError> {
    let mut first = None;
    for &hook in port.hook.candidates(interface) {
        let step = || format!("attach {hook} to port {} (interface {})", port.index, interface.name);
        match attach_hook(programs, hook, port.ifindex, &interface.name) {
            Ok(()) => return Ok(hook),
            Err(error) => first = first.or_else(|| Some(XdpError::new(step(), &error, PORT_ADVICE))),
        }
    }
    Err(first.expect("something is always tried"))
}

fn attach_hook(programs: &mut Ebpf, hook: Hook, ifindex: u32, name: &str) -> Result<(), ProgramError> {
    if hook == Hook::Xdp {
        return program::<Xdp>(programs, XDP).attach_to_if_index(ifindex, XdpMode::Driver).map(drop);
    }
    let order = TcAttachOptions::TcxOrder(LinkOrder::default());
    program::<SchedClassifier>(programs, TC).attach_with_options(name, TcAttachType::Ingress, order).map(drop)
}
