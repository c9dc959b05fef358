//! What the plugin reads and writes, byte by byte, with an agent that is a function.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use juneau_cni::protocol::{CallError, ErrorCode, Failure, Method, Sandbox, Valid};
use juneau_cni::{CONFIG_LIMIT, Outcome, SOCKET, Variables, Version, respond};
use serde_json::{Value, json};
use std::cell::RefCell;
use std::path::{Path, PathBuf};

const NETNS: &str = "/var/run/netns/cni-1";
const ARGS: &str =
    "K8S_POD_NAME=a1;IgnoreUnknown=1;K8S_POD_UID=u-1;K8S_POD_NAMESPACE=red;K8S_POD_INFRA_CONTAINER_ID=0123";

fn variables(command: &str) -> Variables {
    Variables {
        command: Some(command.into()),
        container_id: Some("0123abc".into()),
        netns: Some(NETNS.into()),
        interface: Some("eth0".into()),
        args: Some(ARGS.into()),
    }
}

fn config(version: &str) -> Value {
    json!({"cniVersion": version, "name": "juneau", "type": "juneau", "what": {"others": ["say"]}})
}

fn attached() -> Value {
    json!({
        "interface": "eth0", "address": "10.0.1.10/24", "gateway": "10.0.1.1", "mac": "02:00:0a:00:01:0a",
        "mtu": 1450, "host_interface": "eth00123abc", "later": "members are ignored",
    })
}

fn two() -> Value {
    let mut two = attached();
    two["others"] = json!([{
        "interface": "eth1", "address": "10.0.2.10/25", "mac": "02:00:0a:00:02:0a", "mtu": 1450,
        "host_interface": "eth10123abc",
    }]);
    two
}

/// Runs the plugin with an agent that answers so; what it said, and what the agent was asked.
fn run(variables: &Variables, config: &[u8], answer: Result<Value, CallError>) -> (Outcome, Vec<(PathBuf, Method)>) {
    let asked = RefCell::new(Vec::new());
    let answer = RefCell::new(Some(answer));
    let outcome = respond(variables, config, &|socket: &Path, method: &Method| {
        asked.borrow_mut().push((socket.to_owned(), method.clone()));
        answer.borrow_mut().take().expect("one question")
    });
    (outcome, asked.into_inner())
}

fn text(outcome: &Outcome) -> &str {
    std::str::from_utf8(&outcome.output).unwrap()
}

/// The error of a call that must not reach the agent: {code, message, remedy}.
fn refused(variables: &Variables, config: &[u8]) -> (u64, String) {
    let (outcome, asked) = run(variables, config, Ok(Value::Null));
    assert_eq!(asked, [], "{}", text(&outcome));
    error(&outcome)
}

fn error(outcome: &Outcome) -> (u64, String) {
    assert!(!outcome.success, "{}", text(outcome));
    let document: Value = serde_json::from_slice(&outcome.output).unwrap();
    let said = |member: &str| document[member].as_str().unwrap().to_owned();
    assert!(Version::find(&said("cniVersion")).is_some());
    assert!(!said("details").is_empty(), "no remedy: {document}");
    (document["code"].as_u64().unwrap(), said("msg"))
}

fn try_again() -> CallError {
    CallError::Refused(Failure::new(ErrorCode::TryAgain, "m", "r"))
}

fn gone() -> CallError {
    CallError::Socket { path: SOCKET.into(), source: std::io::Error::from(std::io::ErrorKind::NotFound) }
}

#[test]
fn results_are_as_each_version_has_them() {
    let old = |version: &str| {
        format!(
            r#"{{"cniVersion":"{version}","ip4":{{"ip":"10.0.1.10/24","gateway":"10.0.1.1","routes":[{{"dst":"0.0.0.0/0","gw":"10.0.1.1"}}]}},"dns":{{}}}}"#
        )
    };
    let new = |version: &str, family: &str, mtu: &str| {
        let interfaces = format!(
            r#"[{{"name":"eth0","mac":"02:00:0a:00:01:0a"{mtu},"sandbox":"{NETNS}"}},{{"name":"eth1","mac":"02:00:0a:00:02:0a"{mtu},"sandbox":"{NETNS}"}},{{"name":"eth00123abc"{mtu}}},{{"name":"eth10123abc"{mtu}}}]"#
        );
        let ips = format!(
            r#"[{{{family}"address":"10.0.1.10/24","gateway":"10.0.1.1","interface":0}},{{{family}"address":"10.0.2.10/25","interface":1}}]"#
        );
        format!(
            r#"{{"cniVersion":"{version}","interfaces":{interfaces},"ips":{ips},"routes":[{{"dst":"0.0.0.0/0","gw":"10.0.1.1"}}],"dns":{{}}}}"#
        )
    };
    let family = r#""version":"4","#;
    let wanted = [
        old("0.1.0"),
        old("0.2.0"),
        new("0.3.0", family, ""),
        new("0.3.1", family, ""),
        new("0.4.0", family, ""),
        new("1.0.0", "", ""),
        new("1.1.0", "", r#","mtu":1450"#),
    ];
    for (version, wanted) in Version::ALL.into_iter().zip(wanted) {
        let config = config(version.as_str()).to_string();
        let (outcome, asked) = run(&variables("ADD"), config.as_bytes(), Ok(two()));
        assert!(outcome.success, "{}", text(&outcome));
        assert_eq!(text(&outcome), wanted + "\n");
        let sandbox = Sandbox {
            namespace: "red".into(),
            name: "a1".into(),
            netns: NETNS.into(),
            container_id: "0123abc".into(),
            uid: Some("u-1".into()),
            interface: Some("eth0".into()),
            patience: 2000,
        };
        assert_eq!(asked, [(PathBuf::from(SOCKET), Method::Attach(sandbox))]);
    }
    // A configuration that does not say means the first version.
    let config = json!({"name": "juneau"}).to_string();
    assert_eq!(text(&run(&variables("ADD"), config.as_bytes(), Ok(attached())).0), old("0.1.0") + "\n");
}

#[test]
fn versions_are_told_to_whoever_asks() {
    let all = r#""supportedVersions":["0.1.0","0.2.0","0.3.0","0.3.1","0.4.0","1.0.0","1.1.0"]"#;
    let only_command = Variables { command: Some("VERSION".into()), ..Variables::default() };
    for (config, version) in
        [(r#"{"cniVersion":"0.4.0"}"#, "0.4.0"), (r#"{"cniVersion":"9.9.9"}"#, "1.1.0"), ("", "1.1.0"), ("[", "1.1.0")]
    {
        let (outcome, asked) = run(&only_command, config.as_bytes(), Ok(Value::Null));
        assert!(outcome.success && asked.is_empty());
        assert_eq!(text(&outcome), format!("{{\"cniVersion\":\"{version}\",{all}}}\n"));
    }
}

#[test]
fn errors_have_the_documented_form() {
    let (outcome, _) = run(&variables("ADD"), config("1.0.0").to_string().as_bytes(), Err(try_again()));
    assert!(!outcome.success);
    assert_eq!(text(&outcome), "{\"cniVersion\":\"1.0.0\",\"code\":11,\"msg\":\"m\",\"details\":\"r\"}\n");
    for (code, wanted) in [
        (ErrorCode::InvalidRequest, 4),
        (ErrorCode::NotFound, 3),
        (ErrorCode::UnsupportedVersion, 11),
        (ErrorCode::Denied, 100),
        (ErrorCode::Conflict, 101),
        (ErrorCode::Node, 102),
        (ErrorCode::Differs, 103),
        (ErrorCode::Unknown, 102),
    ] {
        let failure = CallError::Refused(Failure::new(code, "m", "r"));
        let (outcome, _) = run(&variables("ADD"), config("1.0.0").to_string().as_bytes(), Err(failure));
        assert_eq!(error(&outcome).0, wanted, "{code:?}");
    }
    let (outcome, _) = run(&variables("ADD"), config("1.0.0").to_string().as_bytes(), Err(gone()));
    assert_eq!(error(&outcome).0, 11);
    let (outcome, _) = run(&variables("ADD"), config("1.0.0").to_string().as_bytes(), Ok(json!({"address": 7})));
    assert_eq!(error(&outcome).0, 11, "an answer of another form");
}

#[test]
fn an_end_is_never_in_the_way_of_a_pod() {
    let config = config("1.0.0").to_string();
    // Twice, and the second time without namespace, arguments and result.
    let bare = Variables { netns: Some("".into()), args: None, ..variables("DEL") };
    for variables in [variables("DEL"), bare, Variables { netns: None, ..variables("DEL") }] {
        let answers =
            [Ok(json!({"changed": true})), Ok(json!({"changed": false})), Ok(json!(7)), Err(try_again()), Err(gone())];
        for answer in answers {
            let (outcome, asked) = run(&variables, config.as_bytes(), answer);
            assert_eq!((outcome.success, text(&outcome)), (true, ""));
            let sandbox = Sandbox { container_id: "0123abc".into(), ..Sandbox::default() };
            assert_eq!(asked[0].1, Method::Detach(sandbox));
        }
    }
    // What the agent itself could not do it says, and the runtime asks again.
    for (code, wanted) in [(ErrorCode::Node, 102), (ErrorCode::Denied, 100)] {
        let failure = CallError::Refused(Failure::new(code, "m", "r"));
        assert_eq!(error(&run(&variables("DEL"), config.as_bytes(), Err(failure)).0).0, wanted);
    }
    // A result of anything is not looked at.
    let with_result = json!({"cniVersion": "1.0.0", "name": "juneau", "prevResult": ["of", 1, "kind"]}).to_string();
    assert!(run(&variables("DEL"), with_result.as_bytes(), Ok(json!({"changed": true}))).0.success);
}

#[test]
fn every_variable_is_checked() {
    let config = config("1.0.0").to_string();
    let config = config.as_bytes();
    let with = |change: &dyn Fn(&mut Variables)| {
        let mut variables = variables("ADD");
        change(&mut variables);
        refused(&variables, config)
    };
    let long = "a".repeat(65);
    for command in ["", "add", "REMOVE"] {
        let (code, message) = with(&|v| v.command = Some(command.into()));
        assert!(code == 4 && message.contains("CNI_COMMAND"), "{message}");
    }
    assert_eq!(with(&|v| v.command = None).0, 4);
    for id in ["", "../x", "a b", "-a", ".a", "a/b", "ä", &long] {
        let (code, message) = with(&|v| v.container_id = Some(id.into()));
        assert!(code == 4 && message.contains("CNI_CONTAINERID"), "{id}: {message}");
    }
    for name in ["", ".", "..", "a/b", "a b", "a:b", "a\tb", "a\u{7}b", "sixteencharacter"] {
        let (code, message) = with(&|v| v.interface = Some(name.into()));
        assert!(code == 4 && message.contains("CNI_IFNAME"), "{name}: {message}");
    }
    for path in ["", "proc/1/ns/net", "."] {
        let (code, message) = with(&|v| v.netns = Some(path.into()));
        assert!(code == 4 && message.contains("CNI_NETNS"), "{path}: {message}");
    }
    for (args, what) in [
        ("", "K8S_POD_NAMESPACE"),
        ("K8S_POD_NAMESPACE=red", "K8S_POD_NAME"),
        ("K8S_POD_NAMESPACE=;K8S_POD_NAME=a", "K8S_POD_NAMESPACE"),
        ("K8S_POD_NAMESPACE=red;K8S_POD_NAME", "KEY=VALUE"),
        ("K8S_POD_NAMESPACE=a.b;K8S_POD_NAME=a", "a.b"),
        ("K8S_POD_NAMESPACE=Red;K8S_POD_NAME=a", "Red"),
        ("K8S_POD_NAMESPACE=red;K8S_POD_NAME=a/../b", "a/../b"),
        ("K8S_POD_NAMESPACE=red;K8S_POD_NAME=a;K8S_POD_NAME=b", "twice"),
        ("K8S_POD_NAMESPACE=red;K8S_POD_NAME=a;K8S_POD_UID=a b", "uid"),
    ] {
        let (code, message) = with(&|v| v.args = Some(args.into()));
        assert!(code == 4 && message.contains(what), "{args}: {message}");
    }
    let long_args = format!("K8S_POD_NAMESPACE=red;K8S_POD_NAME=a;X={}", "x".repeat(20_000));
    let (code, message) = with(&|v| v.args = Some(long_args.as_str().into()));
    assert!(code == 4 && message.len() < 500, "{message}");
    let not_utf8 = <std::ffi::OsStr as std::os::unix::ffi::OsStrExt>::from_bytes(b"a\xff").to_owned();
    assert_eq!(with(&|v| v.container_id = Some(not_utf8.clone())).0, 4);
    // What a command does not need is not looked at.
    let status = Variables { container_id: Some("../x".into()), ..variables("STATUS") };
    let ready = Ok(json!({"ready": true, "limited": false}));
    assert!(run(&status, json!({"cniVersion": "1.1.0", "name": "n"}).to_string().as_bytes(), ready).0.success);
}

#[test]
fn every_member_of_the_configuration_is_checked() {
    let refused_config = |config: &str| refused(&variables("ADD"), config.as_bytes());
    for (config, code, what) in [
        ("", 6, "not JSON"),
        ("{", 6, "not JSON"),
        ("[]", 7, "configuration"),
        (r#"{"cniVersion":1,"name":"n"}"#, 7, "configuration"),
        (r#"{"cniVersion":"1.0.0","cniVersion":"1.1.0","name":"n"}"#, 7, "cniVersion"),
        (r#"{"cniVersion":"1.2.0","name":"n"}"#, 1, "1.2.0"),
        (r#"{"cniVersion":"1.0.0"}"#, 7, "name"),
        (r#"{"cniVersion":"1.0.0","name":""}"#, 7, "name"),
        (r#"{"cniVersion":"1.0.0","name":"a/b"}"#, 7, "name"),
        (r#"{"cniVersion":"1.0.0","name":"n","socket":"run/x"}"#, 7, "socket"),
        (r#"{"cniVersion":"1.0.0","name":"n","socket":7}"#, 7, "configuration"),
        (r#"{"cniVersion":"1.0.0","name":"n","prevResult":{}}"#, 2, "prevResult"),
        (r#"{"cniVersion":"1.0.0","name":"n","cni.dev/valid-attachments":7}"#, 7, "configuration"),
    ] {
        let (said, message) = refused_config(config);
        assert_eq!(said, code, "{config}: {message}");
        assert!(message.contains(what), "{config}: {message}");
    }
    let long = format!(r#"{{"cniVersion":"1.0.0","name":"n","socket":"/{}"}}"#, "x".repeat(200));
    assert_eq!(refused_config(&long).0, 7);
    let huge = format!(r#"{{"cniVersion":"1.0.0","name":"n","x":"{}"}}"#, "x".repeat(CONFIG_LIMIT));
    let (code, message) = refused_config(&huge);
    assert!(code == 7 && message.contains("longer"), "{message}");
    // Nesting must not cost the stack.
    assert_eq!(refused_config(&format!("{{\"x\":{}", "[".repeat(100_000))).0, 6);
    // What a version does not have.
    for (command, version) in [("CHECK", "0.3.1"), ("GC", "1.0.0"), ("STATUS", "1.0.0")] {
        let (code, message) = refused(&variables(command), config(version).to_string().as_bytes());
        assert!(code == 1 && message.contains(command), "{message}");
    }
    let elsewhere = r#"{"cniVersion":"1.0.0","name":"n","socket":"/run/other.sock"}"#;
    let (_, asked) = run(&variables("ADD"), elsewhere.as_bytes(), Ok(attached()));
    assert_eq!(asked[0].0, PathBuf::from("/run/other.sock"));
}

#[test]
fn a_check_compares_with_what_add_said() {
    for version in ["0.4.0", "1.0.0", "1.1.0"] {
        let (added, _) = run(&variables("ADD"), config(version).to_string().as_bytes(), Ok(two()));
        let result: Value = serde_json::from_slice(&added.output).unwrap();
        let check = |result: &Value, found: Value| {
            let mut config = config(version);
            config["prevResult"] = result.clone();
            run(&variables("CHECK"), config.to_string().as_bytes(), Ok(found)).0
        };
        let good = check(&result, two());
        assert_eq!((good.success, text(&good)), (true, ""));
        // What a later plugin of the list added is its own.
        let mut more = result.clone();
        more["interfaces"].as_array_mut().unwrap().push(json!({"name": "vpn0", "sandbox": NETNS}));
        more["ips"].as_array_mut().unwrap().push(json!({"address": "192.0.2.1/32", "interface": 4}));
        more["routes"] = json!([]);
        assert!(check(&more, two()).success);

        for (pointer, value) in [
            ("/interfaces/0/mac", json!("02:00:00:00:00:01")),
            ("/interfaces/1/name", json!("eth7")),
            ("/interfaces/0/sandbox", json!("/var/run/netns/other")),
            ("/ips/1/address", json!("10.0.2.11/25")),
            ("/ips/0/interface", json!(2)),
        ] {
            let mut wrong = result.clone();
            *wrong.pointer_mut(pointer).unwrap() = value;
            assert_eq!(error(&check(&wrong, two())).0, 103, "{pointer}");
        }
        assert_eq!(error(&check(&json!({"interfaces": 7}), two())).0, 7);
        assert_eq!(error(&check(&json!({}), two())).0, 103);
    }
    assert_eq!(refused(&variables("CHECK"), config("1.0.0").to_string().as_bytes()).0, 7);
}

#[test]
fn what_is_collected_is_what_is_not_listed() {
    let gc = Variables { command: Some("GC".into()), ..Variables::default() };
    let mut config = config("1.1.0");
    let (code, message) = refused(&gc, config.to_string().as_bytes());
    assert!(code == 7 && message.contains("valid-attachments"), "{message}");
    config["cni.dev/valid-attachments"] = json!(null);
    assert_eq!(refused(&gc, config.to_string().as_bytes()).0, 7);
    config["cni.dev/valid-attachments"] =
        json!([{"containerID": "c1", "ifname": "eth0"}, {"containerID": "c2", "ifname": "eth0"}]);
    let (outcome, asked) = run(&gc, config.to_string().as_bytes(), Ok(json!({"detached": ["c3"]})));
    assert_eq!((outcome.success, text(&outcome)), (true, ""));
    assert_eq!(asked[0].1, Method::Collect(Valid { container_ids: vec!["c1".into(), "c2".into()] }));
    assert_eq!(error(&run(&gc, config.to_string().as_bytes(), Err(gone())).0).0, 11);
}

#[test]
fn a_status_says_why_not() {
    let status = Variables { command: Some("STATUS".into()), ..Variables::default() };
    let config = config("1.1.0").to_string();
    let ask = |answer| run(&status, config.as_bytes(), answer);
    let (outcome, asked) = ask(Ok(json!({"ready": true, "limited": false})));
    assert_eq!((outcome.success, text(&outcome)), (true, ""));
    assert_eq!(asked[0].1, Method::Readiness);
    assert_eq!(error(&ask(Ok(json!({"ready": false, "limited": false}))).0).0, 50);
    let reason = json!({"object": "device up0", "message": "it is down", "remedy": "set it up"});
    let (outcome, _) = ask(Ok(json!({"ready": false, "limited": true, "reason": reason})));
    assert_eq!(
        text(&outcome),
        "{\"cniVersion\":\"1.1.0\",\"code\":51,\"msg\":\"device up0: it is down\",\"details\":\"set it up\"}\n"
    );
    assert_eq!(error(&ask(Err(gone())).0).0, 50);
    assert_eq!(error(&ask(Ok(json!(7))).0).0, 50);
}
