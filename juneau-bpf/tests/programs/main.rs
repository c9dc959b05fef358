//! The programs by test run: every exit, the bytes that leave, the records that stay.
//!
//! What a test run cannot show needs real devices: redirects that happen, VLAN tags and tunnel keys in metadata,
//! pending checksums, packets that are encapsulated already.
#![allow(unreachable_pub, clippy::unwrap_used, clippy::expect_used, clippy::panic)]
#![allow(clippy::print_stdout, clippy::print_stderr)]

mod answers;
mod early;
mod explain;
mod flows;
mod fragments;
mod lab;
mod load;
mod moves;
mod overlay;
mod packet;
mod resets;
mod routers;
mod run;
mod speed;
mod topology;
mod transport;
