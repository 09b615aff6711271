//! The router: one thread between all devices, which holds each packet until it is due.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BinaryHeap},
    io,
    os::fd::AsFd,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    time::{ClockId, clock_gettime},
};
use serde::Serialize;
use tun_rs::SyncDevice;

use super::{
    cut::Cut,
    line::{Delivery, Line},
    site::{MTU, node_at},
};
use gradvine::{
    links::Conditions,
    units::{NodeId, Time},
};

/// The priority of the thread, above other work on the machine: a late packet falsifies the
/// figures. The system's own urgent threads stay above it.
const NICE: i32 = -15;
/// The maximum number of packets read from one device before the due ones are sent: at 1500 bytes
/// they take well under a millisecond.
const BATCH: usize = 32;
/// How often the router checks whether to stop if no packet is due.
const POLL: Duration = Duration::from_millis(50);

/// The settings of a router.
#[derive(Clone, Debug)]
pub struct Wiring {
    /// The properties of the links.
    pub conditions: Conditions,
    /// The links of the topology, the lower node first.
    pub links: Vec<(NodeId, NodeId)>,
    /// When which of the links carry nothing.
    pub cuts: Vec<Cut>,
    /// Whether packets may overtake each other if there is jitter.
    pub reorders: bool,
}

/// Counts of one direction of a link.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Flow {
    /// Packets delivered, those that were late included.
    pub packets: u64,
    /// Their bytes, IP headers included.
    pub bytes: u64,
    /// Dropped because the queue was full.
    pub full: u64,
    /// Lost by the link's dice.
    pub lost: u64,
    /// Dropped while the link was cut.
    pub cut: u64,
    /// The sum of the seconds by which packets were delivered late.
    #[serde(skip)]
    pub late_sum_s: f64,
    /// The greatest of these delays, in seconds.
    pub late_max_s: f64,
}

impl Flow {
    /// The mean of the seconds by which packets were delivered late.
    pub fn late_mean_s(&self) -> f64 {
        self.late_sum_s / self.packets.max(1) as f64
    }
}

/// The counts of a router.
#[derive(Clone, Debug, Default)]
pub struct RouterCounts {
    /// Each direction of each link.
    pub flows: BTreeMap<(NodeId, NodeId), Flow>,
    /// Packets between nodes without a link.
    pub strays: u64,
    /// CPU seconds of the router.
    pub cpu_s: f64,
    /// Seconds from start to stop.
    pub time_s: f64,
}

/// A running router. Dropping it stops the router.
pub struct Router {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<io::Result<RouterCounts>>>,
}

impl Router {
    /// Starts to carry packets between devices; the i-th device belongs to node i. The times of
    /// cuts count from now on.
    ///
    /// # Errors
    /// If the system cannot start a thread.
    pub fn start(devices: Vec<SyncDevice>, wiring: Wiring) -> io::Result<Router> {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let thread = thread::Builder::new().name("router".into()).spawn(move || {
            // For this thread only. If it is not permitted, the lateness of packets shows it.
            if let Err(error) = rustix::process::setpriority_process(None, NICE) {
                tracing::warn!("the router's priority stays as it is: {error}");
            }
            Switch::new(devices, wiring).run(&stopped)
        })?;
        Ok(Router { stop, thread: Some(thread) })
    }

    /// Whether it has ended by itself, which happens only if a device fails.
    pub fn is_dead(&self) -> bool {
        self.thread.as_ref().is_none_or(JoinHandle::is_finished)
    }

    /// Stops it.
    ///
    /// # Errors
    /// If a device failed.
    pub fn stop(mut self) -> io::Result<RouterCounts> {
        self.join()
    }

    fn join(&mut self) -> io::Result<RouterCounts> {
        self.stop.store(true, Ordering::Relaxed);
        let Some(thread) = self.thread.take() else { return Ok(RouterCounts::default()) };
        thread.join().unwrap_or_else(|_| Err(io::Error::other("the router panicked")))
    }
}

impl Drop for Router {
    fn drop(&mut self) {
        let _ = self.join();
    }
}

#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct InFlight {
    arrives: Time,
    number: u64,
    from: NodeId,
    to: NodeId,
    packet: Vec<u8>,
}

struct Wire {
    line: Line,
    free: Time,
    flow: Flow,
}

struct Switch {
    devices: Vec<SyncDevice>,
    wires: BTreeMap<(NodeId, NodeId), Wire>,
    /// The time at which each node's last packet has left, if its links share an uplink.
    uplinks: Vec<Time>,
    shared_uplink: bool,
    cuts: Vec<Cut>,
    started: Instant,
    in_flight: BinaryHeap<Reverse<InFlight>>,
    numbered: u64,
    spare: Vec<Vec<u8>>,
    strays: u64,
}

impl Switch {
    fn new(devices: Vec<SyncDevice>, wiring: Wiring) -> Switch {
        let Wiring { conditions, links, cuts, reorders } = wiring;
        let directions = links.into_iter().flat_map(|(a, b)| [(a, b), (b, a)]);
        let wire = |(a, b)| {
            let line = Line::new(*conditions.link(a, b), conditions.dice(a, b), reorders);
            ((a, b), Wire { line, free: Time(0), flow: Flow::default() })
        };
        Switch {
            uplinks: vec![Time(0); devices.len()],
            devices,
            wires: directions.map(wire).collect(),
            shared_uplink: conditions.shared_uplink,
            cuts,
            started: Instant::now(),
            in_flight: BinaryHeap::new(),
            numbered: 0,
            spare: Vec::new(),
            strays: 0,
        }
    }

    fn now(&self) -> Time {
        Time(self.started.elapsed().as_nanos() as u64)
    }

    fn run(mut self, stop: &AtomicBool) -> io::Result<RouterCounts> {
        let mut ready = vec![false; self.devices.len()];
        while !stop.load(Ordering::Relaxed) {
            self.deliver()?;
            self.wait(&mut ready)?;
            for (device, _) in ready.iter().enumerate().filter(|(_, ready)| **ready) {
                self.read(NodeId::from(device))?;
            }
        }
        let cpu = clock_gettime(ClockId::ThreadCPUTime);
        Ok(RouterCounts {
            time_s: self.now().seconds(),
            flows: self.wires.into_iter().map(|(ends, wire)| (ends, wire.flow)).collect(),
            strays: self.strays,
            cpu_s: cpu.tv_sec as f64 + cpu.tv_nsec as f64 / 1e9,
        })
    }

    /// Waits until a device has packets or one is due.
    fn wait(&self, ready: &mut [bool]) -> io::Result<()> {
        let due = self.in_flight.peek().map_or(u64::MAX, |Reverse(next)| next.arrives.0);
        let wait = Duration::from_nanos(due.saturating_sub(self.now().0)).min(POLL);
        let timeout =
            Timespec { tv_sec: wait.as_secs() as i64, tv_nsec: i64::from(wait.subsec_nanos()) };
        let mut polled: Vec<PollFd<'_>> = self
            .devices
            .iter()
            .map(|device| PollFd::from_borrowed_fd(device.as_fd(), PollFlags::IN))
            .collect();
        match poll(&mut polled, Some(&timeout)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        for (ready, polled) in ready.iter_mut().zip(&polled) {
            *ready = polled.revents().contains(PollFlags::IN);
        }
        Ok(())
    }

    /// Reads the packets that a node has sent.
    fn read(&mut self, from: NodeId) -> io::Result<()> {
        for _ in 0..BATCH {
            let mut packet = self.spare.pop().unwrap_or_default();
            packet.resize(MTU, 0);
            let length = match self.devices[from.index()].recv(&mut packet) {
                Ok(length) => length,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.spare.push(packet);
                    return Ok(());
                }
                Err(error) => return Err(error),
            };
            packet.truncate(length);
            self.send(from, packet);
        }
        Ok(())
    }

    fn send(&mut self, from: NodeId, packet: Vec<u8>) {
        let now = self.now();
        let Some(to) = destination(&packet) else { return self.spare.push(packet) };
        let Some(wire) = self.wires.get_mut(&(from, to)) else {
            self.strays += 1;
            return self.spare.push(packet);
        };
        if self.cuts.iter().any(|cut| cut.stops(from, to, Duration::from_nanos(now.0))) {
            wire.flow.cut += 1;
            return self.spare.push(packet);
        }
        let free =
            if self.shared_uplink { &mut self.uplinks[from.index()] } else { &mut wire.free };
        match wire.line.send(now, packet.len(), free) {
            Delivery::Arrives(arrives) => {
                self.in_flight.push(Reverse(InFlight {
                    arrives,
                    number: self.numbered,
                    from,
                    to,
                    packet,
                }));
                self.numbered += 1;
            }
            Delivery::Full => {
                wire.flow.full += 1;
                self.spare.push(packet);
            }
            Delivery::Lost => {
                wire.flow.lost += 1;
                self.spare.push(packet);
            }
        }
    }

    /// Delivers the packets that are due.
    fn deliver(&mut self) -> io::Result<()> {
        loop {
            let now = self.now();
            let Some(next) = self.in_flight.peek_mut().filter(|next| next.0.arrives <= now) else {
                return Ok(());
            };
            let Reverse(InFlight { arrives, from, to, packet, .. }) =
                std::collections::binary_heap::PeekMut::pop(next);
            let wire = self.wires.get_mut(&(from, to)).expect("a packet in flight has a wire");
            // Packets in flight when the link was cut are lost too.
            if self.cuts.iter().any(|cut| cut.stops(from, to, Duration::from_nanos(arrives.0))) {
                wire.flow.cut += 1;
            } else {
                match self.devices[to.index()].send(&packet) {
                    Ok(_) => {}
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                    Err(error) => return Err(error),
                }
                let late = (now.0 - arrives.0) as f64 / 1e9;
                wire.flow.packets += 1;
                wire.flow.bytes += packet.len() as u64;
                wire.flow.late_sum_s += late;
                wire.flow.late_max_s = wire.flow.late_max_s.max(late);
            }
            self.spare.push(packet);
        }
    }
}

/// The node whose address an IPv4 packet has as its destination.
fn destination(packet: &[u8]) -> Option<NodeId> {
    let address: [u8; 4] = packet.get(16..20)?.try_into().ok()?;
    (packet[0] >> 4 == 4).then(|| node_at(address)).flatten()
}
