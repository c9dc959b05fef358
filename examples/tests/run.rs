//! The examples run, and say what they should.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::process::{Command, Output};

fn run(program: &str, arguments: &[&str]) -> Output {
    Command::new(program).args(arguments).output().unwrap()
}

fn lines(output: &Output) -> Vec<String> {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout.clone()).unwrap().lines().map(str::to_owned).collect()
}

#[test]
fn embed_fib() {
    let lines = lines(&run(env!("CARGO_BIN_EXE_embed-fib"), &[]));
    assert_eq!(
        lines,
        [
            "6 changes",
            "red 10.0.1.10: by 10.0.1.10 at interface 7",
            "red 10.9.8.7: by 10.0.1.10 at interface 7",
            "red 192.0.2.1: no route",
            "blue 10.0.1.10: by 10.0.1.10 at interface 8",
            "blue 10.9.8.7: by 10.0.1.10 at interface 8",
            "blue 192.0.2.1: no route",
            "1 change, 1 generation",
            "blue 10.9.8.7: no route",
        ]
    );
}

#[test]
fn replay_pcap() {
    let lines = lines(&run(env!("CARGO_BIN_EXE_replay-pcap"), &[]));
    assert_eq!(
        lines[..10],
        [
            "  0 answer to interface 1050: arp-answered, at once",
            "  1 peer to interface 1051: ok, decided",
            "  2 peer to interface 1050: ok, at once",
            "  3 peer to interface 1051: ok, at once",
            "  4 encap to 192.0.2.2 in VNI 102: ok, decided",
            "  5 encap to 192.0.2.2 in VNI 102: ok, at once",
            "  6 answer to interface 1050: no-route, decided",
            "  7 answer to interface 1050: ttl-exceeded, decided",
            "  8 drop: source-address, at once",
            "9 packets, 5 delivered",
        ]
    );
    assert_eq!(lines.len(), 14, "and four reasons");
}

#[test]
fn replay_refuses_what_is_no_capture() {
    let output = run(env!("CARGO_BIN_EXE_replay-pcap"), &[concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml")]);
    assert!(!output.status.success());
    assert!(String::from_utf8_lossy(&output.stderr).contains("not a capture"));
}
