//! Services: from the model to the difference, and the slots of large ones.

use std::collections::BTreeSet;
use std::hint::black_box;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use criterion::{BenchmarkId, Criterion};
use juneau_core::compile::{Compiler, NodeContext, compile};
use juneau_core::id::{Identity, MacAddr, Vni, VpcId};
use juneau_core::model::{Attachments, BackendState, Choice, Endpoint, EndpointKind, Model, Protocol};
use juneau_core::model::{Service, ServicePort};
use juneau_core::services::maglev;
use juneau_core::tables::Diff;

type Error = Box<dyn std::error::Error>;

const SERVICES: [u32; 2] = [10, 20_000];
const LARGE: [u32; 3] = [3, 300, 5_000];

pub(crate) fn run(criterion: &mut Criterion) -> Result<(), Error> {
    let mut group = criterion.benchmark_group("services");
    group.sample_size(10).measurement_time(Duration::from_secs(2)).warm_up_time(Duration::from_millis(300));
    for count in LARGE {
        let backends: Vec<SocketAddr> = backends(0, count).collect();
        group.bench_function(BenchmarkId::new("maglev table of endpoints", count), |bencher| {
            bencher.iter(|| black_box(maglev::table(&backends)));
        });
    }
    for count in SERVICES {
        let model = model(count)?;
        let node = node();
        group.bench_function(BenchmarkId::new("compile all, three endpoints each", count), |bencher| {
            bencher.iter(|| black_box(compile(&model, &node, &Attachments::new())));
        });
    }
    for (count, endpoints) in [(SERVICES[0], 3), (SERVICES[1], 3), (SERVICES[1], LARGE[2])] {
        let mut changes = Changes::new(count, endpoints)?;
        group.bench_function(BenchmarkId::new(format!("a change of one of {endpoints} endpoints"), count), |bencher| {
            bencher.iter_custom(|rounds| (0..rounds).map(|_| changes.step()).sum());
        });
    }
    group.finish();
    Ok(())
}

/// A cluster in which an endpoint of one Service comes and goes.
struct Changes {
    model: Model,
    node: NodeContext,
    compiler: Compiler,
    tables: juneau_core::tables::Tables,
    endpoints: u32,
}

impl Changes {
    fn new(count: u32, endpoints: u32) -> Result<Self, Error> {
        let mut changes = Self {
            model: model(count)?,
            node: node(),
            compiler: Compiler::new(),
            tables: juneau_core::tables::Tables::default(),
            endpoints,
        };
        // Until what is held is what was compiled.
        for _ in 0..3 {
            changes.step();
        }
        Ok(changes)
    }

    /// The time from the model to the difference.
    fn step(&mut self) -> Duration {
        self.endpoints ^= 1;
        let service = service(0, VPC, self.endpoints);
        let Ok(service) = service else { return Duration::ZERO };
        let start = Instant::now();
        self.model.services.insert(service.name.clone(), Arc::new(service));
        self.node.services = (&self.tables).into();
        let (wanted, problems) = self.compiler.compile(&self.model, &self.node, &Attachments::new());
        let diff = Diff::between(&self.tables, &wanted);
        let took = start.elapsed();
        black_box(problems);
        for change in &diff.changes {
            self.tables.apply(change);
        }
        took
    }
}

const VPC: u32 = 2;

fn node() -> NodeContext {
    NodeContext::new("here", Ipv4Addr::new(192, 168, 9, 1), 1500)
}

/// Backends of the n-th Service.
fn backends(n: u32, count: u32) -> impl Iterator<Item = SocketAddr> {
    (0..count).map(move |k| (Ipv4Addr::from_bits(0x0a80_0000 + n * 3 + k), 8080).into())
}

fn service(n: u32, vpc: u32, endpoints: u32) -> Result<Service, Error> {
    let names: BTreeSet<SocketAddr> = backends(n, endpoints).collect();
    let port = ServicePort {
        name: String::new(),
        protocol: Protocol::Tcp,
        port: 80,
        backends: names.iter().map(|name| (*name, BackendState { serving: true })).collect(),
        internal: Choice { backends: names, local_only: false },
    };
    Ok(Service {
        name: format!("team-{}/service-{n}", n % 100),
        vpc: VpcId::new(vpc)?,
        addresses: [IpAddr::V4(Ipv4Addr::from_bits(0x0a60_0000 + n))].into(),
        affinity: None,
        ports: vec![port],
        origin: String::new(),
    })
}

/// Services of three endpoints each, in a VPC of this node.
fn model(count: u32) -> Result<Model, Error> {
    let mut model = Model::default();
    let address = IpAddr::from([10, 0, 0, 10]);
    let endpoint = Endpoint {
        name: "red/a.eth0".into(),
        kind: EndpointKind::Pod,
        vpc: VpcId::new(VPC)?,
        subnet: Vni::new(200)?,
        address,
        mac: MacAddr::new([2, 0, 0, 0, 0, 1])?,
        node: "here".into(),
        identity: Identity::NO_GROUPS,
        policy_ready: true,
        pod: String::new(),
        origin: String::new(),
    };
    model.endpoints.insert((endpoint.vpc, address), endpoint);
    for n in 0..count {
        let service = service(n, VPC, 3)?;
        model.services.insert(service.name.clone(), Arc::new(service));
    }
    Ok(model)
}
