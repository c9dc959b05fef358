//! The page is held to the list.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use juneau_conformance::{List, document};
use std::path::Path;

#[test]
fn the_page_shows_the_list() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/conformance.md");
    let page = std::fs::read_to_string(&path).unwrap();
    let made = document::with_table(&path, &page, &List::ours().unwrap()).unwrap();
    assert_eq!(page, made, "run: cargo run -p juneau-conformance -- document");
}
