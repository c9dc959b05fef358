//! Generations, the epoch and the hot line.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use common::sandbox;
use juneau_bpf::{Dataplane, Error};
use juneau_core::layout::GEN_MAX;

#[test]
fn the_epoch_moves_after_any_generation() {
    sandbox(|sandbox| {
        let dataplane = Dataplane::open(sandbox.options()).unwrap();
        let (generations, hot) = (dataplane.generations().unwrap(), dataplane.hot().unwrap());
        assert_eq!((generations.get(5).unwrap(), hot.epoch().unwrap()), (0, 0));
        generations.advance([5]).unwrap();
        assert_eq!((generations.get(5).unwrap(), generations.get(4).unwrap(), generations.get(6).unwrap()), (2, 0, 0));
        assert_eq!(hot.epoch().unwrap(), 1);
        generations.advance([]).unwrap();
        assert_eq!(hot.epoch().unwrap(), 1, "nothing moved");
        generations.suspend([5, 6]).unwrap();
        assert_eq!((generations.get(5).unwrap(), generations.get(6).unwrap()), (3, 1));
        generations.suspend([5]).unwrap();
        assert_eq!(generations.get(5).unwrap(), 3);
        generations.advance([5, 6]).unwrap();
        assert_eq!((generations.get(5).unwrap(), generations.get(6).unwrap()), (4, 2));
        assert_eq!(hot.epoch().unwrap(), 4);
        generations.advance_all().unwrap();
        assert_eq!(generations.get(GEN_MAX - 1).unwrap(), 2);
        assert!(matches!(generations.get(GEN_MAX), Err(Error::OutOfRange { .. })));
        // The next load sees the same words.
        drop(dataplane);
        let next = Dataplane::open(sandbox.options()).unwrap();
        assert_eq!(next.generations().unwrap().get(5).unwrap(), 6);
        assert_eq!(next.hot().unwrap().epoch().unwrap(), 5);
    });
}
