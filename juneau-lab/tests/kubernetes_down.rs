//! `down` of a lab on an API server leaves nothing. Alone in its file, since it compares the machine before and after.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout)]

mod common;

use common::Lab;
use common::machine::machine;

#[test]
#[ignore = "needs the programs of Kubernetes: make test-kubernetes"]
fn it_comes_up_with_a_green_table_and_down_leaves_the_machine_as_it_was() {
    let name = "juneau-lab-test-kubernetes-down";
    let before = machine(name);
    let lab = Lab::new("kubernetes-down");
    let said = lab.expect(&["up", "--kubernetes"]);
    assert!(said.contains("72 of 72 are as expected"), "{said}");
    let phases = said.lines().find(|line| line.contains(" s from nothing: "));
    println!("{}", phases.unwrap_or_else(|| panic!("the phases are not told: {said}")));
    assert_ne!(machine(name), before, "a running lab shows somewhere");
    let address = lab.expect(&["kubeconfig"]);
    let address = address.split('"').find_map(|part| part.strip_prefix("https://")).unwrap().to_owned();
    assert!(std::net::TcpStream::connect(&address).is_ok(), "{address}");

    lab.expect(&["down"]);

    let argument = lab.dir().to_str().unwrap();
    let processes = juneau_lab::process::find_by_arguments(|all| all.iter().any(|one| one.contains(argument)));
    assert!(processes.is_empty(), "{processes:?}");
    assert!(std::net::TcpStream::connect(&address).is_err(), "{address}");
    let after = machine(name);
    let differences: Vec<_> = before.symmetric_difference(&after).collect();
    assert!(differences.is_empty(), "{differences:#?}");
}
