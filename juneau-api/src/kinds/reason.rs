//! Reasons of conditions. Scripts wait for them, so they never change.

/// All is as wanted.
pub const RECONCILE_SUCCEEDED: &str = "ReconcileSucceeded";
/// It could not be done; the message says why.
pub const RECONCILE_FAILED: &str = "ReconcileFailed";
/// It is being worked on; the message says what it waits for.
pub const NOT_READY: &str = "NotReady";
/// It is being deleted; the message says what it waits for.
pub const DELETING: &str = "Deleting";
/// This version cannot do what is asked for.
pub const NOT_IMPLEMENTED: &str = "NotImplemented";
/// Others use it, so it stays; the message names them.
pub const IN_USE: &str = "InUse";

/// Vpc: its main RouteTable does not exist.
pub const MAIN_ROUTE_TABLE_MISSING: &str = "MainRouteTableMissing";
/// Vpc: its main RouteTable is not ready.
pub const MAIN_ROUTE_TABLE_NOT_READY: &str = "MainRouteTableNotReady";

/// Subnet, RouteTable, Service (as an Event): the Vpc does not exist.
pub const VPC_NOT_FOUND: &str = "VpcNotFound";
/// Subnet, RouteTable: the Vpc is not ready.
pub const VPC_NOT_READY: &str = "VpcNotReady";

/// Vpc: ranges of its own, of its Subnets and of Services stand against each other; the message says which.
pub const RANGE_CONFLICT: &str = "RangeConflict";

/// Service (as an Event): an external address of it cannot be routed.
pub const INVALID_EXTERNAL_IP: &str = "InvalidExternalIP";
/// Service (as an Event): a Vpc that it is offered to does not exist or does not consume Services.
pub const CONSUMER_UNAVAILABLE: &str = "ConsumerUnavailable";

/// RouteTable: at least one route is left out or leads nowhere; `status.rejectedRoutes` says which and why.
pub const ROUTES_REJECTED: &str = "RoutesRejected";
/// RouteTable: a VPN has no gateway yet.
pub const VPN_ENDPOINT_PENDING: &str = "VPNEndpointPending";
/// Rejected route: its target does not exist.
pub const TARGET_NOT_FOUND: &str = "TargetNotFound";
/// Rejected route: its target's name fits several objects.
pub const TARGET_AMBIGUOUS: &str = "TargetAmbiguous";
/// Rejected route: its target exists but cannot be used yet.
pub const TARGET_NOT_READY: &str = "TargetNotReady";
/// Rejected route: its target is in another Vpc.
pub const TARGET_IN_ANOTHER_VPC: &str = "TargetInAnotherVpc";
/// Rejected route: an automatic route has the same destination.
pub const AUTOMATIC_ROUTE_EXISTS: &str = "AutomaticRouteExists";
/// Rejected route: an earlier route has the same destination.
pub const DUPLICATE_DESTINATION: &str = "DuplicateDestination";
/// Rejected route: its destination is not an IPv4 prefix.
pub const INVALID_DESTINATION: &str = "InvalidDestination";

/// NetworkInterface: it has its address.
pub const ALLOCATION_SUCCEEDED: &str = "AllocationSucceeded";
/// NetworkInterface, AllocationClaim: no address could be had; the message says why.
pub const ALLOCATION_FAILED: &str = "AllocationFailed";
/// NetworkInterface: it waits for its address.
pub const ALLOCATING: &str = "Allocating";
/// NetworkInterface, ServiceNATAttachment, Vpc (as an Event): the Subnet does not exist, or is another Vpc's.
pub const SUBNET_NOT_FOUND: &str = "SubnetNotFound";
/// NetworkInterface: its Subnet's prefix cannot be used.
pub const INVALID_SUBNET_CIDR: &str = "InvalidSubnetCIDR";
/// NetworkInterface: the address that it asks for is not one of its network's.
pub const INVALID_REQUESTED_IP: &str = "InvalidRequestedIP";
/// NetworkInterface: somebody else has the address that it asks for.
pub const REQUESTED_IP_IN_USE: &str = "RequestedIPInUse";
/// NetworkInterface: its Subnet has no free address.
pub const SUBNET_EXHAUSTED: &str = "SubnetExhausted";
/// NetworkInterface: it has its address and waits for its node to make the interface.
pub const WAITING_FOR_INTERFACE: &str = "WaitingForInterface";
/// NetworkInterface: it waits for its ElasticIP.
pub const WAITING_FOR_ELASTIC_IP: &str = "WaitingForElasticIP";
/// NetworkInterface: its network is not ready.
pub const NETWORK_NOT_READY: &str = "NetworkNotReady";
/// NetworkInterface: its ElasticIP's address cannot be used.
pub const INVALID_ELASTIC_IP_ADDRESS: &str = "InvalidElasticIPAddress";
/// NetworkInterface, Service (as an Event): its Namespace may not enter the Vpc.
pub const NAMESPACE_NOT_ALLOWED: &str = "NamespaceNotAllowed";
/// Pod, Service (as an Event), NetworkInterface: an annotation cannot be met.
pub const INVALID_ANNOTATION: &str = "InvalidAnnotation";

/// AllocationClaim: it has its value.
pub const ALLOCATED: &str = "Allocated";
/// AllocationClaim: the pools are exhausted.
pub const PENDING: &str = "Pending";
/// AllocationPool: its spec contradicts itself.
pub const INVALID_POOL: &str = "InvalidPool";

/// NetworkEndpoint (as an Event): its Pod, node or address is not that of its NetworkInterface.
pub const ENDPOINT_MISMATCH: &str = "EndpointMismatch";

/// VpcEndpoint: its Vpc does not exist or is not ready.
pub const VPC_UNAVAILABLE: &str = "VpcUnavailable";
/// VpcEndpoint: its Vpc has no endpointPool, or none that can be used.
pub const ENDPOINT_POOL_NOT_CONFIGURED: &str = "EndpointPoolNotConfigured";
/// VpcEndpoint, Ready: it waits for its address.
pub const ADDRESS_PENDING: &str = "AddressPending";
/// VpcEndpoint, Ready: its Service is not accepted; the condition ServiceAccepted says why.
pub const SERVICE_NOT_ACCEPTED: &str = "ServiceNotAccepted";
/// VpcEndpoint: its Service may be called through it.
pub const SERVICE_ACCEPTED: &str = "ServiceAccepted";
/// VpcEndpoint: its Service does not exist.
pub const SERVICE_NOT_FOUND: &str = "ServiceNotFound";
/// VpcEndpoint: its Service has no IPv4 ClusterIP, as a headless one or one of type ExternalName.
pub const CLUSTER_IP_UNAVAILABLE: &str = "ClusterIPUnavailable";
/// VpcEndpoint: the Vpc of its Service does not exist, or the Service's annotations cannot be met.
pub const SERVICE_VPC_NOT_FOUND: &str = "ServiceVpcNotFound";
/// VpcEndpoint, Service (as an Event): the Service's Vpc has no Service routing.
pub const SERVICE_ROUTING_DISABLED: &str = "ServiceRoutingDisabled";
/// VpcEndpoint, Service (as an Event): the Service's Vpc provides no Services to others.
pub const NOT_A_SERVICE_PROVIDER: &str = "NotAServiceProvider";
