//! Nodes and Pods made of namespaces, for tests that need root. Everything made here dies with its thread.
#![allow(dead_code, unreachable_pub, clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stderr)]

pub mod agent;
pub mod cni;
pub mod traffic;

use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::Duration;

/// Runs `test` on a thread with a network and a mount namespace of its own, loopback up and a bpffs at `/sys/fs/bpf`.
pub fn in_node(test: impl FnOnce() + Send + 'static) {
    assert!(nix::unistd::geteuid().is_root(), "this test makes namespaces: run it as root");
    let thread = std::thread::Builder::new().name("node".into()).spawn(|| {
        become_node();
        test();
    });
    if let Err(panic) = thread.unwrap().join() {
        std::panic::resume_unwind(panic);
    }
}

fn become_node() {
    unshare(CloneFlags::CLONE_NEWNET | CloneFlags::CLONE_NEWNS).unwrap();
    mount(None::<&str>, "/", None::<&str>, MsFlags::MS_REC | MsFlags::MS_PRIVATE, None::<&str>).unwrap();
    mount(Some("bpf"), "/sys/fs/bpf", Some("bpf"), MsFlags::empty(), None::<&str>).unwrap();
    run("ip link set lo up");
}

/// This node's end of an underlay on which nobody else is.
pub fn lonely_underlay() {
    run("ip link add up0 type veth peer name up1 && ip link set up0 up && ip link set up1 up");
    run("ip addr add 192.168.77.11/24 dev up0");
}

/// A network namespace held by a thread.
pub struct Pod {
    pub netns: PathBuf,
    jobs: Option<mpsc::Sender<Box<dyn FnOnce() + Send>>>,
    thread: Option<JoinHandle<()>>,
}

impl Pod {
    pub fn new() -> Self {
        Self::made_by(|| unshare(CloneFlags::CLONE_NEWNET).unwrap())
    }

    /// Another node: mounts and a bpffs of its own as well.
    pub fn node() -> Self {
        Self::made_by(become_node)
    }

    fn made_by(make: impl FnOnce() + Send + 'static) -> Self {
        let (jobs, queue) = mpsc::channel::<Box<dyn FnOnce() + Send>>();
        let (ready, path) = mpsc::channel();
        let thread = std::thread::Builder::new()
            .name("pod".into())
            .spawn(move || {
                make();
                let netns =
                    PathBuf::from(format!("/proc/{}/task/{}/ns/net", std::process::id(), nix::unistd::gettid()));
                ready.send(netns).unwrap();
                for job in queue {
                    job();
                }
            })
            .unwrap();
        Self { netns: path.recv().unwrap(), jobs: Some(jobs), thread: Some(thread) }
    }

    /// Runs `job` inside.
    pub fn run<T: Send + 'static>(&self, job: impl FnOnce() -> T + Send + 'static) -> T {
        let (done, result) = mpsc::channel();
        self.jobs
            .as_ref()
            .unwrap()
            .send(Box::new(move || {
                let _ = done.send(job());
            }))
            .unwrap();
        result.recv().expect("the job panicked")
    }

    /// Runs a command inside; its output.
    pub fn sh(&self, command: &str) -> String {
        let command = command.to_owned();
        self.run(move || run(&command))
    }

    /// Whether a command inside succeeds.
    pub fn succeeds(&self, command: &str) -> bool {
        let command = command.to_owned();
        self.run(move || Command::new("sh").arg("-c").arg(&command).output().unwrap().status.success())
    }
}

/// How long a test waits for bytes that should come.
const PATIENCE: Duration = Duration::from_secs(5);

impl Pod {
    /// Takes one TCP connection and sends back what it says.
    pub fn listen_tcp(&self, address: &'static str) -> JoinHandle<()> {
        let listener = self.run(move || TcpListener::bind(address).unwrap());
        std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut said = Vec::new();
            stream.read_to_end(&mut said).unwrap();
            stream.write_all(&said).unwrap();
        })
    }

    /// Says something by TCP and hears it again.
    pub fn talk_tcp(&self, address: &'static str) {
        self.run(move || {
            let mut stream = TcpStream::connect_timeout(&address.parse().unwrap(), PATIENCE).unwrap();
            stream.set_read_timeout(Some(PATIENCE)).unwrap();
            let said: Vec<u8> = (0..100_000_u32).map(|i| (i % 251) as u8).collect();
            stream.write_all(&said).unwrap();
            stream.shutdown(Shutdown::Write).unwrap();
            let mut heard = Vec::new();
            stream.read_to_end(&mut heard).unwrap();
            assert!(heard == said, "{} bytes came back", heard.len());
        });
    }

    /// Sends one datagram back.
    pub fn echo_udp(&self, address: &'static str) -> JoinHandle<()> {
        let socket = self.run(move || UdpSocket::bind(address).unwrap());
        std::thread::spawn(move || {
            socket.set_read_timeout(Some(PATIENCE)).unwrap();
            let mut bytes = [0; 2000];
            let (length, from) = socket.recv_from(&mut bytes).unwrap();
            socket.send_to(&bytes[..length], from).unwrap();
        })
    }

    /// Sends a datagram and hears it again.
    pub fn talk_udp(&self, address: &'static str) {
        self.run(move || {
            let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
            socket.set_read_timeout(Some(PATIENCE)).unwrap();
            socket.send_to(b"hello", address).unwrap();
            let mut bytes = [0; 2000];
            let (length, _) = socket.recv_from(&mut bytes).unwrap();
            assert_eq!(&bytes[..length], b"hello");
        });
    }
}

impl Drop for Pod {
    fn drop(&mut self) {
        self.jobs = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Runs a shell command in the calling thread's namespaces; its output.
pub fn run(command: &str) -> String {
    let output = Command::new("sh").arg("-c").arg(command).output().unwrap();
    assert!(
        output.status.success(),
        "{command}: {}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8(output.stdout).unwrap()
}

/// A directory that is removed at the end.
pub struct Directory(PathBuf);

impl Directory {
    pub fn new(name: &str) -> Self {
        use std::sync::atomic::{AtomicU32, Ordering};
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("juneau-{name}-{}-{number}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
