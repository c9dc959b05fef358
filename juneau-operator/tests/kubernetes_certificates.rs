//! The webhook's certificate on a real API server: ended, renewed, and replaced under two replicas.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout)]

mod support;

use axum::Router;
use axum::routing::post;
use juneau_operator::certificates::{Bundle, RENEW_BEFORE, Resolver, SECRET, tls};
use juneau_operator::http::IDLE_OF_API_SERVERS;
use k8s_openapi::ByteString;
use k8s_openapi::api::admissionregistration::v1::ValidatingWebhookConfiguration;
use k8s_openapi::api::core::v1::Secret;
use kube::api::{Api, DynamicObject, Patch, PatchParams, PostParams};
use kube::core::{ApiResource, GroupVersionKind};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};
use support::{Cluster, Operator, ask, create, object, pod, port};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::client::TlsStream;

const DAY: Duration = Duration::from_secs(86_400);
/// As the deployed configuration has it, for a Pod.
const POD_TIMEOUT: Duration = Duration::from_secs(2);

fn hosts() -> BTreeSet<String> {
    ["127.0.0.1", "localhost"].map(str::to_owned).into()
}

fn secrets(cluster: &Cluster) -> Api<Secret> {
    Api::namespaced(cluster.client.clone(), "juneau-system")
}

fn configurations(cluster: &Cluster) -> Api<ValidatingWebhookConfiguration> {
    Api::all(cluster.client.clone())
}

/// Stores a certificate as an operator does, and has the API server trust it.
async fn store(cluster: &Cluster, bundle: &Bundle) {
    let data = json!({"data": {
        "ca.crt": ByteString(bundle.authorities.clone().into_bytes()),
        "tls.crt": ByteString(bundle.certificate.clone().into_bytes()),
        "tls.key": ByteString(bundle.key.clone().into_bytes()),
    }});
    let mut secret = data.clone();
    secret["metadata"] = json!({"name": SECRET});
    let secret: Secret = serde_json::from_value(secret).unwrap();
    if secrets(cluster).create(&PostParams::default(), &secret).await.is_err() {
        secrets(cluster).patch(SECRET, &PatchParams::default(), &Patch::Merge(data)).await.unwrap();
    }
    let all = configurations(cluster).get("juneau").await.unwrap();
    let bundle = ByteString(bundle.authorities.clone().into_bytes());
    let trust: Vec<Value> = all
        .webhooks
        .unwrap()
        .into_iter()
        .map(|webhook| json!({"name": webhook.name, "clientConfig": {"caBundle": bundle}}))
        .collect();
    let patch = Patch::Strategic(json!({"webhooks": trust}));
    configurations(cluster).patch("juneau", &PatchParams::default(), &patch).await.unwrap();
}

async fn stored(cluster: &Cluster) -> Bundle {
    let data = secrets(cluster).get(SECRET).await.unwrap().data.unwrap();
    let text = |key: &str| String::from_utf8(data[key].0.clone()).unwrap();
    Bundle { authorities: text("ca.crt"), certificate: text("tls.crt"), key: text("tls.key") }
}

/// Whom the API server is told to trust, for each of the webhooks.
async fn trusted(cluster: &Cluster) -> BTreeSet<String> {
    let webhooks = configurations(cluster).get("juneau").await.unwrap().webhooks.unwrap();
    let bundle = |bundle: Option<ByteString>| String::from_utf8(bundle.unwrap_or_default().0).unwrap();
    webhooks.into_iter().map(|webhook| bundle(webhook.client_config.ca_bundle)).collect()
}

/// Has the server go through with creating it, but not do it.
async fn admitted(cluster: &Cluster, kind: &str, name: &str, spec: Value) -> Result<(), String> {
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk("juneau.loutres.me", "v1alpha1", kind));
    let api: Api<DynamicObject> = Api::all_with(cluster.client.clone(), &resource);
    let dry = PostParams { dry_run: true, ..PostParams::default() };
    let made = api.create(&dry, &DynamicObject::new(name, &resource).data(json!({"spec": spec}))).await;
    made.map(drop).map_err(|error| error.to_string())
}

/// A webhook that admits everything, with this certificate, until it is aborted.
async fn serve(port: u16, bundle: &Bundle) -> tokio::task::JoinHandle<()> {
    let resolver = Arc::new(Resolver::default());
    resolver.serve(bundle.clone()).unwrap();
    let admit = post(async |axum::Json(question): axum::Json<Value>| {
        axum::Json(json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
            "response": {"uid": question["request"]["uid"], "allowed": true}}))
    });
    let listener = TcpListener::bind(("127.0.0.1", port)).await.unwrap();
    let router = Router::new().fallback_service(admit);
    let (sender, stop) = tokio::sync::watch::channel(false);
    tokio::spawn(async move {
        let _held = sender;
        let tls = Arc::new(tls(resolver, false).unwrap());
        juneau_operator::http::serve(listener, router, Some(tls), false, IDLE_OF_API_SERVERS, stop).await;
    })
}

/// A new connection to a replica, if these authorities vouch for it.
async fn connect(port: u16, authorities: &str) -> Result<TlsStream<TcpStream>, String> {
    let mut roots = rustls::RootCertStore::empty();
    for authority in CertificateDer::pem_slice_iter(authorities.as_bytes()) {
        roots.add(authority.unwrap()).unwrap();
    }
    let config = rustls::ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let stream = TcpStream::connect(("127.0.0.1", port)).await.map_err(|error| error.to_string())?;
    let name = ServerName::try_from("127.0.0.1").unwrap();
    let connector = tokio_rustls::TlsConnector::from(Arc::new(config));
    connector.connect(name, stream).await.map_err(|error| error.to_string())
}

async fn handshake(port: u16, authorities: &str) -> Result<(), String> {
    connect(port, authorities).await.map(drop)
}

/// What a replica says to who asks for its metrics: status line, headers and body.
async fn scrape(port: u16, authorities: &str, token: Option<&str>) -> Result<String, String> {
    let mut stream = connect(port, authorities).await?;
    let bearer = token.map(|token| format!("Authorization: Bearer {token}\r\n")).unwrap_or_default();
    let request = format!("GET /metrics HTTP/1.1\r\nHost: x\r\n{bearer}Connection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.map_err(|error| error.to_string())?;
    let mut said = String::new();
    stream.read_to_string(&mut said).await.map_err(|error| error.to_string())?;
    Ok(said)
}

/// A ServiceAccount in the namespace `monitoring`, and a token for it as a kubelet asks for one.
async fn account(cluster: &Cluster, name: &str) -> String {
    let metadata = json!({"name": name, "namespace": "monitoring"});
    let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata});
    create(&cluster.client, &account.to_string()).await.unwrap();
    let request = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}});
    let path = format!("/api/v1/namespaces/monitoring/serviceaccounts/{name}/token");
    let given = ask(&cluster.client, "POST", &path, Some(&request)).await.unwrap();
    given["status"]["token"].as_str().unwrap().to_owned()
}

/// Metrics are told to who has the role, and to nobody else. The token of who has.
async fn only_readers_read_metrics(cluster: &Cluster, port: u16, authorities: &str) -> String {
    let (prometheus, stranger) = (account(cluster, "prometheus").await, account(cluster, "stranger").await);
    let role = json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "juneau-metrics-reader"});
    let binding = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
        "metadata": {"name": "prometheus"}, "roleRef": role,
        "subjects": [{"kind": "ServiceAccount", "name": "prometheus", "namespace": "monitoring"}]});
    create(&cluster.client, &binding.to_string()).await.unwrap();
    // An authorizer learns of a binding a moment later, and the replica keeps a no for some seconds.
    cluster
        .until("the role is in force", &[], async |cluster| {
            let attributes = json!({"path": "/metrics", "verb": "get"});
            let user = "system:serviceaccount:monitoring:prometheus";
            let review = json!({"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview",
                "spec": {"user": user, "nonResourceAttributes": attributes}});
            let said = create(&cluster.client, &review.to_string()).await.unwrap();
            said["status"]["allowed"] == true
        })
        .await;
    let forged = format!("{}x", &prometheus[..prometheus.len() - 9]);
    for (token, status) in [
        (None, 401),
        (Some("nonsense"), 401),
        (Some(forged.as_str()), 401),
        (Some(stranger.as_str()), 403),
        (Some(prometheus.as_str()), 200),
    ] {
        let said = scrape(port, authorities, token).await.unwrap();
        assert!(said.starts_with(&format!("HTTP/1.1 {status} ")), "{status}: {said}");
        assert_eq!(said.contains("juneau_operator_synced"), status == 200, "{said}");
    }
    // Without TLS nothing is said at all.
    let mut plain = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
    let request = format!("GET /metrics HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {prometheus}\r\n\r\n");
    plain.write_all(request.as_bytes()).await.unwrap();
    let mut said = Vec::new();
    let _ = plain.read_to_end(&mut said).await;
    assert!(!String::from_utf8_lossy(&said).contains("juneau_operator_synced"));
    prometheus
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs the programs of Kubernetes: make test-kubernetes"]
async fn a_certificate_that_ended_while_no_operator_ran_is_renewed_by_the_next() {
    let cluster = Cluster::start(true).await;
    cluster.namespace("red", json!({}));
    let first = Operator::start(&cluster, cluster.webhook).await;
    let admits = async |cluster: &Cluster| admitted(cluster, "Vpc", "red", json!({})).await.is_ok();
    cluster.until("a Vpc is admitted", &[&first], admits).await;
    first.stop();
    // The time that passes is put into the certificate. A good one first, to see that it is the end that matters.
    let now = SystemTime::now();
    let ended = Bundle::make(&hosts(), now - 91 * DAY, None).unwrap();
    for (bundle, says) in [(Bundle::make(&hosts(), now, None).unwrap(), None), (ended.clone(), Some("expired"))] {
        store(&cluster, &bundle).await;
        let webhook = serve(cluster.webhook, &bundle).await;
        cluster
            .until(&format!("the server says {says:?}"), &[], async |cluster| {
                match (admitted(cluster, "Vpc", "red", json!({})).await, says) {
                    (Ok(()), None) => true,
                    (Err(error), Some(says)) => error.contains(says),
                    _ => false,
                }
            })
            .await;
        webhook.abort();
        let _ = webhook.await;
    }
    // What is refused meanwhile, and what goes on.
    let subnet = json!({"vpc": "red", "cidr": "10.0.0.0/24"});
    for (kind, spec) in [("Vpc", json!({})), ("Subnet", subnet), ("RouteTable", json!({"vpc": "red"}))] {
        let said = admitted(&cluster, kind, "x", spec).await.unwrap_err();
        assert!(said.contains("failed calling webhook"), "{kind}: {said}");
    }
    cluster.namespace("blue", json!({}));
    cluster.namespace("green", json!({"juneau.loutres.me/subnet": "absent"}));
    cluster.apply(&pod("blue", "plain", "node-a", json!({})));
    cluster.apply(&pod("red", "tenant", "node-a", json!({"juneau.loutres.me/subnet": "red-a"})));
    let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default", "namespace": "kube-system"}});
    cluster.apply(&account.to_string());
    cluster.apply(&pod("kube-system", "cure", "node-a", json!({})));

    let second = Operator::start(&cluster, cluster.webhook).await;
    let begun = Instant::now();
    cluster.until("a Vpc is admitted again", &[&second], admits).await;
    println!("renewed within {:.1?}", begun.elapsed());
    let renewed = stored(&cluster).await;
    assert!(renewed.ends().unwrap() > SystemTime::now() + 89 * DAY);
    assert_eq!(trusted(&cluster).await, [renewed.authorities.clone()].into());
    assert!(second.log().contains("a new certificate for the webhook"), "{}", second.log());

    // A webhook that hangs is worse than one that is gone: a Pod waits, and then starts all the same.
    second.signal(nix::sys::signal::Signal::SIGSTOP);
    let begun = Instant::now();
    cluster.apply(&pod("blue", "patient", "node-a", json!({})));
    let waited = begun.elapsed();
    assert!(waited >= POD_TIMEOUT && waited < 3 * POD_TIMEOUT, "{waited:?}");
    let begun = Instant::now();
    cluster.apply(&pod("kube-system", "unasked", "node-a", json!({})));
    assert!(begun.elapsed() < POD_TIMEOUT, "{:?}", begun.elapsed());
    second.signal(nix::sys::signal::Signal::SIGCONT);
    cluster.until("a Vpc is admitted after the pause", &[&second], admits).await;
    cluster.nothing_was_forbidden();
    second.stop();
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs the programs of Kubernetes: make test-kubernetes"]
async fn two_replicas_replace_their_certificate_and_nothing_is_refused() {
    const LEFT: Duration = Duration::from_secs(15);
    let cluster = Cluster::start(true).await;
    let ports = [cluster.webhook, port()];
    // Vpcs are reviewed by one replica and Subnets by the other, as two API servers would have it.
    let url = format!("https://127.0.0.1:{}/validate-juneau-loutres-me-v1alpha1-subnet", ports[1]);
    let patch = json!([{"op": "replace", "path": "/webhooks/1/clientConfig/url", "value": url}]).to_string();
    cluster.run(&["patch", "validatingwebhookconfiguration", "juneau", "--type=json", "-p", &patch], "").unwrap();
    // It is due for renewal in a moment.
    cluster.namespace("monitoring", json!({}));
    let old = Bundle::make(&hosts(), SystemTime::now() + RENEW_BEFORE + LEFT - 90 * DAY, None).unwrap();
    store(&cluster, &old).await;
    let first = Operator::start_with(&cluster, ports[0], &["--pod-name=one"]).await;
    let metrics = port();
    let flag = format!("--metrics-bind-address=127.0.0.1:{metrics}");
    let second = Operator::start_with(&cluster, ports[1], &["--pod-name=two", &flag]).await;
    let both = [&first, &second];
    cluster
        .until("both admit", &both, async |cluster| {
            cluster.try_apply(&object("Vpc", "red", json!({}))).is_ok()
                && admitted(cluster, "Subnet", "red-a", json!({"vpc": "red", "cidr": "10.0.1.0/24"})).await.is_ok()
        })
        .await;
    let token = only_readers_read_metrics(&cluster, metrics, &old.authorities).await;
    assert_eq!(stored(&cluster).await, old, "renewed before there was anything to see");
    let begun = Instant::now();
    let (mut asked, mut refused, mut switched) = (0_u32, Vec::new(), None);
    // Until both have served the new one for a while.
    while switched.is_none_or(|at: Instant| at.elapsed() < Duration::from_secs(2)) {
        assert!(begun.elapsed() < Duration::from_secs(60), "{}\n{}", first.log(), second.log());
        let name = format!("n{asked}");
        for (kind, spec) in [("Vpc", json!({})), ("Subnet", json!({"vpc": "red", "cidr": "10.0.1.0/24"}))] {
            refused.extend(admitted(&cluster, kind, &name, spec).await.err());
            asked += 1;
        }
        // The API server keeps its connections: what a new one meets is seen by making one. It trusts what it learned a
        // moment ago.
        let trust = trusted(&cluster).await;
        tokio::time::sleep(Duration::from_millis(20)).await;
        for port in ports {
            for authorities in &trust {
                refused.extend(handshake(port, authorities).await.err().map(|error| format!("port {port}: {error}")));
                asked += 1;
            }
        }
        for authorities in &trust {
            match scrape(metrics, authorities, Some(&token)).await {
                Ok(said) if said.starts_with("HTTP/1.1 200 ") => asked += 1,
                said => refused.push(format!("metrics: {said:?}")),
            }
        }
        // Only the new one's own CA vouches for it.
        let new = stored(&cluster).await;
        if switched.is_none() && new != old {
            let own = Bundle {
                authorities: new.authorities.split_inclusive("-----END CERTIFICATE-----").next().unwrap().to_owned(),
                ..new
            };
            let served = [
                handshake(ports[0], &own.authorities).await,
                handshake(ports[1], &own.authorities).await,
                handshake(metrics, &own.authorities).await,
            ];
            switched = served.iter().all(Result::is_ok).then(Instant::now);
        }
    }
    println!("{asked} questions in {:.1?}", begun.elapsed());
    assert!(refused.is_empty(), "{} of {asked}: {:#?}", refused.len(), refused.first());
    assert!(asked > 200, "{asked}");
    let made = both.iter().filter(|operator| operator.log().contains("a new certificate for the webhook")).count();
    assert!(made >= 1);
    cluster.nothing_was_forbidden();
    first.stop();
    second.stop();
}
