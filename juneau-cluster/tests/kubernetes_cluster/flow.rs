//! Numbered datagrams between two Pods and back, and how many of them arrived.

use crate::fixture::Inside;
use nix::sys::socket::{setsockopt, sockopt};
use std::collections::BTreeSet;
use std::io::ErrorKind;
use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Between two datagrams: 500 a second, on a machine that others use as well.
const PAUSE: Duration = Duration::from_millis(2);
/// Silence after which nothing more is on its way.
const SILENCE: Duration = Duration::from_millis(1500);
/// Bytes that may wait: whoever gets no processor for seconds loses nothing.
const BUFFER: usize = 16 << 20;
/// Where they arrive.
const PORT: u16 = 5009;

/// A flow that runs.
pub struct Flow {
    what: &'static str,
    stop: Arc<AtomicBool>,
    sender: JoinHandle<u64>,
    echo: JoinHandle<u64>,
    back: JoinHandle<u64>,
}

fn socket(bind: SocketAddr) -> UdpSocket {
    let socket = UdpSocket::bind(bind).unwrap();
    setsockopt(&socket, sockopt::RcvBufForce, &BUFFER).unwrap();
    socket.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
    socket
}

impl Flow {
    /// Sends from one Pod to the other one's address, which answers every datagram. Returns when the first has come back.
    pub fn start(what: &'static str, from: &Inside, to: &Inside, address: &str) -> Self {
        let target = SocketAddr::new(address.parse().unwrap(), PORT);
        let inlet = to.run(|| socket(SocketAddr::from(([0, 0, 0, 0], PORT))));
        let outlet = from.run(|| socket(SocketAddr::from(([0, 0, 0, 0], 0))));
        outlet.connect(target).unwrap();
        let stop = Arc::new(AtomicBool::new(false));
        let sending = outlet.try_clone().unwrap();
        let echo = spawn(Arc::clone(&stop), move |buffer| {
            let (length, from) = inlet.recv_from(buffer)?;
            inlet.send_to(&buffer[..length], from)?;
            Ok(u64::from_be_bytes(buffer[..8].try_into().unwrap()))
        });
        let came = Arc::new(AtomicBool::new(false));
        let first = Arc::clone(&came);
        let back = spawn(Arc::clone(&stop), move |buffer| {
            outlet.recv(buffer)?;
            first.store(true, Ordering::SeqCst);
            Ok(u64::from_be_bytes(buffer[..8].try_into().unwrap()))
        });
        let ending = Arc::clone(&stop);
        let sender = std::thread::spawn(move || {
            let (begun, mut number) = (Instant::now(), 0_u32);
            while !ending.load(Ordering::SeqCst) {
                sending.send(&u64::from(number).to_be_bytes()).unwrap();
                number += 1;
                std::thread::sleep((begun + PAUSE * number).saturating_duration_since(Instant::now()));
            }
            u64::from(number)
        });
        crate::fixture::until(what, || came.load(Ordering::SeqCst).then_some(()).ok_or_else(|| "silence".to_owned()));
        Self { what, stop, sender, echo, back }
    }

    /// Ends them; every datagram must have arrived, and every answer come back.
    #[track_caller]
    pub fn expect_no_loss<const N: usize>(flows: [Self; N]) {
        flows.iter().for_each(|flow| flow.stop.store(true, Ordering::SeqCst));
        for flow in flows {
            let what = flow.what;
            let sent = flow.sender.join().unwrap();
            let (arrived, back) = (flow.echo.join().unwrap(), flow.back.join().unwrap());
            println!("{what}: {sent} sent, {arrived} arrived, {back} came back");
            assert!(sent > 0);
            assert_eq!((sent - arrived, arrived - back), (0, 0), "{what}: of {sent} so many are lost, each way");
        }
    }
}

/// Receives until nothing more comes after the end; how many different numbers there were.
fn spawn(
    stop: Arc<AtomicBool>,
    mut receive: impl FnMut(&mut [u8; 16]) -> std::io::Result<u64> + Send + 'static,
) -> JoinHandle<u64> {
    std::thread::spawn(move || {
        let (mut numbers, mut last) = (BTreeSet::new(), Instant::now());
        let mut buffer = [0; 16];
        loop {
            match receive(&mut buffer) {
                Ok(number) => {
                    numbers.insert(number);
                    last = Instant::now();
                }
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                    if stop.load(Ordering::SeqCst) && last.elapsed() > SILENCE {
                        return numbers.len() as u64;
                    }
                }
                // An ICMP error about an earlier datagram: what it was about counts as lost.
                Err(_) => {}
            }
        }
    })
}
