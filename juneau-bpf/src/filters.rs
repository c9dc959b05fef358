//! The classic filters on a device's ingress, in the order in which the kernel asks them.

use std::io;

use netlink_packet_core::{NLM_F_DUMP, NLM_F_REQUEST, NetlinkHeader, NetlinkMessage, NetlinkPayload};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::tc::{TcAttribute, TcFilterBpfOption, TcHandle, TcMessage, TcOption};
use netlink_sys::protocols::NETLINK_ROUTE;
use netlink_sys::{Socket, SocketAddr};

/// A filter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Filter {
    /// `bpf`, `flower`, …
    pub(crate) kind: String,
    /// The program's id, if it is one.
    pub(crate) program: Option<u32>,
}

/// Filters of the clsact qdisc's ingress; none without such a qdisc.
pub(crate) fn ingress(ifindex: u32) -> io::Result<Vec<Filter>> {
    let mut request = TcMessage::default();
    request.header.index = i32::try_from(ifindex).map_err(|_| io::Error::from_raw_os_error(libc::ENODEV))?;
    request.header.parent = TcHandle { major: TcHandle::CLSACT.major, minor: TcHandle::MIN_INGRESS };
    let mut header = NetlinkHeader::default();
    header.flags = NLM_F_REQUEST | NLM_F_DUMP;
    let mut message = NetlinkMessage::new(header, NetlinkPayload::from(RouteNetlinkMessage::GetTrafficFilter(request)));
    message.finalize();
    let mut bytes = vec![0; message.buffer_len()];
    message.serialize(&mut bytes);

    let mut socket = Socket::new(NETLINK_ROUTE)?;
    socket.bind_auto()?;
    socket.connect(&SocketAddr::new(0, 0))?;
    socket.send(&bytes, 0)?;
    let mut filters = Vec::new();
    loop {
        let (datagram, _) = socket.recv_from_full()?;
        let mut rest = datagram.as_slice();
        while !rest.is_empty() {
            let message: NetlinkMessage<RouteNetlinkMessage> =
                NetlinkMessage::deserialize(rest).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
            match &message.payload {
                NetlinkPayload::Done(_) => return Ok(filters),
                NetlinkPayload::Error(error) => return Err(error.to_io()),
                // The kernel names each chain and priority once more without a filter: handle 0.
                NetlinkPayload::InnerMessage(RouteNetlinkMessage::NewTrafficFilter(message))
                    if message.header.handle != TcHandle::UNSPEC =>
                {
                    filters.push(filter(message));
                }
                _ => {}
            }
            let length = (message.header.length as usize).next_multiple_of(4).max(16);
            rest = rest.get(length..).unwrap_or_default();
        }
    }
}

fn filter(message: &TcMessage) -> Filter {
    let mut filter = Filter { kind: String::new(), program: None };
    for attribute in &message.attributes {
        match attribute {
            TcAttribute::Kind(kind) => filter.kind.clone_from(kind),
            TcAttribute::Options(options) => {
                filter.program = options.iter().find_map(|option| match option {
                    TcOption::Bpf(TcFilterBpfOption::ProgId(id)) => Some(*id),
                    _ => None,
                });
            }
            _ => {}
        }
    }
    filter
}
