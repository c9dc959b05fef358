//! Services: who answers, what packets look like on their way, and which connections stay.

mod affinity;
mod answers;
mod choice;
mod common;
mod hairpin;
mod icmp;
mod node;
mod ports;
mod stay;
mod translation;
