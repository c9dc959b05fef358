//! The handbook keeps up with the code.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use juneau_core::verdict::Reason;

#[test]
fn every_drop_reason_has_a_section_and_no_other_has() {
    let page = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/drop-reasons.md")).unwrap();
    let sections: Vec<&str> = page.lines().filter_map(|line| line.strip_prefix("## ")).collect();
    let reasons: Vec<String> = Reason::ALL.iter().map(|reason| reason.name()).collect();
    assert_eq!(sections, reasons);
    for section in page.split("\n## ").skip(1) {
        assert!(section.contains("*Do*:") || section.starts_with("ok\n"), "no advice in {section}");
    }
}
