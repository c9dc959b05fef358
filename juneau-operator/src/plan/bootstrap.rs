//! What every cluster has: the pools of numbers, the Vpc `default` and its Subnet. Each is made when it is absent, and
//! what a user made of it stays.

use super::planner::Planner;
use juneau_api::kinds::{
    AllocationPool, AllocationPoolSpec, NumberRange, PoolType, ServiceProvider, Subnet, SubnetSpec, Vpc, VpcService,
    VpcSpec,
};
use juneau_api::names;

/// The pools of numbers: name, first, last. Number 1 of each is the default one's, or the underlay's.
const POOLS: [(&str, u32, u32); 3] = [
    (names::SUBNET_VNI_POOL, 2, 0xff_ffff),
    (names::VPC_ID_POOL, 2, 0xff_ffff),
    (names::ROUTE_TABLE_ID_POOL, 2, u32::MAX),
];

impl Planner<'_> {
    pub(super) fn bootstrap(&mut self) {
        for (name, min, max) in POOLS {
            let spec = AllocationPoolSpec {
                kind: PoolType::Number,
                number: Some(NumberRange { min, max }),
                ..AllocationPoolSpec::default()
            };
            match self.view.pools.get(name) {
                None => self.create(AllocationPool::new(name, spec)),
                Some(pool) if pool.spec != spec => {
                    let mut pool = AllocationPool::clone(pool);
                    pool.spec = spec;
                    self.spec(pool);
                }
                Some(_) => {}
            }
        }
        if !self.view.vpcs.contains_key(names::DEFAULT) {
            let provider = ServiceProvider { nat_source_subnet: names::DEFAULT.to_owned() };
            let service = VpcService { consume: true, provider: Some(provider) };
            let spec = VpcSpec { service: Some(service), ..VpcSpec::default() };
            self.create(Vpc::new(names::DEFAULT, spec));
        }
        // The Subnet comes when its Vpc is seen. Watches of two kinds are not in step: made together, the Subnet might be
        // seen first, and be complained about.
        if self.view.vpcs.contains_key(names::DEFAULT) && !self.view.subnets.contains_key(names::DEFAULT) {
            let spec = SubnetSpec {
                vpc: names::DEFAULT.to_owned(),
                cidr: self.config.default_subnet_cidr.trunc().to_string(),
                ..SubnetSpec::default()
            };
            self.create(Subnet::new(names::DEFAULT, spec));
        }
    }
}
