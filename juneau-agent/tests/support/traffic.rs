//! Numbered datagrams and checked bytes between two Pods, and what became of them.

use super::Pod;
use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::sys::socket::{setsockopt, sockopt};
use nix::unistd::Pid;
use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Datagrams a second, as long as the sender gets the CPU for it.
const RATE: u64 = 10_000;
/// A sender that fell behind catches up by so many at once: more would fill the backlog of a CPU, which is no loss of
/// ours.
const BURST: u64 = 50;
/// Bytes that may wait for the receiver: seconds of datagrams.
const BUFFER: usize = 64 << 20;
/// Silence after which nothing more is on its way.
const SILENCE: Duration = Duration::from_millis(1500);
/// Bytes of one write to the stream, and the pause after it: a stream that fills the CPU would only delay the agent.
const CHUNK: usize = 8 << 10;
const PAUSE: Duration = Duration::from_millis(10);

/// What became of the datagrams.
#[derive(Debug)]
pub struct Report {
    pub sent: u64,
    pub received: u64,
    /// Came after one with a higher number, or twice.
    pub disordered: u64,
    /// Refused by the sender's own kernel; not counted as sent.
    pub refused: u64,
    /// Dropped as the receiver's socket was full.
    pub socket_drops: u64,
    /// Dropped as a CPU's backlog was full, on the whole machine.
    pub softnet_drops: u64,
    pub time: Duration,
}

impl Report {
    /// Datagrams that nothing outside the data path explains.
    pub fn lost(&self) -> u64 {
        self.sent.saturating_sub(self.received).saturating_sub(self.socket_drops).saturating_sub(self.softnet_drops)
    }
}

/// Datagrams on their way.
pub struct Datagrams {
    stop: Arc<AtomicBool>,
    sent: Arc<AtomicU64>,
    sender: JoinHandle<u64>,
    receiver: JoinHandle<(u64, u64)>,
    softnet: u64,
    start: Instant,
}

impl Datagrams {
    /// Sends from `client` to `address` of `server`, from now on. Returns when the first has arrived.
    pub fn start(client: &Pod, server: &Pod, address: &'static str) -> Self {
        let inlet = server.run(move || UdpSocket::bind(address).unwrap());
        setsockopt(&inlet, sockopt::RcvBufForce, &BUFFER).unwrap();
        let outlet = client.run(move || {
            let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
            socket.connect(address).unwrap();
            socket
        });
        let stop = Arc::new(AtomicBool::new(false));
        let done = Arc::new(AtomicBool::new(false));
        let (sent, received) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
        let (softnet, start) = (softnet_drops(), Instant::now());
        let receiver = {
            let (done, sent, received) = (Arc::clone(&done), Arc::clone(&sent), Arc::clone(&received));
            std::thread::spawn(move || receive(&inlet, &done, &sent, &received))
        };
        let sender = {
            let (stop, sent) = (Arc::clone(&stop), Arc::clone(&sent));
            std::thread::spawn(move || {
                let refused = send(&outlet, &stop, &sent);
                done.store(true, Ordering::SeqCst);
                refused
            })
        };
        super::agent::until("the first datagram", || (received.load(Ordering::SeqCst) > 0).then_some(())).unwrap();
        Self { stop, sent, sender, receiver, softnet, start }
    }

    /// Stops sending, waits for what is on its way, and counts.
    pub fn finish(self, server: &Pod) -> Report {
        self.stop.store(true, Ordering::SeqCst);
        let refused = self.sender.join().unwrap();
        let time = self.start.elapsed();
        let (received, disordered) = self.receiver.join().unwrap();
        Report {
            sent: self.sent.load(Ordering::SeqCst),
            received,
            disordered,
            refused,
            socket_drops: server.run(udp_drops),
            softnet_drops: softnet_drops() - self.softnet,
            time,
        }
    }
}

/// A sender that moves between CPUs leaves datagrams in the backlog of one and overtakes them on the other.
fn pin() {
    let allowed = sched_getaffinity(Pid::from_raw(0)).unwrap();
    let first = (0..CpuSet::count()).find(|cpu| allowed.is_set(*cpu).unwrap()).unwrap();
    let mut cpus = CpuSet::new();
    cpus.set(first).unwrap();
    sched_setaffinity(Pid::from_raw(0), &cpus).unwrap();
}

fn send(socket: &UdpSocket, stop: &AtomicBool, sent: &AtomicU64) -> u64 {
    pin();
    let (start, mut number, mut refused, mut due) = (Instant::now(), 0_u64, 0, 0_u64);
    while !stop.load(Ordering::SeqCst) {
        let now = u64::try_from(start.elapsed().as_micros()).unwrap() * RATE / 1_000_000;
        for _ in 0..(now - due).min(BURST) {
            match socket.send(&number.to_be_bytes()) {
                Ok(_) => {
                    number += 1;
                    sent.store(number, Ordering::SeqCst);
                }
                Err(_) => refused += 1,
            }
        }
        due = now;
        std::thread::sleep(Duration::from_millis(1));
    }
    refused
}

fn receive(socket: &UdpSocket, done: &AtomicBool, sent: &AtomicU64, received: &AtomicU64) -> (u64, u64) {
    socket.set_read_timeout(Some(SILENCE)).unwrap();
    let (mut count, mut disordered, mut next) = (0, 0, 0);
    let mut bytes = [0; 8];
    loop {
        if done.load(Ordering::SeqCst) && count == sent.load(Ordering::SeqCst) {
            return (count, disordered);
        }
        match socket.recv(&mut bytes) {
            Ok(length) => {
                assert_eq!(length, bytes.len());
                let number = u64::from_be_bytes(bytes);
                disordered += u64::from(number < next);
                next = next.max(number + 1);
                count += 1;
                received.store(count, Ordering::SeqCst);
            }
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                if done.load(Ordering::SeqCst) {
                    return (count, disordered);
                }
            }
            Err(error) => panic!("{error}"),
        }
    }
}

/// Bytes on their way: each is a function of its place, so one that is lost, doubled or changed is seen.
pub struct Stream {
    stop: Arc<AtomicBool>,
    writer: JoinHandle<u64>,
    reader: JoinHandle<u64>,
}

impl Stream {
    /// Writes from `client` to `address` of `server`, from now on.
    pub fn start(client: &Pod, server: &Pod, address: &'static str) -> Self {
        let listener = server.run(move || TcpListener::bind(address).unwrap());
        let mut out = client.run(move || TcpStream::connect(address).unwrap());
        let (mut into, _) = listener.accept().unwrap();
        let stop = Arc::new(AtomicBool::new(false));
        let writer = {
            let stop = Arc::clone(&stop);
            std::thread::spawn(move || {
                let mut place = 0;
                while !stop.load(Ordering::SeqCst) {
                    let bytes: Vec<u8> = (place..).take(CHUNK).map(byte_at).collect();
                    out.write_all(&bytes).unwrap();
                    place += CHUNK as u64;
                    std::thread::sleep(PAUSE);
                }
                place
            })
        };
        let reader = std::thread::spawn(move || {
            into.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
            let (mut place, mut bytes) = (0, vec![0; CHUNK]);
            loop {
                let length = into.read(&mut bytes).unwrap();
                if length == 0 {
                    return place;
                }
                assert!((place..).zip(&bytes[..length]).all(|(at, byte)| byte_at(at) == *byte), "after {place} bytes");
                place += length as u64;
            }
        });
        Self { stop, writer, reader }
    }

    /// Ends the stream; the bytes written and the good ones read.
    pub fn finish(self) -> (u64, u64) {
        self.stop.store(true, Ordering::SeqCst);
        (self.writer.join().unwrap(), self.reader.join().unwrap())
    }
}

fn byte_at(place: u64) -> u8 {
    (place.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8
}

/// The last column of the UDP sockets of this thread's network namespace.
fn udp_drops() -> u64 {
    let text = std::fs::read_to_string("/proc/thread-self/net/udp").unwrap();
    text.lines().skip(1).filter_map(|line| line.split_whitespace().last()?.parse::<u64>().ok()).sum()
}

/// The second column, one line a CPU (`net/core/net-procfs.c`).
fn softnet_drops() -> u64 {
    let text = std::fs::read_to_string("/proc/net/softnet_stat").unwrap();
    text.lines().map(|line| u64::from_str_radix(line.split_whitespace().nth(1).unwrap(), 16).unwrap()).sum()
}
