//! A way from one network namespace to a server in another: connections that arrive at a listener here are continued
//! there.

use crate::error::{Context, Result};
use nix::sched::{CloneFlags, setns};
use std::fs::File;
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

/// Forwards until it is dropped. Connections that are open then end when one of their ends does.
#[derive(Debug)]
pub(crate) struct Forward {
    here: SocketAddr,
    stopped: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Forward {
    /// Listens at `here`, in this thread's network namespace, and connects to `there`, in the one at `namespace`.
    pub(crate) fn start(here: SocketAddr, namespace: &Path, there: SocketAddr) -> Result<Self> {
        let listener = TcpListener::bind(here).context(|| format!("listening at {here}"))?;
        let namespace = File::open(namespace).on("opening", namespace)?;
        let stopped = Arc::new(AtomicBool::new(false));
        let stop = Arc::clone(&stopped);
        let thread = std::thread::spawn(move || {
            // The listener stays where it was made; sockets made from now on belong to the other namespace.
            if setns(&namespace, CloneFlags::CLONE_NEWNET).is_err() {
                return;
            }
            for client in listener.incoming() {
                if stop.load(Ordering::Acquire) {
                    return;
                }
                if let Ok(client) = client
                    && let Ok(server) = TcpStream::connect(there)
                {
                    join(client, server);
                }
            }
        });
        Ok(Self { here, stopped, thread: Some(thread) })
    }
}

impl Drop for Forward {
    fn drop(&mut self) {
        self.stopped.store(true, Ordering::Release);
        // Wakes the listener. Where that fails, it is gone already.
        drop(TcpStream::connect(self.here));
        if let Some(thread) = self.thread.take() {
            thread.join().ok();
        }
    }
}

/// Copies both ways between two connections until both have ended.
fn join(client: TcpStream, server: TcpStream) {
    client.set_nodelay(true).and_then(|()| server.set_nodelay(true)).ok();
    let (Ok(from_client), Ok(from_server)) = (client.try_clone(), server.try_clone()) else { return };
    for (mut from, mut to) in [(from_client, server), (from_server, client)] {
        std::thread::spawn(move || {
            std::io::copy(&mut from, &mut to).ok();
            // An end of data is passed on as such; a connection that broke is gone on both sides.
            to.shutdown(Shutdown::Write).ok();
        });
    }
}

#[cfg(test)]
mod tests {
    use super::Forward;
    use std::io::{Read, Write};
    use std::net::{Shutdown, TcpListener, TcpStream};
    use std::path::Path;
    use std::time::{Duration, Instant};

    #[test]
    fn both_directions_pass_and_an_end_does() {
        let server = TcpListener::bind("127.0.0.1:0").unwrap();
        let there = server.local_addr().unwrap();
        let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let Ok(forward) = Forward::start(free, Path::new("/proc/thread-self/ns/net"), there) else {
            panic!("another process took {free}")
        };
        let echo = std::thread::spawn(move || {
            let (mut stream, _) = server.accept().unwrap();
            let mut text = String::new();
            stream.read_to_string(&mut text).unwrap();
            write!(stream, "got {text}").unwrap();
        });
        let mut client = TcpStream::connect(free).unwrap();
        client.write_all(b"that").unwrap();
        client.shutdown(Shutdown::Write).unwrap();
        let mut answer = String::new();
        // Entering a namespace needs root; without it there is no answer.
        client.read_to_string(&mut answer).unwrap_or_default();
        if nix::unistd::Uid::effective().is_root() {
            assert_eq!(answer, "got that");
            echo.join().unwrap();
        }
        drop(forward);
        // A child that another test starts holds every socket until it is the program that it shall be.
        let begun = Instant::now();
        while TcpStream::connect(free).is_ok() {
            assert!(begun.elapsed() < Duration::from_secs(10), "it still listens");
        }
    }
}
