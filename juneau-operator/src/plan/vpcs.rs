//! Vpcs: their number and their main RouteTable.

use super::Target;
use super::allocate::{Allocation, Allocations};
use super::claim::Want;
use super::networks::Networks;
use super::planner::{Planner, few, has_finalizer, is_owned_by, name, owner, owners, set_finalizer, uid};
use crate::view::{Kind, Object};
use juneau_api::kinds::{RouteTable, RouteTableSpec, Vpc, VpcStatus, reason};
use juneau_api::{conditions, names};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use std::sync::Arc;

/// Finalizer of a Vpc: it stays while Subnets or RouteTables are in it.
pub const FINALIZER: &str = "vpc.juneau.loutres.me/in-use";

impl<'v> Planner<'v> {
    /// The number of a Vpc, if it has one.
    pub(super) fn vpc_id(&self, allocations: &Allocations<'_>, vpc: &Vpc) -> Option<u32> {
        if name(&vpc.metadata) == names::DEFAULT {
            return Some(1);
        }
        let said = vpc.status.as_ref().and_then(|status| status.vpc_id);
        self.number(allocations, &vpc.metadata, names::Attribute::VpcId, said)
    }

    pub(super) fn vpcs(&mut self, networks: &Networks<'v>, allocations: &Allocations<'v>) {
        for vpc in self.view.vpcs.values() {
            self.vpc(vpc, networks, allocations);
        }
    }

    fn vpc(&mut self, vpc: &'v Arc<Vpc>, networks: &Networks<'v>, allocations: &Allocations<'v>) {
        let own = name(&vpc.metadata);
        let mut status = vpc.status.clone().unwrap_or_default();
        let outcome = if vpc.metadata.deletion_timestamp.is_some() {
            match self.vpc_deleting(vpc, networks) {
                Some(users) => Err((reason::IN_USE, format!("is being deleted and waits for {users}"))),
                None => return,
            }
        } else {
            if !has_finalizer(&vpc.metadata, FINALIZER) {
                let mut vpc = Vpc::clone(vpc);
                set_finalizer(&mut vpc.metadata, FINALIZER, true);
                self.metadata(vpc);
            }
            let failure = (own != names::DEFAULT).then(|| {
                let want = Want {
                    kind: Kind::Vpc,
                    metadata: &vpc.metadata,
                    owner: names::Owner::Vpc(own),
                    attribute: names::Attribute::VpcId,
                    pool: names::VPC_ID_POOL,
                };
                self.claim(allocations, &want, |_| ())
            });
            let table = self.main_table(vpc);
            status.vpc_id = self.vpc_id(allocations, vpc);
            status.main_route_table = table.is_ok().then(|| own.to_owned());
            match (failure, status.vpc_id) {
                (Some(Allocation::Failed(failure)), _) => Err((reason::RECONCILE_FAILED, failure.message().to_owned())),
                (_, None) => Err((reason::NOT_READY, "waits for its number".to_owned())),
                (_, Some(_)) => table.and_then(|table| match self.table_id(allocations, table) {
                    Some(_) => self.ranges_of(vpc, networks),
                    None => Err((reason::MAIN_ROUTE_TABLE_NOT_READY, format!("RouteTable/{own} has no number yet"))),
                }),
            }
        };
        self.vpc_status(vpc, status, outcome);
    }

    /// What of its ranges is not in force.
    fn ranges_of(&mut self, vpc: &Arc<Vpc>, networks: &Networks<'v>) -> Result<(), (&'static str, String)> {
        let Some(conflicts) = networks.conflicts.get(name(&vpc.metadata)) else { return Ok(()) };
        let message = few(conflicts);
        self.warn(Target::of(&Object::Vpc(Arc::clone(vpc))), reason::RANGE_CONFLICT, message.clone());
        Err((reason::RANGE_CONFLICT, message))
    }

    fn vpc_status(&mut self, vpc: &Arc<Vpc>, mut status: VpcStatus, outcome: Result<(), (&str, String)>) {
        let (ready, reason, message) = match outcome {
            Ok(()) => (true, reason::RECONCILE_SUCCEEDED, String::new()),
            Err((reason, message)) => (false, reason, message),
        };
        let generation = vpc.metadata.generation;
        conditions::set_ready(&mut status.conditions, ready, reason, &message, generation, &self.time());
        status.observed_generation = generation;
        self.status(vpc, Vpc { status: Some(status), ..Vpc::clone(vpc) });
    }

    /// Whom a Vpc that is being deleted waits for; lets it go when that is nobody.
    fn vpc_deleting(&mut self, vpc: &Arc<Vpc>, networks: &Networks<'v>) -> Option<String> {
        if !has_finalizer(&vpc.metadata, FINALIZER) {
            return None;
        }
        let own = name(&vpc.metadata);
        let subnets = networks.of_vpc.get(own).into_iter().flatten();
        let mut users: Vec<String> = subnets.map(|subnet| format!("Subnet/{}", name(&subnet.metadata))).collect();
        let tables = networks.tables_of_vpc.get(own).into_iter().flatten();
        let tables = tables.map(|table| name(&table.metadata)).filter(|table| *table != own);
        users.extend(tables.map(|table| format!("RouteTable/{table}")));
        let endpoints = self.view.vpc_endpoints.iter().filter(|(_, endpoint)| endpoint.spec.vpc == own);
        users.extend(endpoints.map(|(endpoint, _)| format!("VpcEndpoint/{endpoint}")));
        if users.is_empty() {
            let mut vpc = Vpc::clone(vpc);
            set_finalizer(&mut vpc.metadata, FINALIZER, false);
            self.metadata(vpc);
            return None;
        }
        Some(few(&users))
    }

    /// The main RouteTable: the user's, if there is one of the Vpc's name; otherwise one is made, a moment after the Vpc,
    /// so that a user's own in the same file comes first.
    fn main_table(&mut self, vpc: &'v Arc<Vpc>) -> Result<&'v Arc<RouteTable>, (&'static str, String)> {
        let own = name(&vpc.metadata);
        let Some(table) = self.view.route_tables.get(own) else {
            if self.is_older(&vpc.metadata, self.config.main_table_grace) {
                let spec = RouteTableSpec { vpc: own.to_owned(), routes: Vec::new() };
                let mut table = RouteTable::new(own, spec);
                table.metadata.owner_references = Some(vec![owner(Kind::Vpc, &vpc.metadata)]);
                self.create(table);
            }
            return Err((reason::MAIN_ROUTE_TABLE_MISSING, format!("RouteTable/{own} does not exist yet")));
        };
        if table.spec.vpc != own {
            let message = format!("RouteTable/{own} is of Vpc/{}, not of this one", table.spec.vpc);
            return Err((reason::MAIN_ROUTE_TABLE_NOT_READY, message));
        }
        if is_leftover(&table.metadata, &vpc.metadata) {
            return Err((reason::MAIN_ROUTE_TABLE_MISSING, format!("an earlier RouteTable/{own} is on its way out")));
        }
        if table.metadata.deletion_timestamp.is_none() && !is_owned_by(&table.metadata, Kind::Vpc, uid(&vpc.metadata)) {
            let mut table = RouteTable::clone(table);
            table.metadata.owner_references.get_or_insert_default().push(owner(Kind::Vpc, &vpc.metadata));
            self.metadata(table);
        }
        Ok(table)
    }
}

/// Whether a RouteTable belongs to an earlier Vpc of the same name.
pub(super) fn is_leftover(table: &ObjectMeta, vpc: &ObjectMeta) -> bool {
    let mut vpcs = owners(table).iter().filter(|owner| owner.kind == Kind::Vpc.as_str()).peekable();
    vpcs.peek().is_some() && vpcs.all(|owner| owner.uid != uid(vpc))
}
