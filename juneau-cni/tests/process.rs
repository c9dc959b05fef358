//! The plugin's process, with whatever may be at the agent's socket.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

struct Place(PathBuf);

impl Place {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("juneau-cni-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn socket(&self) -> PathBuf {
        self.0.join("agent.sock")
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// An agent that does this with each connection, once it has read the request.
fn agent(socket: &Path, serve: impl Fn(String, UnixStream) + Send + 'static) {
    let listener = UnixListener::bind(socket).unwrap();
    std::thread::spawn(move || {
        while let Ok((stream, _)) = listener.accept() {
            let mut request = String::new();
            BufReader::new(&stream).read_line(&mut request).unwrap();
            serve(request, stream);
        }
    });
}

fn plugin(command: &str, config: &[u8]) -> Output {
    let mut child = Command::new(env!("CARGO_BIN_EXE_juneau-cni"))
        .env_clear()
        .envs([
            ("CNI_COMMAND", command),
            ("CNI_CONTAINERID", "0123abc"),
            ("CNI_NETNS", "/run/netns/x"),
            ("CNI_IFNAME", "eth0"),
            ("CNI_ARGS", "K8S_POD_NAMESPACE=red;K8S_POD_NAME=a1"),
        ])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // It may have said no before the end of a long text.
    let _ = child.stdin.take().unwrap().write_all(config);
    child.wait_with_output().unwrap()
}

fn config(socket: &Path) -> Vec<u8> {
    json!({"cniVersion": "1.1.0", "name": "juneau", "type": "juneau", "socket": socket}).to_string().into_bytes()
}

fn error(output: &Output) -> (u64, String) {
    assert_eq!(output.status.code(), Some(1));
    assert!(output.stderr.is_empty(), "{}", String::from_utf8_lossy(&output.stderr));
    let document: Value = serde_json::from_slice(&output.stdout).unwrap();
    (document["code"].as_u64().unwrap(), document["msg"].as_str().unwrap().to_owned())
}

/// ADD is told to come again, STATUS says no, and DEL goes on, whatever this agent does.
fn is_no_agent(socket: &Path, what: &str) {
    let (code, message) = error(&plugin("ADD", &config(socket)));
    assert_eq!(code, 11, "{message}");
    assert!(message.contains(what), "{message}");
    assert_eq!(error(&plugin("STATUS", &config(socket))).0, 50);
    let deleted = plugin("DEL", &config(socket));
    assert_eq!((deleted.status.code(), deleted.stdout.len(), deleted.stderr.len()), (Some(0), 0, 0));
}

#[test]
fn an_agent_is_asked_and_its_answer_written() {
    let place = Place::new("good");
    let answer = json!({"version": 1, "result": {
        "interface": "eth0", "address": "10.0.1.10/24", "gateway": "10.0.1.1", "mac": "02:00:0a:00:01:0a",
        "mtu": 1450, "host_interface": "eth00123abc"}});
    agent(&place.socket(), move |request, mut stream| {
        let request: Value = serde_json::from_str(&request).unwrap();
        assert_eq!(request["version"], 1);
        stream.write_all(format!("{answer}\n").as_bytes()).unwrap();
    });
    let added = plugin("ADD", &config(&place.socket()));
    assert!(added.status.success(), "{}", String::from_utf8_lossy(&added.stdout));
    let result: Value = serde_json::from_slice(&added.stdout).unwrap();
    assert_eq!(result["ips"][0]["address"], "10.0.1.10/24");
}

#[test]
fn nobody_is_there() {
    let place = Place::new("nobody");
    is_no_agent(&place.socket(), "is juneau-agent running");
    std::fs::write(place.socket(), "").unwrap();
    is_no_agent(&place.socket(), "not a socket");
    std::fs::remove_file(place.socket()).unwrap();
    // A socket that an agent left when it was killed.
    drop(UnixListener::bind(place.socket()).unwrap());
    is_no_agent(&place.socket(), "refused");
}

#[test]
fn an_agent_that_closes_or_talks_nonsense_is_none() {
    for (name, answer, what) in [
        ("closes", String::new(), "without an answer"),
        ("half", "{\"version\":1,".into(), "cannot be read"),
        ("http", "HTTP/1.1 400 Bad Request\r\n\r\n".into(), "cannot be read"),
        ("list", "[1,2,3]\n".into(), "cannot be read"),
        ("bare", "{\"version\":1}\n".into(), "cannot be read"),
        ("empty", "\n".into(), "cannot be read"),
        ("future", "{\"version\":2,\"outcome\":{}}\n".into(), "speaks version 2"),
        ("long", "x".repeat(2 * 1024 * 1024), "longer than"),
    ] {
        let place = Place::new(name);
        agent(&place.socket(), move |_, mut stream| {
            let _ = stream.write_all(answer.as_bytes());
        });
        is_no_agent(&place.socket(), what);
    }
}

#[test]
fn an_agent_that_hangs_costs_five_seconds() {
    let silent = Place::new("silent");
    agent(&silent.socket(), |_, stream| std::mem::forget(stream));
    // One that says something now and then never lets a read time out.
    let slow = Place::new("slow");
    agent(&slow.socket(), |_, mut stream| {
        std::thread::spawn(move || {
            while stream.write_all(b" ").is_ok() {
                std::thread::sleep(Duration::from_millis(500));
            }
        });
    });
    // One that does not take connections: the queue is full, and the kernel lets callers wait.
    let full = Place::new("full");
    let _listener = UnixListener::bind(full.socket()).unwrap();
    let _waiting = fill(&full.socket());
    let start = Instant::now();
    let runs: Vec<_> = [&silent, &slow, &full]
        .into_iter()
        .flat_map(|place| ["ADD", "DEL"].map(|command| (command, config(&place.socket()))))
        .map(|(command, config)| (command, std::thread::spawn(move || plugin(command, &config))))
        .collect();
    for (command, run) in runs {
        let output = run.join().unwrap();
        match command {
            "ADD" => assert_eq!(error(&output), (11, error(&output).1)),
            _ => assert!(output.status.success()),
        }
    }
    let taken = start.elapsed();
    assert!((5..8).contains(&taken.as_secs()), "{taken:?}");
}

/// Connections that nobody takes, until one would have to wait.
fn fill(socket: &Path) -> Vec<UnixStream> {
    let (sender, made) = std::sync::mpsc::channel();
    let socket = socket.to_owned();
    std::thread::spawn(move || {
        while let Ok(stream) = UnixStream::connect(&socket) {
            if sender.send(stream).is_err() {
                break;
            }
        }
    });
    std::iter::from_fn(|| made.recv_timeout(Duration::from_millis(500)).ok()).collect()
}

#[test]
fn a_socket_of_somebody_else_is_not_believed() {
    assert!(std::fs::metadata("/proc/self").is_ok());
    let place = Place::new("foreign");
    agent(&place.socket(), |_, mut stream| {
        let _ = stream.write_all(b"{\"version\":1,\"result\":{}}\n");
    });
    std::os::unix::fs::chown(place.socket(), Some(65534), None).unwrap();
    is_no_agent(&place.socket(), "belongs to user 65534");
}

#[test]
fn input_of_any_length_and_kind_is_answered() {
    let place = Place::new("input");
    for (config, code) in [(vec![b' '; 3 * 1024 * 1024], 7), (vec![0xff; 100], 6), (b"null".to_vec(), 7)] {
        assert_eq!(error(&plugin("ADD", &config)).0, code);
    }
    assert_eq!(error(&plugin("", &config(&place.socket()))).0, 4);
    let output = Command::new(env!("CARGO_BIN_EXE_juneau-cni")).arg("--help").stdin(Stdio::null()).output().unwrap();
    assert_eq!(error(&output).0, 4);
    let output = Command::new(env!("CARGO_BIN_EXE_juneau-cni")).arg("--version").stdin(Stdio::null()).output().unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    assert!(said.starts_with("juneau-cni 0.1.0\nprotocol 1\n"), "{said}");
}
